#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "recorder/layout.h"
#include "recorder/reader.h"
#include "recorder/test_process.h"
#include "recorder/writer.h"

namespace lockstep {
namespace {

using testing::drain_all;
using testing::in_child;
using testing::RecorderFolder;

RecorderWriter::Options small_options(const std::string& directory, uint32_t lanes = 2, uint32_t records = 64) {
  RecorderWriter::Options options;
  options.directory = directory;
  options.geometry = {lanes, records, 4};
  options.identity.job_id = "job-7";
  options.identity.rank = 3;
  options.identity.world_size = 8;
  options.identity.host = "gpu-017";
  return options;
}

// Every word says what the others must be, so that a mixture of two records gives itself away.
Record checked_record(uint64_t number) {
  Record record{};
  record.head.type = RecordType::kKernelCh;
  record.head.comm_index = 0;
  record.head.time_ns = number;
  for (int i = 2; i < 8; ++i) record.words[i] = number * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(i);
  return record;
}
bool is_checked_record(const Record& record) {
  const Record expected = checked_record(record.head.time_ns);
  return std::memcmp(&record.words[1], &expected.words[1], 56) == 0 && record.head.type == RecordType::kKernelCh;
}

InFlightTable::Op checked_op(uint64_t op_id) {
  return {.seq = op_id * 3,
          .bytes = op_id * 5,
          .now_ns = op_id * 7,
          .detail = op_detail_word(static_cast<int32_t>(op_id % 1000), Function::kAllReduce, Datatype::kFloat32, 0, 0)};
}
bool is_checked_op(const InFlightOp& op) {
  const uint64_t id = op.seq / 3;
  return op.seq == id * 3 && op.bytes == id * 5 && op.enqueued_ns == id * 7 &&
         op.peer == static_cast<int32_t>(id % 1000) && op.function == Function::kAllReduce &&
         op.datatype == Datatype::kFloat32 && op.ordinal == id;
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Recorder, GivesTheReaderWhatTheWriterWroteInOrder) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->last_activity_ns(), 0u);
  for (uint64_t i = 1; i <= 10; ++i) (*writer)->write(checked_record(i));

  const auto records = drain_all(*reader);
  ASSERT_EQ(records.size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(is_checked_record(records[i]));
    EXPECT_EQ(records[i].head.time_ns, i + 1);
  }
  EXPECT_EQ(reader->last_activity_ns(), 10u);
  EXPECT_EQ(reader->written_total(), 10u);
  EXPECT_TRUE(drain_all(*reader).empty()) << "a second drain gives only what is new";
}

TEST(Recorder, HeaderCarriesIdentityAndClocks) {
  RecorderFolder folder;
  auto options = small_options(folder.path());
  options.anchor_unix_ns = 1'700'000'000'000'000'000;
  options.anchor_monotonic_ns = 42;
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const RecorderHeader header = reader->header();
  EXPECT_EQ(header.pid, ::getpid());
  EXPECT_EQ(header.job_id, "job-7");
  EXPECT_EQ(header.rank, 3);
  EXPECT_EQ(header.world_size, 8);
  EXPECT_EQ(header.host, "gpu-017");
  EXPECT_EQ(header.anchor_unix_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(header.anchor_monotonic_ns, 42);
  EXPECT_EQ((*writer)->path(), folder.path() + "/" + std::to_string(header.pid) + "-" +
                                   std::to_string(header.process_start_ticks) + kRecorderSuffix);
}

TEST(Recorder, CountsWhatWasOverwrittenBeforeItWasRead) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path(), 1, 64));
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  for (uint64_t i = 1; i <= 100; ++i) (*writer)->write(checked_record(i));
  RecorderReader::Drained drained;
  const auto records = drain_all(*reader, &drained);
  EXPECT_EQ(drained.records, 64u);
  EXPECT_EQ(drained.overwritten, 36u);
  EXPECT_EQ(drained.torn, 0u);
  ASSERT_EQ(records.size(), 64u);
  EXPECT_EQ(records.front().head.time_ns, 37u);
  EXPECT_EQ(records.back().head.time_ns, 100u);
}

TEST(Recorder, ADrainTakesNoMoreThanItWasToldToAndTheNextGoesOnWithEveryLane) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  for (uint64_t i = 1; i <= 50; ++i) (*writer)->write(checked_record(i));
  std::thread([&] {
    for (uint64_t i = 51; i <= 60; ++i) (*writer)->write(checked_record(i));
  }).join();
  std::vector<uint64_t> seen;
  for (int drains = 1;; ++drains) {
    const RecorderReader::Drained drained =
        reader->drain([&](uint32_t, const Record& record) { seen.push_back(record.head.time_ns); }, 7);
    EXPECT_LE(drained.records, 7u);
    EXPECT_EQ(drained.overwritten + drained.torn, 0u);
    if (!drained.more) break;
    // Somebody who writes on and on in one lane does not keep the reader from the other.
    if (drains <= 10) (*writer)->write(checked_record(100 + static_cast<uint64_t>(drains)));
    ASSERT_LT(drains, 100);
  }
  for (uint64_t i = 1; i <= 60; ++i) EXPECT_EQ(std::count(seen.begin(), seen.end(), i), 1) << i;
}

TEST(Recorder, AReaderSlowerThanTheWriterGetsCountedGapsAndNeverGarbage) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path(), 1, 256));
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  constexpr uint64_t kRecords = 400'000;
  std::atomic<bool> done{false};
  std::thread producer([&] {
    for (uint64_t i = 1; i <= kRecords; ++i) (*writer)->write(checked_record(i));
    done = true;
  });
  RecorderReader::Drained total;
  uint64_t last = 0;
  uint64_t garbage = 0;
  uint64_t disorder = 0;
  for (bool last_round = false; !last_round;) {
    last_round = done;
    const auto drained = reader->drain([&](uint32_t, const Record& record) {
      garbage += is_checked_record(record) ? 0 : 1;
      disorder += record.head.time_ns > last ? 0 : 1;
      last = record.head.time_ns;
    });
    total.records += drained.records;
    total.overwritten += drained.overwritten;
    total.torn += drained.torn;
  }
  producer.join();
  EXPECT_EQ(garbage, 0u);
  EXPECT_EQ(disorder, 0u);
  EXPECT_EQ(last, kRecords);
  EXPECT_EQ(total.records + total.overwritten + total.torn, kRecords);
  EXPECT_GT(total.overwritten + total.torn, 0u) << "the ring was never lapped: this run proves nothing";
}

TEST(Recorder, AKilledWriterLeavesOnlyWholeRecordsAndAReadableTable) {
  RecorderFolder folder;
  std::mt19937 random(20260101);
  uint64_t records_seen = 0;
  for (int round = 0; round < 150; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto writer = RecorderWriter::open(small_options(folder.path(), 2, 64));
      if (!writer.ok()) ::_exit(1);
      auto& table = (*writer)->in_flight();
      const auto row = static_cast<uint32_t>(table.claim({.comm_id = 99, .size = 8, .name = "dp"}).row);
      std::thread other([&] {
        for (uint64_t i = 1;; ++i) (*writer)->write(checked_record(i));
      });
      for (uint64_t i = 1;; ++i) {
        if (i == 20 && ::write(ready[1], "1", 1) != 1) ::_exit(2);
        (*writer)->write(checked_record(i));
        const auto ticket = table.enqueue(row, 1, checked_op(i));
        table.started(row, ticket, i * 11);
        if (i % 3 != 0) table.completed(row, ticket);
      }
    }
    char byte;
    if (round % 4 != 0) {  // else also while it is still beginning
      ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    }
    // The sleep is the point: it decides where in its work the writer is killed.
    ::usleep(std::uniform_int_distribution<useconds_t>(0, 4000)(random));
    ::kill(child, SIGKILL);
    ::close(ready[0]);
    ::close(ready[1]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";

    for (const std::string& path : folder.files()) {
      if (path.ends_with(kRecorderSuffix)) {
        auto reader = RecorderReader::open(path);
        ASSERT_TRUE(reader.ok()) << reader.error();
        RecorderReader::Drained drained;
        for (const Record& record : drain_all(**reader, &drained)) ASSERT_TRUE(is_checked_record(record));
        EXPECT_LE(drained.torn, 2u) << "at most the slot each lane was writing";
        EXPECT_EQ(drained.records + drained.overwritten + drained.torn, (*reader)->written_total());
        records_seen += drained.records;
        for (const auto& comm : (*reader)->in_flight()) {
          EXPECT_EQ(comm.comm_id, 99u);
          EXPECT_EQ(comm.name, "dp");
          for (const auto& op : comm.recent) ASSERT_TRUE(is_checked_op(op)) << op.ordinal;
        }
      }
      std::filesystem::remove(path);
    }
  }
  EXPECT_GT(records_seen, 1000u);
}

