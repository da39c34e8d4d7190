// A recorder's limits at their very borders, the table of operations at every step of an operation's life, and what a
// reader makes of a file with each of its bytes changed in turn.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/text.h"
#include "recorder/identity_variables.h"
#include "recorder/layout.h"
#include "recorder/reader.h"
#include "recorder/test_process.h"
#include "recorder/writer.h"
#include "testing/changed_bytes.h"

namespace lockstep {
namespace {

using testing::RecorderFolder;

constexpr layout::Geometry kSmall{2, 16, 2};

RecorderWriter::Options options_in(const std::string& directory, layout::Geometry geometry = kSmall) {
  RecorderWriter::Options options;
  options.directory = directory;
  options.geometry = geometry;
  options.identity.job_id = "job-7";
  options.identity.rank = 3;
  options.identity.world_size = 8;
  options.identity.host = "gpu-017";
  options.anchor_unix_ns = 1'700'000'000'000'000'000;
  options.anchor_monotonic_ns = 42;
  return options;
}

Record record_of(RecordType type, uint64_t time_ns) {
  Record record{};
  record.head.type = type;
  record.head.comm_index = 1;
  record.head.time_ns = time_ns;
  for (int i = 2; i < 8; ++i) record.words[i] = time_ns * 0x0101010101010101ULL + static_cast<uint64_t>(i);
  return record;
}

InFlightTable::Op op_of(uint64_t number, uint64_t p2p = 0, uint64_t end_is_seen = 1) {
  return {.seq = number,
          .bytes = number * 5,
          .now_ns = number * 7,
          .detail = op_detail_word(static_cast<int32_t>(number), Function::kAllReduce, Datatype::kFloat32, 0, 0),
          .p2p = p2p,
          .end_is_seen = end_is_seen};
}

std::string text_of(const InFlightComm& comm) {
  std::string text = format(
      "%u %d %llx size %d rank %d nodes %d %s enqueued %llu %llu completed %llu %llu calls %llu %llu proxy %d %d %d "
      "%llu:",
      comm.comm_index, comm.live, static_cast<unsigned long long>(std::bit_cast<uint64_t>(comm.comm_id)), comm.size,
      std::bit_cast<int32_t>(comm.rank_in_comm), comm.nodes, comm.name.c_str(),
      static_cast<unsigned long long>(comm.collectives_enqueued), static_cast<unsigned long long>(comm.p2p_enqueued),
      static_cast<unsigned long long>(comm.collectives_completed), static_cast<unsigned long long>(comm.p2p_completed),
      static_cast<unsigned long long>(comm.collective_calls), static_cast<unsigned long long>(comm.p2p_calls),
      comm.proxy_state, std::bit_cast<int32_t>(comm.proxy_peer), comm.proxy_send,
      static_cast<unsigned long long>(comm.proxy_since_ns));
  for (const auto& waits : comm.proxy) text += format(" %d", static_cast<int>(waits.state));
  for (const InFlightOp& op : comm.recent)
    text += format(" [%d %d %d %llu %llu %d %d %llu %d %llu %llu]", static_cast<int>(op.state), op.p2p, op.end_is_seen,
                   static_cast<unsigned long long>(op.ordinal), static_cast<unsigned long long>(op.seq),
                   static_cast<int>(op.function), static_cast<int>(op.datatype),
                   static_cast<unsigned long long>(op.bytes), std::bit_cast<int32_t>(op.peer),
                   static_cast<unsigned long long>(op.enqueued_ns), static_cast<unsigned long long>(op.started_ns));
  return text;
}

TEST(RecorderSize, IsHalvedUntilASixteenthOfWhatIsFreeHoldsIt) {
  const layout::Geometry asked{24, 8192, 1024};
  auto fitted = [](layout::Geometry geometry, uint64_t free_bytes) {
    const Result<layout::Geometry> made = RecorderWriter::fitting(geometry, free_bytes);
    return made.ok() ? format("%u %u %u", made->lanes, made->lane_records, made->comms) : made.error();
  };
  auto needs = [](uint32_t records, uint32_t comms) { return 16 * layout::Geometry{24, records, comms}.file_bytes(); };
  EXPECT_EQ(fitted(asked, needs(8192, 1024)), "24 8192 1024");
  EXPECT_EQ(fitted(asked, needs(8192, 1024) - 1), "24 4096 1024");
  EXPECT_EQ(fitted(asked, needs(4096, 1024)), "24 4096 1024");
  EXPECT_EQ(fitted(asked, needs(512, 1024)), "24 512 1024");
  EXPECT_EQ(fitted(asked, needs(512, 1024) - 1), "24 512 512") << "then fewer communicators";
  EXPECT_EQ(fitted(asked, needs(512, 64)), "24 512 64");
  EXPECT_EQ(fitted(asked, needs(512, 64) - 1), "24 256 64") << "then records again";
  EXPECT_EQ(fitted(asked, needs(64, 64)), "24 64 64");
  EXPECT_EQ(fitted(asked, needs(64, 64) - 1),
            format("recorder: %llu bytes free are too few: NCCL needs shared memory too; recording is off",
                   static_cast<unsigned long long>(needs(64, 64) - 1)));
}

TEST(RecorderCost, EverySampleIsInItsBucketAndTheWorstIsKnown) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  RecorderWriter::Lane& lane = (*writer)->lane();
  uint64_t total = 0;
  for (const uint64_t bound : kCostBoundsNs) {
    (*writer)->end_sample(lane, bound);
    (*writer)->end_sample(lane, bound + 1);
    total += 2 * bound + 1;
  }
  size_t measured = 0;
  for (int i = 0; i < 1'000; ++i) measured += (*writer)->begin_event(lane);
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const RecorderCost cost = reader->cost();
  EXPECT_EQ(cost.buckets.front(), 1u);
  for (size_t i = 1; i + 1 < cost.buckets.size(); ++i) EXPECT_EQ(cost.buckets[i], 2u) << i;
  EXPECT_EQ(cost.buckets.back(), 1u);
  EXPECT_EQ(cost.samples, 2 * kCostBoundsNs.size());
  EXPECT_EQ(cost.total_ns, total);
  EXPECT_EQ(cost.worst_ns, kCostBoundsNs.back() + 1);
  EXPECT_EQ(cost.events, 1'000u);
  EXPECT_EQ(measured, 1'000 / kCostEvery);
}

TEST(RecorderCost, MoreThanHalfAWindowOfSlowCallbacksSwitchesItOff) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  RecorderWriter::Lane& lane = (*writer)->lane();
  for (int window = 0; window < 3; ++window) {
    for (int i = 0; i < 64; ++i) (*writer)->end_sample(lane, i < 32 ? 20'001 : 20'000);
    EXPECT_FALSE((*writer)->off()) << "half of a window may be slow, window after window";
  }
  for (int i = 0; i < 32; ++i) (*writer)->end_sample(lane, 20'001);
  EXPECT_FALSE((*writer)->off());
  (*writer)->end_sample(lane, 20'001);
  EXPECT_TRUE((*writer)->off());
  EXPECT_EQ((*writer)->off_reason(), SwitchOff::kTooSlow);
  EXPECT_EQ(folder.reader()->header().switched_off, 3u);
}

TEST(RecorderLane, KnowsWhenItsOldestRecordIsTooYoungToBeOverwritten) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  RecorderWriter::Lane& lane = (*writer)->lane();
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_FALSE(RecorderWriter::goes_round_within(lane, 1'000, 1'000)) << "there is room";
    (*writer)->write(lane, record_of(RecordType::kKernelCh, 100 + i));
  }
  EXPECT_TRUE(RecorderWriter::goes_round_within(lane, 1'000, 901));
  EXPECT_FALSE(RecorderWriter::goes_round_within(lane, 1'000, 900)) << "it was written 900 ns ago";
  (*writer)->write(lane, record_of(RecordType::kKernelCh, 900));
  EXPECT_TRUE(RecorderWriter::goes_round_within(lane, 1'000, 900)) << "the next oldest is 899 ns old";
  const uint32_t first = RecorderWriter::next_group(lane);
  EXPECT_EQ(first, lane.number << 23 | 1);
  EXPECT_EQ(RecorderWriter::next_group(lane), first + 1);
  lane.groups = (1u << 23) - 1;
  EXPECT_EQ(RecorderWriter::next_group(lane), lane.number << 23 | 1) << "never 0";
}

TEST(RecorderHeader, TheLargestCommunicatorIsTheWorld) {
  RecorderFolder folder;
  auto options = options_in(folder.path());
  options.identity.rank = -1;
  options.identity.world_size = 0;
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  auto known = [&] {
    return format("%d of %d", std::bit_cast<int32_t>(reader->header().rank), reader->header().world_size);
  };
  EXPECT_EQ(known(), "-1 of 0");
  (*writer)->learn_alone();
  EXPECT_EQ(known(), "0 of 1");
  (*writer)->learn_world(3, 8);
  EXPECT_EQ(known(), "3 of 8");
  (*writer)->learn_world(5, 8);
  EXPECT_EQ(known(), "3 of 8") << "the first of a size";
  (*writer)->learn_world(1, 4);
  (*writer)->learn_alone();
  EXPECT_EQ(known(), "3 of 8");
  (*writer)->show_nccl(22809, 5);
  (*writer)->show_mask(0x5e);
  (*writer)->count_step();
  (*writer)->count_refused(Refused::kNoLane);
  const RecorderHeader header = reader->header();
  EXPECT_EQ(header.nccl_version, 22809u);
  EXPECT_EQ(header.nccl_interface, 5u);
  EXPECT_EQ(header.mask, 0x5eu);
  EXPECT_EQ(header.refused_total(), 1u);
  EXPECT_EQ((*writer)->steps_begun(), 1u);
}

TEST(RecorderFolder, OfThisUserAloneIsTakenAndALinkOrAFileInItsPlaceIsNot) {
  RecorderFolder folder;
  auto options = options_in(folder.path() + "/own");
  options.directory_must_be_ours = true;
  EXPECT_TRUE(RecorderWriter::open(options).ok()) << "made here";
  EXPECT_TRUE(RecorderWriter::open(options).ok()) << "and found";
  ASSERT_EQ(::chmod(options.directory.c_str(), 0755), 0);
  EXPECT_TRUE(RecorderWriter::open(options).ok()) << "others may look";
  for (const mode_t mode : {0775, 0757}) {
    ASSERT_EQ(::chmod(options.directory.c_str(), mode), 0);
    EXPECT_FALSE(RecorderWriter::open(options).ok()) << mode;
  }
  ASSERT_EQ(::chmod(options.directory.c_str(), 0700), 0);
  options.directory = folder.path() + "/link";
  ASSERT_EQ(::symlink((folder.path() + "/own").c_str(), options.directory.c_str()), 0);
  EXPECT_FALSE(RecorderWriter::open(options).ok());
  options.directory = folder.path() + "/file";
  std::ofstream(options.directory) << "x";
  EXPECT_FALSE(RecorderWriter::open(options).ok());
}

TEST(ProcessRecorder, WhatTheEnvironmentDoesNotSayIsNothingAndWhatItSaysIsBounded) {
  RecorderFolder folder;
  testing::in_child([] {
    namespace names = identity_variables;
    for (const auto& list : {names::kAttempt, names::kRank, names::kWorldSize, names::kLocalRank}) {
      for (const char* name : list) ::unsetenv(name);
    }
    for (const char* name : {"LOCKSTEP_RECORDER_LANES", "LOCKSTEP_RECORDER_LANE_RECORDS", "LOCKSTEP_RECORDER_COMMS",
                             "LOCKSTEP_CLOCK_ANCHOR", names::kGpuUuid})
      ::unsetenv(name);
    RecorderWriter::Options options = RecorderWriter::options_from_environment();
    CHILD_CHECK(options.identity.attempt == 0);
    CHILD_CHECK(std::bit_cast<int32_t>(options.identity.rank) == -1);
    CHILD_CHECK(options.identity.world_size == 0);
    CHILD_CHECK(options.identity.local_rank == 0);
    CHILD_CHECK(options.identity.gpu_uuid.empty());
    CHILD_CHECK(options.anchor_unix_ns == 0 && options.anchor_monotonic_ns == 0);
    CHILD_CHECK(options.geometry.lanes == layout::kLanesDefault);
    CHILD_CHECK(options.geometry.lane_records == layout::kLaneRecordsDefault);
    CHILD_CHECK(options.geometry.comms == layout::kCommsDefault);
    CHILD_CHECK(!options.directory_must_be_ours);  // it is named
    ::setenv("LOCKSTEP_RECORDER_LANES", "0", 1);
    ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "1", 1);
    ::setenv("LOCKSTEP_RECORDER_COMMS", "1000000", 1);
    ::setenv("LOCKSTEP_CLOCK_ANCHOR", "1000", 1);
    ::setenv("RANK", "-7", 1);
    ::setenv("WORLD_SIZE", "99999999999", 1);
    ::unsetenv("LOCKSTEP_RECORDER_DIR");
    options = RecorderWriter::options_from_environment();
    CHILD_CHECK(options.geometry.lanes == 1);
    CHILD_CHECK(options.geometry.lane_records == layout::kLaneRecordsMin);
    CHILD_CHECK(options.geometry.comms == layout::kCommsMax);
    CHILD_CHECK(options.anchor_unix_ns == 0);  // half an anchor is none
    CHILD_CHECK(std::bit_cast<int32_t>(options.identity.rank) == -1);
    CHILD_CHECK(options.identity.world_size == INT32_MAX);
    CHILD_CHECK(options.directory_must_be_ours);
  });
}

// Completed and enqueued collectives, the same of sends and receives, and the states of the newest operations.
std::string counts_and_states(const InFlightComm& comm) {
  std::string states;
  for (const InFlightOp& op : comm.recent) states += std::to_string(static_cast<int>(op.state));
  return format("%llu/%llu %llu/%llu %s", static_cast<unsigned long long>(comm.collectives_completed),
                static_cast<unsigned long long>(comm.collectives_enqueued),
                static_cast<unsigned long long>(comm.p2p_completed), static_cast<unsigned long long>(comm.p2p_enqueued),
                states.c_str());
}

// An operation is shown, counted and overtaken as its header says, whatever kind it is and whether its end is seen.
TEST(InFlight, CountsEveryKindOfOperationAtEveryStepOfItsLife) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  const auto claim =
      table.claim({.comm_id = decltype(InFlightTable::Comm::comm_id)(0xfeed), .size = 4, .nodes = 2, .name = "dp"});
  ASSERT_EQ(claim.row, 0);
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  auto counts = [&] { return counts_and_states(reader->in_flight().at(0)); };
  table.count_call(0, false);
  table.count_call(0, false);
  table.count_call(0, true);
  EXPECT_EQ(reader->in_flight().at(0).collective_calls, 2u);
  EXPECT_EQ(reader->in_flight().at(0).p2p_calls, 1u);
  const auto first = table.enqueue(0, claim.epoch, op_of(1));
  const auto second = table.enqueue(0, claim.epoch, op_of(2));
  const auto send = table.enqueue(0, claim.epoch, op_of(3, 1));
  const auto unseen = table.enqueue(0, claim.epoch, op_of(4, 1, 0));
  const std::string enqueued = std::to_string(static_cast<int>(InFlightState::kEnqueued));
  const std::string started = std::to_string(static_cast<int>(InFlightState::kStarted));
  const std::string done = std::to_string(static_cast<int>(InFlightState::kCompleted));
  EXPECT_EQ(counts(), "0/2 1/2 " + enqueued + enqueued + enqueued + enqueued);
  EXPECT_EQ(unseen.ordinal, 2u);
  EXPECT_EQ(unseen.position, 3u);
  EXPECT_FALSE(table.overtaken(0, 0));
  table.started(0, second, 50);
  table.started(0, second, 60);
  EXPECT_EQ(reader->in_flight().at(0).recent[1].started_ns, 50u) << "once";
  EXPECT_EQ(counts(), "0/2 1/2 " + enqueued + started + enqueued + enqueued);
  table.completed(0, second);
  EXPECT_EQ(counts(), "2/2 1/2 " + enqueued + done + enqueued + enqueued) << "collectives run in order";
  table.completed(0, first);
  EXPECT_EQ(counts(), "2/2 1/2 " + done + done + enqueued + enqueued) << "an earlier one takes nothing back";
  EXPECT_TRUE(table.overtaken(0, 1));
  EXPECT_FALSE(table.overtaken(0, 2));
  table.completed(0, send);
  table.completed(0, unseen);
  EXPECT_EQ(counts(), "2/2 2/2 " + done + done + done + done) << "one whose end is not seen was counted at once";
  EXPECT_FALSE(reader->in_flight().at(0).recent[3].end_is_seen);
  EXPECT_TRUE(reader->in_flight().at(0).recent[2].end_is_seen);
  table.started(0, first, 70);
  EXPECT_EQ(reader->in_flight().at(0).recent[0].state, InFlightState::kCompleted) << "it is over";

  EXPECT_TRUE(table.live(0, claim.epoch));
  EXPECT_FALSE(table.live(2, claim.epoch));
  EXPECT_FALSE(table.live(0, claim.epoch + 1));
  table.identify(0, {.comm_id = decltype(InFlightTable::Comm::comm_id)(0xbeef), .name = "tp"});
  EXPECT_EQ(reader->in_flight().at(0).name, "tp");
  EXPECT_EQ(table.comm(0).size, 4);
  EXPECT_EQ(table.comm(0).nodes, 2);
}

TEST(InFlight, AnOperationWhoseEndIsNotSeenGivesItsPlaceToTheNext) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  const auto claim = table.claim({.size = 2});
  auto ordinals = [&] {
    std::string text;
    const auto comms = folder.reader()->in_flight();
    for (const InFlightOp& op : comms.at(0).recent) text += std::to_string(op.ordinal) + " ";
    return text;
  };
  for (uint64_t i = 1; i <= layout::kRecentOps; ++i) table.enqueue(0, claim.epoch, op_of(i, 0, i == 1 ? 0 : 1));
  table.enqueue(0, claim.epoch, op_of(33));
  EXPECT_EQ(ordinals().substr(0, 4), "2 3 ") << "the first went";
  EXPECT_TRUE(ordinals().ends_with(" 33 "));
  table.enqueue(0, claim.epoch, op_of(34));
  EXPECT_EQ(ordinals().substr(0, 4), "2 3 ") << "the second is waited for";
  EXPECT_TRUE(ordinals().ends_with(" 33 34 "));
  table.enqueue(0, claim.epoch, op_of(35, 0, 0));
  EXPECT_EQ(ordinals().substr(0, 4), "2 4 ") << "one whose end is not seen takes the place of the oldest";
}

TEST(InFlight, TheWaitThatHasLastedLongestIsShownOfThoseForOthers) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  table.claim({.size = 4});
  using Peer = int32_t;
  std::string shown;
  auto show = [&] {
    const InFlightComm comm = folder.reader()->in_flight().at(0);
    shown += format("%d to %d since %llu%s, ", comm.proxy_state, std::bit_cast<int32_t>(comm.proxy_peer),
                    static_cast<unsigned long long>(comm.proxy_since_ns), comm.proxy_send ? " sends" : "");
  };
  table.proxy_enter(0, 12, Peer{1}, 10);
  show();
  table.proxy_enter(0, 8, Peer{2}, 9);
  show();
  table.proxy_enter(0, 9, Peer{3}, 30);
  show();
  table.proxy_enter(0, 20, Peer{4}, 30);
  show();
  table.proxy_enter(0, 11, Peer{5}, 29);
  show();
  table.proxy_enter(0, 13, Peer{6}, 1);  // none of ours
  table.proxy_enter(0, -1, Peer{6}, 1);
  table.proxy_enter(0, 32, Peer{6}, 1);
  show();
  EXPECT_EQ(shown,
            "12 to 1 since 10, 8 to 2 since 9 sends, 9 to 3 since 30 sends, 20 to 4 since 30 sends, 11 to 5 since 29, "
            "11 to 5 since 29, ");
  EXPECT_EQ(folder.reader()->in_flight().at(0).proxy.size(), 5u);
}

TEST(Reader, BelievesAsManyWaitingTransfersAsAreANumberOfThem) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  (*writer)->in_flight().claim({.size = 2});
  (*writer)->in_flight().proxy_enter(0, 10, 3, 200);
  std::ifstream file((*writer)->path(), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  auto waits = [&](uint32_t count) {
    const size_t cells = kSmall.comm_offset() + offsetof(layout::CommRow, proxy);
    std::memcpy(bytes.data() + cells + 3 * sizeof(layout::ProxyCell) + offsetof(layout::ProxyCell, count), &count, 4);
    return RecorderReader::over(bytes.data(), bytes.size()).value()->in_flight().at(0).proxy.size();
  };
  EXPECT_EQ(waits(0), 0u);
  EXPECT_EQ(waits(1), 1u);
  EXPECT_EQ(waits(INT32_MAX), 1u);
  EXPECT_EQ(waits(uint32_t{INT32_MAX} + 1), 0u);
}

// As it was on disk, with the process's own numbers taken out.
std::string plain_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  auto put = [&](size_t offset, auto value) { std::memcpy(bytes.data() + offset, &value, sizeof value); };
  put(offsetof(layout::FileHeader, pid), int32_t{77});
  put(offsetof(layout::FileHeader, process_start_ticks), uint64_t{88});
  put(kSmall.lane_header_offset() + offsetof(layout::LaneHeader, owner), uint32_t{99});
  return bytes;
}

std::string text_of(RecorderReader& reader) {
  const RecorderHeader header = reader.header();
  std::string text = format(
      "%d %llu %s %lld %d %d %d %s %s %lld %lld %llu %llu %llu %u %llx %u %u\n", header.pid,
      static_cast<unsigned long long>(header.process_start_ticks), header.job_id.c_str(),
      static_cast<long long>(header.attempt), std::bit_cast<int32_t>(header.rank), header.world_size, header.local_rank,
      header.host.c_str(), header.gpu_uuid.c_str(), static_cast<long long>(header.anchor_unix_ns),
      static_cast<long long>(header.anchor_monotonic_ns), static_cast<unsigned long long>(header.lanes_refused),
      static_cast<unsigned long long>(header.refused_total()), static_cast<unsigned long long>(header.switched_off),
      header.mask, static_cast<unsigned long long>(header.control), header.nccl_version, header.nccl_interface);
  const RecorderReader::Drained drained = reader.drain([&](uint32_t lane, const Record& record) {
    text += format("%u ", lane);
    text.append(reinterpret_cast<const char*>(&record), sizeof record);
  });
  const RecorderCost cost = reader.cost();
  text +=
      format("\n%llu %llu %llu %.6g %d %llu %llu %llu %llu %llu\n", static_cast<unsigned long long>(drained.records),
             static_cast<unsigned long long>(drained.overwritten), static_cast<unsigned long long>(drained.torn),
             drained.fullest, drained.more, static_cast<unsigned long long>(reader.last_activity_ns()),
             static_cast<unsigned long long>(reader.written_total()), static_cast<unsigned long long>(cost.events),
             static_cast<unsigned long long>(cost.total_ns), static_cast<unsigned long long>(cost.worst_ns));
  for (const uint64_t count : cost.buckets) text += format("%llu ", static_cast<unsigned long long>(count));
  for (const uint32_t thread : reader.producers()) text += format("%u ", thread);
  for (const InFlightComm& comm : reader.in_flight()) text += text_of(comm) + "\n";
  return text;
}

TEST(Reader, TextsHaveNothingInThemThatCouldDisturbATerminal) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  (*writer)->in_flight().claim({.size = 4, .name = "\x1b[1m a~\x1f\x7f\xc3\xa9"});
  EXPECT_EQ(folder.reader()->in_flight().at(0).name, "?[1m a~??\xc3\xa9");
}

TEST(InFlight, ANameIsAsLongAsItsFieldLessTheByteThatEndsIt) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  const std::string longest(sizeof layout::CommRow::name - 1, 'n');
  (*writer)->in_flight().claim({.size = 4, .name = longest.c_str()});
  (*writer)->in_flight().claim({.size = 4, .name = (longest + "more").c_str()});
  for (const InFlightComm& comm : folder.reader()->in_flight()) EXPECT_EQ(comm.name, longest);
}

TEST(ChangedBytes, OfARecorderAreAFaultOrReadAsTheyStand) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(options_in(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  RecorderWriter::Lane& lane = (*writer)->lane();
  const RecordType kTypes[] = {RecordType::kColl,      RecordType::kP2p,       RecordType::kKernelCh,
                               RecordType::kProxyStep, RecordType::kStepBegin, RecordType::kScalar,
                               RecordType::kText,      RecordType::kShutdown,  RecordType::kCommInit};
  for (uint64_t i = 0; i < 20; ++i) (*writer)->write(lane, record_of(kTypes[i % std::size(kTypes)], i + 1));
  for (int i = 0; i < 3; ++i) (*writer)->begin_event(lane);
  (*writer)->end_sample(lane, 900);
  InFlightTable& table = (*writer)->in_flight();
  const auto claim =
      table.claim({.comm_id = decltype(InFlightTable::Comm::comm_id)(0xfeed), .size = 4, .nodes = 2, .name = "dp"});
  table.completed(0, table.enqueue(0, claim.epoch, op_of(1)));
  table.started(0, table.enqueue(0, claim.epoch, op_of(2, 1)), 50);
  table.enqueue(0, claim.epoch, op_of(3, 0, 0));
  table.proxy_enter(0, 8, 2, 100);
  table.proxy_enter(0, 10, 3, 200);
  const std::string file = plain_file((*writer)->path());
  const std::pair<uint64_t, size_t> kParts[] = {
      {0, sizeof(layout::FileHeader)},
      {kSmall.comm_offset(), offsetof(layout::CommRow, ops) + 4 * sizeof(layout::OpEntry)},
      {kSmall.lane_header_offset(), sizeof(layout::LaneHeader)},
      {kSmall.record_offset(), 6 * sizeof(Record)}};
  std::string lines;
  for (const auto& part_of_file : kParts) {
    const uint64_t offset = part_of_file.first;
    const size_t size = part_of_file.second;
    lines +=
        testing::read_changed(file.substr(offset, size), [&](const std::string& part) -> std::optional<std::string> {
          if (part.size() != size) return std::nullopt;
          std::string changed = file;
          changed.replace(offset, size, part);
          auto reader = RecorderReader::over(changed.data(), changed.size());
          return reader.ok() ? text_of(**reader) : reader.error();
        });
    lines += "\n";
  }
  EXPECT_EQ(lines,
            "768 refused, 4608 of 5810379 bytes, 6a83341b\n"
            "640 refused, 3840 of 5179704 bytes, 6668263b\n"
            "128 refused, 768 of 1019915 bytes, 3a6b3c38\n"
            "384 refused, 2304 of 3093522 bytes, d9ff4e4e\n");
}

}  // namespace
}  // namespace lockstep
