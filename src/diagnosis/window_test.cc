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
  job.play(window, 0_step, 4_step);
  auto rows = job.step(5_step);
  for (size_t i = 0; i + 1 < rows.size(); ++i) window.add_step(rows[i].first, rows[i].second);
  EXPECT_EQ(window.complete_steps(), (std::vector<StepNumber>{2_step, 3_step, 4_step}));
  window.add_step(rows.back().first, rows.back().second);
  EXPECT_EQ(window.complete_steps(), (std::vector<StepNumber>{2_step, 3_step, 4_step, 5_step}));
}

// Adds what ranks 0 to 3 sent for a step, each when it came.
void add_step_of_four(JobWindow& window, StepNumber number, const std::vector<Rank>& ranks, int64_t heard_s) {
  MadeUpJob job(4);
  const auto rows = job.step(number);
  for (Rank rank : ranks) {
    const auto& [who, row] = rows[index_of(rank)];
    window.add_step(who, row, heard_s * 1'000'000'000);
  }
}

const std::vector<Rank> kAll{0_rank, 1_rank, 2_rank, 3_rank}, kAllButTwo{0_rank, 1_rank, 3_rank};

TEST(JobWindow, ARankThatLagsIsWaitedForHoweverManyStepsItIsBehind) {
  JobWindow window;
  add_step_of_four(window, 0_step, kAll, 1);
  constexpr int64_t kLag = 20;
  for (int64_t step = 1; step <= 40; ++step) {
    add_step_of_four(window, StepNumber{step}, kAllButTwo, 1 + step);
    if (step > kLag) add_step_of_four(window, StepNumber{step - kLag}, {2_rank}, 1 + step);
    // Twenty seconds without a word of it: until it speaks, it is silent.
    if (step > kLag) {
      ASSERT_EQ(window.compared_steps().back(), StepNumber{step - kLag});
    }
  }
  EXPECT_EQ(window.step(20_step)->size(), 4u);
  EXPECT_FALSE(window.is_silent(2_rank));
}

TEST(JobWindow, ReportsThatComeInBurstsAreWaitedForTogether) {
  JobWindow window;
  for (int64_t burst = 0; burst < 6; ++burst) {
    for (int64_t step = 10 * burst; step < 10 * (burst + 1); ++step)
      add_step_of_four(window, StepNumber{step}, kAllButTwo, 2 + 4 * burst);
    EXPECT_TRUE(burst == 0 || window.complete_steps().back() == StepNumber{10 * burst - 1});
    for (int64_t step = 10 * burst; step < 10 * (burst + 1); ++step)
      add_step_of_four(window, StepNumber{step}, {2_rank}, 4 + 4 * burst);
    EXPECT_EQ(window.complete_steps().back(), StepNumber{10 * burst + 9});
  }
}

TEST(JobWindow, ARankThatFellSilentIsNotWaitedForOnceOthersWentOnForSeconds) {
  JobWindow window;
  for (int64_t step = 0; step <= 4; ++step) add_step_of_four(window, StepNumber{step}, kAll, 1 + step);
  for (int64_t step = 5; step <= 9; ++step) add_step_of_four(window, StepNumber{step}, kAllButTwo, 1 + step);
  EXPECT_EQ(window.compared_steps().back(), 4_step);  // step 5 came four seconds ago
  add_step_of_four(window, 10_step, kAllButTwo, 11);
  EXPECT_EQ(window.compared_steps().back(), 10_step);
  EXPECT_TRUE(window.is_silent(2_rank));
  // It was behind only: what it has not sent yet is compared once it has.
  add_step_of_four(window, 5_step, {2_rank}, 12);
  EXPECT_EQ(window.compared_steps().back(), 5_step);
  EXPECT_FALSE(window.is_silent(2_rank));
}

TEST(JobWindow, LongStepsMakeNobodySilentBeforeThreeOfThem) {
  JobWindow window;
  for (int64_t step = 0; step <= 4; ++step) add_step_of_four(window, StepNumber{step}, kAll, 1 + 20 * step);
  for (int64_t step = 5; step <= 6; ++step) add_step_of_four(window, StepNumber{step}, kAllButTwo, 1 + 20 * step);
  EXPECT_EQ(window.compared_steps().back(), 4_step);
  add_step_of_four(window, 7_step, kAllButTwo, 1 + 20 * 7);
  EXPECT_EQ(window.compared_steps().back(), 7_step);
}

TEST(JobWindow, AJobThatStandsStillMakesNobodySilent) {
  JobWindow window;
  for (int64_t step = 0; step <= 4; ++step) add_step_of_four(window, StepNumber{step}, kAll, 1 + step);
  // All wait for a minute, and go on: what rank 2 sends comes a second later.
  for (int64_t step = 5; step <= 9; ++step) add_step_of_four(window, StepNumber{step}, kAllButTwo, 65);
  EXPECT_EQ(window.compared_steps().back(), 4_step);
  add_step_of_four(window, 5_step, {2_rank}, 66);
  EXPECT_EQ(window.compared_steps().back(), 5_step);
}

TEST(JobWindow, ARankBehindByHalfOfTheWindowIsNotWaitedFor) {
  JobWindow window;
  const auto half = static_cast<int64_t>(JobWindow::kStepsMax / 2);
  add_step_of_four(window, 0_step, kAll, 1);
  for (int64_t step = 1; step < half; ++step) add_step_of_four(window, StepNumber{step}, kAllButTwo, 1);
  EXPECT_EQ(window.compared_steps().back(), 0_step);
  add_step_of_four(window, StepNumber{half}, kAllButTwo, 1);
  EXPECT_EQ(window.compared_steps().back(), StepNumber{half});
}

TEST(JobWindow, ARowThatComesAgainKeepsNoStepFromBeingComplete) {
  JobWindow window;
  for (int64_t step = 0; step <= 4; ++step) add_step_of_four(window, StepNumber{step}, kAll, 1 + step);
  add_step_of_four(window, 2_step, {2_rank}, 6);
  EXPECT_EQ(window.compared_steps().back(), 4_step);
}

TEST(JobWindow, StepsAreCompleteThoughARankNeverSpeaks) {
  JobWindow window;
  for (int64_t step = 0; step <= 5; ++step) add_step_of_four(window, StepNumber{step}, kAllButTwo, 1 + step);
  EXPECT_TRUE(window.compared_steps().empty());
  add_step_of_four(window, 6_step, kAllButTwo, 7);
  EXPECT_EQ(window.complete_steps(), (std::vector<StepNumber>{2_step, 3_step, 4_step, 5_step, 6_step}));
}

TEST(JobWindow, WarmUpIsCountedFromTheFirstStepOfTheJobNotFromZero) {
  MadeUpJob job(2);
  JobWindow window;
  job.play(window, 5000_step, 5004_step);
  EXPECT_EQ(window.first_step(), 5000_step);
  EXPECT_EQ(window.complete_steps(), (std::vector<StepNumber>{5002_step, 5003_step, 5004_step}));
}

TEST(JobWindow, RemembersTheNewestStepsOnly) {
  MadeUpJob job(2);
  JobWindow window;
  StepNumber last = StepNumber{static_cast<int64_t>(JobWindow::kStepsMax) + 49};
  job.play(window, 0_step, last);
  EXPECT_EQ(window.complete_steps().size(), JobWindow::kStepsMax);
  EXPECT_EQ(window.complete_steps().back(), last);
  EXPECT_EQ(window.newest_step(), last);
  EXPECT_EQ(window.step(0_step), nullptr);
}

TEST(JobWindow, NumbersFarAheadDoNotCrowdOutTheTrueOnes) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0_step, 20_step);
  auto [who, wild] = job.step(20_step).front();
  for (size_t i = 0; i < 2 * JobWindow::kStepsMax; ++i) {
    wild.step = StepNumber{50'000 + static_cast<int64_t>(i)};
    window.add_step(who, wild);
  }
  job.play(window, 21_step, 60_step);
  EXPECT_EQ(window.newest_step(), 60_step);
  const std::vector<StepNumber> complete = window.complete_steps();
  EXPECT_EQ(std::count_if(complete.begin(), complete.end(),
                          [](StepNumber step) { return step > 20_step && step <= 60_step; }),
            40);
}