TEST(Recorder, AThreadThatEndsGivesItsLaneToTheNext) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path(), 1, 64));
  ASSERT_TRUE(writer.ok()) << writer.error();
  for (uint64_t i = 1; i <= 5; ++i) std::thread([&] { (*writer)->write(checked_record(i)); }).join();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(drain_all(*reader).size(), 5u);
  EXPECT_EQ(reader->header().lanes_refused, 0u);
}

TEST(Recorder, AThreadWithoutALaneIsCountedAndItsRecordsToo) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path(), 1, 64));
  ASSERT_TRUE(writer.ok()) << writer.error();
  (*writer)->write(checked_record(1));
  std::thread([&] {
    (*writer)->write(checked_record(2));
    (*writer)->write(checked_record(3));
  }).join();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(drain_all(*reader).size(), 1u);
  EXPECT_EQ(reader->header().lanes_refused, 1u);
  EXPECT_EQ(reader->header().refused_total(), 2u);
}

TEST(Recorder, TheSecondToOpenInAProcessSharesTheFile) {
  RecorderFolder folder;
  auto first = RecorderWriter::open(small_options(folder.path()));
  auto options = small_options(folder.path(), 64, 4096);
  options.identity.job_id = "another";
  auto second = RecorderWriter::open(options);
  ASSERT_TRUE(first.ok() && second.ok());
  (*first)->write(checked_record(1));
  (*second)->write(checked_record(2));
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(drain_all(*reader).size(), 2u);
  EXPECT_EQ(reader->header().job_id, "job-7");
}

TEST(InFlight, FollowsAnOperationFromEnqueuedToCompleted) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  InFlightTable& table = (*writer)->in_flight();
  EXPECT_TRUE(reader->in_flight().empty());
  const auto claim = table.claim({.comm_id = 77, .size = 16, .rank_in_comm = 5, .nodes = 2, .name = "tp"});
  ASSERT_EQ(claim.row, 0);
  const auto ticket = table.enqueue(0, 1, checked_op(1));

  auto comm = reader->in_flight().at(0);
  EXPECT_TRUE(comm.live);
  EXPECT_EQ(comm.comm_id, 77u);
  EXPECT_EQ(comm.size, 16);
  EXPECT_EQ(comm.rank_in_comm, 5);
  EXPECT_EQ(comm.nodes, 2);
  EXPECT_EQ(comm.name, "tp");
  ASSERT_EQ(comm.recent.size(), 1u);
  EXPECT_EQ(comm.recent[0].state, InFlightState::kEnqueued);
  EXPECT_TRUE(is_checked_op(comm.recent[0]));

  table.started(0, ticket, 1234);
  comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.recent[0].state, InFlightState::kStarted);
  EXPECT_EQ(comm.recent[0].started_ns, 1234u);
  EXPECT_EQ(comm.collectives_completed, 0u);

  table.completed(0, ticket);
  comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.recent[0].state, InFlightState::kCompleted);
  EXPECT_EQ(comm.collectives_enqueued, 1u);
  EXPECT_EQ(comm.collectives_completed, 1u);
  EXPECT_EQ(comm.p2p_enqueued, 0u);

  table.finalize(0, claim.epoch);
  EXPECT_FALSE(reader->in_flight().at(0).live);
}

