// Plays small recordings into the real plugin and reads what it recorded.
#include "sim/replay/replay.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/clock.h"
#include "base/files.h"
#include "plugin/capi/lockstep.h"
#include "plugin/nccl/profiler_abi.h"
#include "recorder/reader.h"
#include "sim/replay/rank_player.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep::replay {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kFirst = 50'000 * kMs;      // when the recording began
constexpr uint64_t kLast = kFirst + 60 * kMs;  // its last call, on rank 0

// Two threads, a collective with one channel, a transfer of one step, and events that the plugin does not ask for.
std::string calls_of_rank(int rank, bool finalized) {
  std::string text = "H 412 " + std::to_string(rank) + " 2 node" + std::to_string(rank) + " 1794705512000000000 " +
                     std::to_string(kFirst) + "\n";
  const auto line = [&](const std::string& kind, uint64_t ms, const std::string& rest) {
    text += kind + " " + std::to_string(kFirst + ms * kMs) + " " + rest + "\n";
  };
  const std::string me = std::to_string(rank);
  line("I", 0, "412 1 77 2 2 " + me + " world");
  line("S", 2, "412 1 2 256 0 0 0 1");
  line("R", 2, "412 2 23 0");
  line("S", 3, "412 1 3 512 2 0 AllReduce 1024 ncclFloat32 0 0x10 0");
  line("X", 3, "412 3");
  line("S", 4, "412 1 4 2 3 " + me + " 9 AllReduce 1024 0 ncclFloat32 1 17 RING SIMPLE 0");
  line("S", 5, "471 1 5 8 4 " + me + " 412 0 1 1 4096 1");
  line("X", 6, "412 4");
  line("S", 7, "471 1 6 32 0 0 ");
  line("X", 7, "471 6");
  line("S", 10, "471 1 7 16 5 " + me + " 0");
  line("R", 10, "471 7 8 4096");
  line("R", 13, "471 7 20 4096");
  line("R", 14, "471 7 9 4096");
  line("S", 15, "471 1 8 64 4 0 0 1794705512000015000");
  line("X", 19, "471 7");
  if (rank == 0 || finalized) {
    line("X", 20, "471 5");
    line("R", 30, "471 8 22 1794705512000029000");
    line("X", 30, "471 8");
  }
  if (finalized) line("F", rank == 0 ? 60 : 50, "412 1");
  return text;
}

class ReplayTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_.path() + "/recorder"); }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(directory_.path() + "/" + name, std::ios::binary) << content;
  }
  ReplayOptions options(double speed) const {
    const std::string libraries = LOCKSTEP_LIBRARY_DIRECTORY;
    return {speed, "job-x", libraries + "/libnccl-profiler-lockstep.so", libraries + "/liblockstep.so",
            directory_.path() + "/recorder"};
  }
  // Recorder files by rank, read to the end.
  struct Recorded {
    RecorderHeader header;
    std::vector<Record> records;
    std::vector<InFlightComm> in_flight;

    std::vector<Record> of(RecordType type) const {
      std::vector<Record> found;
      std::copy_if(records.begin(), records.end(), std::back_inserter(found),
                   [type](const Record& record) { return record.head.type == type; });
      return found;
    }
  };
  std::map<int, Recorded> recorded() const {
    std::map<int, Recorded> ranks;
    const auto names = list_directory(directory_.path() + "/recorder");
    EXPECT_TRUE(names.ok());
    for (const std::string& name : *names) {
      if (!name.ends_with(kRecorderSuffix)) continue;
      const auto reader = RecorderReader::open(directory_.path() + "/recorder/" + name);
      EXPECT_TRUE(reader.ok()) << reader.error();
      Recorded rank;
      rank.header = (*reader)->header();
      (*reader)->drain([&](uint32_t, const Record& record) { rank.records.push_back(record); });
      rank.in_flight = (*reader)->in_flight();
      const int number = rank.header.rank;
      ranks.emplace(number, std::move(rank));
    }
    return ranks;
  }
  static Replay::Progress play_to_the_end(Replay& replay) {
    Result<Replay::Progress> progress = Error{"not asked"};
    EXPECT_TRUE(lockstep::testing::eventually([&] {
      progress = replay.progress();
      return !progress.ok() || progress->through;
    }));
    EXPECT_TRUE(progress.ok()) << progress.error();
    return progress.ok() ? *progress : Replay::Progress{};
  }
  // Of calls_of_rank(), which began at `zero`.
  static void expect_operations(const Recorded& rank, uint64_t zero) {
    const auto at = [&](uint64_t ms) { return zero + ms * kMs; };
    const auto colls = rank.of(RecordType::kColl);
    ASSERT_EQ(colls.size(), 1u);
    EXPECT_EQ(colls[0].head.time_ns, at(4));
    EXPECT_EQ(colls[0].op.seq, 9u);
    EXPECT_EQ(colls[0].op.bytes, 4096u);
    EXPECT_EQ(colls[0].op.function, Function::kAllReduce);

    const auto steps = rank.of(RecordType::kProxyStep);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].head.time_ns, at(19));
    EXPECT_EQ(steps[0].proxy_step.start_ns, at(10));
    EXPECT_EQ(steps[0].proxy_step.wait_gpu_ns, 3 * kMs);
    EXPECT_EQ(steps[0].proxy_step.wait_peer_ns, 1 * kMs);
    EXPECT_EQ(steps[0].proxy_step.wire_ns, 5 * kMs);
    EXPECT_EQ(steps[0].proxy_step.bytes, 4096u);
    EXPECT_EQ(steps[0].proxy_step.op_id, colls[0].op.op_id);

    const auto kernels = rank.of(RecordType::kKernelCh);
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_EQ(kernels[0].head.time_ns, at(30));
    EXPECT_EQ(kernels[0].kernel.host_start_ns, at(15));
    EXPECT_EQ(kernels[0].kernel.gpu_start_ns, 1794705512000015000u) << "GPU times are passed on as recorded";
    EXPECT_EQ(kernels[0].kernel.gpu_stop_ns, 1794705512000029000u);

    const auto proxy_ops = rank.of(RecordType::kProxyOp);
    ASSERT_EQ(proxy_ops.size(), 1u);
    EXPECT_EQ(proxy_ops[0].proxy_op.start_ns, at(5));
  }
  static void expect_step_marks(const Recorded& rank, uint64_t zero) {
    ASSERT_EQ(rank.of(RecordType::kStepBegin).size(), 1u);
    EXPECT_EQ(rank.of(RecordType::kStepBegin)[0].head.time_ns, zero + 1 * kMs);
    EXPECT_EQ(rank.of(RecordType::kStepBegin)[0].mark.number, 7);
    const auto phases = rank.of(RecordType::kPhaseBegin);
    ASSERT_EQ(phases.size(), 2u) << "a phase of no length is not marked";
    EXPECT_EQ(phases[0].mark.number, LOCKSTEP_PHASE_INPUT);
    EXPECT_EQ(phases[1].mark.number, LOCKSTEP_PHASE_OPTIMIZER);
    EXPECT_EQ(phases[1].head.time_ns, zero + 3 * kMs);
    EXPECT_EQ(rank.of(RecordType::kPhaseEnd)[1].head.time_ns, zero + 43 * kMs);
    ASSERT_EQ(rank.of(RecordType::kScalar).size(), 1u);
    EXPECT_STREQ(rank.of(RecordType::kScalar)[0].mark.name, "loss");
    EXPECT_EQ(rank.of(RecordType::kScalar)[0].mark.value, 2.5);
    EXPECT_EQ(rank.of(RecordType::kStepEnd)[0].head.time_ns, zero + 46 * kMs);
  }
  testing::TemporaryFolder directory_;
};

TEST_F(ReplayTest, RecordsComeOutAsTheyWereRecorded) {
  write("rank0.calls", calls_of_rank(0, true));
  write("rank1.calls", calls_of_rank(1, true));
  write("steps_rank0.json", R"([{"step": 7, "t0": 50001000000, "data": 2000000, "fwd": 0, "opt": 40000000,
                                 "total": 45000000, "loss": 2.5}])");
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  const int64_t began_unix_ns = SystemClock().unix_ns();
  auto replay = Replay::start(*recording, options(1.0));
  ASSERT_TRUE(replay.ok()) << replay.error();
  const Replay::Progress progress = play_to_the_end(*replay);
  EXPECT_EQ(progress.ranks_ended, 2u);
  EXPECT_EQ(progress.calls_passed, recording->calls_total);
  // NCCL sends the group and API events along, asked for or not. Never sent: ProxyCtrl, 2 calls a rank.
  EXPECT_EQ(progress.calls_made, recording->calls_total - 2 * 2);

  const auto ranks = recorded();
  ASSERT_EQ(ranks.size(), 2u);
  // The end of the recording falls on the planned end; everything else keeps its distance to it, to the nanosecond.
  const uint64_t zero = static_cast<uint64_t>(replay->planned_end_ns()) - (kLast - kFirst);
  for (const auto& [number, rank] : ranks) {
    EXPECT_EQ(rank.header.job_id, "job-x");
    EXPECT_EQ(rank.header.world_size, 2);
    EXPECT_EQ(rank.header.host, "node" + std::to_string(number));
    EXPECT_EQ(rank.header.refused_total(), 0u);
    EXPECT_EQ(rank.header.switched_off, 0u);
    expect_operations(rank, zero);
    ASSERT_EQ(rank.of(RecordType::kCommFinalize).size(), 1u);
    EXPECT_EQ(rank.of(RecordType::kCommFinalize)[0].head.time_ns, zero + (number == 0 ? 60 : 50) * kMs);
    EXPECT_EQ(rank.of(RecordType::kShutdown).size(), 1u);

    // What was recorded reads as just now: the anchor fits this machine's clocks.
    const int64_t end_unix_ns = rank.header.anchor_unix_ns + replay->planned_end_ns() - rank.header.anchor_monotonic_ns;
    EXPECT_GT(end_unix_ns, began_unix_ns);
    EXPECT_LT(end_unix_ns, SystemClock().unix_ns() + 1'000'000'000);
  }
  expect_step_marks(ranks.at(0), zero);
  EXPECT_TRUE(ranks.at(1).of(RecordType::kStepBegin).empty());
}

TEST_F(ReplayTest, ARankThatNeverFinishedStaysSilentUntilItIsEnded) {
  write("rank0.calls", calls_of_rank(0, false));
  write("rank1.calls", calls_of_rank(1, false));
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  auto replay = Replay::start(*recording, options(10.0));
  ASSERT_TRUE(replay.ok()) << replay.error();
  const Replay::Progress progress = play_to_the_end(*replay);
  EXPECT_EQ(progress.ranks_lingering, 2u);

  const auto ranks = recorded();
  ASSERT_EQ(ranks.size(), 2u);
  for (const auto& [number, rank] : ranks) {
    EXPECT_TRUE(rank.of(RecordType::kShutdown).empty());
    EXPECT_EQ(kill(rank.header.pid, 0), 0) << "the process is there";
    ASSERT_EQ(rank.in_flight.size(), 1u);
    EXPECT_EQ(rank.in_flight[0].collectives_enqueued, 1u);
    EXPECT_EQ(rank.in_flight[0].collectives_completed, number == 0 ? 1u : 0u) << "rank 1 hangs in it";
  }
  replay->stop();
  for (const auto& [number, rank] : ranks) EXPECT_NE(kill(rank.header.pid, 0), 0) << "rank " << number;
}

TEST_F(ReplayTest, StampsStayAsRecordedWhateverTheSpeed) {
  write("rank0.calls", calls_of_rank(0, true));
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  auto replay = Replay::start(*recording, options(1'000.0));
  ASSERT_TRUE(replay.ok()) << replay.error();
  play_to_the_end(*replay);
  const auto ranks = recorded();
  const Record coll = ranks.at(0).of(RecordType::kColl).at(0);
  const Record finalize = ranks.at(0).of(RecordType::kCommFinalize).at(0);
  EXPECT_EQ(finalize.head.time_ns - coll.head.time_ns, 56 * kMs);
  EXPECT_EQ(finalize.head.time_ns, static_cast<uint64_t>(replay->planned_end_ns()));
}

TEST_F(ReplayTest, WhatACallBringsGoesByTheMaskThatItBeganUnder) {
  std::string text = "H 412 0 1 node0 1794705512000000000 " + std::to_string(kFirst) + "\n";
  const auto line = [&](const std::string& kind, uint64_t ms, const std::string& rest) {
    text += kind + " " + std::to_string(kFirst + ms * kMs) + " " + rest + "\n";
  };
  line("I", 0, "412 1 77 2 2 0 world");
  line("S", 2, "412 1 2 256 0 0 0 1");
  line("S", 3, "412 1 3 512 2 0 AllReduce 1024 ncclFloat32 0 0x10 0");
  line("S", 4, "412 1 4 2 3 0 9 AllReduce 1024 0 ncclFloat32 1 17 RING SIMPLE 0");
  // A captured call: the plugin asks for no kernel events from here on.
  line("S", 5, "412 1 5 256 0 0 1 1");
  line("S", 6, "412 1 6 512 5 0 AllReduce 1024 ncclFloat32 0 0x10 1");
  line("S", 15, "471 1 8 64 4 0 0 1794705512000015000");
  line("R", 30, "471 8 22 1794705512000029000");
  line("X", 30, "471 8");
  line("F", 40, "412 1");
  write("rank0.calls", text);
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  auto replay = Replay::start(*recording, options(1.0));
  ASSERT_TRUE(replay.ok()) << replay.error();
  play_to_the_end(*replay);
  const auto ranks = recorded();
  EXPECT_EQ(ranks.at(0).header.mask & nccl::kEventKernelCh, 0u);
  EXPECT_EQ(ranks.at(0).of(RecordType::kKernelCh).size(), 1u);
  EXPECT_EQ(ranks.at(0).in_flight.at(0).collectives_completed, 1u);
}

TEST_F(ReplayTest, SaysWhichPluginCannotBeLoaded) {
  write("rank0.calls", calls_of_rank(0, true));
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  ReplayOptions missing = options(1.0);
  missing.plugin_path = "/no/such/plugin.so";
  const auto replay = Replay::start(*recording, missing);
  ASSERT_FALSE(replay.ok());
  EXPECT_NE(replay.error().find("/no/such/plugin.so"), std::string::npos) << replay.error();
}

TEST_F(ReplayTest, TheJobIsNamedByContentNotByPath) {
  write("rank0.calls", calls_of_rank(0, true));
  const auto recording = load_recording(directory_.path(), {});
  ASSERT_TRUE(recording.ok()) << recording.error();
  std::filesystem::create_directory(directory_.path() + "/elsewhere");
  std::filesystem::copy(directory_.path() + "/rank0.calls", directory_.path() + "/elsewhere/rank5.calls");
  const auto moved = load_recording(directory_.path() + "/elsewhere", {});
  ASSERT_TRUE(moved.ok()) << moved.error();
  EXPECT_EQ(default_job_id(*recording), default_job_id(*moved));
  write("elsewhere/rank5.calls", calls_of_rank(0, false));
  EXPECT_NE(default_job_id(*recording), default_job_id(*load_recording(directory_.path() + "/elsewhere", {})));
}

TEST(Mask, ABitBringsItsAncestors) {
  using namespace nccl;
  EXPECT_EQ(with_ancestors(0), 0u);
  EXPECT_EQ(with_ancestors(kEventProxyCtrl), uint64_t{kEventProxyCtrl});
  EXPECT_EQ(with_ancestors(kEventColl), uint64_t{kEventColl | kEventGroup | kEventCollApi | kEventGroupApi});
  EXPECT_EQ(with_ancestors(kEventProxyStep) & (kEventProxyOp | kEventColl | kEventP2p | kEventKernelCh),
            uint64_t{kEventProxyOp | kEventColl | kEventP2p});
  EXPECT_EQ(with_ancestors(kEventKernelCh) & kEventProxyOp, 0u);
}

}  // namespace
}  // namespace lockstep::replay
