#include "sources/nccl/step_inference.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr CommId kTp{11}, kDp{22}, kPp{33};

// One rank's program, told to the inference as it runs.
struct Program {
  StepInference inference;
  int64_t now_ns = kMs;
  std::map<std::pair<CommId, bool>, uint64_t> ordinals;
  std::vector<InferredStep> steps;
  bool seen = true;  // false: the records are lost

  void op(CommId comm, Function function, int64_t bytes, int64_t after_ms = 1, int32_t peer = -1) {
    now_ns += after_ms * kMs;
    const bool p2p = function == Function::kSend || function == Function::kRecv;
    const uint64_t ordinal = ++ordinals[{comm, p2p}];
    if (!seen) return;
    inference.add({comm, 8, p2p, function, Datatype::kBfloat16, bytes, peer, ordinal, now_ns});
    for (const InferredStep& step : inference.take()) steps.push_back(step);
  }
  void reduce(CommId comm, int64_t bytes, int64_t after_ms = 1) { op(comm, Function::kAllReduce, bytes, after_ms); }
  // Data parallel: buckets, the last one the largest.
  void ddp_step(int64_t forward_ms = 60) {
    reduce(kDp, 9'000'000, forward_ms);
    for (int i = 0; i < 5; ++i) reduce(kDp, 7'000'000);
    reduce(kDp, 11'000'000);
  }
  // Tensor parallel layers of one size in micro-batches, then the gradients.
  void tp_step(int micro_batches = 4, int layers = 12) {
    for (int i = 0; i < micro_batches * layers; ++i) reduce(kTp, 2'000'000, 2);
    reduce(kDp, 8'000'000);
  }
};

std::vector<StepNumber> numbers_of(const Program& program) {
  std::vector<StepNumber> numbers;
  for (const InferredStep& step : program.steps) numbers.push_back(step.step);
  return numbers;
}

TEST(StepInference, AStepEndsInFrontOfTheFirstOperationAfterItsLargestReduction) {
  Program program;
  for (int i = 0; i < 8; ++i) program.ddp_step();
  ASSERT_EQ(numbers_of(program), (std::vector<StepNumber>{1_step, 2_step, 3_step, 4_step, 5_step, 6_step}));
  for (const InferredStep& step : program.steps) EXPECT_EQ(step.end_ns - step.start_ns, 66 * kMs);
  // In front of the first bucket: the second step of the program began at 1 + 66 ms, its first bucket came 60 ms later.
  EXPECT_EQ(program.steps[0].start_ns, (1 + 66 + 60) * kMs);
}

TEST(StepInference, AWarmUpOfOtherOperationsBelongsToNoStep) {
  Program program;
  program.op(kDp, Function::kAllGather, 8);
  program.op(kDp, Function::kBroadcast, 220'000'000);
  program.reduce(kDp, 55'000'000, 900);
  program.op(kDp, Function::kBroadcast, 304);
  for (int i = 0; i < 6; ++i) program.ddp_step();
  EXPECT_EQ(numbers_of(program), (std::vector<StepNumber>{1_step, 2_step, 3_step, 4_step}));
}

TEST(StepInference, MicroBatchesAreNoSteps) {
  Program program;
  for (int i = 0; i < 7; ++i) program.tp_step();
  EXPECT_EQ(numbers_of(program), (std::vector<StepNumber>{1_step, 2_step, 3_step, 4_step, 5_step}));
  for (const InferredStep& step : program.steps) EXPECT_EQ(step.end_ns - step.start_ns, 97 * kMs);
}

