#include "analysis/lines/line_difference.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kTrain = "/job/train.py";
constexpr const char* kLoader = "/job/loader.py";
constexpr const char* kTorch = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py";

struct Stack {
  std::vector<StackFrame> frames;  // innermost first
  int64_t count;
  ThreadRole role = ThreadRole::kMain;
  int32_t pid = 1;
};

RankSamples samples_of(const std::vector<Stack>& stacks) {
  RankSamples samples{.duration_ms = 1000, .looks = 100, .hz = 100};
  for (const Stack& stack : stacks) {
    samples.threads.push_back({.role = stack.role, .pid = stack.pid});
    CountedStack counted{.thread = static_cast<uint32_t>(samples.threads.size() - 1), .count = stack.count};
    for (const StackFrame& frame : stack.frames) {
      counted.frames.push_back(static_cast<uint32_t>(samples.frames.size()));
      samples.frames.push_back(frame);
    }
    samples.stacks.push_back(std::move(counted));
  }
  return samples;
}

const StackFrame kMain{"<module>", kTrain, 150};
const StackFrame kStep{"train", kTrain, 90};
const StackFrame kWait{"all_reduce", kTorch, 2696};

std::string named(const SampledRanks& ranks) {
  const Rank peers[] = {5_rank};
  return line_difference(ranks, 2_rank, peers).sentence;
}

TEST(LineDifference, NamesTheLineThatTheSlowRankIsInWhileItsPeerWaits) {
  SampledRanks ranks;
  ranks[2_rank] =
      samples_of({{{{"load_batch", kTrain, 142}, kStep, kMain}, 61}, {{kWait, kStep, kMain}, 4}, {{kStep, kMain}, 35}});
  ranks[5_rank] = samples_of({{{{"load_batch", kTrain, 142}, kStep, kMain}, 2},
                              {{kWait, {"train", kTrain, 95}, kMain}, 63},
                              {{kStep, kMain}, 35}});
  const Rank peers[] = {5_rank};
  const LineDifference difference = line_difference(ranks, 2_rank, peers);
  EXPECT_EQ(difference.sentence, "train.py:142 in load_batch: 61 % of rank 2's time, 2 % of rank 5's.");
  ASSERT_TRUE(difference.instead);
  EXPECT_EQ(difference.instead->frame, (StackFrame{"train", kTrain, 95}));
}

TEST(LineDifference, LibraryCodeBelowTheLineIsNotBlamed) {
  SampledRanks ranks;
  const StackFrame library{"decode", "/usr/lib/python3/dist-packages/PIL/Image.py", 300};
  ranks[2_rank] = samples_of({{{library, {"read", kLoader, 12}, kMain}, 70}, {{kMain}, 30}});
  ranks[5_rank] = samples_of({{{library, {"read", kLoader, 12}, kMain}, 10}, {{kMain}, 90}});
  EXPECT_EQ(named(ranks), "loader.py:12 in read: 70 % of rank 2's time, 10 % of rank 5's.");
}

TEST(LineDifference, ALoopOverSeveralLinesIsNamedByItsWorstLineAndAsAWhole) {
  SampledRanks ranks;
  ranks[2_rank] =
      samples_of({{{{"augment", kLoader, 20}, kMain}, 25}, {{{"augment", kLoader, 21}, kMain}, 35}, {{kMain}, 40}});
  ranks[5_rank] = samples_of({{{kMain}, 100}});
  EXPECT_EQ(named(ranks),
            "loader.py:21 in augment: 35 % of rank 2's time, 0 % of rank 5's (the whole function: 60 %, 0 %).");
}

TEST(LineDifference, ASlowWorkerIsNamedRatherThanTheMainThreadThatWaitsForIt) {
  SampledRanks ranks;
  const StackFrame get{"get", "/usr/lib/python3.11/multiprocessing/queues.py", 103};
  const StackFrame read{"__getitem__", kLoader, 33};
  ranks[2_rank] = samples_of({{{get, {"train", kTrain, 80}, kMain}, 70},
                              {{kStep, kMain}, 30},
                              {{read}, 98, ThreadRole::kWorker, 7},
                              {{read}, 94, ThreadRole::kWorker, 8},
                              {{get}, 2, ThreadRole::kWorker, 7}});
  ranks[5_rank] = samples_of({{{kWait, kStep, kMain}, 70},
                              {{kStep, kMain}, 30},
                              {{read}, 20, ThreadRole::kWorker, 17},
                              {{get}, 80, ThreadRole::kWorker, 17}});
  EXPECT_EQ(named(ranks), "loader.py:33 in __getitem__ (worker process): 96 % of rank 2's time, 20 % of rank 5's.");
}

TEST(LineDifference, AThreadThatOnlyWaitsIsNobodysFault) {
  SampledRanks ranks;
  const StackFrame wait{"wait", "/usr/lib/python3.11/threading.py", 320};
  ranks[2_rank] = samples_of({{{kMain}, 100}, {{wait, {"log_forever", kTrain, 10}}, 100, ThreadRole::kThread}});
  ranks[5_rank] = samples_of({{{kMain}, 100}});
  EXPECT_EQ(named(ranks), "No line of rank 2 has 8 % more of its time than of rank 5's.");
}

TEST(LineDifference, WithoutAPeerNothingIsNamed) {
  SampledRanks ranks;
  ranks[2_rank] = samples_of({{{kMain}, 100}});
  EXPECT_EQ(named(ranks), "No line of rank 2 can be named: there is no peer to compare it with.");
}

}  // namespace
}  // namespace lockstep
