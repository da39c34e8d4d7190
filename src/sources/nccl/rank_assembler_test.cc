#include "sources/nccl/rank_assembler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <string>

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kUnixShift = 1'700'000'000'000'000'000;
constexpr int64_t kGpuAhead = 5'000'000'000'000;  // the GPU's clock against the host's
constexpr CommId kCommId{0xABCDEF};
constexpr int32_t kOwnRank = 3;

// Records as the plugin writes them. Times in milliseconds of the process's monotonic clock, GPU times included.
Record head(RecordType type, int64_t at_ms) {
  Record record{};
  record.head.type = type;
  record.head.time_ns = static_cast<uint64_t>(at_ms * kMs);
  return record;
}
Record step_begin(StepNumber step, int64_t at_ms) {
  Record record = head(RecordType::kStepBegin, at_ms);
  record.mark.number = step.value();
  return record;
}
Record step_end(StepNumber step, int64_t at_ms) {
  Record record = head(RecordType::kStepEnd, at_ms);
  record.mark.number = step.value();
  return record;
}
Record phase_begin(Phase phase, int64_t at_ms) {
  Record record = head(RecordType::kPhaseBegin, at_ms);
  record.mark.number = static_cast<int64_t>(phase);
  return record;
}
Record phase_end(Phase phase, int64_t at_ms) {
  Record record = phase_begin(phase, at_ms);
  record.head.type = RecordType::kPhaseEnd;
  return record;
}
Record coll(uint64_t op_id, int64_t at_ms, uint64_t bytes = 1000, uint8_t channels = 1) {
  Record record = head(RecordType::kColl, at_ms);
  record.op.op_id = op_id;
  record.op.bytes = bytes;
  record.op.function = Function::kAllReduce;
  record.op.channels = channels;
  return record;
}
// Callbacks come at once with what they report, unless told otherwise.
Record kernel(uint64_t op_id, int64_t start_ms, int64_t stop_ms, int64_t callback_late_ms = 0) {
  Record record = head(RecordType::kKernelCh, stop_ms + callback_late_ms);
  record.kernel.op_id = op_id;
  record.kernel.gpu_start_ns = static_cast<uint64_t>(start_ms * kMs + kGpuAhead);
  record.kernel.gpu_stop_ns = static_cast<uint64_t>(stop_ms * kMs + kGpuAhead);
  record.kernel.host_start_ns = static_cast<uint64_t>((start_ms + callback_late_ms) * kMs);
  return record;
}
Record on_channel(Record record, uint8_t channel) {
  record.kernel.channel = channel;
  return record;
}
// A part of an ncclGroup.
Record part(uint64_t op_id, int64_t at_ms, Function function, int32_t peer, uint32_t group, uint64_t bytes = 100) {
  Record record = coll(op_id, at_ms, bytes);
  record.head.type = RecordType::kP2p;
  record.op.function = function;
  record.op.peer = peer;
  record.op.group = group;
  return record;
}
Record network(uint64_t op_id, int64_t done_ms) {
  Record record = head(RecordType::kProxyOp, done_ms);
  record.proxy_op.op_id = op_id;
  return record;
}
Record flagged(Record record, uint8_t flag) {
  record.head.flags |= flag;
  return record;
}
Record transfer(int32_t peer, int64_t wire_from_ms, int64_t wire_to_ms, uint32_t bytes = 100, bool send = true) {
  Record record = head(RecordType::kProxyStep, wire_to_ms);
  record.head.flags = send ? kFlagSend : 0;
  record.proxy_step.peer = peer;
  record.proxy_step.bytes = bytes;
  record.proxy_step.start_ns = static_cast<uint64_t>((wire_from_ms - 3) * kMs);
  record.proxy_step.wait_gpu_ns = 2 * kMs;
  record.proxy_step.wait_peer_ns = 1 * kMs;
  record.proxy_step.wire_ns = static_cast<uint32_t>((wire_to_ms - wire_from_ms) * kMs);
  return record;
}

// As a host tells them: one operation each, of which nobody has told the end yet.
std::vector<Record> enqueued_steps(int count) {
  std::vector<Record> host;
  for (int i = 1; i <= count; ++i) {
    host.push_back(step_begin(StepNumber{i}, 10 * (i - 1)));
    host.push_back(coll(static_cast<uint64_t>(i), 10 * i - 5));
    host.push_back(step_end(StepNumber{i}, 10 * i));
  }
  return host;
}

struct RankAssemblerTest : ::testing::Test {
  RankAssembler assembler{kUnixShift};

  RankAssemblerTest() {
    InFlightComm comm;
    comm.comm_index = 0;
    comm.live = true;
    comm.comm_id = kCommId.value();
    comm.size = 8;
    comm.rank_in_comm = kOwnRank;
    assembler.set_comms({comm});
  }
  void drain(const std::vector<Record>& records, int64_t now_ms = 1000, uint64_t lost = 0) {
    for (const Record& record : records) assembler.add(record);
    assembler.end_drain(now_ms * kMs, lost);
  }
  std::vector<StepSummary> take(int64_t now_ms = 1000, bool flush = false) {
    std::vector<StepSummary> steps;
    for (ClosedStep& step : assembler.take_steps(now_ms * kMs, flush)) steps.push_back(std::move(step.summary));
    return steps;
  }
  // For a case with exactly one step.
  StepSummary only(const std::vector<Record>& records) {
    drain(records);
    std::vector<StepSummary> steps = take();
    EXPECT_EQ(steps.size(), 1u);
    return steps.empty() ? StepSummary{} : steps.front();
  }
};

TEST_F(RankAssemblerTest, ADurationOnTheGpuIsFromTheFirstStartToTheLastStopOverAllChannels) {
  StepSummary step = only({step_begin(7_step, 100), coll(1, 110, 4096, 2), kernel(1, 120, 150), kernel(1, 125, 160),
                           step_end(7_step, 200)});
  EXPECT_EQ(step.step, 7_step);
  EXPECT_EQ(step.start_unix_ns, 100 * kMs + kUnixShift);
  EXPECT_EQ(step.duration_ns, 100 * kMs);
  ASSERT_EQ(step.comms.size(), 1u);
  const CommStep& comm = step.comms[0];
  EXPECT_EQ(comm.comm_id, kCommId);
  EXPECT_EQ(comm.size, 8);
  EXPECT_EQ(comm.rank_in_comm, 3);
  EXPECT_FALSE(comm.p2p);
  EXPECT_EQ(comm.count, 1);
  EXPECT_EQ(comm.bytes, 4096);
  EXPECT_EQ(comm.gpu_ns, 40 * kMs);
  EXPECT_EQ(comm.shortest_ns, 40 * kMs);
  EXPECT_EQ(comm.longest_ns, 40 * kMs);
  EXPECT_EQ(comm.queue_ns, 10 * kMs);
}

TEST_F(RankAssemblerTest, OwnTimeAndCommunicationMakeTheStep) {
  // Two operations that overlap, and one apart.
  StepSummary step = only({step_begin(1_step, 0), coll(1, 10), coll(2, 10), coll(3, 10), kernel(1, 20, 50),
                           kernel(2, 40, 60), kernel(3, 80, 90), step_end(1_step, 100)});
  EXPECT_EQ(step.comm_ns, 50 * kMs);
  EXPECT_EQ(step.self_ns, 50 * kMs);
  EXPECT_EQ(step.self_ns + step.comm_ns, step.duration_ns);
  ASSERT_EQ(step.comms.size(), 1u);
  EXPECT_EQ(step.comms[0].count, 3);
  EXPECT_EQ(step.comms[0].gpu_ns, 60 * kMs);
  EXPECT_EQ(step.comms[0].shortest_ns, 10 * kMs);
  EXPECT_EQ(step.comms[0].longest_ns, 30 * kMs);
}

TEST_F(RankAssemblerTest, CommunicationOutsideOfTheStepIsNotInIt) {
  // The GPU still works on an operation of step 1 when the host has begun step 2.
  drain({step_begin(1_step, 0), coll(1, 50), step_end(1_step, 100), step_begin(2_step, 100), kernel(1, 90, 130),
         coll(2, 150), kernel(2, 160, 170), step_end(2_step, 200)});
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].comm_ns, 10 * kMs);
  EXPECT_EQ(steps[1].comm_ns, 40 * kMs);
  for (const StepSummary& step : steps) EXPECT_EQ(step.self_ns + step.comm_ns, step.duration_ns);
  ASSERT_EQ(steps[0].comms.size(), 1u);
  EXPECT_EQ(steps[0].comms[0].gpu_ns, 40 * kMs);  // the operation itself belongs to the step that enqueued it
  EXPECT_EQ(steps[1].comms[0].count, 1);
}

