#include "recorder/control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>

#include "recorder/layout.h"
#include "recorder/reader.h"
#include "recorder/test_process.h"
#include "recorder/writer.h"

namespace lockstep {
namespace {

using testing::RecorderFolder;

constexpr uint64_t kSecond = 1'000'000'000;

TEST(DetailControl, ComesBackFromItsWordUntilItsTimeIsOver) {
  for (const uint16_t mask : {uint16_t{0}, kDetailLow, kDetailFull, kDetailSampled, uint16_t{0xFFFF}}) {
    for (const uint32_t until_s : {1u, 100u, 0xFFFFFFFFu}) {
      const uint64_t word = DetailControl{mask, until_s}.word();
      EXPECT_EQ(word >> 63, 1u);
      const auto last = DetailControl::from(word, until_s * kSecond - 1);
      ASSERT_TRUE(last);
      EXPECT_EQ(last->mask, mask);
      EXPECT_EQ(last->until_s, until_s);
      EXPECT_FALSE(DetailControl::from(word, until_s * kSecond));
      for (int bit = 0; bit < 64; ++bit) {  // read half written
        EXPECT_FALSE(DetailControl::from(word ^ uint64_t{1} << bit, 0)) << bit;
      }
    }
  }
  EXPECT_FALSE(DetailControl::from(0, 0));
}

TEST(DetailControl, LevelsAreLowAndFull) {
  EXPECT_EQ(mask_of_level("low"), kDetailLow);
  EXPECT_EQ(mask_of_level("full"), kDetailFull);
  for (const char* other : {"", "lo", "lower", "FULL", "sampled"})
    EXPECT_EQ(mask_of_level(other), std::nullopt) << other;
}

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AskDetail, WritesTheWordAndNothingElseAndTakesItBack) {
  RecorderFolder folder;
  RecorderWriter::Options options;
  options.directory = folder.path();
  options.geometry = {2, 64, 4};
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  const std::string before = bytes_of_file((*writer)->path());
  const DetailControl request{kDetailFull, 77};
  ASSERT_TRUE(ask_detail((*writer)->path(), request).ok());
  EXPECT_EQ((*writer)->control(), request.word());
  std::string expected = before;
  const uint64_t word = request.word();
  std::memcpy(expected.data() + offsetof(layout::FileHeader, control), &word, sizeof word);
  EXPECT_TRUE(bytes_of_file((*writer)->path()) == expected);
  ASSERT_TRUE(ask_detail((*writer)->path(), std::nullopt).ok());
  EXPECT_TRUE(bytes_of_file((*writer)->path()) == before);
}

TEST(RecorderFolder, IsMadeWhereItIsNotThere) {
  RecorderFolder folder;
  RecorderWriter::Options options;
  options.directory = folder.path() + "/new";
  options.geometry = {2, 64, 4};
  errno = 0;
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  struct stat status {};
  ASSERT_EQ(::stat(options.directory.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  options.directory = folder.path() + "/none/such";
  EXPECT_FALSE(RecorderWriter::open(options).ok());
}

TEST(AskDetail, TouchesNothingThatIsNoRecorder) {
  RecorderFolder folder;
  EXPECT_FALSE(ask_detail(folder.path() + "/none", std::nullopt).ok());
  EXPECT_FALSE(ask_detail(folder.path(), std::nullopt).ok()) << "a folder";
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(ask_detail(pipe, std::nullopt).ok());
  for (const size_t size : {0, 767, 768, 100'000}) {
    const std::string path = folder.path() + "/file";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << std::string(size, 'x');
    Result<void> asked = ask_detail(path, DetailControl{kDetailFull, 77});
    ASSERT_FALSE(asked.ok()) << size;
    EXPECT_NE(asked.error().find(size < 768 ? "too short" : "magic"), std::string::npos) << asked.error();
    EXPECT_EQ(bytes_of_file(path), std::string(size, 'x'));
  }
}

TEST(RecorderHeader, ThatSomebodyElseHasWrittenIntoIsNoticed) {
  RecorderFolder folder;
  RecorderWriter::Options options;
  options.directory = folder.path();
  options.geometry = {2, 64, 4};
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  const int file = ::open((*writer)->path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_TRUE((*writer)->header_intact());
  using layout::FileHeader;
  for (const size_t offset : {offsetof(FileHeader, magic), offsetof(FileHeader, pid), offsetof(FileHeader, lanes),
                              offsetof(FileHeader, lane_records), offsetof(FileHeader, comms)}) {
    uint8_t byte = 0;
    ASSERT_EQ(::pread(file, &byte, 1, static_cast<off_t>(offset)), 1);
    const uint8_t other = byte ^ 1;
    ASSERT_EQ(::pwrite(file, &other, 1, static_cast<off_t>(offset)), 1);
    EXPECT_FALSE((*writer)->header_intact()) << offset;
    ASSERT_EQ(::pwrite(file, &byte, 1, static_cast<off_t>(offset)), 1);
    EXPECT_TRUE((*writer)->header_intact()) << offset;
  }
  ::close(file);
}

TEST(InFlight, ACommunicatorThatIsFinalizedWaitsForNothing) {
  RecorderFolder folder;
  RecorderWriter::Options options;
  options.directory = folder.path();
  options.geometry = {2, 64, 4};
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  InFlightTable& table = (*writer)->in_flight();
  const InFlightTable::Claim claim = table.claim({.comm_id = 77, .size = 8, .rank_in_comm = 3});
  ASSERT_GE(claim.row, 0);
  const auto row = static_cast<uint32_t>(claim.row);
  auto reader = RecorderReader::open((*writer)->path());
  ASSERT_TRUE(reader.ok()) << reader.error();
  for (const int state : {8, 20, 9, 10, 11, 12}) table.proxy_enter(row, state, 1, 5);
  ASSERT_EQ((*reader)->in_flight().at(0).proxy.size(), 6u);
  table.finalize(row, claim.epoch + 1);
  EXPECT_TRUE((*reader)->in_flight().at(0).live) << "another epoch's";
  table.finalize(row, claim.epoch);
  for (const InFlightComm& comm : (*reader)->in_flight()) {
    EXPECT_FALSE(comm.live);
    for (const ProxyWait& wait : comm.proxy) EXPECT_EQ(wait.count, 0u);
  }
}

TEST(Layout, CountsAreSaneWithinTheirLimitsAndNotBeyond) {
  using layout::Geometry;
  for (const Geometry& good : {Geometry{1, 16, 1}, Geometry{256, 1u << 20, 4096}, Geometry{24, 8192, 1024}})
    EXPECT_TRUE(good.sane()) << good.lanes;
  for (const Geometry& bad : {Geometry{0, 16, 1}, Geometry{257, 16, 1}, Geometry{1, 8, 1}, Geometry{1, 1u << 21, 1},
                              Geometry{1, 24, 1}, Geometry{1, 16, 0}, Geometry{1, 16, 4097}})
    EXPECT_FALSE(bad.sane()) << bad.lanes << " " << bad.lane_records << " " << bad.comms;
}

TEST(Layout, PartsFollowEachOtherOnWholePages) {
  const layout::Geometry geometry{2, 64, 4};
  EXPECT_EQ(layout::Geometry::whole_pages(0), 0u);
  EXPECT_EQ(layout::Geometry::whole_pages(1), 4096u);
  EXPECT_EQ(layout::Geometry::whole_pages(4096), 4096u);
  EXPECT_EQ(layout::Geometry::whole_pages(4097), 8192u);
  EXPECT_EQ(geometry.comm_offset(), 4096u);
  EXPECT_EQ(geometry.lane_header_offset(), 4096u + 12'288);  // four rows of 2,560 bytes
  EXPECT_EQ(geometry.record_offset(), 16'384u + 4096);       // two headers of 128 bytes
  EXPECT_EQ(geometry.lane_bytes(), 64u * 64);
  EXPECT_EQ(geometry.file_bytes(), 20'480u + 2 * 4096);
}

TEST(Layout, EveryWordOfAHeaderThatContradictsTheOthersIsAFault) {
  RecorderFolder folder;
  RecorderWriter::Options options;
  options.directory = folder.path();
  options.geometry = {2, 64, 4};
  auto writer = RecorderWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error();
  const std::string bytes = bytes_of_file((*writer)->path());
  layout::FileHeader good;
  std::memcpy(&good, bytes.data(), sizeof good);
  EXPECT_EQ(layout::header_fault(good, bytes.size()), nullptr);
  EXPECT_EQ(layout::header_fault(good, bytes.size() + 1), nullptr);
  EXPECT_NE(layout::header_fault(good, bytes.size() - 1), nullptr);
  const auto faulty = [&](auto change) {
    layout::FileHeader header = good;
    change(header);
    return layout::header_fault(header, UINT64_MAX) != nullptr;
  };
  using layout::FileHeader;
  EXPECT_TRUE(faulty([](FileHeader& header) { ++header.magic; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { ++header.layout_version; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { ++header.header_bytes; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { header.file_bytes += 4096; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { header.comm_offset += 4096; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { header.lane_header_offset += 4096; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { header.record_offset += 4096; }));
  EXPECT_TRUE(faulty([](FileHeader& header) { header.lanes = 64; }));
}

TEST(Records, EveryNumberHasItsOwnName) {
  std::set<std::string> functions, reasons;
  for (int i = 0; i < 12; ++i) functions.insert(to_text(static_cast<Function>(i)));
  for (size_t i = 0; i < kRefusedReasons; ++i) reasons.insert(to_text(static_cast<Refused>(i)));
  EXPECT_EQ(functions.size(), 12u);
  EXPECT_EQ(reasons.size(), kRefusedReasons);
  RecorderHeader header{};
  for (size_t i = 0; i < kRefusedReasons; ++i) header.refused[i] = uint64_t{1} << i;
  EXPECT_EQ(header.refused_total(), (uint64_t{1} << kRefusedReasons) - 1);
}

TEST(Records, EveryDatatypeHasTheSizeOfItsElements) {
  const uint32_t kSizes[] = {0, 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // unknown, int8 ... float8e5m2
  for (size_t i = 0; i < std::size(kSizes); ++i) EXPECT_EQ(bytes_of(static_cast<Datatype>(i)), kSizes[i]) << i;
  EXPECT_EQ(bytes_of(static_cast<Datatype>(std::size(kSizes))), 0u);
}

// Whoever fills in a part of one leaves the rest as it is here: 0 means not known, and no peer and no rank are -1.
TEST(Records, WhatNobodyHasSaidIsNothing) {
  const RecorderHeader header;
  for (const uint64_t word :
       {static_cast<uint64_t>(header.pid), header.process_start_ticks, static_cast<uint64_t>(header.attempt),
        static_cast<uint64_t>(header.world_size), static_cast<uint64_t>(header.local_rank),
        static_cast<uint64_t>(header.anchor_unix_ns), static_cast<uint64_t>(header.anchor_monotonic_ns),
        header.lanes_refused, header.refused_total(), header.switched_off, uint64_t{header.mask}, header.control,
        uint64_t{header.nccl_version}, uint64_t{header.nccl_interface}})
    EXPECT_EQ(word, 0u);
  EXPECT_EQ(header.rank, -1);
  const RecorderCost cost;
  EXPECT_EQ(cost.events + cost.samples + cost.total_ns + cost.worst_ns, 0u);
  const InFlightOp op;
  EXPECT_EQ(op.ordinal + op.seq + op.bytes + op.enqueued_ns + op.started_ns, 0u);
  EXPECT_EQ(op.state, InFlightState::kNone);
  EXPECT_EQ(op.peer, -1);
  const ProxyWait wait;
  EXPECT_EQ(wait.state + wait.count + wait.since_ns, 0u);
  EXPECT_EQ(wait.peer, -1);
  const InFlightComm comm;
  EXPECT_EQ(comm.comm_index + comm.comm_id + comm.collectives_enqueued + comm.collectives_completed +
                comm.p2p_enqueued + comm.p2p_completed + comm.collective_calls + comm.p2p_calls + comm.proxy_state +
                comm.proxy_since_ns,
            0u);
  EXPECT_EQ(comm.size, 0);
  EXPECT_EQ(comm.rank_in_comm, 0);
  EXPECT_EQ(comm.nodes, 0);
  EXPECT_EQ(comm.proxy_peer, -1);
}

}  // namespace
}  // namespace lockstep
