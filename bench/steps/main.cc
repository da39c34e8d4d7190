// What steps cost the server: appended, sealed, on disk, read back.
//
//   steps_bench [ROWS] [FOLDER]     rows of the long walk (default 2,000,000), where files go (default /tmp)
//
// The job: 4,096 ranks on 512 hosts, a step a second. Each rank tells of 4 phases, 4 scalars, the split of its time,
// and 5 communicators (tensor, pipeline forward and back, data, world) with noise in every time; no flows. Every answer
// is summed up and compared, so that fast and wrong fails.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/steps/columnar_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr int32_t kRanks = 4096;
constexpr int64_t kTime = 1'700'000'000'000'000'000;
constexpr int64_t kMs = 1'000'000;

class Job {
 public:
  Job() {
    for (Rank rank : all_ranks(kRanks)) {
      identities_.push_back(
          {.job_id = "llama-70b-pretrain",
           .attempt = 0,
           .rank = rank,
           .world_size = kRanks,
           .local_rank = rank % 8,
           .host = format("gpu-%04d.cluster.example", rank.value() / 8),
           .gpu_uuid = format("GPU-%08x-%04x-%04x-%04x-%012llx", word(), word() & 0xffff, word() & 0xffff,
                              word() & 0xffff, static_cast<unsigned long long>(next() >> 16))});
    }
  }
  const Identity& identity(Rank rank) const { return identities_[index_of(rank)]; }

  // Into the same summary again and again: making up rows should cost little beside keeping them.
  void fill(StepNumber step, Rank rank, StepSummary& summary) {
    summary.step = step;
    summary.start_unix_ns = kTime + step.value() * 1000 * kMs + noise(400'000);
    summary.duration_ns = 990 * kMs + noise(8 * kMs);
    summary.phase_ns[static_cast<size_t>(Phase::kInput)] = 2 * kMs + noise(kMs);
    summary.phase_ns[static_cast<size_t>(Phase::kForward)] = 300 * kMs + noise(9 * kMs);
    summary.phase_ns[static_cast<size_t>(Phase::kBackward)] = 600 * kMs + noise(9 * kMs);
    summary.phase_ns[static_cast<size_t>(Phase::kOptimizer)] = 30 * kMs + noise(2 * kMs);
    summary.self_ns = 700 * kMs + noise(20 * kMs);
    summary.comm_ns = summary.duration_ns - summary.self_ns;
    summary.queue_ns = noise(3 * kMs);
    summary.split_known = true;
    summary.split_ns = {650 * kMs + noise(9 * kMs), 200 * kMs + noise(9 * kMs), 2 * kMs + noise(kMs), noise(kMs), 0, 0};
    summary.split_ns.back() = summary.duration_ns;
    for (size_t i = 0; i + 1 < kTimePartCount; ++i) summary.split_ns.back() -= summary.split_ns[i];
    summary.scalars.resize(4);
    const double progress = static_cast<double>(step.value()) / 1000;
    summary.scalars[0] = {"grad_norm", 1.0 / (1 + progress) + 1e-3 * static_cast<double>(step % 17)};
    summary.scalars[1] = {"learning_rate", 3e-4};
    summary.scalars[2] = {"loss", 8.0 / (1 + progress) + 1e-6 * static_cast<double>(noise(100'000))};
    summary.scalars[3] = {"tokens", 16384};
    summary.comms.resize(5);
    struct Shape {
      CommId comm_id;
      int32_t size;
      int32_t rank_in_comm;
      bool p2p;
      int64_t count;
      int64_t bytes;
    };
    const uint64_t base = 0x1f3a'9c00'0000'0000;
    const Shape shapes[] = {
        {CommId{base + static_cast<uint64_t>(rank.value() / 8)}, 8, rank % 8, false, 320, 320ll << 24},
        {CommId{base + 0x10000 + static_cast<uint64_t>(rank % 1024)}, 4, rank.value() / 1024, true, 16, 16ll << 22},
        {CommId{base + 0x20000 + static_cast<uint64_t>(rank % 1024)}, 4, rank.value() / 1024, true, 16, 16ll << 22},
        {CommId{base + 0x30000 + static_cast<uint64_t>(rank % 32)}, 128, rank.value() / 32, false, 24, 24ll << 25},
        {CommId{base + 0x40000}, kRanks, rank.value(), false, 1, 4},
    };
    for (size_t i = 0; i < 5; ++i) {
      const Shape& shape = shapes[i];
      CommStep& comm = summary.comms[i];
      comm.comm_id = shape.comm_id;
      comm.size = shape.size;
      comm.rank_in_comm = shape.rank_in_comm;
      comm.p2p = shape.p2p;
      comm.count = shape.count;
      comm.bytes = shape.bytes;
      comm.gpu_ns = shape.count * 400'000 + noise(shape.count * 50'000);
      comm.longest_ns = shape.count == 1 ? comm.gpu_ns : 500'000 + noise(300'000);
      comm.shortest_ns = shape.count == 1 ? comm.gpu_ns : 300'000 + noise(50'000);
      comm.first_start_unix_ns = summary.start_unix_ns + 5 * kMs + noise(kMs);
      comm.last_end_unix_ns = shape.count == 1 ? comm.first_start_unix_ns + comm.gpu_ns
                                               : summary.start_unix_ns + summary.duration_ns - noise(kMs);
      comm.queue_ns = noise(2 * kMs);
    }
  }

 private:
  uint64_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return state_ ^ state_ >> 31;
  }
  unsigned word() { return static_cast<unsigned>(next() >> 16); }
  int64_t noise(int64_t most) { return static_cast<int64_t>((next() >> 8) % static_cast<uint64_t>(most)); }

  uint64_t state_ = 1;
  std::vector<Identity> identities_;
};

struct Sum {
  int64_t rows = 0;
  int64_t numbers = 0;
  void add(const Identity& identity, const StepSummary& summary) {
    ++rows;
    numbers +=
        identity.rank.value() + summary.self_ns % 1000 + summary.comms[3].gpu_ns % 1000 + summary.split_ns[5] % 1000;
  }
  bool operator==(const Sum&) const = default;
};

class Watch {
 public:
  double seconds() const { return static_cast<double>(clock_.monotonic_ns() - began_) / 1e9; }

 private:
  SystemClock clock_;
  int64_t began_ = clock_.monotonic_ns();
};

// Of the calling thread, so that what else the machine does counts less.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

long peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

bool check(const char* what, const Sum& got, const Sum& expected) {
  if (got == expected) return true;
  std::fprintf(stderr, "steps_bench: %s: %lld rows, %lld expected, or other numbers\n", what,
               static_cast<long long>(got.rows), static_cast<long long>(expected.rows));
  return false;
}

template <typename Store>
double append_rate(Store& store, Job& job, int64_t steps, Sum& sum) {
  double seconds = 0;
  for (StepNumber step = 0_step; step < StepNumber{steps}; ++step) {
    std::vector<StepSummary> rows(kRanks);
    for (Rank rank : all_ranks(kRanks)) job.fill(step, rank, rows[index_of(rank)]);
    const double began = thread_seconds();
    for (Rank rank : all_ranks(kRanks))
      store.append_step(job.identity(rank), rows[index_of(rank)], kTime + step.value() * 1000 * kMs);
    seconds += thread_seconds() - began;
    for (Rank rank : all_ranks(kRanks)) sum.add(job.identity(rank), rows[index_of(rank)]);
  }
  return static_cast<double>(steps * kRanks) / seconds;
}