TEST_F(RankAssemblerTest, ChildrenMayBeReadBeforeTheirParents) {
  // The channel's lane was drained before the main thread's.
  drain({step_begin(1_step, 0), kernel(1, 20, 50)});
  EXPECT_TRUE(take().empty());
  drain({coll(1, 10), step_end(1_step, 100)});
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(steps[0].comms.size(), 1u);
  EXPECT_EQ(steps[0].comms[0].gpu_ns, 30 * kMs);
  EXPECT_EQ(assembler.orphans(), 0u);
}

TEST_F(RankAssemblerTest, AnOperationOfBeforeTheFirstStepMayEndAfterIt) {
  drain({coll(1, 1), step_begin(1_step, 10), step_end(1_step, 100)});
  EXPECT_EQ(take().size(), 1u);
  drain({kernel(1, 2, 5)});
  EXPECT_EQ(assembler.waiting(), 0u);
  EXPECT_EQ(assembler.totals().begin()->second.operations, 1u);
}

TEST_F(RankAssemblerTest, AChildWhoseParentNeverComesIsCounted) {
  drain({kernel(99, 20, 50)}, 1000);
  for (int i = 0; i < 5; ++i) drain({}, 1000 + RankAssembler::kCloseAfterNs / kMs);
  EXPECT_EQ(assembler.orphans(), 0u);  // however often somebody looks
  EXPECT_EQ(assembler.waiting(), 1u);
  drain({}, 1001 + RankAssembler::kCloseAfterNs / kMs);
  EXPECT_EQ(assembler.orphans(), 1u);
  EXPECT_EQ(assembler.waiting(), 0u);
}

TEST_F(RankAssemblerTest, ChildrenWithoutParentsAreBounded) {
  std::vector<Record> kernels(RankAssembler::kOpsMax + 3, kernel(99, 20, 50));
  drain(kernels);
  EXPECT_EQ(assembler.orphans(), 3u);
  EXPECT_EQ(assembler.waiting(), RankAssembler::kOpsMax);
}

TEST_F(RankAssemblerTest, GpuTimesAreMappedByTheCallbackThatCameSoonest) {
  // Callbacks come late; one comes at once and shows how far the clocks are apart.
  StepSummary step = only({step_begin(1_step, 0), coll(1, 10), coll(2, 10), kernel(1, 20, 30, 7), kernel(2, 40, 50, 0),
                           step_end(1_step, 100)});
  ASSERT_EQ(step.comms.size(), 1u);
  EXPECT_EQ(step.comms[0].first_start_unix_ns, 20 * kMs + kUnixShift);
  EXPECT_EQ(step.comms[0].last_end_unix_ns, 50 * kMs + kUnixShift);
  EXPECT_EQ(step.comm_ns, 20 * kMs);
}

TEST_F(RankAssemblerTest, AStepClosesWhenItsOperationsAreComplete) {
  drain({step_begin(1_step, 0), coll(1, 50, 1000, 2), step_end(1_step, 100)});
  EXPECT_TRUE(take().empty());
  drain({kernel(1, 90, 130)});
  EXPECT_TRUE(take().empty());  // the second channel is still running
  drain({kernel(1, 90, 140)});
  EXPECT_EQ(take().size(), 1u);
  EXPECT_TRUE(take().empty());  // once
}

TEST_F(RankAssemblerTest, AStepThatRunsIsNotGiven) {
  drain({step_begin(1_step, 0), coll(1, 10), kernel(1, 20, 30)});
  EXPECT_TRUE(take(1000, true).empty());
}

TEST_F(RankAssemblerTest, ANewStepEndsTheOneBeforeIt) {
  drain({step_begin(1_step, 0), step_begin(2_step, 100), step_end(2_step, 150)});
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].duration_ns, 100 * kMs);
  EXPECT_EQ(steps[1].duration_ns, 50 * kMs);
}

TEST_F(RankAssemblerTest, AStepWhoseOperationWasOvertakenClosesTwoStepsLater) {
  drain({step_begin(1_step, 0), coll(1, 50), step_end(1_step, 100), step_begin(2_step, 100), coll(2, 150),
         kernel(2, 160, 170), step_end(2_step, 200)});
  EXPECT_TRUE(take().empty());
  drain({step_begin(3_step, 200), step_end(3_step, 300)});
  std::vector<StepSummary> steps = take();
  ASSERT_GE(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 1_step);
  ASSERT_EQ(steps[0].comms.size(), 1u);
  EXPECT_EQ(steps[0].comms[0].count, 1);
  EXPECT_EQ(steps[0].comms[0].gpu_ns, 0);
}

TEST_F(RankAssemblerTest, AHostManyStepsAheadOfItsGpuIsWaitedFor) {
  drain(enqueued_steps(20));
  EXPECT_TRUE(take().empty());
  for (int i = 1; i <= 20; ++i) {
    drain({kernel(static_cast<uint64_t>(i), 200 + i, 201 + i)});
    const std::vector<StepSummary> steps = take();
    ASSERT_EQ(steps.size(), 1u) << i;
    EXPECT_EQ(steps[0].step, StepNumber{i});
    EXPECT_EQ(steps[0].unseen, 0);
    EXPECT_EQ(steps[0].comms[0].gpu_ns, kMs);
  }
  EXPECT_EQ(assembler.orphans(), 0u);
  EXPECT_EQ(assembler.totals().begin()->second.operations, 20u);
}

TEST_F(RankAssemblerTest, AHostIsWaitedForSoManyStepsAndNoMore) {
  drain(enqueued_steps(static_cast<int>(RankAssembler::kStepsOpenMax) + 3));
  const std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[2].unseen, 1);
}

TEST_F(RankAssemblerTest, AStepWhoseOperationNeverCompletesClosesAfterAWhileOrWhenTheProcessIsOver) {
  drain({step_begin(1_step, 0), coll(1, 50), step_end(1_step, 100)}, 1000);
  EXPECT_TRUE(take(1000).empty());
  EXPECT_EQ(take(1001 + RankAssembler::kCloseAfterNs / kMs).size(), 1u);
  drain({step_begin(2_step, 200), coll(2, 250), step_end(2_step, 300)}, 10'000);
  EXPECT_TRUE(take(10'000).empty());
  EXPECT_EQ(take(10'000, true).size(), 1u);
}

TEST_F(RankAssemblerTest, AnOperationThatLostAStopHoldsUpItsOwnStepOnly) {
  // One of two channels never tells that it stopped: its record was overwritten.
  drain({step_begin(1_step, 0), coll(1, 50, 1000, 2), kernel(1, 60, 70), step_end(1_step, 100), step_begin(2_step, 100),
         step_end(2_step, 200), step_begin(3_step, 200), step_end(3_step, 300)});
  take();
  drain({step_begin(4_step, 300), coll(4, 310), kernel(4, 320, 330), step_end(4_step, 400)});
  std::vector<StepSummary> steps = take();
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back().step, 4_step);
}

TEST_F(RankAssemblerTest, QueueTimeIsWhileAnOperationWaitsAndNoneRuns) {
  // Enqueued at 10, started at 40: 30. The second waits 20 to 60, of which 40 to 55 behind the first: 5 more.
  StepSummary step = only(
      {step_begin(1_step, 0), coll(1, 10), coll(2, 20), kernel(1, 40, 55), kernel(2, 60, 70), step_end(1_step, 100)});
  EXPECT_EQ(step.queue_ns, 35 * kMs);
  EXPECT_EQ(step.comms[0].queue_ns, 70 * kMs);  // here every operation counts for itself
}

TEST_F(RankAssemblerTest, ALateHostLeavesNoQueue) {
  StepSummary step = only({step_begin(1_step, 0), coll(1, 80), kernel(1, 80, 95), step_end(1_step, 100)});
  EXPECT_EQ(step.queue_ns, 0);
  EXPECT_EQ(step.self_ns, 85 * kMs);
}

TEST_F(RankAssemblerTest, PhasesAreTheTimeBetweenTheirMarks) {
  StepSummary step = only({step_begin(1_step, 0), phase_begin(Phase::kInput, 0), phase_end(Phase::kInput, 30),
                           phase_begin(Phase::kForward, 30), phase_begin(Phase::kBackward, 50),
                           phase_end(Phase::kBackward, 90), step_end(1_step, 100)});
  EXPECT_EQ(step.phase_ns[static_cast<size_t>(Phase::kInput)], 30 * kMs);
  EXPECT_EQ(step.phase_ns[static_cast<size_t>(Phase::kForward)], 20 * kMs);  // the next phase ends it
  EXPECT_EQ(step.phase_ns[static_cast<size_t>(Phase::kBackward)], 40 * kMs);
  EXPECT_EQ(step.phase_ns[static_cast<size_t>(Phase::kOther)], 0);
}

TEST_F(RankAssemblerTest, APhaseThatBeganBeforeTheStepCountsFromItsBegin) {
  StepSummary step = only(
      {phase_begin(Phase::kInput, 0), step_begin(1_step, 20), phase_end(Phase::kInput, 30), step_end(1_step, 100)});
  EXPECT_EQ(step.phase_ns[static_cast<size_t>(Phase::kInput)], 10 * kMs);
}

TEST_F(RankAssemblerTest, APhaseNumberThatIsNoneIsLeftOut) {
  Record strange = head(RecordType::kPhaseBegin, 10);
  strange.mark.number = 1000;
  StepSummary step = only({step_begin(1_step, 0), strange, step_end(1_step, 100)});
  for (int64_t ns : step.phase_ns) EXPECT_EQ(ns, 0);
}

TEST_F(RankAssemblerTest, AFlowIsOnTheWireWhileAtLeastOneTransferIs) {
  StepSummary step = only({step_begin(1_step, 0), transfer(4, 10, 30), transfer(4, 20, 40), transfer(4, 60, 65),
                           transfer(5, 10, 20), step_end(1_step, 100)});
  ASSERT_EQ(step.flows.size(), 2u);
  const FlowStep& flow = step.flows[0];
  EXPECT_EQ(flow.comm_id, kCommId);
  EXPECT_EQ(flow.peer, 4);
  EXPECT_TRUE(flow.send);
  EXPECT_EQ(flow.transfers, 3);
  EXPECT_EQ(flow.bytes, 300);
  EXPECT_EQ(flow.wire_ns, 35 * kMs);    // a union
  EXPECT_EQ(flow.own_gpu_ns, 6 * kMs);  // a sum
  EXPECT_EQ(flow.peer_ns, 3 * kMs);     // a sum
  EXPECT_EQ(flow.wire_longest_ns, 20 * kMs);
  EXPECT_EQ(flow.own_gpu_longest_ns, 2 * kMs);
  EXPECT_EQ(step.flows[1].peer, 5);
}

TEST_F(RankAssemblerTest, BothDirectionsOfAPeerAreTwoFlows) {
  StepSummary step = only(
      {step_begin(1_step, 0), transfer(4, 10, 30, 100, true), transfer(4, 10, 20, 50, false), step_end(1_step, 100)});
  ASSERT_EQ(step.flows.size(), 2u);
  EXPECT_NE(step.flows[0].send, step.flows[1].send);
}

TEST_F(RankAssemblerTest, WhatIsReadLateCountsAsIfReadInTime) {
  drain({step_begin(1_step, 0), coll(1, 5), transfer(4, 30, 40), transfer(4, 60, 65), kernel(1, 10, 90)});
  drain({transfer(4, 20, 35), transfer(4, 62, 70), transfer(5, 10, 20)});  // of a thread that was read before it wrote
  drain({step_end(1_step, 100)});
  const std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(steps[0].flows.size(), 2u);
  EXPECT_EQ(steps[0].flows[0].wire_ns, 30 * kMs);  // 20 to 40, 60 to 70
  EXPECT_EQ(steps[0].quiet_ns, 20 * kMs);          // 70 to 90
}

// A step may take minutes, or the job may have stopped telling its steps: each drain must cost what is new in it.
TEST_F(RankAssemblerTest, ADrainCostsNoMoreLateInALongStep) {
  constexpr int kDrains = 400, kPerDrain = 200;
  drain({step_begin(1_step, 0)});
  auto cpu_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  };
  double early_ns = 0, late_ns = 0;
  std::vector<Record> records;
  for (int i = 0; i < kDrains; ++i) {
    records.clear();
    for (int k = 0; k < kPerDrain; ++k) {
      const int64_t at_ms = 10 + i * kPerDrain + k;
      records.push_back(transfer(k % 8, at_ms, at_ms + 1));
    }
    const double began_ns = cpu_ns();
    drain(records, 10 + (i + 1) * kPerDrain);
    if (i < 50) early_ns += cpu_ns() - began_ns;
    if (i >= kDrains - 50) late_ns += cpu_ns() - began_ns;
  }
  EXPECT_LT(late_ns, 8 * early_ns);  // sorting all of it every time: 20 and more
}

TEST_F(RankAssemblerTest, AStepWithoutEndKeepsABoundedNumberOfTransfersAndSaysSo) {
  constexpr int64_t kMore = 1000;
  drain({step_begin(1_step, 0)});
  for (int64_t at_ms = 10; at_ms < 10 + static_cast<int64_t>(RankAssembler::kFlowsMax) + kMore; at_ms += 5000) {
    std::vector<Record> records;
    for (int64_t k = 0; k < 5000; ++k) records.push_back(transfer(4, at_ms + k, at_ms + k + 1));
    drain(records);
  }
  drain({step_end(1_step, 1'000'000)});
  const std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(steps[0].flows.size(), 1u);
  EXPECT_EQ(steps[0].flows[0].transfers, static_cast<int64_t>(RankAssembler::kFlowsMax));
  EXPECT_GE(steps[0].records_lost, kMore);
}

TEST_F(RankAssemblerTest, RecordsLostWhileAStepRunsAreCarriedByIt) {
  drain({step_begin(1_step, 0), step_end(1_step, 100), step_begin(2_step, 100)});
  ASSERT_EQ(take().size(), 1u);
  drain({step_end(2_step, 200)}, 1000, 17);
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].records_lost, 17);
}

TEST_F(RankAssemblerTest, RecordsLostAreCarriedByAStepReadInTheSameDrain) {
  // The lanes fill at different speeds: what is lost on one may belong to a step that another still has whole.
  drain({step_begin(1_step, 0), step_end(1_step, 100)}, 1000, 17);
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].records_lost, 17);
}

TEST_F(RankAssemblerTest, TheLongestSilenceWhileAnOperationIsInFlightIsTold) {
  StepSummary step = only(
      {step_begin(1_step, 0), coll(1, 10), kernel(1, 12, 70), coll(2, 75), kernel(2, 80, 90), step_end(1_step, 100)});
  // Callbacks at 10, 12, 70, 75, 80, 90.
  EXPECT_EQ(step.quiet_ns, 58 * kMs);
  EXPECT_EQ(step.quiet_from_unix_ns, 12 * kMs + kUnixShift);
}

TEST_F(RankAssemblerTest, SilenceWithNothingInFlightIsNotQuiet) {
  StepSummary step = only({step_begin(1_step, 0), coll(1, 80), kernel(1, 82, 84), step_end(1_step, 100)});
  EXPECT_EQ(step.quiet_ns, 2 * kMs);
}

TEST_F(RankAssemblerTest, OperationsToAPeerAreKeptApartFromCollectives) {
  Record p2p = coll(2, 20, 500);
  p2p.head.type = RecordType::kP2p;
  p2p.op.function = Function::kSend;
  StepSummary step =
      only({step_begin(1_step, 0), coll(1, 10), p2p, kernel(1, 30, 40), kernel(2, 50, 55), step_end(1_step, 100)});
  ASSERT_EQ(step.comms.size(), 2u);
  EXPECT_FALSE(step.comms[0].p2p);
  EXPECT_TRUE(step.comms[1].p2p);
  EXPECT_EQ(step.comms[1].bytes, 500);
  EXPECT_EQ(step.comms[1].gpu_ns, 5 * kMs);
}

TEST_F(RankAssemblerTest, ASendAndAReceiveOfOneKernelTakeItsTimeOnce) {
  StepSummary step = only({step_begin(1_step, 0), part(1, 10, Function::kSend, 4, 9),
                           part(2, 10, Function::kRecv, 4, 9), kernel(1, 20, 50), kernel(2, 20, 50),
                           // A group of its own, later and apart.
                           part(3, 60, Function::kSend, 4, 10), kernel(3, 70, 75), step_end(1_step, 100)});
  ASSERT_EQ(step.comms.size(), 1u);
  EXPECT_EQ(step.comms[0].count, 3);
  EXPECT_EQ(step.comms[0].gpu_ns, 35 * kMs);
  EXPECT_EQ(step.comms[0].shortest_ns, 5 * kMs);
  EXPECT_EQ(step.comms[0].longest_ns, 30 * kMs);
}

TEST_F(RankAssemblerTest, WithoutAGroupEqualIntervalsAreOneKernelAndOthersAreNot) {
  StepSummary step = only({step_begin(1_step, 0), part(1, 10, Function::kSend, 4, 0),
                           part(2, 10, Function::kRecv, 4, 0), part(3, 10, Function::kSend, 5, 0), kernel(1, 20, 50),
                           kernel(2, 20, 50), kernel(3, 20, 40), step_end(1_step, 100)});
  EXPECT_EQ(step.comms.at(0).gpu_ns, 50 * kMs);
}

TEST_F(RankAssemblerTest, CollectivesThatNcclPutTogetherTakeTheirKernelsTimeOnce) {
  Record first = coll(1, 10), second = coll(2, 10);
  first.op.group = second.op.group = 5;
  StepSummary step =
      only({step_begin(1_step, 0), first, second, kernel(1, 20, 50), kernel(2, 20, 45), step_end(1_step, 100)});
  EXPECT_EQ(step.comms.at(0).count, 2);
  EXPECT_EQ(step.comms.at(0).gpu_ns, 30 * kMs);
}

TEST_F(RankAssemblerTest, ChannelsNeedNotBeNumberedFromZero) {
  std::vector<Record> records{step_begin(1_step, 0), coll(1, 10, 4096, 4), step_end(1_step, 100)};
  for (uint8_t channel = 8; channel < 12; ++channel) {
    records.push_back(kernel(1, 20, 20 + channel));
    records.back().kernel.channel = channel;
  }
  StepSummary step = only(records);
  EXPECT_EQ(step.comms.at(0).gpu_ns, 11 * kMs);
  EXPECT_EQ(step.unseen, 0);
}

TEST_F(RankAssemblerTest, NothingWaitsForAnOperationWhoseEndNcclDoesNotTell) {
  drain({step_begin(1_step, 0), flagged(coll(1, 10), kFlagUnseen), flagged(coll(2, 20), kFlagCopyEngine), coll(3, 30),
         kernel(3, 40, 50), step_end(1_step, 100)});
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(steps[0].comms.size(), 1u);
  EXPECT_EQ(steps[0].comms[0].count, 3);
  EXPECT_EQ(steps[0].comms[0].unseen, 2);
  EXPECT_EQ(steps[0].unseen, 2);
  EXPECT_FALSE(steps[0].gpu_time_known());
  EXPECT_EQ(steps[0].comms[0].gpu_ns, 10 * kMs);
  // They count, without a time.
  const CollectiveTotals& totals = assembler.totals().at({Function::kAllReduce, 8});
  EXPECT_EQ(totals.operations, 3u);
  EXPECT_EQ(totals.bytes, 3000u);
  EXPECT_EQ(totals.gpu_ns, 10u * kMs);
}

TEST_F(RankAssemblerTest, AnOperationThatLostAStopIsUnseen) {
  drain({step_begin(1_step, 0), coll(1, 50, 1000, 2), kernel(1, 60, 70), step_end(1_step, 100)});
  std::vector<StepSummary> steps = take(1000, true);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].unseen, 1);
  EXPECT_EQ(steps[0].comms.at(0).gpu_ns, 10 * kMs);  // at least
}

TEST_F(RankAssemblerTest, WithoutGpuTimesTheHostsAreTaken) {
  // NCCL before 2.27. The first operation runs 20 to 50 by the host's clock.
  Record old = kernel(1, 20, 50);
  old.kernel.gpu_start_ns = old.kernel.gpu_stop_ns = 0;
  StepSummary step = only({step_begin(1_step, 0), coll(1, 10), old, step_end(1_step, 100)});
  ASSERT_EQ(step.comms.size(), 1u);
  EXPECT_EQ(step.comms[0].gpu_ns, 30 * kMs);
  EXPECT_EQ(step.comms[0].first_start_unix_ns, 20 * kMs + kUnixShift);
  EXPECT_EQ(step.comms[0].queue_ns, 10 * kMs);
  EXPECT_EQ(step.comm_ns, 30 * kMs);
  EXPECT_EQ(step.unseen, 0);
}

TEST_F(RankAssemblerTest, TheOldestOperationsGoFirstWhateverTheirNumbersAndTheirStepIsUnknown) {
  // Numbers fall with time: of two communicators the one that was made first has the smaller ones.
  std::vector<Record> records{step_begin(1_step, 0)};
  constexpr uint64_t kMore = 10;
  for (uint64_t i = 0; i < RankAssembler::kOpsMax + kMore; ++i)
    records.push_back(coll(1'000'000 - i, 10 + static_cast<int64_t>(i)));
  int64_t end_ms = 20 + static_cast<int64_t>(RankAssembler::kOpsMax + kMore);
  uint64_t newest = 1'000'000 - (RankAssembler::kOpsMax + kMore - 1);
  records.push_back(step_end(1_step, end_ms));
  drain(records);
  drain({kernel(newest, end_ms, end_ms + 1)});
  EXPECT_EQ(assembler.totals().at({Function::kAllReduce, 8}).operations, 1u);
  std::vector<StepSummary> steps = take(1000, true);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].comms.at(0).count, static_cast<int64_t>(RankAssembler::kOpsMax));
  EXPECT_EQ(steps[0].unseen, static_cast<int64_t>(RankAssembler::kOpsMax + kMore - 1));
}

TEST_F(RankAssemblerTest, ForgetsTheOldestWhereItHasToTakeLessMemory) {
  std::vector<Record> records{step_begin(1_step, 0)};
  for (uint64_t i = 1; i <= 1000; ++i) records.push_back(coll(i, 10 + static_cast<int64_t>(i)));
  drain(records);
  const size_t all = assembler.memory_bytes();
  EXPECT_GT(all, 100'000u);
  assembler.shrink_to(all);
  EXPECT_EQ(assembler.memory_bytes(), all);
  assembler.shrink_to(all / 3);
  EXPECT_LE(assembler.memory_bytes(), all / 3);
  EXPECT_GT(assembler.memory_bytes(), 0u);
  drain({kernel(1000, 1010, 1020), step_end(1_step, 1100)});
  EXPECT_EQ(assembler.totals().at({Function::kAllReduce, 8}).operations, 1u) << "the newest is still known";
  const std::vector<StepSummary> steps = take(2000, true);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_GE(steps[0].unseen, 750) << "and what was forgotten is counted";
}

TEST_F(RankAssemblerTest, CommunicatorSizesWithoutEndAreNotAllCounted) {
  for (int32_t size = 2; size < 3000; ++size) {
    assembler.set_comms({{.comm_index = 0, .live = true, .comm_id = static_cast<uint64_t>(size), .size = size}});
    const auto id = static_cast<uint64_t>(size);
    drain({coll(id, size), kernel(id, size, size + 1)});
  }
  EXPECT_EQ(assembler.totals().size(), RankAssembler::kTotalsMax);
}

// Rank 3 of 8 exchanges with everybody, itself included.
std::vector<Record> all_to_all(uint64_t first_id, int64_t at_ms, uint32_t group) {
  std::vector<Record> records;
  for (int32_t peer = 0; peer < 8; ++peer) {
    for (Function function : {Function::kSend, Function::kRecv})
      records.push_back(part(first_id++, at_ms, function, peer, group, static_cast<uint64_t>(100 + peer)));
  }
  for (uint64_t i = 0; i < 16; ++i) {
    if (static_cast<int32_t>(i / 2) == kOwnRank) continue;  // NCCL has no kernel events of what a rank sends to itself
    // On a channel that carried no such part.
    records.push_back(on_channel(kernel(first_id - 16 + i, at_ms + 1, at_ms + 10 + static_cast<int64_t>(i / 8) * 5), 1));
  }
  return records;
}

TEST_F(RankAssemblerTest, SendsToAllAndReceivesFromAllAreOneAlltoAllInTheTotals) {
  std::vector<Record> records = all_to_all(1, 10, 77);
  records.insert(records.begin(), step_begin(1_step, 0));
  records.push_back(step_end(1_step, 100));
  drain(records);
  std::vector<StepSummary> steps = take();
  take();  // nothing has been added meanwhile: the group is whole
  ASSERT_EQ(assembler.totals().size(), 1u);
  const CollectiveTotals& totals = assembler.totals().at({Function::kAlltoAll, 8});
  EXPECT_EQ(totals.operations, 1u);
  EXPECT_EQ(totals.bytes, 828u);
  EXPECT_EQ(totals.gpu_ns, 14u * kMs);
  EXPECT_DOUBLE_EQ(totals.bus_bytes, 828 - 103);
  // Ranks are compared by what NCCL told.
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(steps[0].comms.size(), 1u);
  EXPECT_TRUE(steps[0].comms[0].p2p);
  EXPECT_EQ(steps[0].comms[0].count, 14);
  EXPECT_EQ(steps[0].comms[0].gpu_ns, 14 * kMs);
  EXPECT_EQ(steps[0].comms[0].unseen, 0);
  EXPECT_TRUE(steps[0].gpu_time_known());
}

TEST_F(RankAssemblerTest, WhatARankSendsToItselfOvertakesNothing) {
  // The host is two steps ahead of its GPU; of the first step only the part for itself is over.
  drain({step_begin(1_step, 0), part(1, 10, Function::kSend, 4, 9), step_end(1_step, 20), step_begin(2_step, 20),
         part(2, 30, Function::kSend, kOwnRank, 10), part(3, 30, Function::kSend, 4, 10), step_end(2_step, 40),
         step_begin(3_step, 40), part(4, 50, Function::kSend, kOwnRank, 11), step_end(3_step, 60)});
  EXPECT_TRUE(take(70).empty());
  drain({on_channel(kernel(1, 70, 75), 1), on_channel(kernel(3, 75, 80), 1)}, 90);
  const std::vector<StepSummary> steps = take(90);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].comms.at(0).gpu_ns, 5 * kMs);
  EXPECT_EQ(steps[1].comms.at(0).count, 1);
  EXPECT_TRUE(steps[2].comms.empty());
  EXPECT_TRUE(steps[2].gpu_time_known());
}

// From a part to itself on, events of its channel have the times of older work (docs/decisions/0027-parts-to-oneself.md).
TEST_F(RankAssemblerTest, AfterAPartToItselfTheNetworkTellsWhatItsChannelsDoNot) {
  drain({step_begin(1_step, 0), part(1, 10, Function::kSend, kOwnRank, 9), part(2, 10, Function::kRecv, kOwnRank, 9),
         part(3, 10, Function::kRecv, 4, 9), part(4, 10, Function::kSend, 5, 9), on_channel(kernel(3, 2, 3, 9), 0),
         on_channel(kernel(4, 20, 25), 1), network(3, 70), network(4, 26), step_end(1_step, 100),
         // The network tells nothing of it in time.
         step_begin(2_step, 100), part(5, 110, Function::kRecv, 4, 10), on_channel(kernel(5, 2, 3, 109), 0),
         step_end(2_step, 200)});
  const std::vector<StepSummary> steps = take(6001);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[0].gpu_time_known());
  EXPECT_EQ(steps[0].comms.at(0).count, 2);
  EXPECT_EQ(steps[0].comms.at(0).gpu_ns, 50 * kMs) << "from when its group's kernel began until the network was done";
  EXPECT_EQ(steps[0].self_ns, 50 * kMs);
  EXPECT_FALSE(steps[1].gpu_time_known());
  EXPECT_EQ(steps[1].comms.at(0).gpu_ns, 0);
}

TEST_F(RankAssemblerTest, AReceiveOfAnAllToAllIsOverWhenTheNetworkIs) {
  StepSummary step = only({step_begin(1_step, 0), part(1, 10, Function::kSend, kOwnRank, 9),
                           part(2, 10, Function::kSend, 4, 9), part(3, 10, Function::kRecv, 4, 9),
                           on_channel(kernel(2, 20, 25), 1), on_channel(kernel(3, 20, 25), 1), network(2, 80),
                           network(3, 60), step_end(1_step, 100)});
  EXPECT_TRUE(step.gpu_time_known());
  EXPECT_EQ(step.comms.at(0).gpu_ns, 40 * kMs) << "what was sent may still be on its way, what is received may not";
}

TEST_F(RankAssemblerTest, AfterAPartToItselfAnOperationBeginsNotBeforeWhatWasBeforeIt) {
  // The host is ahead: both were asked for long before the first was over.
  StepSummary step = only({step_begin(1_step, 100), part(1, 105, Function::kSend, kOwnRank, 8), coll(2, 110), coll(3, 112),
                           kernel(2, 2, 3, 109), kernel(3, 2, 3, 112), network(2, 140), network(3, 143),
                           step_end(1_step, 200)});
  EXPECT_TRUE(step.gpu_time_known());
  EXPECT_EQ(step.comms.at(0).count, 2);
  EXPECT_EQ(step.comms.at(0).shortest_ns, 3 * kMs);
  EXPECT_EQ(step.comms.at(0).longest_ns, 30 * kMs);
  EXPECT_EQ(step.comm_ns, 33 * kMs);
}

TEST_F(RankAssemblerTest, AfterAPartToItselfAStepWaitsForTheNetworkWhereThereIsOne) {
  drain({step_begin(1_step, 0), part(1, 10, Function::kSend, kOwnRank, 9), part(2, 10, Function::kRecv, 4, 9),
         kernel(2, 2, 3, 9), network(2, 15), step_end(1_step, 20)});
  EXPECT_EQ(take(30).size(), 1u);
  // The host is ahead of its GPU. Peer 5 is on this node: no network tells of it.
  drain({step_begin(2_step, 30), part(3, 40, Function::kRecv, 4, 10), kernel(3, 2, 3, 38), step_end(2_step, 50)}, 60);
  EXPECT_TRUE(take(60).empty());
  drain({network(3, 70)}, 80);
  const std::vector<StepSummary> steps = take(80);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_TRUE(steps[0].gpu_time_known());
  drain({step_begin(3_step, 90), part(4, 92, Function::kRecv, 5, 11), kernel(4, 2, 3, 90), step_end(3_step, 100)}, 110);
  EXPECT_EQ(take(110).size(), 1u) << "nothing to wait for";
}

// A recorder may name any peers: what is remembered of them is bounded, and of others nothing is waited for.
TEST_F(RankAssemblerTest, PeersWithoutEndAreNotAllRemembered) {
  std::vector<Record> records = {step_begin(1_step, 0), part(1, 10, Function::kSend, kOwnRank, 1)};
  const auto peers = static_cast<int32_t>(RankAssembler::kNetworkPeersMax) + 1;
  for (int32_t peer = 0; peer < peers; ++peer) {
    const auto op_id = static_cast<uint64_t>(peer) + 2;
    records.push_back(part(op_id, 10, Function::kRecv, 1000 + peer, 1));
    records.push_back(network(op_id, 15));
  }
  records.push_back(step_end(1_step, 20));
  drain(records);
  take(1000, true);
  const auto next = static_cast<uint64_t>(peers) + 2;
  drain({step_begin(2_step, 30), part(next, 40, Function::kRecv, 1000, 2), kernel(next, 2, 3, 38), step_end(2_step, 50)});
  EXPECT_TRUE(take().empty()) << "the first one is remembered";
  take(1000, true);
  drain({step_begin(3_step, 60), part(next + 1, 65, Function::kRecv, 1000 + peers - 1, 3), kernel(next + 1, 2, 3, 63),
         step_end(3_step, 70)});
  EXPECT_EQ(take().size(), 1u) << "the last one is not";
}

TEST_F(RankAssemblerTest, AnotherCommunicatorOfTheSameRowIsBelieved) {
  drain({step_begin(1_step, 0), part(1, 10, Function::kSend, kOwnRank, 9), step_end(1_step, 20)});
  assembler.set_comms({{.comm_index = 0, .live = true, .comm_id = 77, .size = 8, .rank_in_comm = kOwnRank}});
  drain({step_begin(2_step, 20), coll(2, 25), kernel(2, 30, 35), step_end(2_step, 40)});
  const std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[1].gpu_time_known());
}

TEST_F(RankAssemblerTest, AnOperationWhoseEndIsNotToldOvertakesNothing) {
  drain({step_begin(1_step, 0), coll(1, 10), step_end(1_step, 20), step_begin(2_step, 20),
         flagged(coll(2, 30), kFlagUnseen), step_end(2_step, 40), step_begin(3_step, 40),
         flagged(coll(3, 50), kFlagUnseen), step_end(3_step, 60)});
  EXPECT_TRUE(take(70).empty()) << "its kernel has not ended yet";
  drain({kernel(1, 70, 75)}, 90);
  const std::vector<StepSummary> steps = take(90);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_TRUE(steps[0].gpu_time_known());
  EXPECT_FALSE(steps[1].gpu_time_known());
}

TEST_F(RankAssemblerTest, AGroupThatIsReadInTwoPiecesIsOne) {
  std::vector<Record> records = all_to_all(1, 10, 77);
  drain({records.begin(), records.begin() + 5});
  take();
  drain({records.begin() + 5, records.end()});
  take(), take();
  EXPECT_EQ(assembler.totals().at({Function::kAlltoAll, 8}).operations, 1u);
  EXPECT_EQ(assembler.totals().size(), 1u);
}

TEST_F(RankAssemblerTest, EveryReplayOfACapturedGraphIsAnAlltoAllOfItsOwn) {
  constexpr uint32_t kGraph = 1u << 31 | 4;
  for (uint64_t replay = 0; replay < 3; ++replay)
    drain(all_to_all(1 + 16 * replay, 10 + static_cast<int64_t>(replay) * 20, kGraph));
  take(), take();
  EXPECT_EQ(assembler.totals().at({Function::kAlltoAll, 8}).operations, 3u);
  EXPECT_EQ(assembler.totals().at({Function::kAlltoAll, 8}).gpu_ns, 42u * kMs);
}

TEST_F(RankAssemblerTest, APartThatIsLostLeavesSendsAndReceives) {
  std::vector<Record> records = all_to_all(1, 10, 77);
  records.erase(records.begin() + 1);  // a receive; its kernel is an orphan
  drain(records);
  take(1000, true);
  EXPECT_EQ(assembler.totals().at({Function::kSend, 8}).operations, 8u);
  EXPECT_EQ(assembler.totals().at({Function::kRecv, 8}).operations, 7u);
  EXPECT_FALSE(assembler.totals().contains({Function::kAlltoAll, 8}));
}

