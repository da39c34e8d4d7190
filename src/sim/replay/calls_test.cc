#include "sim/replay/calls.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "plugin/capi/lockstep.h"
#include "sim/replay/recording.h"
#include "testing/temporary_folder.h"
#include "wire/compression.h"

namespace lockstep::replay {
namespace {

constexpr const char* kHead = "H 412 0 4 node0 1794705512103900751 34705712776\nI 34705772485 412 1 77 4 4 0 -\n";

std::string error_of(std::string_view line) {
  const auto parsed = parse_call_line(line);
  return parsed.ok() ? "" : parsed.error();
}

TEST(CallLine, SaysWhoTheRankIs) {
  const auto line = parse_call_line("H 412 2 4 node2 1794705512103900751 34705712776");
  ASSERT_TRUE(line.ok()) << line.error();
  EXPECT_EQ(line->pid, 412);
  EXPECT_EQ(line->rank, 2);
  EXPECT_EQ(line->world, 4);
  EXPECT_EQ(line->name, "node2");
  EXPECT_EQ(line->realtime_ns, 1794705512103900751u);
  EXPECT_EQ(line->time_ns, 34705712776u);
}

TEST(CallLine, ReadsACollective) {
  const auto line = parse_call_line("S 34801386004 412 1 8 2 3 0 5 AllReduce 8192 0 ncclFloat32 2 17 RING LL128 7");
  ASSERT_TRUE(line.ok()) << line.error();
  EXPECT_EQ(line->context, 1u);
  EXPECT_EQ(line->handle, 8u);
  EXPECT_EQ(line->type, 2u);
  EXPECT_EQ(line->parent, 3u);
  EXPECT_EQ(line->seq, 5u);
  EXPECT_EQ(line->function, "AllReduce");
  EXPECT_EQ(line->count, 8192u);
  EXPECT_EQ(line->datatype, "ncclFloat32");
  EXPECT_EQ(line->channel, 2);
  EXPECT_EQ(line->warps, 17);
  EXPECT_EQ(line->algorithm, "RING");
  EXPECT_EQ(line->protocol, "LL128");
  EXPECT_EQ(line->group, 7u);
}

TEST(CallLine, ReadsTransfersKernelsStatesAndEventsWithoutFields) {
  const auto op = parse_call_line("S 1 2 1 10 8 9 0 412 1 3 28 524288 1");
  ASSERT_TRUE(op.ok()) << op.error();
  EXPECT_EQ(op->pid, 412);
  EXPECT_EQ(op->channel, 1);
  EXPECT_EQ(op->root_or_peer, 3);
  EXPECT_EQ(op->step_count, 28);
  EXPECT_EQ(op->chunk_bytes, 524288);
  EXPECT_TRUE(op->flag);
  EXPECT_EQ(parse_call_line("S 1 2 1 10 16 9 0 27")->number, 27);
  EXPECT_EQ(parse_call_line("S 1 2 1 10 64 9 0 1 1794705512199618752")->gpu_time_ns, 1794705512199618752u);
  EXPECT_EQ(parse_call_line("S 1 2 1 10 2048 9 0 0x2c51bfe0")->stream, 0x2c51bfe0u);
  EXPECT_EQ(parse_call_line("S 1 2 1 10 2048 9 0 (nil)")->stream, 0u);
  EXPECT_EQ(parse_call_line("R 1 2 10 9 1048576")->value, 1048576u);
  EXPECT_TRUE(parse_call_line("S 1 2 1 10 32 0 0 ").ok()) << "as the recorder writes it";
  EXPECT_TRUE(parse_call_line("S 1 2 1 10 32 0 0").ok());
}

TEST(CallLine, SaysWhatIsWrong) {
  EXPECT_EQ(error_of(""), "the line is empty");
  EXPECT_EQ(error_of("Q 1 2"), "kind of line 'Q' is not known");
  EXPECT_EQ(error_of("X 1 2"), "handle is missing");
  EXPECT_EQ(error_of("X 1 2 x7"), "handle 'x7' is not a number");
  EXPECT_EQ(error_of("X 1 2 7x"), "handle '7x' is not a number");
  EXPECT_EQ(error_of("X -1 2 7"), "t '-1' is not a number");
  EXPECT_EQ(error_of("X 1  2 7"), "tid is empty");
  EXPECT_EQ(error_of("X 1 2 7 9"), "more fields than this kind of line has");
  EXPECT_EQ(error_of("X 99999999999999999999 2 7"), "t '99999999999999999999' is out of range");
  EXPECT_EQ(error_of("S 1 2 1 10 4096 0 0"), "event type 4096 is not known");
  EXPECT_EQ(error_of("S 1 2 1 10 8 9 0 412 1 3 28 524288 2"), "send is 2, neither 0 nor 1");
  EXPECT_EQ(error_of("S 1 2 1 10 64 9 0 256 1"), "channel '256' is out of range");
  EXPECT_EQ(error_of("H 1 4 4 node 1 1"), "rank 4 is not one of 4 ranks");
}

TEST(CallsFile, NumbersTheUsesOfEveryObjectInTheFilesOrder) {
  const std::string text = std::string(kHead) +
                           "S 34705780000 412 1 8 2 3 0 0 AllReduce 8 0 ncclFloat32 1 3 RING LL 7\n"
                           "S 34705780100 471 1 10 8 8 0 412 0 3 3 32768 0\n"
                           "X 34705780050 412 8\n"
                           "R 34705780200 471 10 19 0\n"
                           "X 34705780300 471 10\n"
                           "F 34705790000 412 1\n";
  const auto parsed = parse_calls(text, "rank0.calls", false);
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  ASSERT_EQ(parsed->calls.size(), 7u);
  EXPECT_EQ(parsed->threads, (std::vector<uint64_t>{412, 471}));
  EXPECT_EQ(parsed->object_count, 2u);
  EXPECT_TRUE(parsed->all_finalized);
  const Call& coll = parsed->calls[1];
  EXPECT_EQ(coll.parent, kNone) << "handle 3 is not in the recording: the plugin gets NULL";
  EXPECT_EQ(coll.object_turn, 0u);
  const Call& proxy = parsed->calls[2];
  EXPECT_EQ(proxy.parent, coll.object);
  EXPECT_EQ(proxy.parent_turn, 1u);
  EXPECT_EQ(parsed->calls[3].object_turn, 2u) << "the collective's stop comes after the transfer that names it";
  EXPECT_EQ(parsed->calls[6].calls_before, 5u);
}

TEST(CallsFile, AGroupThatIsAlsoTheParentIsUsedOnce) {
  const std::string text = std::string(kHead) +
                           "S 34705780000 412 1 7 1 0 0 \n"
                           "S 34705780001 412 1 8 2 7 0 0 AllReduce 8 0 ncclFloat32 1 3 RING LL 7\n";
  const auto parsed = parse_calls(text, "rank0.calls", false);
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  EXPECT_EQ(parsed->calls[2].group, parsed->calls[1].object);
  EXPECT_EQ(parsed->calls[2].parent_turn, 1u);
  EXPECT_EQ(parsed->calls[2].group_turn, kNone);
  EXPECT_FALSE(parsed->all_finalized);
}

TEST(CallsFile, TheParentOfATransferForAnotherProcessIsNotOurs) {
  const std::string text = std::string(kHead) +
                           "S 34705780000 412 1 8 2 0 0 0 AllReduce 8 0 ncclFloat32 1 3 RING LL 0\n"
                           "S 34705780100 471 1 10 8 8 0 999 0 3 3 32768 0\n";
  const auto parsed = parse_calls(text, "rank0.calls", false);
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  EXPECT_EQ(parsed->calls[2].parent, kNone);
}

TEST(CallsFile, FailsWithTheFirstBadLineItsFileAndItsNumber) {
  const auto bad = [](const std::string& lines) { return parse_calls(kHead + lines, "rank0.calls", false).error(); };
  EXPECT_EQ(bad("nonsense\n"), "rank0.calls:3: kind of line 'nonsense' is not known");
  EXPECT_EQ(bad("X 34705780000 412 9\n"), "rank0.calls:3: handle 9 was not started before");
  EXPECT_EQ(bad("F 34705780000 412 2\n"), "rank0.calls:3: context 2 was not made before");
  EXPECT_EQ(bad("I 34705780000 412 1 77 4 4 0 -\n"), "rank0.calls:3: context 1 is already there");
  EXPECT_EQ(bad("F 1 412 1\n"), "rank0.calls:3: time goes back on thread 412");
  EXPECT_EQ(bad("H 412 0 4 node0 1 1\n"), "rank0.calls:3: a second H line");
  EXPECT_EQ(bad("S 34705780000 412 1 7 1 0 0 \nX 34705780000 412 7\nX 34705780000 412 7\n"),
            "rank0.calls:5: handle 7 has been stopped before");
  EXPECT_EQ(parse_calls("", "rank0.calls", true).error(), "rank0.calls: empty, not even an H line");
  EXPECT_EQ(parse_calls("F 1 2 3\n", "rank0.calls", true).error(), "rank0.calls:1: the first line is not an H line");
}

TEST(CallsFile, LeavesBadLinesOutAndCountsThemWhenAskedTo) {
  const std::string text = std::string(kHead) +
                           "S 34705780000 412 1 7 1 0 0 \n"
                           "S 34705780001 412 1 eight 1 0 0 \n"
                           "X 34705780002 412 8\n"
                           "X 34705780003 412 7\n"
                           "F 34705780004 412 1\n"
                           "X 3470578";  // cut off
  const auto parsed = parse_calls(text, "rank0.calls", true);
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  EXPECT_EQ(parsed->lines, 8u);
  EXPECT_EQ(parsed->bad_lines, 3u);
  EXPECT_EQ(parsed->first_bad, "rank0.calls:4: handle 'eight' is not a number");
  EXPECT_EQ(parsed->lines, 1 + parsed->calls.size() + parsed->bad_lines);
  EXPECT_TRUE(parsed->all_finalized);
}

TEST(StepLog, TurnsKeysIntoPhasesInTheirOrderAndLossIntoAScalar) {
  const auto steps = parse_steps(
      R"([{"step": 3, "t0": 100, "data": 5, "fwd": 10, "bwd": 20, "ckpt": 0, "warp": 7, "total": 60, "loss": 9},
          {"step": 4, "t0": 160, "fwdbwd": 10, "sync": 20, "total": 40, "grad_norm": 0.5, "note": "x"}])",
      "steps_rank0.json");
  ASSERT_TRUE(steps.ok()) << steps.error();
  ASSERT_EQ(steps->size(), 2u);
  const LoggedStep& first = (*steps)[0];
  EXPECT_EQ(first.step, 3_step);
  EXPECT_EQ(first.begin_ns, 100u);
  EXPECT_EQ(first.length_ns, 60u);
  ASSERT_EQ(first.phases.size(), 4u) << "the checkpoint took no time and is no phase";
  EXPECT_EQ(first.phases[0].phase, LOCKSTEP_PHASE_INPUT);
  EXPECT_EQ(first.phases[1].phase, LOCKSTEP_PHASE_FORWARD);
  EXPECT_EQ(first.phases[2].phase, LOCKSTEP_PHASE_BACKWARD);
  EXPECT_EQ(first.phases[2].length_ns, 20u);
  EXPECT_EQ(first.phases[3].phase, LOCKSTEP_PHASE_OTHER);
  ASSERT_EQ(first.scalars.size(), 1u);
  EXPECT_EQ(first.scalars[0], (std::pair<std::string, double>("loss", 9.0)));
  EXPECT_EQ((*steps)[1].phases[1].phase, LOCKSTEP_PHASE_SYNC);
  EXPECT_EQ((*steps)[1].scalars[0].first, "grad_norm");
}

