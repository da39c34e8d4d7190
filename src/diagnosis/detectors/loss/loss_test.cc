#include "diagnosis/detectors/loss/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

std::vector<Finding> findings_after(const std::function<void(StepNumber, size_t, RankPlan&)>& report) {
  MadeUpJob job(8);
  JobWindow window;
  job.play(window, 0_step, 40_step, [&](StepNumber step, std::vector<RankPlan>& ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) report(step, rank, ranks[rank]);
  });
  return find_bad_loss(window, {});
}

TEST(Loss, TheRankWhoseOwnGradientIsNotANumberFirstIsTheSource) {
  std::vector<Finding> findings = findings_after([](StepNumber step, size_t rank, RankPlan& plan) {
    plan.scalars = {{"grad_norm_local", step >= 30_step && rank == 6 ? std::nan("") : 1.0},
                    {"loss", step >= 31_step ? std::nan("") : 2.0}};
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, VerdictKind::kIncorrect);
  EXPECT_EQ(findings[0].cause, Cause::kNanSource);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(findings[0].since_step, 30_step);
}

TEST(Loss, WithoutLocalValuesNobodyIsNamed) {
  std::vector<Finding> findings = findings_after([](StepNumber step, size_t, RankPlan& plan) {
    plan.scalars = {{"loss", step >= 31_step ? INFINITY : 2.0}};
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(findings[0].ranks.empty());
  EXPECT_TRUE(findings[0].sure);
}

TEST(Loss, AJumpIsSuspectedOnly) {
  std::vector<Finding> findings = findings_after([](StepNumber step, size_t, RankPlan& plan) {
    plan.scalars = {{"grad_norm", step == 40_step ? 9.0 : 1.0}};
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_FALSE(findings[0].sure);
  EXPECT_EQ(findings[0].cause, Cause::kLossSpike);
}

TEST(Loss, ALossThatFallsSaysNothing) {
  EXPECT_TRUE(findings_after([](StepNumber step, size_t, RankPlan& plan) {
                plan.scalars = {{"loss", 10.0 / static_cast<double>(step.value() + 1)}};
              }).empty());
}

}  // namespace
}  // namespace lockstep