TEST_F(RankAssemblerTest, NetworkTimeIsKeptByFunctionPeerChannelAndDirection) {
  Record on_channel = transfer(4, 30, 40);
  on_channel.proxy_step.op_id = 1;
  on_channel.proxy_step.channel = 2;
  Record again = on_channel;
  again.head.time_ns += kMs;
  Record other_way = on_channel;
  other_way.head.flags = 0;
  drain({coll(1, 10), on_channel, again, other_way, transfer(4, 30, 40)});
  const auto& waits = assembler.network_waits();
  ASSERT_EQ(waits.size(), 3u);
  const NetworkWait& sent = waits.at({Function::kAllReduce, 8, 4, 2, true});
  EXPECT_EQ(sent, (NetworkWait{4u * kMs, 2u * kMs, 20u * kMs, 200, 2}));
  EXPECT_EQ(waits.at({Function::kAllReduce, 8, 4, 2, false}).transfers, 1u);
  EXPECT_EQ(waits.at({Function::kUnknown, 8, 4, 0, true}).transfers, 1u);  // its operation is not known
  EXPECT_EQ(assembler.network_waits_folded(), 0u);
}

TEST_F(RankAssemblerTest, TooManyNetworkKeysAreFoldedAndCounted) {
  std::vector<Record> records;
  constexpr int32_t kPeers = 50;
  constexpr uint8_t kChannels = 100;
  for (int32_t peer = 0; peer < kPeers; ++peer) {
    for (uint8_t channel = 0; channel < kChannels; ++channel) {
      records.push_back(transfer(peer, 30, 40));
      records.back().proxy_step.channel = channel;
    }
  }
  drain(records);
  uint64_t transfers = 0;
  for (const auto& [key, wait] : assembler.network_waits()) transfers += wait.transfers;
  EXPECT_EQ(transfers, uint64_t{kPeers} * kChannels);
  EXPECT_EQ(assembler.network_waits_folded(), transfers - NetworkWaits::kKeysMax);
  EXPECT_LE(assembler.network_waits().size(), NetworkWaits::kKeysMax + kPeers);
  EXPECT_EQ(
      assembler.network_waits().at({Function::kUnknown, 8, kPeers - 1, NetworkWaits::kAllChannels, true}).transfers,
      kChannels);
}

TEST_F(RankAssemblerTest, LinksAreFittedFromTheirSends) {
  std::vector<Record> records;
  for (int64_t i = 0; i < 10; ++i) {
    records.push_back(transfer(4, 100 + i * 20, 110 + i * 20, 1'000'000));
    records.push_back(transfer(4, 100 + i * 20, 110 + i * 20, 1'000'000, false));  // a receive says nothing
  }
  drain(records);
  auto fits = assembler.link_fits();
  ASSERT_EQ(fits.size(), 1u);
  ASSERT_EQ(fits.at(kCommId).size(), 1u);
  EXPECT_DOUBLE_EQ(fits.at(kCommId).at(4).bytes_per_s, 1e8);
  EXPECT_EQ(fits.at(kCommId).at(4).samples, 10u);
}

TEST_F(RankAssemblerTest, TotalsCountEveryCompletedOperationOnce) {
  drain({step_begin(1_step, 0), coll(1, 10, 1000, 2), kernel(1, 20, 30), kernel(1, 20, 40), coll(2, 50),
         step_end(1_step, 100)});
  const auto& totals = assembler.totals();
  ASSERT_EQ(totals.size(), 1u);
  const auto& [key, total] = *totals.begin();
  EXPECT_EQ(key.first, Function::kAllReduce);
  EXPECT_EQ(key.second, 8);
  EXPECT_EQ(total.operations, 1u);
  EXPECT_EQ(total.bytes, 1000u);
  EXPECT_EQ(total.gpu_ns, 20u * kMs);
  EXPECT_DOUBLE_EQ(total.bus_bytes, 1000 * 2 * 7.0 / 8);
}

