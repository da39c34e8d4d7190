#include "diagnosis/detectors/rotating_stall/rotating_stall.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

std::vector<Finding> findings_after(int64_t steps, const testing::StepPlan& plan, int32_t ranks = 32) {
  MadeUpJob job(ranks);
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps - 1}, plan);
  return find_rotating_stall(window, {});
}

size_t whose_turn(StepNumber step, size_t ranks) {
  return static_cast<size_t>(step.value() * 7 + step.value() / 5) % ranks;
}

TEST(Turns, RanksThatStallByTurnsAreOneFindingThatBlamesNobody) {
  std::vector<Finding> findings = findings_after(40, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step >= 20_step) ranks[whose_turn(step, ranks.size())].own_ms += 30;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(findings[0].ranks.empty());
  EXPECT_EQ(findings[0].layer, Layer::kSoftware);
  EXPECT_EQ(findings[0].cause, Cause::kGc);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 28e6, 4e6);
}

TEST(Turns, ThreeStepsInARowAreSuspectedOnly) {
  std::vector<Finding> findings = findings_after(40, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step >= 37_step) ranks[whose_turn(step, ranks.size())].own_ms += 30;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_FALSE(findings[0].sure);
}

TEST(Turns, AStallInOneStepOfFiveIsPartOfAnyJob) {
  EXPECT_TRUE(findings_after(60, [](StepNumber step, std::vector<RankPlan>& ranks) {
                if (step % 5 == 0) ranks[whose_turn(step, ranks.size())].own_ms += 60;
              }).empty());
}

TEST(Turns, OneRankThatIsLateInEveryStepHasNoTurns) {
  EXPECT_TRUE(findings_after(40, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[5].own_ms += 30; }).empty());
}

TEST(Turns, MoreWorkForTheGpuOrALateInputIsNoStall) {
  EXPECT_TRUE(findings_after(40, [](StepNumber step, std::vector<RankPlan>& ranks) {
                RankPlan& turn = ranks[whose_turn(step, ranks.size())];
                turn.own_ms += 30;
                turn.queue_ms += 28;
              }).empty());
  EXPECT_TRUE(findings_after(40, [](StepNumber step, std::vector<RankPlan>& ranks) {
                RankPlan& turn = ranks[whose_turn(step, ranks.size())];
                turn.own_ms += 30;
                turn.input_ms += 30;
              }).empty());
}

TEST(Turns, AJobOfFiveRanksHasThemToo) {
  const std::vector<Finding> findings = findings_after(
      40,
      [](StepNumber step, std::vector<RankPlan>& ranks) {
        if (step >= 20_step) ranks[whose_turn(step, ranks.size())].own_ms += 30;
      },
      5);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].cause, Cause::kGc);
  EXPECT_TRUE(findings[0].sure);
}

TEST(Turns, WhereMostStallsAreOneRanksItIsThatRanksTrouble) {
  EXPECT_TRUE(findings_after(
                  40,
                  [](StepNumber step, std::vector<RankPlan>& ranks) {
                    ranks[step % 3 == 0 ? whose_turn(step, ranks.size()) : 2].own_ms += 30;
                  },
                  5)
                  .empty());
}

TEST(Turns, InNoiseWithALongTailSomebodyOfAFewIsAlwaysTheLatest) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    std::student_t_distribution<double> noise(3);
    EXPECT_TRUE(findings_after(
                    60,
                    [&](StepNumber, std::vector<RankPlan>& ranks) {
                      for (RankPlan& rank : ranks) rank.own_ms += 3 * std::abs(noise(random));
                    },
                    5)
                    .empty())
        << seed;
  }
}

TEST(Turns, OfThreeRanksEachHasItsTurnByChance) {
  EXPECT_TRUE(
      findings_after(
          40, [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[whose_turn(step, ranks.size())].own_ms += 30; },
          3)
          .empty());
}

}  // namespace
}  // namespace lockstep
