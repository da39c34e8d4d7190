#include "diagnosis/price.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

constexpr double kMs = testing::kMs;

// Steps of 120 ms that take 30 ms longer from step 20 on.
JobWindow& played(JobWindow& window, StepNumber through) {
  MadeUpJob job(8);
  job.play(window, 0_step, through, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.own_ms += step >= 20_step ? 30 : 0;
  });
  window.remember(0);
  return window;
}

TEST(CostOfAStep, IsWhatStepsTakeLongerSince) {
  JobWindow window;
  played(window, 40_step);
  EXPECT_NEAR(cost_of_a_step(window, 20_step, 60 * kMs, 150 * kMs), 30 * kMs, 2 * kMs);
  EXPECT_NEAR(cost_of_a_step(window, 20_step, 5 * kMs, 150 * kMs), 30 * kMs, 2 * kMs);
  EXPECT_EQ(cost_of_a_step(window, 20_step, 60 * kMs, 10 * kMs), 10 * kMs);
}

TEST(CostOfAStep, IsWhatWasAddedUpWithinChance) {
  JobWindow window;
  played(window, 40_step);
  const double measured = cost_of_a_step(window, 20_step, 60 * kMs, 150 * kMs);
  EXPECT_EQ(cost_of_a_step(window, 20_step, measured + 0.05 * kMs, 150 * kMs), measured + 0.05 * kMs);
}

TEST(CostOfAStep, IsWhatWasAddedUpWhereThereIsNothingBefore) {
  JobWindow window;
  played(window, 40_step);
  EXPECT_EQ(cost_of_a_step(window, 3_step, 60 * kMs, 150 * kMs), 60 * kMs);
  EXPECT_EQ(cost_of_a_step(window, 39_step, 60 * kMs, 150 * kMs), 60 * kMs);  // two steps are too few
}

// The window has forgotten how it began: what it remembers as the first slow step has slow ones before it.
TEST(CostOfAStep, IsWhatWasAddedUpWhereItIsAsOldAsTheWindow) {
  JobWindow window;
  played(window, 240_step);
  const StepNumber oldest = window.steps_to_compare().front();
  ASSERT_GT(oldest, 20_step);
  EXPECT_EQ(cost_of_a_step(window, oldest, 30 * kMs, 150 * kMs), 30 * kMs);
}

}  // namespace
}  // namespace lockstep
