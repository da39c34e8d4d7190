#include "diagnosis/lines/lines.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000'000;

RankSamples samples_in(const StackFrame& frame, int64_t time_unix_ns) {
  RankSamples samples{.time_unix_ns = time_unix_ns, .looks = 100, .hz = 100};
  samples.threads = {{.role = ThreadRole::kMain, .pid = 1, .tid = 1}};
  samples.frames = {frame, {"main", "/job/train.py", 80}};
  samples.stacks = {{.thread = 0, .frames = {0, 1}, .count = 61}, {.thread = 0, .frames = {1}, .count = 39}};
  return samples;
}

struct LinesTest : ::testing::Test {
  LinesTest() {
    finding.ranks = {2_rank};
    finding.layer = Layer::kInput;
    samples[2_rank] = samples_in({"load_batch", "/job/loader.py", 41}, kNow);
    samples[5_rank] = samples_in({"all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 9}, kNow);
  }
  Finding finding;
  SampledRanks samples;
};

TEST_F(LinesTest, TheLineIsTheFirstEvidence) {
  finding.chain.push_back({.claim = "It waits."});
  add_lines(finding, samples, kNow);
  ASSERT_EQ(finding.chain.size(), 2u);
  EXPECT_EQ(finding.chain[0].claim, "loader.py:41 in load_batch: 61 % of rank 2's time, 0 % of rank 5's.");
  EXPECT_EQ(finding.chain[0].query, "/api/jobs/{job}/samples?ranks=2,5");
}

TEST_F(LinesTest, WhoIsToldToLookAtTheProcessIsToldTheCommand) {
  finding.next = {{"look at what it does", "py-spy dump --pid PID"}, {"check the disk", "iostat -x 1"}};
  add_lines(finding, {}, kNow);
  EXPECT_EQ(finding.next[0].command, "lockstep lines {job}");
  EXPECT_EQ(finding.next[1].command, "iostat -x 1");
  EXPECT_TRUE(finding.chain.empty());
}

TEST_F(LinesTest, WhatCannotWorkIsNotOffered) {
  const auto offered = [&](const char* command, Answers sampled) {
    finding.next = {{"look at its data loader", command}};
    add_lines(finding, {}, kNow, sampled);
    return finding.next[0].command;
  };
  for (const char* command : {"lockstep lines {job}", "py-spy dump --pid PID"}) {
    EXPECT_EQ(offered(command, Answers::kYes), "lockstep lines {job}");
    EXPECT_EQ(offered(command, Answers::kNobody), "py-spy dump --pid PID") << "no agent can be asked: by hand";
    EXPECT_EQ(offered(command, Answers::kNo), "") << "a simulated rank has no process either";
    EXPECT_EQ(finding.next[0].action, "look at its data loader");
    EXPECT_EQ(offered(command, Answers::kUnknown), "lockstep lines {job}");
    EXPECT_EQ(finding.next[0].action,
              "look at its data loader (whether it answers is not known: its agent reports to a gateway)");
  }
  EXPECT_EQ(offered("iostat -x 1", Answers::kNo), "iostat -x 1");
}

TEST_F(LinesTest, AGpuOrAnOldSampleIsNotBlamedOnALine) {
  Finding gpu = finding;
  gpu.layer = Layer::kGpu;
  add_lines(gpu, samples, kNow);
  EXPECT_TRUE(gpu.chain.empty());
  add_lines(finding, samples, kNow + kSamplesFreshNs + 1);
  EXPECT_TRUE(finding.chain.empty());
  samples[5_rank].time_unix_ns -= 3'600'000'000'000;  // nobody to compare with any more
  add_lines(finding, samples, kNow);
  EXPECT_TRUE(finding.chain.empty());
}

}  // namespace
}  // namespace lockstep