TEST(InFlight, TheOldestUnfinishedOperationKeepsItsPlaceHoweverFarTheHostRunsAhead) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  table.claim({.comm_id = 1, .size = 2});
  std::vector<InFlightTable::Ticket> tickets;
  for (uint64_t i = 1; i <= 100; ++i) tickets.push_back(table.enqueue(0, 1, checked_op(i)));
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  auto comm = reader->in_flight().at(0);
  ASSERT_EQ(comm.recent.size(), layout::kOpEntries);
  EXPECT_EQ(comm.recent.front().ordinal, 1u) << "what everybody waits for";
  EXPECT_EQ(comm.recent.back().ordinal, 100u) << "how far the host has come";
  EXPECT_EQ(comm.collectives_enqueued, 100u);

  for (const auto& ticket : tickets) table.completed(0, ticket);
  for (uint64_t i = 101; i <= 132; ++i) table.enqueue(0, 1, checked_op(i));
  comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_completed, 100u);
  EXPECT_EQ(comm.recent.back().ordinal, 132u);
}

TEST(InFlight, AnOvertakenOperationDoesNotHoldItsPlaceForEver) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  table.claim({.comm_id = 1, .size = 2});
  table.enqueue(0, 1, checked_op(1));  // its completion is lost
  for (uint64_t i = 2; i <= 80; ++i) table.completed(0, table.enqueue(0, 1, checked_op(i)));
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.recent.size(), layout::kRecentOps);
  for (const auto& op : comm.recent) EXPECT_EQ(op.state, InFlightState::kCompleted) << op.ordinal;
}

TEST(InFlight, ShowsTheWaitForOthersBeforeTheWaitForTheOwnGpu) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  table.claim({.comm_id = 1, .size = 4});
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->in_flight().at(0).proxy_state, 0);
  table.proxy_enter(0, 8, 2, 100);
  table.proxy_enter(0, 10, 3, 200);
  table.proxy_enter(0, 10, 3, 210);
  auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.proxy_state, 10);
  EXPECT_EQ(comm.proxy_peer, 3);
  EXPECT_FALSE(comm.proxy_send);
  EXPECT_EQ(comm.proxy_since_ns, 210u);
  table.proxy_leave(0, 10, 300);
  EXPECT_EQ(reader->in_flight().at(0).proxy_state, 10) << "another step still waits";
  table.proxy_leave(0, 10, 310);
  table.proxy_leave(0, 10, 320);  // one too many does no harm
  comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.proxy_state, 8);
  EXPECT_TRUE(comm.proxy_send);
}

TEST(InFlight, RowsOfFinalizedCommunicatorsAreUsedAgainOldestFirstAndALiveOneNever) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  std::vector<InFlightTable::Claim> claims;
  for (uint64_t i = 0; i < 4; ++i) claims.push_back(table.claim({.comm_id = i}));
  EXPECT_EQ(table.claim({.comm_id = 9}).row, -1);
  const auto shown = folder.reader()->in_flight();
  ASSERT_EQ(shown.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(shown[i].comm_id, i) << "each row at its place";
  table.finalize(2, claims[2].epoch);
  table.finalize(1, claims[1].epoch);
  const auto again = table.claim({.comm_id = 9});
  EXPECT_EQ(again.row, 1) << "made first";
  EXPECT_TRUE(table.live(1, again.epoch));
  EXPECT_FALSE(table.live(1, claims[1].epoch)) << "the old communicator's handles are dead";
  EXPECT_FALSE(table.live(4000, 1));
}

TEST(Reader, RefusesWhatIsNotARecorderWithOneLine) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  const std::string good = file_bytes((*writer)->path());
  ASSERT_TRUE(RecorderReader::over(good.data(), good.size()).ok());

  const auto refusal = [](const std::string& bytes) {
    auto reader = RecorderReader::over(bytes.data(), bytes.size());
    return reader.ok() ? std::string("accepted") : reader.error();
  };
  const auto with = [&](size_t offset, uint64_t value, size_t size) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, size);
    return refusal(bytes);
  };
  EXPECT_NE(refusal("").find("too short"), std::string::npos);
  EXPECT_NE(refusal(good.substr(0, 600)).find("too short"), std::string::npos);
  EXPECT_NE(refusal(good.substr(0, good.size() - 1)).find("too short"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, magic), 1, 8).find("magic"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, layout_version), 99, 4).find("version"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, lanes), 0xFFFFFFFF, 4).find("contradicts"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, lanes), 1, 4).find("contradicts"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, lane_records), 63, 4).find("contradicts"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, lane_records), 0, 4).find("contradicts"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, comms), 0x80000000, 4).find("contradicts"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, record_offset), ~0ULL, 8).find("contradicts"), std::string::npos);
  EXPECT_NE(with(offsetof(layout::FileHeader, file_bytes), 0, 8).find("contradicts"), std::string::npos);
  EXPECT_FALSE(RecorderReader::open(folder.path()).ok()) << "a folder";
  EXPECT_FALSE(RecorderReader::open(folder.path() + "/none.lsfr").ok());
}

