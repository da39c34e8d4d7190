// One rank of a job that leaves no core free: pinned to a core, it never sleeps. Its steps are work of a fixed number
// of turns with the callbacks of collectives between them, made into the real plugin as NCCL makes them, and a barrier
// at which it spins for the others: a rank that loses its core makes all wait.
//
//   spinning_rank RANK RANKS CORE SHARED_FILE BLOCK_STEPS BLOCKS WORK_US
//
// Rank 0 says "block N" before every block and writes when each step began (ns, one a line) to SHARED_FILE.steps.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "plugin/nccl/test_host.h"

namespace {

using lockstep::nccl::TestHost;
using lockstep::nccl::V5;

constexpr int kCollectives = 27;  // of an FSDP2 transformer with eight layers
constexpr int kChannels = 4;
constexpr int kTransfers = 1;  // some 5,000 a second at steps of 20 ms, as such a job makes

struct Shared {
  std::atomic<uint64_t> arrived;
  std::atomic<uint64_t> turns;  // in which WORK_US pass, as rank 0 measured
};

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void work(uint64_t turns) {
  for (uint64_t turn = 0; turn < turns; ++turn) asm volatile("" ::: "memory");  // a loop that stays
}

uint64_t turns_in(uint64_t us) {
  constexpr uint64_t kTried = 1'000'000;
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 20; ++i) {
    const uint64_t began = now_ns();
    work(kTried);
    shortest = std::min(shortest, now_ns() - began);
  }
  return us * 1000 * kTried / shortest;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "spinning_rank RANK RANKS CORE SHARED_FILE BLOCK_STEPS BLOCKS WORK_US\n");
    return 2;
  }
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]), core = std::atoi(argv[3]);
  const int block_steps = std::atoi(argv[5]), blocks = std::atoi(argv[6]);
  const auto work_us = static_cast<uint64_t>(std::atoll(argv[7]));
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0) return 1;
  const int file = ::open(argv[4], O_RDWR);
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || memory == MAP_FAILED) return 1;
  Shared& shared = *static_cast<Shared*>(memory);

  void* const library = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW);
  if (library == nullptr) return 1;
  const auto step_begin = reinterpret_cast<void (*)(int64_t)>(::dlsym(library, "lockstep_step_begin"));
  TestHost<V5> host;
  void* const context = host.init(1, ranks, rank);
  if (rank == 0) shared.turns = turns_in(work_us / kCollectives);
  while (shared.turns == 0) {
  }

  std::vector<uint64_t> began;
  began.reserve(static_cast<size_t>(blocks) * static_cast<size_t>(block_steps) + 1);
  uint64_t barriers = 0, sequence = 0;
  const auto barrier = [&] {
    shared.arrived.fetch_add(1);
    const uint64_t all = ++barriers * static_cast<uint64_t>(ranks);
    while (shared.arrived.load(std::memory_order_acquire) < all) {
    }
  };
  barrier();
  for (int block = 0; block < blocks; ++block) {
    if (rank == 0) {
      std::printf("block %d\n", block);
      std::fflush(stdout);
    }
    for (int step = 0; step < block_steps; ++step) {
      began.push_back(now_ns());
      step_begin(static_cast<int64_t>(block) * block_steps + step);
      for (int i = 0; i < kCollectives; ++i) {
        work(shared.turns);
        host.play_collective(context, sequence++, kChannels, kTransfers, now_ns());
      }
      barrier();
    }
  }
  began.push_back(now_ns());
  if (rank != 0) return 0;
  std::printf("over\n");
  FILE* out = std::fopen((std::string(argv[4]) + ".steps").c_str(), "w");
  if (out == nullptr) return 1;
  for (uint64_t at : began) std::fprintf(out, "%llu\n", static_cast<unsigned long long>(at));
  return std::fclose(out) == 0 ? 0 : 1;
}