TEST(StepInference, MicroBatchesThatLookedLikeStepsGiveWayToTheStepTheyArePartOf) {
  Program program;
  for (int step = 0; step < 8; ++step) {
    for (int i = 0; i < 6; ++i) {  // long enough to be steps
      program.reduce(kTp, 4'000'000, 30);
      program.reduce(kTp, 2'000'000, 30);
    }
    program.reduce(kDp, 8'000'000);
  }
  ASSERT_GT(program.steps.size(), 4u);
  EXPECT_LT(program.steps[0].end_ns - program.steps[0].start_ns, 70 * kMs);
  EXPECT_EQ(program.steps.back().end_ns - program.steps.back().start_ns, 361 * kMs);
  for (size_t i = 1; i < program.steps.size(); ++i) {
    EXPECT_GT(program.steps[i].step, program.steps[i - 1].step);
    EXPECT_GE(program.steps[i].start_ns, program.steps[i - 1].end_ns);
  }
}

TEST(StepInference, WhatComesNowAndThenIsPartOfTheStepItComesIn) {
  Program program;
  for (int i = 0; i < 60; ++i) {
    program.ddp_step();
    if (i % 10 == 9) program.reduce(kDp, 4);  // a loss is averaged
    if (i % 25 == 24) {                       // an evaluation
      for (int batch = 0; batch < 5; ++batch) program.reduce(kDp, 5'000'000, 40);
    }
  }
  EXPECT_EQ(program.inference.breaks(), 0u);
  std::vector<StepNumber> numbers = numbers_of(program);
  ASSERT_EQ(numbers.size(), 58u);
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], StepNumber{static_cast<int64_t>(i) + 1});
}

TEST(StepInference, RanksOfDifferentStagesGiveAStepTheSameNumber) {
  Program first, last;
  first.reduce(CommId{44}, 4);  // something only one of them does before the loop
  for (int i = 0; i < 9; ++i) {
    first.tp_step(4, 12);
    last.tp_step(4, 7);
  }
  EXPECT_EQ(numbers_of(first), numbers_of(last));
  EXPECT_EQ(numbers_of(first).back(), 7_step);
}

TEST(StepInference, ThreadsThatOvertakeEachOtherDoNotBreakThePattern) {
  Program program;
  for (int i = 0; i < 20; ++i) {
    program.reduce(i % 3 == 0 ? kTp : kPp, 1'000'000, 30);
    program.reduce(i % 3 == 0 ? kPp : kTp, 1'000'000, 30);
    program.reduce(kDp, 9'000'000);
  }
  EXPECT_EQ(numbers_of(program).back(), 18_step);
  EXPECT_EQ(program.inference.breaks(), 0u);
}

TEST(StepInference, SizesThatChangeFromStepToStepAreLeftOutOfThePattern) {
  Program program;
  for (int i = 0; i < 40; ++i) {
    for (int layer = 0; layer < 24; ++layer) program.reduce(kTp, 1'000'000 + 1000 * i, 3);
    program.reduce(kDp, 8'000'000);
  }
  std::vector<StepNumber> numbers = numbers_of(program);
  ASSERT_FALSE(numbers.empty());
  EXPECT_EQ(numbers.back(), 38_step);
}

TEST(StepInference, LayersThatAreAllAlikeAreToldByWhatComesBeforeThem) {
  Program program;  // fully sharded: gathered on the way there and back, gradients scattered on the way back
  for (int step = 0; step < 30; ++step) {
    for (int i = 0; i < 12; ++i) program.op(kDp, Function::kAllGather, 5'000'000, 2);
    for (int i = 0; i < 12; ++i) {
      program.op(kDp, Function::kAllGather, 5'000'000, 2);
      program.op(kDp, Function::kReduceScatter, 5'000'000, 2);
    }
  }
  ASSERT_FALSE(program.steps.empty());
  // The first scattering of a step is the one that can be told from the others: a step ends there.
  EXPECT_EQ(program.steps.back().end_ns - program.steps.back().start_ns, 72 * kMs);
  EXPECT_EQ(program.steps.back().step, 29_step);
}

