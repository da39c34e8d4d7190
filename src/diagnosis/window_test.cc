#include "diagnosis/window.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

TEST(JobWindow, AStepIsCompleteWhenEveryRankHasSentIt) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 4);
  auto rows = job.step(5);
  for (size_t i = 0; i + 1 < rows.size(); ++i) window.add_step(rows[i].first, rows[i].second);
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4}));
  window.add_step(rows.back().first, rows.back().second);
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4, 5}));
}

TEST(JobWindow, AStepThatLaterOnesHaveOvertakenIsCompleteWithoutTheMissingRank) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 9, [](int64_t step, std::vector<RankPlan>& ranks) { ranks[2].silent = step >= 5; });
  // From the fourth such step on it is not waited for.
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(JobWindow, ARankThatFellSilentIsWaitedForUntilItIsThreeStepsBehind) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 7, [](int64_t step, std::vector<RankPlan>& ranks) { ranks[2].silent = step >= 5; });
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4}));
}

TEST(JobWindow, StepsAreCompleteThoughARankNeverSpeaks) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 9, [](int64_t, std::vector<RankPlan>& ranks) { ranks[2].silent = true; });
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(JobWindow, WarmUpIsCountedFromTheFirstStepOfTheJobNotFromZero) {
  MadeUpJob job(2);
  JobWindow window;
  job.play(window, 5000, 5004);
  EXPECT_EQ(window.first_step(), 5000);
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{5002, 5003, 5004}));
}

TEST(JobWindow, RemembersTheNewestStepsOnly) {
  MadeUpJob job(2);
  JobWindow window;
  int64_t last = static_cast<int64_t>(JobWindow::kStepsMax) + 49;
  job.play(window, 0, last);
  EXPECT_EQ(window.complete_steps().size(), JobWindow::kStepsMax);
  EXPECT_EQ(window.complete_steps().back(), last);
  EXPECT_EQ(window.newest_step(), last);
  EXPECT_EQ(window.step(0), nullptr);
}

TEST(JobWindow, NumbersFarAheadDoNotCrowdOutTheTrueOnes) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 20);
  auto [who, wild] = job.step(20).front();
  for (size_t i = 0; i < 2 * JobWindow::kStepsMax; ++i) {
    wild.step = 50'000 + static_cast<int64_t>(i);
    window.add_step(who, wild);
  }
  job.play(window, 21, 60);
  EXPECT_EQ(window.newest_step(), 60);
  const std::vector<int64_t> complete = window.complete_steps();
  EXPECT_EQ(std::count_if(complete.begin(), complete.end(), [](int64_t step) { return step > 20 && step <= 60; }), 40);
}

TEST(JobWindow, TheWorldSizeIsWhatMostRanksTellAndARankFarOutCostsLittle) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 3);
  Identity absurd = job.identity(1);
  absurd.world_size = 10'000'000;
  window.add_rank(absurd);
  absurd.rank = JobWindow::kRanksMax - 1;
  window.add_step(absurd, job.step(3).front().second);
  EXPECT_EQ(window.world_size(), 4);
  EXPECT_EQ(window.slot_of(JobWindow::kRanksMax - 1), 4);
  EXPECT_EQ(window.slot_of(JobWindow::kRanksMax - 2), -1);
  window.add_rank(job.identity(1));
  EXPECT_EQ(window.world_size(), 4);
}

TEST(JobWindow, ARowThatComesTwiceCountsOnce) {
  MadeUpJob job(2);
  JobWindow window;
  for (const auto& [who, row] : job.step(7)) {
    window.add_step(who, row);
    window.add_step(who, row);
  }
  ASSERT_NE(window.step(7), nullptr);
  EXPECT_EQ(window.step(7)->size(), 2u);
}

TEST(JobWindow, KnowsWhichRankOfTheJobIsBehindARankOfACommunicator) {
  MadeUpJob job(4);
  JobWindow window;
  window.add_comm(job.identity(3), {.comm_id = 9, .size = 2, .rank_in_comm = 1});
  EXPECT_EQ(window.world_rank(9, 1), 3);
  EXPECT_EQ(window.world_rank(9, 0), -1);
  EXPECT_EQ(window.world_rank(8, 0), -1);
  job.play(window, 0, 0);  // rows tell of their communicators too
  EXPECT_EQ(window.world_rank(testing::kWorldComm, 2), 2);
}

TEST(JobWindow, AStepWithMissingGpuTimesIsUnknownForItsRankAloneAndCompleteAllTheSame) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0, 5, [](int64_t step, std::vector<RankPlan>& ranks) { ranks[2].unseen = step == 4; });
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_FALSE(window.step(4)->contains(2));
  EXPECT_TRUE(window.unknown(4)->contains(2));
  EXPECT_EQ(window.step(4)->size(), 3u);
  EXPECT_EQ(window.unknown(5)->size(), 0u);
  EXPECT_EQ(window.unknown_steps(-1, {2}), 1);
  EXPECT_EQ(window.unknown_steps(-1, {1}), 0);
  EXPECT_EQ(window.unknown_steps(-1), 0);
}

TEST(JobWindow, LostRecordsMakeAStepUnknownUntilItIsSentAgainWhole) {
  MadeUpJob job(2);
  JobWindow window;
  auto rows = job.step(7);
  StepSummary lossy = rows[0].second;
  lossy.records_lost = 1;
  window.add_step(rows[0].first, lossy);
  EXPECT_TRUE(window.unknown(7)->contains(0));
  window.add_step(rows[0].first, rows[0].second);
  EXPECT_TRUE(window.step(7)->contains(0));
  EXPECT_TRUE(window.unknown(7)->empty());
}

TEST(JobWindow, StepsThatAreUnknownForEveryRankAreNotComplete) {
  MadeUpJob job(2);
  JobWindow window;
  job.play(window, 0, 9, [](int64_t step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.unseen = step >= 5;
  });
  EXPECT_EQ(window.complete_steps(), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(window.newest_step(), 9);
  EXPECT_EQ(window.unknown_steps(4), 5);
}

TEST(RankStep, CheckpointAndEvaluationAreNotOwnTime) {
  RankStep row;
  row.summary.self_ns = 100;
  row.summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] = 30;
  row.summary.phase_ns[static_cast<size_t>(Phase::kEval)] = 20;
  row.summary.phase_ns[static_cast<size_t>(Phase::kForward)] = 40;
  EXPECT_EQ(row.own_ns(), 50);
  row.summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] = 90;  // beside communication: more than the own time
  EXPECT_EQ(row.own_ns(), 0);
}

TEST(Medians, OfFewValues) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(lower_median({}), 0);
  EXPECT_EQ(lower_median({4, 1, 2, 3}), 2);
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 0), 1);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 0.25), 2);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 1), 5);
}

}  // namespace
}  // namespace lockstep