TEST(StepLog, SaysWhatIsWrong) {
  const auto error = [](std::string_view json) {
    const auto steps = parse_steps(json, "s.json");
    return steps.ok() ? "" : steps.error();
  };
  EXPECT_NE(error("[{").find("s.json: not a JSON array"), std::string::npos);
  EXPECT_EQ(error("[7]"), "s.json: entry 0: it is not an object");
  EXPECT_EQ(error(R"([{"step": 1, "t0": 5}])"), "s.json: entry 0: step, t0 or total is missing");
  EXPECT_EQ(error(R"([{"step": 1, "t0": -5, "total": 1}])"), "s.json: entry 0: t0 is out of range");
  EXPECT_EQ(error(R"([{"step": 1, "t0": 5, "total": 10}, {"step": 2, "t0": 14, "total": 10}])"),
            "s.json: entry 1: begins before the one before it has ended");
}

class RecordingFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view content) {
    std::ofstream(directory_.path() + "/" + name, std::ios::binary) << content;
  }
  static std::string calls_of(int rank, uint64_t realtime_ns, uint64_t monotonic_ns, uint64_t at_ns) {
    return "H 1 " + std::to_string(rank) + " 2 node" + std::to_string(rank) + " " + std::to_string(realtime_ns) + " " +
           std::to_string(monotonic_ns) + "\nI " + std::to_string(at_ns) + " 1 1 77 2 2 " + std::to_string(rank) +
           " -\n";
  }
  testing::TemporaryFolder directory_;
};