TEST(StepInference, SendsAndReceivesAloneHaveAPatternToo) {
  Program program;
  for (int i = 0; i < 40; ++i) {
    for (int micro = 0; micro < 4; ++micro) program.op(kPp, Function::kSend, 1'000'000, micro == 0 ? 30 : 2, 1);
    for (int micro = 0; micro < 4; ++micro) program.op(kPp, Function::kRecv, 1'000'000, 3, 1);
  }
  ASSERT_FALSE(program.steps.empty());
  EXPECT_EQ(program.steps.back().end_ns - program.steps.back().start_ns, 48 * kMs);
  EXPECT_EQ(program.steps.back().step, 37_step);
  EXPECT_EQ(program.steps.size(), 38u);
  // In front of the first send of a step: the first step began at 1 ms, its first send came 30 ms later.
  EXPECT_EQ(program.steps.front().start_ns, (1 + 48 + 30) * kMs);
}

TEST(StepInference, LostRecordsLeaveAHoleAndTheNumbersAfterItAreRight) {
  Program whole, holed;
  for (int i = 0; i < 30; ++i) {
    whole.ddp_step();
    holed.seen = i < 12 || i >= 16;
    holed.ddp_step();
  }
  std::vector<StepNumber> numbers = numbers_of(holed);
  EXPECT_EQ(numbers.back(), numbers_of(whole).back());
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 14_step), 0);
  for (const InferredStep& step : holed.steps) EXPECT_EQ(step.end_ns - step.start_ns, 66 * kMs) << step.step;
}

TEST(StepInference, OneWhoComesLateNumbersByOrdinals) {
  Program whole, late;
  for (int i = 0; i < 40; ++i) {
    whole.ddp_step();
    late.seen = i >= 25;
    late.ddp_step();
  }
  ASSERT_FALSE(late.steps.empty());
  EXPECT_EQ(numbers_of(late).back(), numbers_of(whole).back());
  EXPECT_EQ(late.steps.back().start_ns, whole.steps.back().start_ns);
}

TEST(StepInference, ANewPatternAfterABreakTakesTheNextNumbers) {
  Program program;
  for (int i = 0; i < 10; ++i) program.ddp_step();
  const StepNumber last = numbers_of(program).back();
  for (int i = 0; i < 40; ++i) {  // another batch size
    program.reduce(kDp, 19'000'000, 80);
    program.reduce(kDp, 18'000'000, 5);
  }
  std::vector<StepNumber> numbers = numbers_of(program);
  EXPECT_GT(numbers.back(), last + 10);
  for (size_t i = 1; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], numbers[i - 1] + 1);
  EXPECT_GE(program.inference.breaks(), 1u);
}

TEST(StepInference, SaysThatItCannotTellWhereNothingRepeats) {
  Program program;
  EXPECT_EQ(program.inference.state(), StepInference::State::kNothing);
  for (int i = 0; i < 400; ++i) program.reduce(kDp, 100'000 + i * 1000, 50 + i % 7);
  EXPECT_EQ(program.inference.state(), StepInference::State::kSearching);
  Program ragged;
  uint64_t seed = 1;
  for (int i = 0; i < 4000; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ragged.op(seed >> 33 & 1 ? kDp : kTp, seed >> 34 & 1 ? Function::kAllReduce : Function::kAllGather,
              static_cast<int64_t>(100'000 + (seed >> 40) % 50 * 1000), 25);
  }
  EXPECT_EQ(ragged.inference.state(), StepInference::State::kCannotTell);
  EXPECT_TRUE(ragged.steps.empty());
}

TEST(StepInference, TheLastStepEndsWithTheRank) {
  Program program;
  for (int i = 0; i < 6; ++i) program.ddp_step();
  program.inference.finish(program.now_ns + 20 * kMs);
  std::vector<InferredStep> rest = program.inference.take();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].step, 5_step);
  EXPECT_EQ(rest[0].end_ns, program.now_ns + 20 * kMs);
}

}  // namespace
}  // namespace lockstep
