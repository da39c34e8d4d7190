#include "diagnosis/detectors/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

std::vector<Finding> findings_after(int64_t steps,
                                    const std::function<double(StepNumber step, size_t rank)>& length_ms) {
  MadeUpJob job(8);
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps - 1}, [&](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step % 10 != 9) return;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].checkpoint_ms = length_ms(step, rank);
      ranks[rank].own_ms += ranks[rank].checkpoint_ms;
    }
  });
  window.remember(0);
  return find_long_checkpoints(window, {});
}

TEST(Checkpoint, CheckpointsOfAllRanksThatTakeLongerThanBeforeAreTheStorage) {
  std::vector<Finding> findings =
      findings_after(80, [](StepNumber step, size_t) { return step > 50_step ? 120.0 : 60.0; });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].cause, Cause::kCheckpoint);
  EXPECT_EQ(findings[0].layer, Layer::kInput);
  EXPECT_TRUE(findings[0].ranks.empty());
  EXPECT_TRUE(findings[0].sure);
  EXPECT_EQ(findings[0].since_step, 59_step);
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 6e6, 1e6);
}

TEST(Checkpoint, OneLongCheckpointIsSuspectedOnly) {
  std::vector<Finding> findings =
      findings_after(60, [](StepNumber step, size_t) { return step > 50_step ? 120.0 : 60.0; });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_FALSE(findings[0].sure);
}

TEST(Checkpoint, WhereOneRankAloneTakesLongerItIsNamed) {
  std::vector<Finding> findings =
      findings_after(80, [](StepNumber step, size_t rank) { return step > 50_step && rank == 3 ? 120.0 : 60.0; });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
}

TEST(Checkpoint, LongCheckpointsThatAlwaysWereSoAreNoNews) {
  EXPECT_TRUE(findings_after(80, [](StepNumber, size_t) { return 300.0; }).empty());
}

TEST(Checkpoint, WhatIsOverIsNotFound) {
  EXPECT_TRUE(findings_after(80, [](StepNumber step, size_t) { return step == 59_step ? 120.0 : 60.0; }).empty());
}

TEST(Checkpoint, LengthsThatAlwaysDifferedDoNotCount) {
  EXPECT_TRUE(findings_after(100, [](StepNumber step, size_t) {
                return 60.0 + static_cast<double>(step.value() * 7919 % 40);
              }).empty());
}

}  // namespace
}  // namespace lockstep