TEST_F(RankAssemblerTest, AProcessThatMarksNoStepsIsRememberedForAWhileOnly) {
  for (int64_t second = 0; second < 100; ++second)
    drain({coll(static_cast<uint64_t>(second) + 1, second * 1000),
           kernel(static_cast<uint64_t>(second) + 1, second * 1000, second * 1000 + 1)});
  EXPECT_NE(assembler.step_source(), StepSource::kReported);
  EXPECT_TRUE(take(100'000, true).empty());
  EXPECT_EQ(assembler.totals().begin()->second.operations, 100u);
}

TEST_F(RankAssemblerTest, StatusShowsTheOldestOperationThatIsNotComplete) {
  InFlightComm comm;
  comm.live = true;
  comm.comm_id = kCommId.value();
  comm.size = 8;
  comm.rank_in_comm = 3;
  comm.collectives_enqueued = 12;
  comm.collectives_completed = 10;
  auto op = [](InFlightState state, uint64_t ordinal) {
    InFlightOp out;
    out.state = state;
    out.ordinal = ordinal;
    out.seq = ordinal + 100;
    out.function = Function::kAllReduce;
    out.datatype = Datatype::kFloat32;
    out.bytes = 64;
    out.enqueued_ns = ordinal * static_cast<uint64_t>(kMs);
    return out;
  };
  comm.recent = {op(InFlightState::kCompleted, 10), op(InFlightState::kStarted, 11), op(InFlightState::kEnqueued, 12)};
  drain({step_begin(41_step, 0), phase_begin(Phase::kBackward, 10)});
  RankStatus status = assembler.status({comm}, kUnixShift, 5'000 * kMs);
  EXPECT_EQ(status.step, 41_step);
  EXPECT_EQ(status.phase, Phase::kBackward);
  EXPECT_EQ(status.quiet_ns, 5'000 * kMs);
  EXPECT_FALSE(status.finished);
  ASSERT_EQ(status.comms.size(), 1u);
  EXPECT_EQ(status.comms[0].collectives_enqueued, 12u);
  EXPECT_EQ(status.comms[0].collective.ordinal, 11u);
  EXPECT_EQ(status.comms[0].collective.state, OpState::kStarted);
  EXPECT_EQ(status.comms[0].collective.function, "AllReduce");
  EXPECT_EQ(status.comms[0].collective.since_unix_ns, 11 * kMs + kUnixShift);
  EXPECT_EQ(status.comms[0].p2p.state, OpState::kNone);

  comm.recent = {op(InFlightState::kCompleted, 10), op(InFlightState::kCompleted, 11),
                 op(InFlightState::kCompleted, 12)};
  EXPECT_EQ(assembler.status({comm}, 0, 0).comms[0].collective.ordinal, 12u);  // all complete: the last
}

TEST_F(RankAssemblerTest, StatusTellsOfAnOperationWhoseEndIsNotSeenOnlyWhatIsCertain) {
  InFlightComm comm;
  comm.live = true;
  comm.collective_calls = 9;
  comm.p2p_calls = 2;
  auto op = [](InFlightState state, uint64_t ordinal, bool end_is_seen) {
    InFlightOp out;
    out.state = state;
    out.ordinal = ordinal;
    out.end_is_seen = end_is_seen;
    return out;
  };
  auto shown = [&](std::vector<InFlightOp> recent) {
    comm.recent = std::move(recent);
    return assembler.status({comm}, 0, 0).comms.at(0).collective;
  };
  // One after it is complete, or known to be waited for, or at least newer.
  EXPECT_EQ(shown({op(InFlightState::kEnqueued, 1, false), op(InFlightState::kCompleted, 2, true)}).ordinal, 2u);
  EXPECT_EQ(shown({op(InFlightState::kEnqueued, 1, false), op(InFlightState::kStarted, 2, true),
                   op(InFlightState::kEnqueued, 3, false)})
                .ordinal,
            2u);
  OpStatus newest = shown({op(InFlightState::kEnqueued, 1, false), op(InFlightState::kEnqueued, 2, false)});
  EXPECT_EQ(newest.ordinal, 2u);
  EXPECT_TRUE(newest.end_not_seen);
  EXPECT_EQ(assembler.status({comm}, 0, 0).comms[0].collective_calls, 9u);
  EXPECT_EQ(assembler.status({comm}, 0, 0).comms[0].p2p_calls, 2u);
  EXPECT_EQ(assembler.status({comm}, 0, 0).comms[0].launched, -1);
}

TEST_F(RankAssemblerTest, StatusTellsWhatTheNetworkSideWaitsFor) {
  InFlightComm comm;
  comm.live = true;
  EXPECT_EQ(assembler.status({comm}, 0, 0).comms.at(0).proxy, ProxyWaitStatus{});
  const std::pair<uint8_t, const char*> kStates[] = {{8, "own GPU"}, {20, "peer"}, {9, "wire"},
                                                     {10, "peer"},   {11, "wire"}, {12, "own GPU"}};
  for (auto [state, text] : kStates) {
    comm.proxy_state = state;
    comm.proxy_peer = 6;
    comm.proxy_send = true;
    comm.proxy_since_ns = 5 * kMs;
    EXPECT_EQ(assembler.status({comm}, 0, 0).comms[0].proxy, (ProxyWaitStatus{text, true, 6, 5 * kMs + kUnixShift}));
  }
}

TEST_F(RankAssemblerTest, ARankIsFinishedWhenAllItsCommunicatorsAreOrItSaysSo) {
  InFlightComm comm;
  comm.live = false;
  EXPECT_TRUE(assembler.status({comm}, 0, 0).finished);
  EXPECT_FALSE(assembler.status({}, 0, 0).finished);  // none made yet
  drain({head(RecordType::kShutdown, 10)});
  EXPECT_TRUE(assembler.shut_down());
  EXPECT_TRUE(assembler.status({}, 0, 0).finished);
}

TEST(BusFactor, IsNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Function::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Function::kBroadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Function::kSend, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Function::kAllReduce, 1), 0);
}

// What the job tells beside its steps.
Record named_phase(Phase phase, const char* name, int64_t at_ms) {
  Record record = phase_begin(phase, at_ms);
  std::strncpy(record.mark.name, name, sizeof record.mark.name - 1);
  return record;
}
Record scalar(const char* name, double value, int64_t at_ms) {
  Record record = head(RecordType::kScalar, at_ms);
  record.mark.value = value;
  std::strncpy(record.mark.name, name, sizeof record.mark.name - 1);
  return record;
}
std::vector<Record> reported_text(TextKind kind, const std::string& text, int64_t at_ms) {
  static uint16_t number = 0;
  ++number;
  std::vector<Record> pieces;
  constexpr size_t kPiece = sizeof(TextRecord::text);
  for (size_t at = 0; at < text.size(); at += kPiece) {
    Record record = head(RecordType::kText, at_ms);
    record.text.kind = kind;
    record.text.bytes = static_cast<uint8_t>(std::min(kPiece, text.size() - at));
    record.text.piece = static_cast<uint16_t>(at / kPiece);
    record.text.pieces = static_cast<uint16_t>((text.size() + kPiece - 1) / kPiece);
    record.text.number = number;
    std::memcpy(record.text.text, text.data() + at, record.text.bytes);
    pieces.push_back(record);
  }
  return pieces;
}

TEST_F(RankAssemblerTest, DetailHasEveryOperationByItsStartOnTheHostsClock) {
  Record late = coll(1, 110, 4096, 2);
  late.op.seq = 41;
  late.op.ordinal = 42;
  late.op.datatype = Datatype::kBfloat16;
  late.op.peer = -1;
  Record send = part(2, 115, Function::kSend, 5, 0);
  drain({step_begin(7_step, 100), late, send, kernel(1, 150, 170), kernel(1, 150, 180), kernel(2, 120, 130),
         flagged(coll(3, 140), kFlagUnseen), step_end(7_step, 200)});
  std::vector<ClosedStep> closed = assembler.take_steps(1000 * kMs, false);
  ASSERT_EQ(closed.size(), 1u);
  const StepDetail& detail = closed[0].detail;
  EXPECT_EQ(detail.step, 7_step);
  EXPECT_EQ(detail.start_unix_ns, 100 * kMs + kUnixShift);
  EXPECT_EQ(detail.duration_ns, 100 * kMs);
  EXPECT_FALSE(detail.inferred);
  EXPECT_EQ(detail.left_out, 0);
  ASSERT_EQ(detail.ops.size(), 3u);
  EXPECT_EQ(detail.ops[0].function, "Send");
  EXPECT_TRUE(detail.ops[0].p2p);
  EXPECT_EQ(detail.ops[0].peer, 5);
  const OpSpan expected{.comm_id = kCommId,
                        .comm_size = 8,
                        .rank_in_comm = 3,
                        .p2p = false,
                        .function = "AllReduce",
                        .datatype = "bfloat16",
                        .seq = 41,
                        .ordinal = 42,
                        .peer = -1,
                        .bytes = 4096,
                        .enqueued_unix_ns = 110 * kMs + kUnixShift,
                        .start_unix_ns = 150 * kMs + kUnixShift,
                        .duration_ns = 30 * kMs,
                        .timed = true};
  EXPECT_EQ(detail.ops[2], expected);
  // One whose end is not seen stands where it was enqueued.
  EXPECT_FALSE(detail.ops[1].timed);
  EXPECT_EQ(detail.ops[1].start_unix_ns, 140 * kMs + kUnixShift);
  EXPECT_EQ(detail.ops[1].duration_ns, 0);
}

TEST_F(RankAssemblerTest, DetailHasAnOperationInTheStepThatEnqueuedItAlone) {
  drain({step_begin(1_step, 0), coll(1, 90), step_end(1_step, 100), step_begin(2_step, 100), coll(2, 110),
         kernel(1, 95, 150), kernel(2, 150, 160), step_end(2_step, 200)});
  std::vector<ClosedStep> closed = assembler.take_steps(1000 * kMs, false);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_EQ(closed[0].detail.ops.size(), 1u);
  EXPECT_EQ(closed[1].detail.ops.size(), 1u);
}

TEST_F(RankAssemblerTest, DetailSaysWhatIsNotInIt) {
  drain({step_begin(1_step, 0), coll(1, 10), kernel(1, 20, 30), step_end(1_step, 100)}, 1000, 17);
  std::vector<ClosedStep> closed = assembler.take_steps(1000 * kMs, true);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].detail.left_out, 17);
}

TEST_F(RankAssemblerTest, PhasesHaveTheirOwnTimesAndNames) {
  drain({step_begin(1_step, 0), named_phase(Phase::kForward, "rollout", 10), phase_end(Phase::kForward, 40),
         named_phase(Phase::kOther, "reward", 50), phase_end(Phase::kOther, 60), phase_begin(Phase::kOptimizer, 70),
         phase_end(Phase::kInput, 75), step_end(1_step, 100)});
  std::vector<ClosedStep> closed = assembler.take_steps(1000 * kMs, false);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].detail.phases, (std::vector<PhaseSpan>{
                                         {Phase::kForward, "rollout", 10 * kMs + kUnixShift, 30 * kMs},
                                         {Phase::kOther, "reward", 50 * kMs + kUnixShift, 10 * kMs},
                                         {Phase::kOptimizer, "", 70 * kMs + kUnixShift, 30 * kMs},  // not ended by
                                     }));                                                           // another's end
  EXPECT_EQ(closed[0].summary.phase_ns[static_cast<size_t>(Phase::kForward)], 30 * kMs);
  EXPECT_EQ(closed[0].summary.phase_ns[static_cast<size_t>(Phase::kOther)], 0);
}

TEST_F(RankAssemblerTest, ScalarsAreOfTheOpenStepByNameAndTheLastCounts) {
  StepSummary step = only({step_begin(1_step, 0), scalar("tokens", 4096, 10), scalar("loss", 2.5, 20),
                           scalar("loss", 2.25, 30), step_end(1_step, 100)});
  EXPECT_EQ(step.scalars, (std::vector<StepScalar>{{"loss", 2.25}, {"tokens", 4096}}));
}

TEST_F(RankAssemblerTest, WhatIsNoNumberIsAValueToo) {
  StepSummary step =
      only({step_begin(1_step, 0), scalar("grad_norm", INFINITY, 10), scalar("loss", NAN, 20), step_end(1_step, 100)});
  ASSERT_EQ(step.scalars.size(), 2u);
  EXPECT_TRUE(std::isinf(step.scalars[0].value));
  EXPECT_TRUE(std::isnan(step.scalars[1].value));
}

TEST_F(RankAssemblerTest, AScalarBetweenStepsIsOfTheOneBefore) {
  drain({scalar("peak_flops", 1e15, 0), step_begin(1_step, 10), step_end(1_step, 100), scalar("loss", 3, 110)});
  std::vector<StepSummary> steps = take();
  EXPECT_TRUE(steps.empty()) << "its scalars come after its end: it waits for the next";
  drain({scalar("tokens", 7, 120), step_begin(2_step, 130), step_end(2_step, 200), scalar("loss", 2, 210)});
  steps = take();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].scalars, (std::vector<StepScalar>{{"loss", 3}, {"peak_flops", 1e15}, {"tokens", 7}}));
  steps = take(2500);
  ASSERT_EQ(steps.size(), 1u) << "but not for ever";
  EXPECT_EQ(steps[0].scalars, (std::vector<StepScalar>{{"loss", 2}}));
  EXPECT_EQ(assembler.malformed(), 0u);
}

