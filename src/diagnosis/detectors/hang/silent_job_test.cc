#include "diagnosis/detectors/hang/silent_job.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;

constexpr int64_t kStepNs = kSecondNs / 10;

// Four ranks that have ended ten steps of 100 ms and begun the next, without a communicator; then nothing.
class SilentJob {
 public:
  explicit SilentJob(int64_t quiet_ns = 20 * kSecondNs) {
    for (int64_t step = 0; step < 10; ++step) {
      for (Rank rank : all_ranks(4)) {
        StepSummary summary;
        summary.step = StepNumber{step};
        summary.start_unix_ns = kEpochNs + step * kStepNs;
        summary.duration_ns = kStepNs;
        window.add_step({"job", 0, rank, 4, rank.value(), "node-0", ""}, summary);
      }
    }
    window.remember(0);
    input.typical_step_ns = kStepNs;
    for (Rank rank : all_ranks(4))
      input.status[rank] = {.time_unix_ns = kEpochNs, .quiet_ns = quiet_ns, .step = 10_step, .phase = Phase::kForward};
  }
  std::optional<Finding> find() const { return find_hang(window, input); }

  JobWindow window;
  HangInput input;
};

TEST(SilentJob, AStoppedProcessIsNamedAfterAFewSteps) {
  SilentJob job(3 * kSecondNs);
  job.input.status[1_rank].process_stopped = true;
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, VerdictKind::kHang);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{1_rank}));
  EXPECT_EQ(found->cause, Cause::kProcessPaused);
  EXPECT_EQ(found->layer, Layer::kHost);
  EXPECT_TRUE(found->sure);
  EXPECT_EQ(found->victims, (std::vector<Rank>{0_rank, 2_rank, 3_rank}));
  EXPECT_EQ(verdict_sentence(*found, {}),
            "Process stands still (host): Rank 1 (node-0) is stopped; 3 ranks have not moved for 3.0 s.");
}

TEST(SilentJob, ADeadProcessIsNamedWhileTheOthersWait) {
  SilentJob job(3 * kSecondNs);
  job.input.status[3_rank].process_alive = false;
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{3_rank}));
  EXPECT_EQ(found->cause, Cause::kRankDead);
  EXPECT_EQ(verdict_sentence(*found, {}), "Rank died (host): Rank 3 (node-0) died; 3 ranks have not moved for 3.0 s.");
}

TEST(SilentJob, WhoStandsApartIsNamedAndTimeMakesItSure) {
  SilentJob job(11 * kSecondNs);
  job.input.status[2_rank].phase = Phase::kInput;
  std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{2_rank}));
  EXPECT_EQ(found->cause, Cause::kRankMissing);
  EXPECT_EQ(
      verdict_sentence(*found, {}),
      "Rank missing (software): Rank 2 (node-0) stands in step 10, phase input; 3 ranks have not moved for 11 s.");
  EXPECT_EQ(found->next.front().command, "lockstep hang {job} --stacks 2");

  job.input.status[2_rank] = {
      .time_unix_ns = kEpochNs, .quiet_ns = 11 * kSecondNs, .step = 9_step, .phase = Phase::kOther};
  found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{2_rank}));
  EXPECT_EQ(verdict_sentence(*found, {}),
            "Rank missing (software): Rank 2 (node-0) stands in step 9; 3 ranks have not moved for 11 s.");

  // One that is ahead waits for the rest.
  job.input.status[2_rank].step = 11_step;
  found = job.find();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->ranks.empty());
}

TEST(SilentJob, WhereNobodyStandsApartItSaysThatItDoesNotSeeWhy) {
  SilentJob job;
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->ranks.empty());
  EXPECT_EQ(found->cause, Cause::kNone);
  EXPECT_EQ(
      verdict_sentence(*found, {}),
      "No rank has moved for 20 s (a step takes 100 ms); all 4 stand in step 10, phase forward, and what they wait "
      "for is not seen.");
}

TEST(SilentJob, WhoMovesOrIsBusyOrHasEndedIsNoHang) {
  SilentJob moves;
  moves.input.status[0_rank].quiet_ns = 0;
  EXPECT_FALSE(moves.find());
  SilentJob saves;
  saves.input.status[0_rank].phase = Phase::kCheckpoint;
  EXPECT_FALSE(saves.find());
  SilentJob unheard;
  unheard.input.status.erase(2_rank);
  EXPECT_FALSE(unheard.find());
  unheard.input.left.insert(2_rank);  // it ended by itself
  EXPECT_TRUE(unheard.find());
  SilentJob between;  // after its last step a job may do what it likes
  for (auto& [rank, status] : between.input.status) status.step = 9_step;
  EXPECT_FALSE(between.find());
  SilentJob young;
  young.input.typical_step_ns = 0;
  EXPECT_FALSE(young.find());
}

TEST(SilentJob, AloneTimeMustBeLongerThanAnyStepOfThisJob) {
  EXPECT_FALSE(SilentJob(9 * kSecondNs).find());
  SilentJob job(15 * kSecondNs);
  EXPECT_TRUE(job.find());
  StepFacts slow;
  slow.duration_ns = 8.0 * kSecondNs;  // it evaluates inside a step now and then
  std::deque<StepFacts> facts = job.window.facts();
  facts.push_back(slow);
  job.window.set_facts(facts);
  EXPECT_FALSE(job.find());
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 17 * kSecondNs;
  EXPECT_TRUE(job.find());
}

}  // namespace
}  // namespace lockstep