TEST(Reader, KnowsThatTheWriterLivesWithoutItsPid) {
  RecorderFolder folder;
  int reported[2];
  ASSERT_EQ(::pipe(reported), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = RecorderWriter::open(small_options(folder.path(), 2, 64));
    (void)!::write(reported[1], "x", 1);
    ::pause();
  }
  char ready;
  ASSERT_EQ(::read(reported[0], &ready, 1), 1);
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->held());
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(reader->held());
  ::close(reported[0]);
  ::close(reported[1]);
}

TEST(Reader, AHostileHeadOrCommunicatorCountCannotLeadItAstray) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  (*writer)->write(checked_record(1));
  std::string bytes = file_bytes((*writer)->path());
  const layout::Geometry geometry = small_options("").geometry;
  const uint64_t head = ~0ULL;
  std::memcpy(bytes.data() + geometry.lane_header_offset(), &head, 8);
  std::memcpy(bytes.data() + offsetof(layout::FileHeader, comm_rows_used), &head, 8);
  std::memset(bytes.data() + offsetof(layout::FileHeader, job_id), 'A', sizeof layout::FileHeader::job_id);
  std::memset(bytes.data() + geometry.comm_offset(), 0xEE, geometry.comms * sizeof(layout::CommRow));
  auto reader = RecorderReader::over(bytes.data(), bytes.size());
  ASSERT_TRUE(reader.ok()) << reader.error();
  RecorderReader::Drained drained;
  EXPECT_TRUE(drain_all(**reader, &drained).empty());
  EXPECT_EQ(drained.torn, 64u);
  EXPECT_LE((*reader)->in_flight().size(), 4u);
  EXPECT_EQ((*reader)->header().job_id.size(), sizeof layout::FileHeader::job_id);
}

TEST(Reader, AFileCutShortUnderItIsNotTheEndOfTheReader) {
  RecorderFolder folder;
  std::string path;
  {
    auto writer = RecorderWriter::open(small_options(folder.path()));
    ASSERT_TRUE(writer.ok()) << writer.error();
    (*writer)->write(checked_record(1));
    path = (*writer)->path();
  }
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  EXPECT_TRUE(drain_all(*reader).empty());
  EXPECT_TRUE(reader->in_flight().empty());
  EXPECT_EQ(reader->last_activity_ns(), 0u);
  EXPECT_EQ(reader->header().job_id, "job-7");
}

TEST(Reader, ASavedFileWithoutAllItsRecordsStillShowsItsTableWhereThatIsAllowed) {
  RecorderFolder folder;
  std::string path;
  {
    auto writer = RecorderWriter::open(small_options(folder.path()));
    ASSERT_TRUE(writer.ok()) << writer.error();
    (*writer)->in_flight().claim({.comm_id = 77, .size = 2});
    (*writer)->in_flight().enqueue(0, 1, checked_op(1));
    for (uint64_t i = 1; i <= 60; ++i) (*writer)->write(checked_record(i));
    path = (*writer)->path();
  }
  const layout::Geometry geometry = small_options("").geometry;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(geometry.record_offset() + 64)), 0);
  EXPECT_FALSE(RecorderReader::open(path).ok());
  auto reader = RecorderReader::open(path, true);
  ASSERT_TRUE(reader.ok()) << reader.error();
  EXPECT_EQ((*reader)->in_flight().at(0).recent.at(0).ordinal, 1u);
  EXPECT_EQ((*reader)->last_activity_ns(), 60u);
  RecorderReader::Drained drained;
  EXPECT_TRUE(drain_all(**reader, &drained).empty());
  EXPECT_EQ(drained.torn, 60u);

  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(geometry.lane_header_offset() - 1)), 0);
  EXPECT_FALSE(RecorderReader::open(path, true).ok()) << "half a table is none";
}