TEST_F(RankAssemblerTest, AScalarWhoseStepIsGoneIsCountedAndTheNextStepsWait) {
  drain({step_begin(1_step, 0), step_end(1_step, 100)});
  EXPECT_EQ(take().size(), 1u);
  drain({scalar("loss", 3, 110)});
  EXPECT_EQ(assembler.malformed(), 1u);
  drain({step_begin(2_step, 120), step_end(2_step, 200)});
  EXPECT_TRUE(take().empty());
  drain({scalar("loss", 2, 210), step_begin(3_step, 220)});
  std::vector<StepSummary> steps = take();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].scalars, (std::vector<StepScalar>{{"loss", 2}}));
}

TEST_F(RankAssemblerTest, TooManyScalarsAndBadNamesAreCounted) {
  std::vector<Record> records = {step_begin(1_step, 0), scalar("", 1, 1), scalar("a\nb", 1, 1)};
  for (int i = 0; i < 70; ++i) records.push_back(scalar(("s" + std::to_string(i)).c_str(), i, 2));
  records.push_back(step_end(1_step, 100));
  EXPECT_EQ(only(records).scalars.size(), kScalarsPerStepMax);
  EXPECT_EQ(assembler.malformed(), 2 + 70 - kScalarsPerStepMax);
}

TEST_F(RankAssemblerTest, WorkFiguresComeFromTheLastStepThatToldThem) {
  drain({step_begin(1_step, 0), scalar("peak_flops", 1e15, 1), scalar("flops", 2e14, 2), scalar("tokens", 5000, 3),
         scalar("loss", 2, 4), step_end(1_step, 500), step_begin(2_step, 500), scalar("flops", 1e14, 510),
         step_end(2_step, 1000)});
  take();
  EXPECT_DOUBLE_EQ(assembler.work_figures().mfu.value_or(0), 0.2);
  EXPECT_DOUBLE_EQ(assembler.work_figures().tokens_per_s.value_or(0), 10'000);
  EXPECT_DOUBLE_EQ(assembler.work_figures().loss.value_or(0), 2);
}

TEST_F(RankAssemblerTest, NotesStandInTheirStepAndHostileOnesAreCounted) {
  std::vector<Record> records = {step_begin(1_step, 0)};
  const std::string text = "learning rate halved,\nbecause the loss did not fall for a thousand steps";
  for (const std::string& reported : {text, std::string("\x1b[2J gone")}) {
    for (const Record& piece : reported_text(TextKind::kNote, reported, 30)) records.push_back(piece);
  }
  records.push_back(step_end(1_step, 100));
  drain(records);
  std::vector<ClosedStep> closed = assembler.take_steps(1000 * kMs, false);
  ASSERT_EQ(closed.size(), 1u);
  ASSERT_EQ(closed[0].detail.notes.size(), 1u);
  EXPECT_EQ(closed[0].detail.notes[0].time_unix_ns, 30 * kMs + kUnixShift);
  EXPECT_EQ(closed[0].detail.notes[0].text, "learning rate halved, because the loss did not fall for a thousand steps");
  EXPECT_EQ(assembler.malformed(), 1u);
}

TEST_F(RankAssemblerTest, GroupsAreGivenOnceAndWhatIsNoneIsCounted) {
  for (const char* text :
       {"tp\t0-3", "dp\t0,4,8,12", "no tab", "\t0-3", "bad\t3-", "empty\t", "x\ny\t1,2", "far\t0-9999999"}) {
    for (const Record& piece : reported_text(TextKind::kGroup, text, 10)) assembler.add(piece);
  }
  assembler.end_drain(0, 0);
  std::vector<CommGroup> groups = assembler.take_groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0], (CommGroup{"tp", {0_rank, 1_rank, 2_rank, 3_rank}}));
  EXPECT_EQ(groups[1], (CommGroup{"dp", {0_rank, 4_rank, 8_rank, 12_rank}}));
  EXPECT_EQ(assembler.malformed(), 6u);
  EXPECT_TRUE(assembler.take_groups().empty());
}

TEST_F(RankAssemblerTest, ARecordThatCannotBeTrueIsLeftOutAndCounted) {
  Record far = coll(1, 10);
  far.head.time_ns = ~uint64_t{0};
  Record gpu = kernel(2, 20, 30);
  gpu.kernel.gpu_stop_ns = ~uint64_t{0};
  drain({step_begin(1_step, 0), far, coll(2, 10), gpu, step_end(1_step, 100)});
  EXPECT_EQ(assembler.malformed(), 2u);
  EXPECT_EQ(take(1000, true).size(), 1u);
}

struct UnmarkedJob : RankAssemblerTest {
  int64_t now_ms = 100;
  uint64_t made = 0;
  // A step of two gradient buckets, 100 ms long.
  std::vector<Record> step() {
    std::vector<Record> records;
    for (uint64_t bytes : {1'000'000, 2'000'000}) {
      now_ms += bytes == 1'000'000 ? 80 : 20;
      Record record = coll(++made, now_ms, bytes);
      record.op.ordinal = made;
      records.push_back(record);
      records.push_back(kernel(made, now_ms + 2, now_ms + 12));
    }
    return records;
  }
};

TEST_F(UnmarkedJob, HasItsStepsInferredAndMarkedSo) {
  EXPECT_EQ(assembler.step_source(), StepSource::kNone);
  std::vector<ClosedStep> closed;
  for (int i = 0; i < 8; ++i) {
    drain(step(), now_ms);
    for (ClosedStep& one : assembler.take_steps(now_ms * kMs, false)) closed.push_back(std::move(one));
  }
  EXPECT_EQ(assembler.step_source(), StepSource::kInferred);
  ASSERT_EQ(closed.size(), 6u);
  for (size_t i = 0; i < closed.size(); ++i) {
    EXPECT_EQ(closed[i].summary.step, StepNumber{static_cast<int64_t>(i) + 1});
    EXPECT_TRUE(closed[i].summary.inferred);
    EXPECT_TRUE(closed[i].detail.inferred);
    EXPECT_EQ(closed[i].summary.duration_ns, 100 * kMs);
    EXPECT_EQ(closed[i].summary.comm_ns, 20 * kMs);
    EXPECT_EQ(closed[i].detail.ops.size(), 2u);
  }
}

TEST_F(UnmarkedJob, ACommunicatorMadeWhileTheTableWasReadLosesNoOperation) {
  RankAssembler early{kUnixShift};
  early.set_comms({});
  std::vector<StepNumber> numbers;
  for (int i = 0; i < 8; ++i) {
    for (const Record& record : step()) early.add(record);
    EXPECT_EQ(early.lacks_comm(), i == 0);
    if (early.lacks_comm()) early.add_comms({{.comm_index = 0, .live = true, .comm_id = kCommId.value(), .size = 8}});
    EXPECT_FALSE(early.lacks_comm());
    early.end_drain(now_ms * kMs, 0);
    for (const ClosedStep& one : early.take_steps(now_ms * kMs, false)) numbers.push_back(one.summary.step);
  }
  EXPECT_EQ(numbers, (std::vector<StepNumber>{1_step, 2_step, 3_step, 4_step, 5_step, 6_step}));
}

TEST_F(UnmarkedJob, WhatItTellsAllTheSameIsOfTheInferredStepInWhichItWasTold) {
  std::vector<StepSummary> steps;
  for (int i = 0; i < 8; ++i) {
    std::vector<Record> records = step();
    records.push_back(scalar("loss", i, now_ms + 1));
    drain(records, now_ms);
    for (StepSummary& one : take(now_ms)) steps.push_back(std::move(one));
  }
  ASSERT_GE(steps.size(), 5u);
  for (size_t i = 1; i < steps.size(); ++i)
    EXPECT_EQ(steps[i].scalars, (std::vector<StepScalar>{{"loss", static_cast<double>(steps[i].step.value())}}));
}

TEST_F(UnmarkedJob, LossesAreChargedToTheStepsTheyMayBelongTo) {
  std::vector<StepSummary> steps;
  for (int i = 0; i < 10; ++i) {
    drain(step(), now_ms, i == 6 ? 5 : 0);
    for (StepSummary& one : take(now_ms)) steps.push_back(std::move(one));
  }
  ASSERT_EQ(steps.size(), 8u);
  for (const StepSummary& one : steps)
    EXPECT_EQ(one.records_lost > 0, one.step == 5_step || one.step == 6_step) << one.step;
}

TEST_F(UnmarkedJob, TheFirstStepThatIsToldEndsTheInference) {
  for (int i = 0; i < 8; ++i) drain(step(), now_ms);
  take(now_ms);
  drain({step_begin(500_step, now_ms + 10)});
  EXPECT_EQ(assembler.step_source(), StepSource::kReported);
  const int64_t begin_ms = now_ms + 10;
  for (int i = 0; i < 8; ++i) drain(step(), now_ms);
  drain({step_end(500_step, now_ms + 20)});
  std::vector<StepSummary> steps = take(now_ms);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 500_step);
  EXPECT_FALSE(steps[0].inferred);
  EXPECT_EQ(steps[0].start_unix_ns, begin_ms * kMs + kUnixShift);
}

}  // namespace
}  // namespace lockstep
