#include "sources/nccl/time_split.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kTensor = 1;
constexpr uint32_t kGradients = 2;

// Times in ms, from the step's begin at 1000.
struct Step {
  Interval window{1000 * kMs, 1100 * kMs};
  std::vector<SplitOp> ops;
  std::vector<SplitPhase> phases;

  static int64_t at(double ms) { return 1000 * kMs + static_cast<int64_t>(ms * 1e6); }
  void op(double enqueued, double start, double end, uint32_t chain = kTensor) {
    ops.push_back({at(enqueued), at(start), at(end), chain, true});
  }
  void phase(Phase phase, double begin, double end) { phases.push_back({phase, {at(begin), at(end)}}); }
  std::optional<TimeSplit> split() const { return split_time({window, ops, phases}); }
  double ms(TimePart part) const {
    auto parts = split();
    if (!parts) return -1;
    int64_t total = 0;
    for (int64_t ns : *parts) {
      EXPECT_GE(ns, 0);
      total += ns;
    }
    EXPECT_EQ(total, window.end - window.begin);
    return static_cast<double>((*parts)[static_cast<size_t>(part)]) / 1e6;
  }
};

constexpr double kHandOverMs = kHandOverNs / 1e6;

TEST(TimeSplit, IsNotKnownWithoutAnyOperation) {
  Step step;
  step.phase(Phase::kForward, 0, 100);
  EXPECT_FALSE(step.split().has_value());
  step.op(200, 210, 220);  // of a later step
  EXPECT_FALSE(step.split().has_value());
}

TEST(TimeSplit, AnOperationThatWaitsWhileNoneRunsShowsThatTheRanksOwnWorkRuns) {
  Step step;
  step.phase(Phase::kForward, 0, 100);
  step.op(1, 40, 60);
  step.op(2, 80, 100);  // behind the first: its wait is compute only from that one's end on
  EXPECT_NEAR(step.ms(TimePart::kCompute), 40 + 20 - kHandOverMs, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kCommunication), 40, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kIdle), kHandOverMs, 1e-9);
}

TEST(TimeSplit, AnOperationThatStartsAtOnceShowsThatTheGpuWaitedForTheHost) {
  Step step;
  step.phase(Phase::kInput, 0, 10);
  step.phase(Phase::kForward, 10, 70);
  step.op(60, 60.02, 100);
  EXPECT_NEAR(step.ms(TimePart::kInput), 10, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kHost), 50.02, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kCommunication), 39.98, 1e-9);
  EXPECT_EQ(step.ms(TimePart::kCompute), 0);
}

TEST(TimeSplit, WithoutPhasesTheReasonOfAnIdleGpuIsNotKnown) {
  Step step;
  step.op(60, 60.02, 100);
  EXPECT_NEAR(step.ms(TimePart::kIdle), 60.02, 1e-9);
  EXPECT_EQ(step.ms(TimePart::kHost), 0);
}

TEST(TimeSplit, AGpuThatIsBehindWasAtWorkWhileTheHostLaunched) {
  Step step;
  step.phase(Phase::kInput, 0, 10);
  step.phase(Phase::kForward, 10, 100);
  step.op(30, 80, 100);
  EXPECT_NEAR(step.ms(TimePart::kInput), 10, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kCompute), 70, 1e-9);
  EXPECT_EQ(step.ms(TimePart::kHost), 0);
}

TEST(TimeSplit, AnInputPhaseThatTheGpuWorksThroughCostsNothing) {
  Step step;
  step.phase(Phase::kInput, 5, 25);
  step.op(1, 40, 100);
  EXPECT_EQ(step.ms(TimePart::kInput), 0);
  EXPECT_NEAR(step.ms(TimePart::kCompute), 40, 1e-9);
}

TEST(TimeSplit, AfterTheLastOperationTheGpuWorksForAsLongAsTheHostWasAhead) {
  Step step;
  step.phase(Phase::kOptimizer, 0, 90);
  step.phase(Phase::kCheckpoint, 90, 100);
  step.op(50, 55, 70);  // the host was 20 ms ahead when it ended
  EXPECT_NEAR(step.ms(TimePart::kCheckpoint), 10, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kCompute), 50 + 5 + 20, 1e-9);  // before it, its wait, after it
  Step late = step;
  late.ops.clear();
  late.op(50, 50.01, 51);
  EXPECT_NEAR(late.ms(TimePart::kHost), 50.01 + 38, 1e-9);
  EXPECT_NEAR(late.ms(TimePart::kCompute), 1, 1e-9);
}