// Memory alone, and noted for the next file as well, in turns.
bool bench_appends(const std::string& folder, Clock& clock) {
  for (int round = 0; round < 3; ++round) {
    Sum unused;
    Job job;
    Counters counters(kStoreCounters);
    MemoryStepStore store({}, counters);
    std::printf("append, memory alone            %10.0f rows/s\n", append_rate(store, job, 60, unused));
    Job same;
    Counters others(kStoreCounters);
    auto opened = ColumnarStepStore::open({.folder = folder, .days = 100'000}, clock, others);
    if (!opened.ok()) return false;
    std::printf("append, noted for the next file %10.0f rows/s\n", append_rate(**opened, same, 60, unused));
    opened->reset();
    std::filesystem::remove_all(folder);
  }
  return true;
}

bool bench_reads(const ColumnarStepStore& store, const Job& job, const Sum& expected) {
  bool ok = true;
  for (int round = 0; round < 3; ++round) {
    Sum read;
    Watch reading;
    store.visit_steps(job.identity(0_rank).job_id, 0_step, 99_step,
                      [&](const Identity& identity, const StepSummary& summary) { read.add(identity, summary); });
    std::printf("read 4,096 ranks x 100 steps    %10.0f ms from disk\n", reading.seconds() * 1e3);
    ok &= check("read back", read, expected);
  }
  Sum one;
  Watch reading;
  store.visit_steps(job.identity(0_rank).job_id, 50_step, 50_step,
                    [&](const Identity& identity, const StepSummary& summary) { one.add(identity, summary); });
  std::printf("read 4,096 ranks of one step    %10.1f ms from disk\n", reading.seconds() * 1e3);
  return ok && one.rows == kRanks;
}

// Sealed, read back and opened again, with nothing left in memory.
bool bench_files(const std::string& folder, Clock& clock) {
  Job job;
  Sum sum;
  Counters counters(kStoreCounters);
  ColumnarStepStoreOptions options{.folder = folder, .days = 100'000};
  options.hot_rows_max = 0;
  options.background = false;
  auto opened = ColumnarStepStore::open(options, clock, counters);
  if (!opened.ok()) return false;
  ColumnarStepStore& store = **opened;
  append_rate(store, job, 100, sum);
  const double cpu = cpu_seconds();
  Watch sealing;
  if (!store.seal().ok()) return false;
  std::printf("seal 409,600 rows               %10.0f rows/s, fsync included; %.0f rows per second of CPU\n",
              409'600 / sealing.seconds(), 409'600 / (cpu_seconds() - cpu));
  std::printf("on disk                         %10.1f bytes/row in %lld files\n",
              static_cast<double>(counters.value("lockstep_step_file_bytes")) / 409'600,
              static_cast<long long>(counters.value("lockstep_step_files")));
  const bool ok = bench_reads(store, job, sum);
  opened->reset();
  Counters again(kStoreCounters);
  Watch opening;
  opened = ColumnarStepStore::open(options, clock, again);
  if (!opened.ok()) return false;
  std::printf("open, jobs and ranks known      %10.1f ms\n", opening.seconds() * 1e3);
  opened->reset();
  std::filesystem::remove_all(folder);
  return ok;
}

// Appends while files are written, then walks over all of it.
bool bench_walk(const std::string& folder, Clock& clock, int64_t rows) {
  Job job;
  Sum sum;
  Counters counters(kStoreCounters);
  ColumnarStepStoreOptions options{.folder = folder, .days = 100'000};
  options.hot_rows_max = 200'000;
  auto opened = ColumnarStepStore::open(options, clock, counters);
  if (!opened.ok()) return false;
  const int64_t steps = rows / kRanks;
  Watch appending;
  const double rate = append_rate(**opened, job, steps, sum);
  std::printf("append while files are written  %10.0f rows/s; %.0f wall, making up the rows included\n", rate,
              static_cast<double>(sum.rows) / appending.seconds());
  if (!(*opened)->seal().ok()) return false;
  const long before_mb = peak_mb();
  Sum read;
  Watch reading;
  (*opened)->visit_steps(job.identity(0_rank).job_id, 0_step, StepNumber{steps},
                         [&](const Identity& identity, const StepSummary& summary) { read.add(identity, summary); });
  std::printf("walk over %-10lld rows       %10.0f rows/s; peak memory %ld MB before, %ld MB after\n",
              static_cast<long long>(read.rows), static_cast<double>(read.rows) / reading.seconds(), before_mb,
              peak_mb());
  std::printf("dropped                         %10lld rows\n",
              static_cast<long long>(
                  counters.value("lockstep_store_rows_dropped_total", "table=\"steps\",reason=\"unsealed\"")));
  opened->reset();
  std::filesystem::remove_all(folder);
  return check("walk", read, sum);
}

int run(int64_t walk_rows, const std::string& base) {
  const std::string folder = base + format("/lockstep_steps_bench_%d", static_cast<int>(getpid()));
  std::filesystem::remove_all(folder);
  SystemClock clock;
  std::printf(
      "4,096 ranks, 5 communicators, 4 scalars; appends per second of CPU of their thread, the rest wall time\n\n");
  if (!bench_appends(folder, clock)) return 1;
  const bool files = bench_files(folder, clock);
  return bench_walk(folder, clock, walk_rows) && files ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 2'000'000;
  return lockstep::run(rows, argc > 2 ? argv[2] : "/tmp");
}
