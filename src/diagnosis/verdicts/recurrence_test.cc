#include "diagnosis/verdicts/recurrence.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace lockstep {
namespace {

Recurrence of(std::initializer_list<int64_t> late, int64_t newest) {
  std::vector<StepNumber> steps;
  for (int64_t step : late) steps.emplace_back(step);
  return recurrence_of(steps, StepNumber{newest});
}

TEST(Recurrence, LateInEveryStepIsPersistentAndSoIsOneThatMissesAStepNowAndThen) {
  EXPECT_EQ(of({40, 41, 42}, 42).pattern, Pattern::kPersistent);
  EXPECT_EQ(of({40, 41, 43, 44, 45, 47, 48}, 48).pattern, Pattern::kPersistent);
  EXPECT_EQ(of({}, 48).pattern, Pattern::kPersistent) << "nothing speaks against it";
  EXPECT_EQ(of({40}, 40).pattern, Pattern::kPersistent) << "it has just begun";
}

TEST(Recurrence, WhatComesBackAfterTheSameStepsIsPeriodicAndThePeriodIsTold) {
  for (const Recurrence& one : {of({40, 48, 56, 64}, 66), of({40, 41, 48, 49, 56, 57}, 60), of({40, 47, 56, 64}, 64)}) {
    EXPECT_EQ(one.pattern, Pattern::kPeriodic);
    EXPECT_EQ(one.period_steps, 8);
  }
  EXPECT_EQ(of({10, 110, 215, 305}, 400).period_steps, 100) << "a cron job is not that exact";
  EXPECT_EQ(of({10, 12, 14, 16, 18, 20}, 20).period_steps, 2);
}

TEST(Recurrence, OneThatMissesATimeStaysPeriodic) {
  const Recurrence one = of({40, 48, 56, 72, 80, 88}, 90);
  EXPECT_EQ(one.pattern, Pattern::kPeriodic);
  EXPECT_EQ(one.period_steps, 8);
}

TEST(Recurrence, WhatComesAndGoesWithoutAPeriodIsTransient) {
  EXPECT_EQ(of({40, 43, 55, 57, 71}, 75).pattern, Pattern::kTransient);
  EXPECT_EQ(of({40, 42, 43, 47, 49, 50, 53}, 60).pattern, Pattern::kTransient);
}

TEST(Recurrence, WhatCameOnceOrTwiceAndIsOverIsTransient) {
  EXPECT_EQ(of({40, 41, 42, 43}, 60).pattern, Pattern::kTransient);
  EXPECT_EQ(of({40, 48}, 50).pattern, Pattern::kTransient) << "two times make no period";
  EXPECT_EQ(of({40, 48, 56, 64}, 100).pattern, Pattern::kTransient) << "it should have been back long ago";
}

// Four ranks in one communicator, of which rank 2 is late in every fourth step.
class LateInStep : public ::testing::Test {
 protected:
  LateInStep() {
    for (int32_t rank = 0; rank < 4; ++rank) {
      Identity identity;
      identity.job_id = "job";
      identity.rank = Rank{rank};
      identity.world_size = 4;
      for (int64_t step = 0; step < 24; ++step) {
        const int64_t more = step % 4 == 0 ? 50'000'000 : 0;
        StepSummary summary;
        summary.step = StepNumber{step};
        summary.duration_ns = 100'000'000 + more;
        summary.self_ns = 60'000'000 + (rank == 2 ? more : 0);
        CommStep comm;
        comm.comm_id = CommId{1};
        comm.size = 4;
        comm.rank_in_comm = rank;
        comm.count = 1;
        comm.gpu_ns = summary.duration_ns - summary.self_ns;
        summary.comms = {comm};
        window_.add_step(identity, summary);
      }
    }
    finding_.ranks = {2_rank};
    finding_.layer = Layer::kHost;
    finding_.step_ns = 150'000'000;
    finding_.step_without_ns = 100'000'000;
  }
  JobWindow window_;
  Finding finding_;
};

TEST_F(LateInStep, IsSeenInTheCulpritsOwnTime) {
  EXPECT_TRUE(is_late_in(window_, finding_, 8_step));
  EXPECT_FALSE(is_late_in(window_, finding_, 9_step));
  finding_.ranks = {1_rank};
  EXPECT_FALSE(is_late_in(window_, finding_, 8_step)) << "it waits";
}

TEST_F(LateInStep, IsSeenInTheStepWhereOwnTimeDoesNotShowIt) {
  finding_.layer = Layer::kLink;
  finding_.ranks = {1_rank};
  EXPECT_TRUE(is_late_in(window_, finding_, 8_step));
  EXPECT_FALSE(is_late_in(window_, finding_, 9_step));
  EXPECT_FALSE(is_late_in(window_, finding_, 99_step)) << "nobody remembers it";
}

}  // namespace
}  // namespace lockstep
