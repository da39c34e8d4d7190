// The split of a step (docs/guide/where-the-time-goes.md) against the kernel trace of the same step. Recorded callbacks
// are played into the real plugin, its recorders drained into the real assembler; the truth is kineto_truth.json beside
// each recording, made by tools/kineto_truth.py from the PyTorch profiler's trace.
//
// Rules were made on the two healthy recordings; the other two are the check. Bounds stand a little above what is
// measured: a split that gets worse fails here. Prints the table of bench/results/time-split.md:
//   build/dev/tests/recordings_test --gtest_filter='*TimeSplitTruth*' | grep '^|'
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/median.h"
#include "model/step_detail.h"
#include "tests/golden/recorded_run.h"

namespace lockstep {
namespace {

// Of the step, in percent: median and worst over ranks and steps of |ours - truth|.
struct Bound {
  double median;
  double worst;
};
struct Expected {
  const char* name;
  size_t rank_steps;
  std::array<Bound, kTimePartCount> bounds;  // by TimePart: compute, communication, input, host, checkpoint, idle
};

constexpr Expected kCases[] = {
    {"ddp_healthy", 16, {{{3.5, 4.0}, {3.0, 3.5}, {0.1, 0.1}, {1.2, 1.5}, {0, 0}, {0.7, 1.0}}}},
    {"hyb_healthy", 32, {{{0.5, 1.0}, {0.2, 0.4}, {0.1, 0.1}, {0.2, 0.5}, {0, 0}, {0.3, 0.6}}}},
    {"ddp_compute_r2", 16, {{{2.5, 6.2}, {2.0, 2.5}, {0.1, 0.1}, {1.2, 6.4}, {0, 0}, {0.5, 1.3}}}},
    {"hyb_compute_r5", 32, {{{1.2, 3.0}, {0.1, 0.2}, {0.1, 0.1}, {0.1, 0.6}, {0, 0}, {1.1, 2.9}}}},
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name;
}

struct RankStep {
  int64_t duration_ns = 0;
  std::array<int64_t, kTimePartCount> split_ns{};
};
using RankSteps = std::map<std::pair<int64_t, int64_t>, RankStep>;  // rank, step

void read_truth(const std::string& path, RankSteps& truth) {
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  ASSERT_FALSE(parser.load(path).get(document)) << path;
  for (simdjson::dom::element rank : document["ranks"]) {
    for (simdjson::dom::element step : rank["steps"]) {
      RankStep& row = truth[{rank["rank"].get_int64(), step["step"].get_int64()}];
      row.duration_ns = step["duration_ns"].get_int64();
      for (size_t part = 0; part < kTimePartCount; ++part)
        row.split_ns[part] = step[std::string(to_text(static_cast<TimePart>(part))) + "_ns"].get_int64();
    }
  }
}

class TimeSplitTruth : public ::testing::TestWithParam<Expected> {
 protected:
  // Every step of the recording that the product could split.
  void play(const std::string& recording_folder, RankSteps& out) {
    Result<void> played = RecordedRun::play(recording_folder, [&](const Identity& identity, ClosedStep closed) {
      if (!closed.summary.split_known) return;
      out[{identity.rank.value(), closed.summary.step.value()}] = {closed.summary.duration_ns, closed.summary.split_ns};
    });
    ASSERT_TRUE(played.ok()) << played.error();
  }
};

TEST_P(TimeSplitTruth, IsHeld) {
  const Expected& expected = GetParam();
  const std::string folder = std::string(LOCKSTEP_TEST_DATA "/recordings/") + expected.name;
  RankSteps truth;
  ASSERT_NO_FATAL_FAILURE(read_truth(folder + "/kineto_truth.json", truth));
  EXPECT_EQ(truth.size(), expected.rank_steps);
  RankSteps ours;
  ASSERT_NO_FATAL_FAILURE(play(folder, ours));

  for (size_t part = 0; part < kTimePartCount; ++part) {
    std::vector<double> reported_ms;
    std::vector<double> true_ms;
    std::vector<double> off_ms;
    std::vector<double> off_percent;
    for (const auto& [key, step] : truth) {
      auto found = ours.find(key);
      ASSERT_NE(found, ours.end()) << "rank " << key.first << " step " << key.second << " was not split";
      int64_t sum = 0;
      for (int64_t ns : found->second.split_ns) sum += ns;
      ASSERT_EQ(sum, found->second.duration_ns);
      ASSERT_NEAR(static_cast<double>(found->second.duration_ns), static_cast<double>(step.duration_ns), 1e5);
      reported_ms.push_back(static_cast<double>(found->second.split_ns[part]) / 1e6);
      true_ms.push_back(static_cast<double>(step.split_ns[part]) / 1e6);
      off_ms.push_back(std::abs(reported_ms.back() - true_ms.back()));
      off_percent.push_back(100 * off_ms.back() * 1e6 / static_cast<double>(step.duration_ns));
    }
    double median = median_of(off_percent);
    double worst = *std::max_element(off_percent.begin(), off_percent.end());
    const char* name = to_text(static_cast<TimePart>(part));
    printf("| `%s` | %s | %.2f | %.2f | %.2f | %.2f | %.2f %% | %.2f %% |\n", expected.name, name, median_of(true_ms),
           median_of(reported_ms), median_of(off_ms), *std::max_element(off_ms.begin(), off_ms.end()), median, worst);
    EXPECT_LE(median, expected.bounds[part].median) << name;
    EXPECT_LE(worst, expected.bounds[part].worst) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Recordings, TimeSplitTruth, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lockstep