TEST_F(RecordingFolder, IsTheSameWhetherPlainOrPacked) {
  const std::string first = calls_of(0, 1'000'000, 500, 600), second = calls_of(1, 1'000'100, 500, 900);
  const std::string steps = R"([{"step": 0, "t0": 550, "total": 100}])";
  write("rank0.calls", first);
  write("rank1.calls", second);
  write("steps_rank1.json", steps);
  const auto plain = load_recording(directory_.path(), {});
  ASSERT_TRUE(plain.ok()) << plain.error();
  std::filesystem::remove(directory_.path() + "/rank0.calls");
  std::filesystem::remove(directory_.path() + "/rank1.calls");
  std::filesystem::remove(directory_.path() + "/steps_rank1.json");
  write("rank0.calls.zst", *compress(Encoding::kZstd, first));
  write("rank1.calls.gz", *compress(Encoding::kGzip, second));
  write("steps_rank1.json.gz", *compress(Encoding::kGzip, steps));
  const auto packed = load_recording(directory_.path(), {});
  ASSERT_TRUE(packed.ok()) << packed.error();
  for (const auto* recording : {&*plain, &*packed}) {
    EXPECT_EQ(recording->ranks.size(), 2u);
    EXPECT_EQ(recording->calls_total, 2u);
    EXPECT_EQ(recording->first_ns, 550u);
    EXPECT_EQ(recording->last_ns, 900u);
    EXPECT_EQ(recording->notes, (std::vector<std::string>{"no step log for rank 0: no step marks there"}));
  }
  EXPECT_EQ(plain->content_hash, packed->content_hash);
}

