#include "diagnosis/detectors/less_work/less_work.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

std::vector<Finding> after(int64_t steps, const std::function<double(StepNumber)>& work,
                           const std::function<double(StepNumber)>& length, const char* scalar = "flops") {
  MadeUpJob job(8);
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps}, [&](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) {
      rank.scalars = {{scalar, 4e13 * work(step)}};
      rank.own_ms *= length(step);
    }
  });
  window.remember(0);
  return find_less_work(window, {});
}
double same(StepNumber) {
  return 1;
}
double less_from_40(StepNumber step) {
  return step >= 40_step ? 0.7 : 1;
}

TEST(LessWork, FewerFlopsInStepsOfTheSameLengthAreFound) {
  const std::vector<Finding> findings = after(70, less_from_40, same);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, VerdictKind::kInefficient);
  EXPECT_EQ(findings[0].cause, Cause::kLessWork);
  EXPECT_EQ(findings[0].since_step, 40_step);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_TRUE(findings[0].ranks.empty());
}

TEST(LessWork, TokensWillDoWhereNoFlopsAreTold) {
  EXPECT_EQ(after(70, less_from_40, same, "tokens").size(), 1u);
  EXPECT_TRUE(after(70, less_from_40, same, "reward").empty()) << "nothing is known of the work";
}

TEST(LessWork, ShorterStepsWithLessWorkLoseNothing) {
  EXPECT_TRUE(after(70, less_from_40, less_from_40).empty());
}

TEST(LessWork, LongerStepsAreSomebodyElsesVerdict) {
  EXPECT_TRUE(after(70, same, [](StepNumber step) { return step >= 40_step ? 1.4 : 1; }).empty());
}

TEST(LessWork, APartialBatchAndUnevenOnesSayNothing) {
  EXPECT_TRUE(after(
                  70, [](StepNumber step) { return step == 69_step || step == 68_step ? 0.2 : 1; }, same)
                  .empty());
  EXPECT_TRUE(after(
                  70, [](StepNumber step) { return 0.8 + 0.05 * static_cast<double>(step.value() * 7 % 9); }, same)
                  .empty());
}

}  // namespace
}  // namespace lockstep