TEST(Reader, UnknownNumbersInARecordBecomeUnknown) {
  RecorderFolder folder;
  auto writer = RecorderWriter::open(small_options(folder.path()));
  ASSERT_TRUE(writer.ok()) << writer.error();
  Record record{};
  record.op.head = {.type = RecordType::kColl, .comm_index = 500, .time_ns = 1};
  record.op.function = static_cast<Function>(200);
  record.op.datatype = static_cast<Datatype>(201);
  (*writer)->write(record);
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto records = drain_all(*reader);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.comm_index, kNoComm);
  EXPECT_EQ(records[0].op.function, Function::kUnknown);
  EXPECT_EQ(records[0].op.datatype, Datatype::kUnknown);
}

TEST(ProcessRecorder, IdentityComesFromTheEnvironmentInOrder) {
  RecorderFolder folder;
  in_child([] {
    for (const char* name : {"LOCKSTEP_JOB_ID", "LOCKSTEP_RANK", "RANK", "SLURM_PROCID", "LOCKSTEP_HOST"})
      ::unsetenv(name);
    ::setenv("TORCHELASTIC_RUN_ID", "none", 1);
    auto options = RecorderWriter::options_from_environment();
    CHILD_CHECK(options.identity.job_id.starts_with("unknown-"));
    CHILD_CHECK(options.identity.rank == -1);
    ::setenv("TORCHELASTIC_RUN_ID", "elastic-1", 1);
    CHILD_CHECK(RecorderWriter::options_from_environment().identity.job_id == "elastic-1");
    ::setenv("SLURM_JOB_ID", "4711", 1);
    ::setenv("SLURM_RESTART_COUNT", "2", 1);
    ::setenv("SLURM_PROCID", "9", 1);
    ::setenv("SLURM_NTASKS", "16", 1);
    options = RecorderWriter::options_from_environment();
    CHILD_CHECK(options.identity.job_id == "4711" && options.identity.attempt == 2);
    CHILD_CHECK(options.identity.rank == 9 && options.identity.world_size == 16);
    ::setenv("LOCKSTEP_JOB_ID", "mine", 1);
    ::setenv("RANK", "5", 1);
    ::setenv("LOCKSTEP_CLOCK_ANCHOR", "1000:20", 1);
    ::setenv("LOCKSTEP_RECORDER_LANES", "100000", 1);
    ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "1000", 1);
    options = RecorderWriter::options_from_environment();
    CHILD_CHECK(options.identity.job_id == "mine" && options.identity.rank == 5);
    CHILD_CHECK(options.anchor_unix_ns == 1000 && options.anchor_monotonic_ns == 20);
    CHILD_CHECK(options.geometry.lanes == layout::kLanesMax && options.geometry.lane_records == 512);
    ::setenv("LOCKSTEP_RANK", "6", 1);
    CHILD_CHECK(RecorderWriter::options_from_environment().identity.rank == 6);
  });
}

