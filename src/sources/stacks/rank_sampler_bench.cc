// What a look at a Python process costs: whoever looks, and the process that is looked at.
//
// The latter is measured within one run: the process repeats a piece of work of some 200 us and writes down when each
// began; it is sampled in windows of 50 ms and left alone in the windows between, so that whatever else the machine does
// falls on both alike. "slower_percent" compares the medians of the two.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "base/median.h"
#include "base/text.h"
#include "sources/stacks/rank_sampler.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr const char* kPython = "/usr/bin/python3";
constexpr const char* kProgram =
    "import sys, time\n"
    "def small(x):\n"
    "    return (x * 7 + 3) & 0xFF\n"
    "def piece():\n"
    "    table = {}\n"
    "    for i in range(1000):\n"
    "        table[small(i)] = [i, str(i)]\n"
    "out = open(sys.argv[1], 'w', buffering=1 << 14)\n"
    "print('in', flush=True)\n"
    "while True:\n"
    "    began = time.monotonic_ns()\n"
    "    piece()\n"
    "    out.write('%d %d\\n' % (began, time.monotonic_ns() - began))\n";

int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

struct Target {
  pid_t pid = -1;
  explicit Target(const std::string& file) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], 1);
      ::execl(kPython, kPython, "-c", kProgram, file.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    char in[3];
    (void)!::read(ends[0], in, sizeof in);
    ::close(ends[0]);
  }
  ~Target() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

void BM_Look(benchmark::State& state) {
  Target target("/dev/null");
  Result<RankSampler> sampler = RankSampler::begin(target.pid, 0, ::getuid());
  if (!sampler.ok()) return state.SkipWithError(sampler.error().c_str());
  for (auto _ : state) benchmark::DoNotOptimize(sampler->sample());
  const RankSamples samples = sampler->finish();
  state.counters["dropped_percent"] =
      100.0 * static_cast<double>(samples.dropped) / static_cast<double>(samples.whole + samples.cut + samples.dropped);
  state.counters["cut_percent"] =
      100.0 * static_cast<double>(samples.cut) / static_cast<double>(samples.whole + samples.cut + samples.dropped);
}
BENCHMARK(BM_Look)->Unit(benchmark::kMicrosecond);

void BM_LookedAt(benchmark::State& state) {
  const int64_t period_ns = 1'000'000'000 / state.range(0), window_ns = 50'000'000;
  testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/times";
  int64_t begin_ns = 0, end_ns = 0;
  for (auto _ : state) {
    Target target(file);
    Result<RankSampler> sampler = RankSampler::begin(target.pid, 0, ::getuid());
    if (!sampler.ok()) return state.SkipWithError(sampler.error().c_str());
    begin_ns = monotonic_ns();
    end_ns = begin_ns + 8'000'000'000;
    for (int64_t now_ns = begin_ns; now_ns < end_ns; now_ns = monotonic_ns()) {
      if ((now_ns - begin_ns) / window_ns % 2 == 0) sampler->sample();
      std::this_thread::sleep_for(std::chrono::nanoseconds(period_ns));
    }
  }
  std::vector<double> sampled, alone;
  std::ifstream lines(file);
  int64_t at_ns = 0;
  double took_ns = 0;
  while (lines >> at_ns >> took_ns) {
    if (at_ns < begin_ns || at_ns >= end_ns) continue;
    ((at_ns - begin_ns) / window_ns % 2 == 0 ? sampled : alone).push_back(took_ns);
  }
  auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value;
    return sum / static_cast<double>(std::max<size_t>(1, values.size()));
  };
  // Without the slowest hundredth: what the machine gave to others.
  auto trimmed = [&](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    values.resize(values.size() * 99 / 100);
    return mean(values);
  };
  state.counters["piece_us"] = upper_median_in_place(alone) / 1000;
  state.counters["median_slower_percent"] = 100 * (upper_median_in_place(sampled) / upper_median_in_place(alone) - 1);
  state.counters["mean_slower_percent"] = 100 * (trimmed(sampled) / trimmed(alone) - 1);
  state.counters["pieces"] = static_cast<double>(sampled.size() + alone.size());
}
BENCHMARK(BM_LookedAt)->Arg(100)->Arg(250)->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace lockstep