TEST(JobWindow, TheWorldSizeIsWhatMostRanksTellAndARankFarOutCostsLittle) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0_step, 3_step);
  Identity absurd = job.identity(1_rank);
  absurd.world_size = 10'000'000;
  window.add_rank(absurd);
  absurd.rank = Rank{JobWindow::kRanksMax - 1};
  window.add_step(absurd, job.step(3_step).front().second);
  EXPECT_EQ(window.world_size(), 4);
  EXPECT_EQ(window.slot_of(Rank{JobWindow::kRanksMax} - 1), 4);
  EXPECT_EQ(window.slot_of(Rank{JobWindow::kRanksMax} - 2), -1);
  window.add_rank(job.identity(1_rank));
  EXPECT_EQ(window.world_size(), 4);
}

TEST(JobWindow, ARowThatComesTwiceCountsOnce) {
  MadeUpJob job(2);
  JobWindow window;
  for (const auto& [who, row] : job.step(7_step)) {
    window.add_step(who, row);
    window.add_step(who, row);
  }
  ASSERT_NE(window.step(7_step), nullptr);
  EXPECT_EQ(window.step(7_step)->size(), 2u);
}

TEST(JobWindow, KnowsWhichRankOfTheJobIsBehindARankOfACommunicator) {
  MadeUpJob job(4);
  JobWindow window;
  window.add_comm(job.identity(3_rank), {.comm_id = CommId{9}, .size = 2, .rank_in_comm = 1});
  EXPECT_EQ(window.world_rank(CommId{9}, 1), 3_rank);
  EXPECT_EQ(window.world_rank(CommId{9}, 0), kNoRank);
  EXPECT_EQ(window.world_rank(CommId{8}, 0), kNoRank);
  job.play(window, 0_step, 0_step);  // rows tell of their communicators too
  EXPECT_EQ(window.world_rank(testing::kWorldComm, 2), 2_rank);
}

