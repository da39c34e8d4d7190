// What one reading of this very machine costs, in CPU time. Budget: 1 % of one core in all, that is 10 ms for nine fast
// ticks and a slow one. The first argument is how many threads a training process of ours has (they sleep).
#include <benchmark/benchmark.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "sources/host/host_source.h"

namespace lockstep {
namespace {

// Threads that sleep under a name until they are told to end.
class Sleepers {
 public:
  Sleepers(int64_t count, const char* name) {
    for (int64_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, name] {
        prctl(PR_SET_NAME, name);
        MutexLock lock(mutex_);
        wake_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return over_; });
      });
    }
  }
  ~Sleepers() {
    {
      MutexLock lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  Mutex mutex_;
  ConditionVariable wake_;
  bool over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

void read_host(benchmark::State& state, bool slow) {
  int64_t threads = state.range(0);
  Sleepers key(threads / 4, "NCCL Progress 0");
  Sleepers rest(threads - threads / 4, "cuda-EvtHandlr");
  usleep(50'000);
  OwnerTable owners;
  owners.processes[getpid()] = {};
  auto source = open_host_source({});
  SystemClock clock;
  NodeReadings out;
  source->read({clock.monotonic_ns(), clock.unix_ns(), true, &owners, nullptr}, out);
  for (auto _ : state) {
    out.readings.clear();
    source->read({clock.monotonic_ns(), clock.unix_ns(), slow, &owners, nullptr}, out);
    benchmark::DoNotOptimize(out.readings.data());
  }
  if (!out.notes.empty()) state.SkipWithError(out.notes.front().c_str());
  state.counters["readings"] = static_cast<double>(out.readings.size());
}

void BM_HostFastTick(benchmark::State& state) {
  read_host(state, false);
}
void BM_HostSlowTick(benchmark::State& state) {
  read_host(state, true);
}
BENCHMARK(BM_HostFastTick)->Arg(0)->Arg(400)->Arg(2000);
BENCHMARK(BM_HostSlowTick)->Arg(0)->Arg(400)->Arg(2000);

}  // namespace
}  // namespace lockstep