TEST(ProcessRecorder, AForkedChildWritesNothingIntoItsParentsFile) {
  RecorderFolder folder;
  in_child([] {
    RecorderWriter* recorder = process_recorder();
    CHILD_CHECK(recorder != nullptr);
    std::thread([&] {
      recorder->write(checked_record(1));
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        CHILD_CHECK(process_recorder() == nullptr);
        recorder->write(checked_record(2));  // from code that kept the pointer
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
        ::_exit(0);  // the sanitizers do not bear the end of a thread in a forked child
#endif
        return;  // the thread ends: the parent's lane must stay the parent's
      }
      int status = 0;
      ::waitpid(grandchild, &status, 0);
      CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      std::thread([&] { recorder->write(checked_record(3)); }).join();
      CHILD_CHECK(process_recorder() == recorder);
      recorder->write(checked_record(4));
    }).join();
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  std::vector<std::pair<uint32_t, uint64_t>> lane_and_number;
  reader->drain([&](uint32_t lane, const Record& record) { lane_and_number.emplace_back(lane, record.head.time_ns); });
  EXPECT_EQ(lane_and_number, (std::vector<std::pair<uint32_t, uint64_t>>{{0, 1}, {0, 4}, {1, 3}}));
  EXPECT_EQ(reader->header().switched_off, 0u);
  EXPECT_EQ(reader->header().lanes_refused, 0u);
}

TEST(ProcessRecorder, AChildForkedBeforeTheFirstCallMakesItsOwnFile) {
  RecorderFolder folder;
  in_child([] {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      CHILD_CHECK(process_recorder() != nullptr);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHILD_CHECK(process_recorder() != nullptr);
  });
  EXPECT_EQ(folder.files().size(), 2u);
}

TEST(ProcessRecorder, DisabledMakesNoFile) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_DISABLE", "1", 1);
    CHILD_CHECK(process_recorder() == nullptr);
    CHILD_CHECK(process_recorder_fault().find("LOCKSTEP_DISABLE") != std::string::npos);
  });
  EXPECT_TRUE(folder.files().empty());
}

TEST(ProcessRecorder, AnEmptyNameOfTheFolderIsNone) {
  RecorderFolder folder;
  EXPECT_EQ(recorder_directory(), folder.path());
  ::setenv("LOCKSTEP_RECORDER_DIR", "", 1);
  const std::string usual = recorder_directory();
  EXPECT_EQ(usual, "/dev/shm/lockstep-" + std::to_string(::geteuid()));
  ::unsetenv("LOCKSTEP_RECORDER_DIR");
  EXPECT_EQ(recorder_directory(), usual);
}

TEST(ProcessRecorder, IsOffWithOneLineWhereTheFolderCannotBeMadeOrUsed) {
  for (const char* directory : {"/nonexistent/deeper/still", "/proc/lockstep", "/dev/null"}) {
    RecorderFolder folder;
    in_child([&] {
      ::setenv("LOCKSTEP_RECORDER_DIR", directory, 1);
      CHILD_CHECK(process_recorder() == nullptr);
      CHILD_CHECK(!process_recorder_fault().empty());
    });
  }
}

TEST(ProcessRecorder, RefusesAFolderOrFileThatSomebodyElseCanWrite) {
  RecorderFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  auto options = small_options(folder.path());
  options.directory_must_be_ours = true;
  auto writer = RecorderWriter::open(options);
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.error().find("only this user"), std::string::npos);
}

TEST(ProcessRecorder, AFileThatIsNoRecorderInItsPlaceIsLeftAlone) {
  RecorderFolder folder;
  std::string path;
  {
    auto writer = RecorderWriter::open(small_options(folder.path()));
    ASSERT_TRUE(writer.ok()) << writer.error();
    path = (*writer)->path();
  }
  std::ofstream(path, std::ios::trunc) << "something else";
  auto writer = RecorderWriter::open(small_options(folder.path()));
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(file_bytes(path), "something else");
}

TEST(RecorderClock, CanBeReplacedAndPutBack) {
  use_recorder_clock([]() -> uint64_t { return 12345; });
  EXPECT_EQ(recorder_now_ns(), 12345u);
  use_recorder_clock(nullptr);
  EXPECT_NE(recorder_now_ns(), 12345u);
}

TEST(Records, NamesAndSizes) {
  EXPECT_STREQ(to_text(Function::kReduceScatter), "ReduceScatter");
  EXPECT_STREQ(to_text(static_cast<Function>(99)), "Unknown");
  EXPECT_STREQ(to_text(Datatype::kBfloat16), "bfloat16");
  EXPECT_EQ(bytes_of(Datatype::kBfloat16), 2u);
  EXPECT_EQ(bytes_of(Datatype::kUnknown), 0u);
  EXPECT_EQ(bytes_of(Datatype::kFloat64), 8u);
}

}  // namespace
}  // namespace lockstep