TEST(JobWindow, AStepWithMissingGpuTimesIsUnknownForItsRankAloneAndCompleteAllTheSame) {
  MadeUpJob job(4);
  JobWindow window;
  job.play(window, 0_step, 5_step,
           [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[2].unseen = step == 4_step; });
  EXPECT_EQ(window.complete_steps(), (std::vector<StepNumber>{2_step, 3_step, 4_step, 5_step}));
  EXPECT_FALSE(window.step(4_step)->contains(2_rank));
  EXPECT_TRUE(window.unknown(4_step)->contains(2_rank));
  EXPECT_EQ(window.step(4_step)->size(), 3u);
  EXPECT_EQ(window.unknown(5_step)->size(), 0u);
  EXPECT_EQ(window.unknown_steps(kNoStep, {2_rank}), 1);
  EXPECT_EQ(window.unknown_steps(kNoStep, {1_rank}), 0);
  EXPECT_EQ(window.unknown_steps(kNoStep), 0);
}

TEST(JobWindow, LostRecordsMakeAStepUnknownUntilItIsSentAgainWhole) {
  MadeUpJob job(2);
  JobWindow window;
  auto rows = job.step(7_step);
  StepSummary lossy = rows[0].second;
  lossy.records_lost = 1;
  window.add_step(rows[0].first, lossy);
  EXPECT_TRUE(window.unknown(7_step)->contains(0_rank));
  window.add_step(rows[0].first, rows[0].second);
  EXPECT_TRUE(window.step(7_step)->contains(0_rank));
  EXPECT_TRUE(window.unknown(7_step)->empty());
}

TEST(JobWindow, StepsThatAreUnknownForEveryRankAreNotComplete) {
  MadeUpJob job(2);
  JobWindow window;
  job.play(window, 0_step, 9_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.unseen = step >= 5_step;
  });
  EXPECT_EQ(window.complete_steps(), (std::vector<StepNumber>{2_step, 3_step, 4_step}));
  EXPECT_EQ(window.newest_step(), 9_step);
  EXPECT_EQ(window.unknown_steps(4_step), 5);
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
