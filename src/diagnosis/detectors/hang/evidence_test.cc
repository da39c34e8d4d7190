#include "diagnosis/detectors/hang/evidence.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "diagnosis/engine.h"
#include "diagnosis/testing.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;

DumpOp op(int64_t seq, OpState state, std::string name = "all_reduce", int64_t elements = 12, int line = 88) {
  return {.seq = seq,
          .name = std::move(name),
          .sizes = format("[[%lld]]", static_cast<long long>(elements)),
          .dtype = "Float",
          .elements = elements,
          .state = state,
          .created_unix_ns = kEpochNs + seq,
          .caller = {"train_step", "/job/train.py", line}};
}

// Ranks 0 to 3 are in operation 57 of the world.
FlightDumps four_ranks() {
  FlightDumps dumps;
  for (Rank rank : all_ranks(4)) {
    FlightDump& dump = dumps[rank];
    dump.time_unix_ns = kEpochNs;
    dump.last_group = "0";
    DumpGroup world{.name = "0", .desc = "default_pg", .size = 4, .ranks = "0-3"};
    world.last_enqueued = world.last_started = 57;
    world.last_completed = 56;
    world.ops = {op(56, OpState::kCompleted), op(57, OpState::kStarted)};
    dump.last = world.ops.back();
    dump.groups = {world};
  }
  return dumps;
}

RankStack python_stack(std::vector<StackFrame> frames, std::string syscall = "futex", char state = 'S') {
  RankStack stack;
  stack.time_unix_ns = kEpochNs;
  stack.threads = {{.tid = 7, .name = "python3", .state = state, .syscall = std::move(syscall)}};
  if (!frames.empty()) stack.python = {{.ident = 1, .main = true, .frames = std::move(frames)}};
  return stack;
}

TEST(HangEvidence, AStackSaysWhatTheJobsOwnCodeDoesAndHowItWaits) {
  EXPECT_EQ(where_text(python_stack({{"load_batch", "/job/loader.py", 41}})),
            "main thread is in load_batch, loader.py:41, waiting in a futex");
  EXPECT_EQ(where_text(python_stack({{"wait", "/usr/lib/python3.11/threading.py", 320}, {"fetch", "/job/data.py", 9}})),
            "main thread is in fetch, data.py:9 (there in wait, threading.py:320), waiting in a futex");
  EXPECT_EQ(where_text(python_stack({}, "", 'T')), "main thread is stopped by a signal or a debugger");
  EXPECT_EQ(where_text(python_stack({}, "read", 'D')), "main thread is in the kernel and not to be interrupted (read)");
  EXPECT_EQ(where_text(python_stack({{"spin", "/job/a.py", 1}}, "", 'R')), "main thread is in spin, a.py:1, running");
  EXPECT_EQ(where_text({}), "nothing could be seen");
}

TEST(HangEvidence, RanksThatDoTheSameMismatchNowhere) {
  EXPECT_FALSE(find_mismatch(four_ranks()));
  FlightDumps dumps = four_ranks();
  // Different sizes are no mistake in an all-to-all, and another operation is none once all have completed it.
  for (auto& [rank, dump] : dumps) dump.groups[0].ops[1] = op(57, OpState::kStarted, "all_to_all", 12 + rank.value());
  dumps[2_rank].groups[0].ops[0] = op(56, OpState::kCompleted, "broadcast");
  EXPECT_FALSE(find_mismatch(dumps));
}

TEST(HangEvidence, TheFewWhoCalledAnotherOperationOrSizeAreOdd) {
  for (const DumpOp& odd :
       {op(57, OpState::kStarted, "broadcast", 12, 99), op(57, OpState::kEnqueued, "all_reduce", 20, 99)}) {
    FlightDumps dumps = four_ranks();
    dumps[2_rank].groups[0].ops[1] = odd;
    std::optional<DumpMismatch> mismatch = find_mismatch(dumps);
    ASSERT_TRUE(mismatch);
    EXPECT_EQ(mismatch->odd, std::vector<Rank>{2_rank});
    EXPECT_EQ(mismatch->usual, (std::vector<Rank>{0_rank, 1_rank, 3_rank}));
    EXPECT_EQ(mismatch->seq, 57);
    EXPECT_EQ(mismatch->odd_op.caller.line, 99);
    EXPECT_FALSE(mismatch->even);
  }
}

TEST(HangEvidence, GroupsOfOneNameAndOtherMembersAreNotCompared) {
  FlightDumps dumps = four_ranks();
  for (Rank rank : {2_rank, 3_rank}) {
    dumps[rank].groups[0].ranks = "2,3";
    dumps[rank].groups[0].ops[1] = op(57, OpState::kStarted, "broadcast");
  }
  for (Rank rank : {0_rank, 1_rank}) dumps[rank].groups[0].ranks = "0,1";
  EXPECT_FALSE(find_mismatch(dumps));
}

TEST(HangEvidence, AMismatchInDumpsMakesAStallOneAndNamesTheLine) {
  FlightDumps dumps = four_ranks();
  dumps[2_rank].groups[0].ops[1] = op(57, OpState::kStarted, "broadcast", 12, 99);
  Finding finding{.kind = VerdictKind::kHang, .ranks = {}, .layer = Layer::kUnknown, .cause = Cause::kInOperationStall};
  finding.victims = {0_rank, 1_rank, 2_rank, 3_rank};
  finding.chain.push_back({.claim = "Not a mismatch.", .kind = ClaimKind::kExclusion});
  add_evidence(finding, {}, dumps, kEpochNs);
  EXPECT_EQ(finding.cause, Cause::kOpMismatch);
  EXPECT_TRUE(finding.sure);
  EXPECT_EQ(finding.ranks, std::vector<Rank>{2_rank});
  ASSERT_EQ(finding.chain.size(), 2u);
  EXPECT_EQ(finding.chain[1].claim, "Not the network: such an operation cannot complete on any network.");
  EXPECT_NE(finding.chain[0].claim.find("rank 2 called broadcast of [[12]] Float from train_step, train.py:99"),
            std::string::npos)
      << finding.chain[0].claim;
}

