// sequential_bench: does the statistical core of diagnosis keep its promise, and how soon does it find a shift?
//
//   sequential_bench [--streams 8,64,1024,8192] [--values 20000000] [--runs 200]
//
// Noise of many kinds, none of which the core was fitted to, is drawn from a seed and shown to ShiftMonitor. The first
// table counts false alarms in `values` values of streams in which nothing ever happens, beside what was stated; the
// second says after how many steps a shift of a known size is found, over `runs` jobs a cell. What is printed is
// bench/results/sequential.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"
#include "base/text.h"
#include "diagnosis/sequential/shift_monitor.h"
#include "diagnosis/sequential/testing.h"

namespace lockstep {
namespace {

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Steps of the job in which one false alarm is stated. The last is a thousand hours at one second.
constexpr std::array<double, 4> kStatedSteps{1e3, 1e4, 1e5, 3.6e6};

// In one long job or, with `job_steps`, in many that last only so long: little is known of the noise there.
void false_alarms(const NoiseKind& kind, size_t streams, double values_max, int64_t job_steps) {
  const auto steps = static_cast<int64_t>(values_max / static_cast<double>(streams));
  NoiseSource source(kind, streams, 17 + streams);
  ShiftMonitor monitor({});
  std::array<double, kStatedSteps.size()> threshold{};
  for (size_t k = 0; k < threshold.size(); ++k) threshold[k] = std::log(kStatedSteps[k] * static_cast<double>(streams));
  monitor.hold_at(threshold.back());
  std::array<int64_t, kStatedSteps.size()> alarms{};
  std::vector<uint8_t> above(streams * threshold.size(), 0);
  std::vector<float> values(streams);
  double worst = 0;
  double timed_s = 0, timed_steps = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (job_steps > 0 && step % job_steps == 0) {
      source = NoiseSource(kind, streams, static_cast<uint64_t>(step) * 31 + streams);
      monitor = ShiftMonitor({});
      monitor.hold_at(threshold.back());
      std::fill(above.begin(), above.end(), 0);
    }
    source.draw(values);
    const bool timed = step % 16 == 15;
    const double from = timed ? cpu_s() : 0;
    monitor.add_step(StepNumber{step}, values);
    if (timed) {
      timed_s += cpu_s() - from;
      ++timed_steps;
    }
    for (size_t i = 0; i < streams; ++i) {
      const double nats = monitor.evidence_nats(i);
      if (nats < 3) {
        for (size_t k = 0; k < threshold.size(); ++k) above[i * threshold.size() + k] = 0;
        continue;
      }
      worst = std::max(worst, nats - std::log(static_cast<double>(streams)));
      for (size_t k = 0; k < threshold.size(); ++k) {
        uint8_t& is_above = above[i * threshold.size() + k];
        if (nats < threshold[k] || is_above != 0) continue;
        is_above = 1;
        ++alarms[k];
      }
    }
  }
  const double us = timed_s * 1e6 / timed_steps / static_cast<double>(streams);
  std::string line = format("| %s | %zu | %.3g |", kind.name, streams, static_cast<double>(steps));
  for (size_t k = 0; k < threshold.size(); ++k) {
    const double stated = static_cast<double>(steps) / kStatedSteps[k];
    line += stated < 0.01 ? " |" : format(" %lld of %.3g |", static_cast<long long>(alarms[k]), stated);
  }
  const ShiftMonitor::Noise noise = monitor.noise();
  line += format(" %.1f | %d, %.2g | %.2f | %.3f |", worst, noise.freedom, noise.tail_share, noise.correlation, us);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Steps until a shift of one stream is told; -1: not within the time.
void delays(const NoiseKind& kind, size_t streams, double noise, double shift, int64_t runs, int64_t healthy_steps) {
  constexpr int64_t kSteps = 200;
  std::vector<int64_t> suspected, confirmed;
  std::vector<double> error;
  int wrong = 0;
  for (int64_t run = 0; run < runs; ++run) {
    NoiseSource source(kind, streams, 1000 + static_cast<uint64_t>(run), noise);
    ShiftMonitor monitor({});
    const double sure = threshold_nats(kConfirmedPerJobHour, static_cast<double>(streams), 3600);
    const double suspect = threshold_nats(kSuspectedPerJobHour, static_cast<double>(streams), 3600);
    monitor.hold_at(sure);
    std::vector<float> values(streams);
    const size_t culprit = static_cast<size_t>(run) % streams;
    std::vector<uint8_t> wrong_in(streams, 0);
    int64_t first = -1, at_last = -1;
    for (int64_t step = 0; step < healthy_steps + kSteps && at_last < 0; ++step) {
      source.draw(values);
      if (step >= healthy_steps) values[culprit] += static_cast<float>(shift);
      monitor.add_step(StepNumber{step}, values);
      for (size_t i = 0; i < streams; ++i) {
        const double nats = monitor.evidence_nats(i);
        if (i != culprit) {
          if (nats >= sure && wrong_in[i] == 0) {
            wrong_in[i] = 1;
            ++wrong;
          }
          continue;
        }
        if (step < healthy_steps) continue;
        if (nats >= suspect && first < 0) first = step - healthy_steps + 1;
        if (nats >= sure && at_last < 0) {
          at_last = step - healthy_steps + 1;
          error.push_back(std::abs(monitor.estimate(i).size - shift) / shift);
        }
      }
    }
    constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    suspected.push_back(first < 0 ? kNever : first);
    confirmed.push_back(at_last < 0 ? kNever : at_last);
  }
  auto at = [&](std::vector<int64_t>& all, double share) -> std::string {
    std::sort(all.begin(), all.end());
    const int64_t value = all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))];
    return value > kSteps ? "never" : std::to_string(value);
  };
  auto within = [&](int64_t steps) {
    const auto found = std::count_if(suspected.begin(), suspected.end(), [&](int64_t one) { return one <= steps; });
    return 100.0 * static_cast<double>(found) / static_cast<double>(runs);
  };
  std::sort(error.begin(), error.end());
  std::printf("| %s | %zu | %.1f %% | %.0f %% | %s | %s | %s | %s | %.0f %% | %.0f %% | %.0f %% | %s | %d |\n",
              kind.name, streams, noise * 100, shift * 100, at(suspected, 0.5).c_str(), at(suspected, 0.9).c_str(),
              at(confirmed, 0.5).c_str(), at(confirmed, 0.9).c_str(), within(6), within(20), within(60),
              error.empty() ? "-" : format("%.0f %%", 100 * error[error.size() / 2]).c_str(), wrong);
  std::fflush(stdout);
}

