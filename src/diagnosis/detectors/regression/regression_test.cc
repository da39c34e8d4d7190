#include "diagnosis/detectors/regression/regression.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

std::vector<Finding> findings_after(int64_t steps, const testing::StepPlan& plan, double noise = 0.01) {
  MadeUpJob job(8);
  job.noise = noise;
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps}, plan);
  window.remember(0);
  return find_regressions(window, {});
}

TEST(Regression, AllRanksSlowerAlikeIsSoftware) {
  std::vector<Finding> findings = findings_after(60, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.own_ms *= step >= 40_step ? 1.2 : 1;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kSoftware);
  EXPECT_EQ(findings[0].cause, Cause::kCodeRegression);
  EXPECT_EQ(findings[0].since_step, 40_step);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_TRUE(findings[0].ranks.empty());
}

TEST(Regression, AJobThatWasAsSlowForAWhileBeforeIsOnlySuspectedUntilItLastsLonger) {
  for (int64_t steps : {78, 90}) {
    std::vector<Finding> findings = findings_after(steps, [](StepNumber step, std::vector<RankPlan>& ranks) {
      const bool slow = step >= 70_step || (step >= 50_step && step < 54_step);
      for (RankPlan& rank : ranks) rank.own_ms *= slow ? 1.3 : 1;
    });
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].sure, steps == 90);
  }
}

TEST(Regression, AllRanksWaitingForInputIsStorage) {
  std::vector<Finding> findings = findings_after(60, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) {
      if (step < 40_step) continue;
      rank.own_ms += 40;
      rank.input_ms += 40;
    }
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kInput);
  EXPECT_EQ(findings[0].cause, Cause::kStorage);
}

TEST(Regression, OneLateRankIsNotTheWholeJob) {
  EXPECT_TRUE(findings_after(60, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[2].own_ms *= step >= 40_step ? 1.5 : 1;
              }).empty());
}

TEST(Regression, HeatOfTwoPercentAndNoiseSayNothing) {
  EXPECT_TRUE(findings_after(120, [](StepNumber step, std::vector<RankPlan>& ranks) {
                for (RankPlan& rank : ranks) rank.own_ms *= 1 + 0.02 * static_cast<double>(step.value()) / 120;
              }).empty());
  EXPECT_TRUE(findings_after(120, {}, 0.05).empty());
}

// A pipeline whose stages have no equals: what their own time has in it is not known.
TEST(Regression, AJobThatIsPlainlySlowerIsSuspectedThoughNothingSaysWhy) {
  JobWindow window;
  constexpr CommId kComm{7};
  const MadeUpJob job(4);
  for (StepNumber step = 0_step; step < 60_step; ++step) {
    for (Rank rank : all_ranks(4)) {
      StepSummary row;
      row.step = step;
      row.duration_ns = row.self_ns = (step >= 40_step ? 500 : 200) * int64_t{1'000'000};
      row.comms.push_back(
          {.comm_id = kComm, .size = 4, .rank_in_comm = rank.value(), .count = rank.value() % 3 == 0 ? 32 : 64});
      row.comms.back().p2p = true;
      window.add_comm(job.identity(rank), {.comm_id = kComm, .size = 4, .rank_in_comm = rank.value()});
      window.add_step(job.identity(rank), row);
    }
  }
  window.remember(0);
  const std::vector<Finding> findings = find_regressions(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kUnknown);
  EXPECT_EQ(findings[0].cause, Cause::kNone);
  EXPECT_FALSE(findings[0].sure);
  EXPECT_EQ(findings[0].since_step, 40_step);
}

TEST(Regression, AJobThatBecomesTwiceAsSlowBeforeItHasABaselineIsSuspected) {
  const auto from = [](int64_t first, double times) {
    return [=](StepNumber step, std::vector<RankPlan>& ranks) {
      for (RankPlan& rank : ranks) rank.own_ms *= step >= StepNumber{first} ? times : 1;
    };
  };
  for (int64_t steps : {24, 60}) {
    const std::vector<Finding> findings = findings_after(steps, from(12, 3));
    ASSERT_EQ(findings.size(), 1u) << steps;
    EXPECT_EQ(findings[0].since_step, 12_step);
    EXPECT_FALSE(findings[0].sure);
  }
  EXPECT_TRUE(findings_after(60, from(12, 1.3)).empty()) << "first steps may be that much shorter";
  EXPECT_TRUE(findings_after(60, from(4, 3)).empty()) << "and two of them are no past";
}

TEST(Regression, AFewLongStepsAndAJobThatSpeedsUpSayNothing) {
  EXPECT_TRUE(findings_after(60, [](StepNumber step, std::vector<RankPlan>& ranks) {
                for (RankPlan& rank : ranks) rank.own_ms *= step % 15 == 14 ? 2 : 1;
              }).empty());
  EXPECT_TRUE(findings_after(60, [](StepNumber step, std::vector<RankPlan>& ranks) {
                for (RankPlan& rank : ranks) rank.own_ms *= step < 40_step ? 1.3 : 1;
              }).empty());
}

TEST(Regression, ARestartIsComparedWithTheAttemptBefore) {
  MadeUpJob job(8);
  DiagnosisEngine engine;
  job.play(engine, 0_step, 40_step);
  job.attempt = 1;
  job.play(engine, 41_step, 80_step, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.own_ms *= 1.25;
  });
  std::vector<Verdict> verdicts = engine.verdicts("job");
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit.cause, Cause::kCodeRegression);
  EXPECT_EQ(verdicts[0].state, VerdictState::kConfirmed);
}

}  // namespace
}  // namespace lockstep