TEST(HangEvidence, DumpsAndStacksOfAnEarlierHangSayNothing) {
  FlightDumps dumps = four_ranks();
  dumps[2_rank].groups[0].ops[1] = op(57, OpState::kStarted, "broadcast");
  Finding finding{.kind = VerdictKind::kHang, .ranks = {1_rank}, .cause = Cause::kRankMissing};
  add_evidence(finding, {{1_rank, python_stack({{"f", "/a.py", 1}})}}, dumps, kEpochNs + 600 * kSecondNs);
  EXPECT_EQ(finding.cause, Cause::kRankMissing);
  EXPECT_TRUE(finding.chain.empty());
}

TEST(HangEvidence, ADeadProcessStaysTheReason) {
  FlightDumps dumps = four_ranks();
  dumps[2_rank].groups[0].ops[1] = op(57, OpState::kStarted, "broadcast");
  Finding finding{.kind = VerdictKind::kHang, .ranks = {1_rank}, .cause = Cause::kRankDead};
  add_evidence(finding, {}, dumps, kEpochNs);
  EXPECT_EQ(finding.cause, Cause::kRankDead);
}

TEST(HangEvidence, DumpsAloneNameWhoNeverCame) {
  FlightDumps dumps = four_ranks();
  DumpGroup& world = dumps[1_rank].groups[0];
  world.last_enqueued = world.last_started = 56;
  world.ops.pop_back();
  dumps[1_rank].last = world.ops.back();
  JobWindow window;
  std::optional<Finding> finding = find_hang_in_dumps(dumps, window);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<Rank>{1_rank});
  EXPECT_EQ(finding->cause, Cause::kRankMissing);
  EXPECT_EQ(verdict_sentence(*finding, {}),
            "Rank missing (software): Rank 1 never entered all_reduce 57 of all 4 ranks; 3 ranks have waited for it.");
  EXPECT_EQ(finding->chain[0].claim,
            "Rank 1 last called all_reduce 56 of default_pg from train_step, train.py:88 (completed).");
}

TEST(HangEvidence, WhoLeftNoDumpIsNotAccusedButSaid) {
  FlightDumps dumps = four_ranks();
  dumps.erase(3_rank);
  EXPECT_EQ(ranks_without_dump(dumps), std::vector<Rank>{3_rank});
  JobWindow window;
  std::optional<Finding> finding = find_hang_in_dumps(dumps, window);
  EXPECT_TRUE(!finding || finding->ranks.empty()) << finding->sentence;
}

TEST(HangEvidence, GroupsInDifferentOrderAreADeadlock) {
  // 0 waits in a for 1, which waits in b for 0.
  FlightDumps dumps;
  for (Rank rank : {0_rank, 1_rank}) {
    FlightDump& dump = dumps[rank];
    dump.time_unix_ns = kEpochNs;
    for (const char* name : {"a", "b"}) {
      DumpGroup group{.name = name, .size = 2, .ranks = "0,1"};
      const bool inside = (rank == 0_rank) == (*name == 'a');
      group.last_enqueued = inside ? 57 : 56;
      group.last_completed = 56;
      group.ops = {op(56, OpState::kCompleted)};
      if (inside) group.ops.push_back(op(57, OpState::kStarted));
      dump.groups.push_back(group);
    }
  }
  JobWindow window;
  std::optional<Finding> finding = find_hang_in_dumps(dumps, window);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->cause, Cause::kDeadlock);
}

TEST(HangEvidence, ReachesTheVerdictThroughTheEngine) {
  DiagnosisEngine engine;
  auto identity = [](Rank rank) { return Identity{"job", 0, rank, 4, rank.value(), "node-0", ""}; };
  for (Rank rank : all_ranks(4)) {
    engine.on_comm(identity(rank), {.comm_id = CommId{1}, .size = 4, .rank_in_comm = rank.value()}, kEpochNs);
    RankStatus status{.time_unix_ns = kEpochNs, .quiet_ns = 10 * kSecondNs};
    CommStatus comm{.comm_id = CommId{1}, .size = 4, .rank_in_comm = rank.value()};
    comm.collectives_enqueued = rank == 3_rank ? 100 : 101;
    comm.collectives_completed = 100;
    comm.collective = {rank == 3_rank ? OpState::kCompleted : OpState::kStarted,
                       rank == 3_rank ? 100u : 101u,
                       100,
                       "AllReduce",
                       "float32",
                       4096,
                       -1,
                       kEpochNs};
    status.comms = {comm};
    engine.on_status(identity(rank), status, kEpochNs);
  }
  engine.tick(kEpochNs);
  ASSERT_EQ(engine.verdicts("job").size(), 1u);
  EXPECT_EQ(engine.verdicts("job")[0].next[0].command, "lockstep hang job --stacks 3");
  engine.on_stack(identity(3_rank), python_stack({{"load_batch", "/job/loader.py", 41}}), kEpochNs);
  engine.tick(kEpochNs);
  const Verdict verdict = engine.verdicts("job")[0];
  EXPECT_EQ(verdict.chain[0].claim, "Rank 3: main thread is in load_batch, loader.py:41, waiting in a futex.");
  EXPECT_EQ(verdict.chain[0].query, "/api/jobs/job/stacks?ranks=3");
  EXPECT_EQ(verdict.next[0].command, "lockstep hang job");
}

}  // namespace
}  // namespace lockstep