int run(const std::vector<std::string>& arguments) {
  std::string streams = "8,64,1024,8192";
  int64_t values = 20'000'000, runs = 200;
  Flags flags("sequential_bench", "false alarms of the statistical core beside what is stated, and how soon it finds");
  flags.text(&streams, "--streams", "N,N", "streams of a job (default 8,64,1024,8192)")
      .number(&values, "--values", "N", "healthy values a row (default 20000000)", 1000, 100'000'000'000)
      .number(&runs, "--runs", "N", "jobs with a shift a row (default 200; 0: none)", 0, 1'000'000);
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (flags.help_wanted()) {
    std::fputs(flags.help().c_str(), stdout);
    return 0;
  }
  std::vector<size_t> sizes;
  for (std::string_view rest = streams; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<int64_t> count = parse_int(rest.substr(0, comma));
    rest.remove_prefix(std::min(rest.size(), comma + 1));
    if (!count || *count < 1 || *count > 1'000'000) {
      std::fprintf(stderr, "sequential_bench: --streams takes numbers up to a million\n");
      return 2;
    }
    sizes.push_back(static_cast<size_t>(*count));
  }
  constexpr const char* header =
      "| noise | streams | steps | one in 1e3 steps | 1e4 | 1e5 | 3.6e6 | largest evidence beyond ln(streams) | body, "
      "tail | correlation | us |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  std::printf("## False alarms where nothing happens\n\n%s", header);
  for (const NoiseKind& kind : noise_kinds())
    for (size_t size : sizes) false_alarms(kind, size, static_cast<double>(values), 0);
  std::printf("\n## The same in jobs of 60 steps\n\n%s", header);
  for (const NoiseKind& kind : noise_kinds())
    for (size_t size : sizes) false_alarms(kind, size, static_cast<double>(values), 60);
  if (runs == 0) return 0;
  std::printf("\n## Steps until a shift is found\n\n");
  std::printf(
      "| noise | streams | scale | shift | suspected p50 | p90 | confirmed p50 | p90 | suspected within 6 | 20 | 60 | "
      "error of the size, p50 | others told |\n");
  std::printf("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const NoiseKind& kind : noise_kinds()) {
    for (double noise : {0.008, 0.024, 0.048})
      for (double shift : {0.02, 0.04, 0.08, 0.2}) delays(kind, 64, noise, shift, runs, 40);
  }
  for (size_t size : {8, 1024})
    for (double shift : {0.02, 0.04, 0.08, 0.2})
      delays(noise_kinds()[0], size, 0.008, shift, size > 64 ? runs / 4 : runs, 40);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run({argv + 1, argv + argc});
}