TEST_F(RecordingFolder, BringsRanksOfDifferentMachinesOntoOneClock) {
  // Rank 1's machine booted 5 s after rank 0's; its call came 0.1 s after rank 0's.
  write("rank0.calls", calls_of(0, 10'000'000'000, 6'000'000'000, 6'500'000'000));
  write("rank1.calls", calls_of(1, 10'000'000'000, 1'000'000'000, 1'600'000'000));
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  EXPECT_EQ(recording->ranks[0].to_common_ns, 0);
  EXPECT_EQ(recording->ranks[1].to_common_ns, 5'000'000'000);
  EXPECT_EQ(recording->first_ns, 6'500'000'000u);
  EXPECT_EQ(recording->last_ns, 6'600'000'000u);
}

TEST_F(RecordingFolder, RefusesWhatIsNotOneJob) {
  EXPECT_NE(load_recording(directory_.path(), {}).error().find("no rankR.calls"), std::string::npos);
  write("rank0.calls", calls_of(0, 1'000, 1, 1));
  write("rank1.calls", calls_of(0, 1'000, 1, 1));
  EXPECT_NE(load_recording(directory_.path(), {}).error().find("two files say that they are rank 0"),
            std::string::npos);
  write("rank1.calls", "H 1 1 3 node1 1000 1\n");
  EXPECT_NE(load_recording(directory_.path(), {}).error().find("not one job"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::replay
