#include "analysis/cost/rank_series.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "model/series_labels.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;
constexpr int64_t kStart = 1'800'000'000 * kSecond;

struct RankSeriesTest : ::testing::Test {
  std::map<std::string, double> newest;  // by "name host rank"
  int64_t pushes = 0, time_ms = 0;
  bool is_full = false;
  Counters counters{kStoreCounters};
  RankSeries series{[this](auto, auto pushed, const auto& canonical) -> Result<PushOutcome> {
                      if (is_full) return Error{"disk full"};
                      ++pushes;
                      for (size_t i = 0; i < pushed.size(); ++i) {
                        const Labels labels = *canonical(i);
                        time_ms = pushed[i].times_ms[0];
                        newest[format("%s %s %s", std::string(label_value(labels, "__name__")).c_str(),
                                      std::string(label_value(labels, "host")).c_str(),
                                      std::string(label_value(labels, "rank")).c_str())] = pushed[i].values[0];
                      }
                      return PushOutcome{};
                    },
                    counters};

  void report(int32_t rank, int64_t number, int64_t own_ms, int64_t attempt = 0) {
    StepSummary summary;
    summary.step = StepNumber{number};
    summary.start_unix_ns = kStart + number * kSecond;
    summary.duration_ns = kSecond;
    summary.self_ns = own_ms * kMs;
    summary.comm_ns = summary.duration_ns - summary.self_ns;
    series.on_step({"job", attempt, Rank{rank}, 4, rank % 2, format("node-%d", rank / 2), format("GPU-%d", rank)},
                   summary, 0);
  }
  void play(int64_t from, int64_t to) {
    for (int64_t number = from; number <= to; ++number)
      for (int32_t rank = 0; rank < 4; ++rank) report(rank, number, rank == 2 ? 900 : 600);
  }
};

TEST_F(RankSeriesTest, TheSlowRankAndItsNodeHaveMostOwnTime) {
  play(0, 5);
  series.write();
  EXPECT_DOUBLE_EQ(newest["lockstep_rank_own_seconds node-1 2"], 0.9);
  EXPECT_DOUBLE_EQ(newest["lockstep_rank_own_seconds node-1 3"], 0.6);
  EXPECT_DOUBLE_EQ(newest["lockstep_rank_step_seconds node-0 0"], 1);
  EXPECT_DOUBLE_EQ(newest["lockstep_node_own_seconds node-1 "], 0.9);
  EXPECT_DOUBLE_EQ(newest["lockstep_node_own_seconds node-0 "], 0.6);
  EXPECT_EQ(time_ms, (kStart + 6 * kSecond) / kMs);
}

TEST_F(RankSeriesTest, ASampleIsOfTheStepsSinceTheOneBeforeAndNotOfHistory) {
  play(0, 5);
  series.write();
  series.write();
  EXPECT_EQ(pushes, 1) << "nothing new";
  for (int64_t number = 6; number < 100; ++number) report(2, number, number < 80 ? 900 : 700);  // read back at a start
  series.write();
  EXPECT_DOUBLE_EQ(newest["lockstep_rank_own_seconds node-1 2"], 0.7);
}

TEST_F(RankSeriesTest, AStepOfAnEarlierAttemptOrWithLostRecordsSaysNothing) {
  report(0, 0, 600, 1);
  report(1, 0, 600, 0);
  StepSummary lost;
  lost.start_unix_ns = kStart + 6 * kSecond;
  lost.duration_ns = kSecond;
  lost.self_ns = kSecond;
  lost.records_lost = 5;
  series.on_step({"job", 1, 0_rank, 4, 0, "node-0", "GPU-0"}, lost, 0);
  series.write();
  EXPECT_FALSE(newest.contains("lockstep_rank_step_seconds node-0 1"));
  EXPECT_TRUE(newest.contains("lockstep_rank_step_seconds node-0 0"));
}

TEST_F(RankSeriesTest, WhatTheStoreDoesNotTakeIsCountedAndTheNextIsTried) {
  is_full = true;
  play(0, 5);
  series.write();
  EXPECT_EQ(counters.value("lockstep_rank_series_dropped_total"), 10);
  is_full = false;
  play(6, 12);
  series.write();
  EXPECT_EQ(pushes, 1);
}

}  // namespace
}  // namespace lockstep