TEST(TimeSplit, AHostThatWaitsForTheGpuIsNotAtWork) {
  Step step;
  step.phase(Phase::kForward, 0, 20);
  step.phase(Phase::kSync, 20, 100);
  step.op(10, 10.02, 11);
  EXPECT_NEAR(step.ms(TimePart::kCompute), 1 + 80, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kHost), 10.02 + 8, 1e-9);
}

TEST(TimeSplit, AnOperationStillRunningWhenTheNextStartsWasNotWaitedFor) {
  Step step;
  step.op(0, 0.02, 90, kGradients);  // runs beside everything
  step.op(1, 30, 40);
  step.op(2, 60, 100);
  EXPECT_NEAR(step.ms(TimePart::kCompute), 29 + 20 - kHandOverMs, 1e-9);
}

TEST(TimeSplit, GradientsAreReducedBesideTheBackwardPass) {
  Step step;
  step.phase(Phase::kForward, 0, 1);
  step.phase(Phase::kBackward, 1, 5);
  step.phase(Phase::kSync, 5, 100);
  for (int i = 0; i < 4; ++i) step.op(2 + 0.1 * i, 20 + 20 * i, 32 + 20 * i, kGradients);
  // The last has nothing left to hide behind.
  EXPECT_NEAR(step.ms(TimePart::kCommunication), 12, 1e-9);
  // A function that is used in forward as well hands on results that the next layer needs.
  step.op(0.5, 0.6, 0.7, kGradients);
  EXPECT_NEAR(step.ms(TimePart::kCommunication), 4 * 12 + 0.1, 1e-9);
}

TEST(TimeSplit, OperationsThatFollowEachOtherWithoutAGapAreExposed) {
  Step step;
  step.phase(Phase::kBackward, 0, 5);
  step.op(1, 1.01, 30, kGradients);
  step.op(2, 30.005, 60, kGradients);
  step.op(3, 60.005, 100, kGradients);
  EXPECT_NEAR(step.ms(TimePart::kCommunication), 98.98, 1e-9);
}

TEST(TimeSplit, AGapThatShrinksAsTheOperationGrowsShowsWorkBesideIt) {
  Step beside;
  Step after;
  const double lengths[] = {1, 4, 2, 5, 3, 1, 4, 2, 5, 3};
  double start = 10;
  double later = 10;
  for (double length : lengths) {
    beside.op(0.1, start, start + length);
    start += 8;  // work from start to start
    after.op(0.1, later, later + length);
    later += length + 4;  // work after the end
  }
  EXPECT_NEAR(beside.ms(TimePart::kCommunication), 3, 1e-9);  // the last
  EXPECT_NEAR(after.ms(TimePart::kCommunication), 30, 1e-9);
}

TEST(TimeSplit, WorkOfTheStepBeforeThatReachesIntoThisOneCounts) {
  Step step;
  step.op(-50, -10, 20);
  step.op(-40, 30, 60);
  step.op(70, 110, 120);  // starts after the host has ended the step
  EXPECT_NEAR(step.ms(TimePart::kCommunication), 20 + 30, 1e-9);
  EXPECT_NEAR(step.ms(TimePart::kCompute), 10 - kHandOverMs + 10 + 30, 1e-9);
}

TEST(TimeSplit, AddsUpWhateverTheTimesAre) {
  std::mt19937_64 random(20'241'115);
  auto ms = [&](double from, double to) { return std::uniform_real_distribution<double>(from, to)(random); };
  for (int round = 0; round < 2'000; ++round) {
    Step step;
    size_t ops = 1 + random() % 40;
    for (size_t i = 0; i < ops; ++i) {
      double enqueued = ms(-20, 99);
      double start = enqueued + ms(-0.01, random() % 2 == 0 ? 0.2 : 40);
      step.op(enqueued, start, std::max(start + ms(0, random() % 2 == 0 ? 0.3 : 40), 0.1), random() % 3);
    }
    double at = ms(-5, 10);
    while (at < 100) {
      double end = at + ms(0, 30);
      step.phase(static_cast<Phase>(random() % kPhaseCount), at, end);
      at = end + (random() % 2 == 0 ? 0 : ms(0, 5));
    }
    EXPECT_GE(step.ms(TimePart::kIdle), 0) << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep
