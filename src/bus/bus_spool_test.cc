// What a gateway keeps while the bus takes nothing. The bus is a list that may be down.
#include "bus/bus_spool.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/failing_disk.h"
#include "base/files.h"
#include "base/text.h"
#include "bus/bus_counters.h"
#include "bus/log_counters.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;

constexpr auto kRows = join_counters(kLogCounters, kBusCounters);

struct ListBus final : BusWriter {
  mutable Mutex mutex;
  bool is_down LOCKSTEP_GUARDED_BY(mutex) = false;
  bool refuses LOCKSTEP_GUARDED_BY(mutex) = false;        // all that comes, and knows of no trouble
  bool loses_answers LOCKSTEP_GUARDED_BY(mutex) = false;  // of the next one: it arrives and is refused
  size_t too_large = SIZE_MAX;
  std::vector<std::string> written LOCKSTEP_GUARDED_BY(mutex);  // "tenant/key/payload@received"

  Outcome write(std::span<const BusRecord> records) override {
    MutexLock lock(mutex);
    if (is_down || refuses) return {Refused::kDown, "down"};
    for (const BusRecord& record : records) {
      if (record.payload.size() > too_large) return {Refused::kTooLarge, "too large"};
    }
    for (const BusRecord& record : records)
      written.push_back(record.tenant + "/" + record.key + "/" + std::string(record.payload) + "@" +
                        std::to_string(record.received_unix_ns) + "#" + std::to_string(static_cast<int>(record.kind)));
    if (std::exchange(loses_answers, false)) return {Refused::kDown, "the answer was lost"};
    return {};
  }
  std::optional<std::string> trouble() const override {
    MutexLock lock(mutex);
    return is_down ? std::optional<std::string>("no broker") : std::nullopt;
  }
  void set_down(bool down) {
    MutexLock lock(mutex);
    is_down = down;
  }
  std::vector<std::string> all() const {
    MutexLock lock(mutex);
    return written;
  }
};

struct BusSpoolTest : ::testing::Test {
  testing::TemporaryFolder folder;
  SystemClock clock;
  Counters counters{kRows};
  ListBus bus;
  std::unique_ptr<BusSpool> spool;

  void open(uint64_t bytes_max = 1 << 20) {
    spool.reset();
    Result<std::unique_ptr<BusSpool>> opened =
        BusSpool::open({.folder = folder.path() + "/spool", .bytes_max = bytes_max, .batch_bytes = 300, .sync = false},
                       bus, clock, counters);
    ASSERT_TRUE(opened.ok()) << opened.error();
    spool = std::move(*opened);
  }
  BusWriter::Refused write(const std::string& payload, DataValue value = DataValue::kEvents) {
    const BusRecord record{.kind = RecordKind::kOtlpSpans,
                           .tenant = "team",
                           .key = "job",
                           .received_unix_ns = 7,
                           .payload = payload,
                           .value = value};
    return spool->write({&record, 1}).refused;
  }
  static std::string as_written(const std::string& payload) { return "team/job/" + payload + "@7#3"; }
  static std::vector<std::string> numbered(int from, int to) {
    std::vector<std::string> all;
    for (int i = from; i < to; ++i) all.push_back(as_written(std::to_string(i)));
    return all;
  }
};

TEST_F(BusSpoolTest, WhatComesWhileTheBusIsAwayIsWrittenLaterInItsOrderAndOnce) {
  open();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write(std::to_string(i)), BusWriter::Refused::kNone);
  EXPECT_EQ(counters.sum("lockstep_bus_records_spooled_total"), 0) << "a bus that is there needs no disk";
  bus.set_down(true);
  for (int i = 3; i < 40; ++i) EXPECT_EQ(write(std::to_string(i)), BusWriter::Refused::kNone);
  EXPECT_EQ(bus.all().size(), 3u);
  EXPECT_TRUE(spool->kept());
  EXPECT_FALSE(spool->trouble()) << "there is room";
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 37);
  bus.set_down(false);
  for (int i = 40; i < 50; ++i) EXPECT_EQ(write(std::to_string(i)), BusWriter::Refused::kNone);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(write("50"), BusWriter::Refused::kNone);
  EXPECT_EQ(bus.all(), numbered(0, 51));
  EXPECT_EQ(counters.sum("lockstep_bus_records_spooled_total"), counters.sum("lockstep_bus_records_forwarded_total"));
  EXPECT_TRUE(eventually([&] { return counters.value("lockstep_bus_spool_bytes") == 0; }));
}

TEST_F(BusSpoolTest, ANewProcessGoesOnWhereTheOldOneWas) {
  open();
  bus.set_down(true);
  for (int i = 0; i < 20; ++i) write(std::to_string(i));
  open();
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 20);
  for (int i = 20; i < 30; ++i) write(std::to_string(i));
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all(), numbered(0, 30));
  open();
  EXPECT_FALSE(spool->kept()) << "nothing is forwarded again";
  bus.set_down(true);
  write("30");
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all(), numbered(0, 31));
}

TEST_F(BusSpoolTest, WhereThePositionIsLostOrNonsenseEverythingIsForwardedAgain) {
  open();
  bus.set_down(true);
  for (int i = 0; i < 5; ++i) write(std::to_string(i));
  spool.reset();
  for (const char* text : {"", "1 9999 1 0\n", "1 -1 x 0\n", "2 3 1 0\n", "1 1 77 13\n"}) {
    std::ofstream(folder.path() + "/spool/forwarded") << text;
    open();
    EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 5) << text;
    spool.reset();
  }
  open();
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all(), numbered(0, 5));
}

TEST_F(BusSpoolTest, WhatIsWorthLeastIsRefusedFirstAndNothingThatWasTakenGoes) {
  open(10'000);
  bus.set_down(true);
  const std::string payload(400, 'x');  // 452 bytes on disk
  std::map<DataValue, int> taken;
  for (const DataValueRow& row : kDataValueTable) {
    while (write(payload, row.value) == BusWriter::Refused::kNone) ++taken[row.value];
  }
  EXPECT_EQ(taken,
            (std::map<DataValue, int>{
                {DataValue::kMetrics, 13}, {DataValue::kSpans, 3}, {DataValue::kSteps, 3}, {DataValue::kEvents, 3}}));
  for (const DataValueRow& row : kDataValueTable)
    EXPECT_EQ(counters.value("lockstep_bus_records_shed_total", std::string("value=\"") + row.name + "\""), 1);
  EXPECT_TRUE(spool->trouble());
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all().size(), 22u);
  EXPECT_FALSE(spool->trouble());
  EXPECT_EQ(write(payload, DataValue::kMetrics), BusWriter::Refused::kNone);
}

TEST_F(BusSpoolTest, WhatIsForwardedLeavesTheDisk) {
  open(100'000);
  bus.set_down(true);
  for (int i = 0; i < 60; ++i) write(std::string(1000, 'x'));
  EXPECT_GT(counters.value("lockstep_log_bytes"), 60'000);
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_LT(counters.value("lockstep_log_bytes"), 10'000);
}

// As it is in the bytes that a reader knows it by.
TEST_F(BusSpoolTest, WhatArrivedThoughItsAnswerWasLostComesAgainAsItWas) {
  open();
  {
    MutexLock lock(bus.mutex);
    bus.loses_answers = true;
  }
  EXPECT_EQ(write("first"), BusWriter::Refused::kNone);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all(), (std::vector<std::string>{as_written("first"), as_written("first")}));
}

TEST_F(BusSpoolTest, WhatTheBusWillNeverTakeHoldsUpNothing) {
  open();
  bus.too_large = 10;
  EXPECT_EQ(write("longer than ten"), BusWriter::Refused::kTooLarge);
  bus.set_down(true);
  write("a");
  write("longer than ten");
  write("b");
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all(), (std::vector<std::string>{as_written("a"), as_written("b")}));
}

TEST_F(BusSpoolTest, DamageOnDiskCostsTheRestOfItsSegmentAndIsCounted) {
  open(16 * 1000);  // segments of 1000 bytes
  bus.set_down(true);
  for (int i = 0; i < 9; ++i) write(std::string(300, static_cast<char>('a' + i)));
  spool.reset();
  struct stat info {};
  ASSERT_EQ(stat((folder.path() + "/spool/00000000000000000001.log").c_str(), &info), 0);
  std::fstream file(folder.path() + "/spool/00000000000000000001.log", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(500);
  file.put('?');
  file.close();
  open(16 * 1000);
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  const size_t lost = static_cast<size_t>(counters.sum("lockstep_log_records_missing_total"));
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(bus.all().size() + lost, 9u);
  EXPECT_EQ(bus.all().front(), as_written(std::string(300, 'a')));
  EXPECT_EQ(bus.all().back(), as_written(std::string(300, 'i')));
  write("again");
  EXPECT_EQ(bus.all().back(), as_written("again")) << "nothing is kept any more";
}

TEST_F(BusSpoolTest, SaysHowManyBytesItKeepsAlsoOfAnEarlierProcess) {
  open();
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes_max"), 1 << 20);
  bus.set_down(true);
  for (int i = 0; i < 5; ++i) write(std::string(49, 'x'));  // 100 bytes each, names and header included
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 5);
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes"), 500);
  EXPECT_EQ(counters.value("lockstep_log_bytes"), 500);
  EXPECT_EQ(*spool->kept(), "5 records (500 bytes) are kept on disk until the bus takes them");
  open();
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 5);
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes"), 500);
}

// A few records in each segment, some of which were forwarded before the process ended.
TEST_F(BusSpoolTest, WhatAnEarlierProcessForwardedIsNotCountedAgain) {
  open(16 * 300);
  bus.set_down(true);
  for (int i = 0; i < 9; ++i) write(std::string(49, 'x'));
  spool.reset();
  std::ofstream(folder.path() + "/spool/forwarded") << "1 4 1 300\n";  // the first segment, and none of the next
  open(16 * 300);
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 6);
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes"), 600);
  bus.set_down(false);
  ASSERT_TRUE(eventually([&] { return !spool->kept(); }));
  EXPECT_EQ(bus.all().size(), 6u);
  EXPECT_EQ(*read_file(folder.path() + "/spool/forwarded", 100), "1 10 7 300\n");
}

TEST_F(BusSpoolTest, OneRecordMoreThanTheRoomIsRefusedAndTheWorthOfARequestIsThatOfItsBest) {
  open(1'000);
  bus.set_down(true);
  EXPECT_TRUE(spool->write({}).refused == BusWriter::Refused::kNone);
  const std::string payload(249, 'x');  // 300 bytes
  const auto record = [&](DataValue value) {
    return BusRecord{.kind = RecordKind::kOtlpLogs, .tenant = "team", .key = "job", .payload = payload, .value = value};
  };
  const BusRecord two[] = {record(DataValue::kEvents), record(DataValue::kMetrics)};
  EXPECT_EQ(spool->write(two).refused, BusWriter::Refused::kNone);
  EXPECT_EQ(spool->write({two, 1}).refused, BusWriter::Refused::kNone);
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes"), 900);
  EXPECT_EQ(spool->write(two).refused, BusWriter::Refused::kDown);
  EXPECT_EQ(counters.value("lockstep_bus_records_shed_total", "value=\"events\""), 2);
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 3);
  EXPECT_EQ(write(std::string(49, 'x')), BusWriter::Refused::kNone) << "the very last of the room";
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes"), 1'000);
  EXPECT_EQ(write(""), BusWriter::Refused::kDown);
  EXPECT_TRUE(spool->trouble());
  {
    MutexLock lock(bus.mutex);
    bus.refuses = true;
  }
  bus.set_down(false);
  EXPECT_TRUE(spool->trouble()) << "a bus that knows of no trouble leaves no more room";
}

TEST_F(BusSpoolTest, ANameOrARecordThatNoBusTakesIsRefusedAtOnce) {
  open(1 << 30);
  bus.set_down(true);
  const std::string longest(UINT16_MAX, 'n'), longer(UINT16_MAX + 1, 'n');
  const auto refused = [&](const std::string& tenant, const std::string& key, size_t bytes) {
    const std::string payload(bytes, 'x');
    const BusRecord record{.tenant = tenant, .key = key, .payload = payload};
    return spool->write({&record, 1}).refused;
  };
  EXPECT_EQ(refused(longer, "key", 1), BusWriter::Refused::kTooLarge);
  EXPECT_EQ(refused("tenant", longer, 1), BusWriter::Refused::kTooLarge);
  EXPECT_EQ(refused("tenant", "key", BusWriter::kRecordBytesMax + 1), BusWriter::Refused::kTooLarge);
  EXPECT_FALSE(spool->kept());
  EXPECT_EQ(refused(longest, longest, BusWriter::kRecordBytesMax), BusWriter::Refused::kNone);
  EXPECT_EQ(counters.value("lockstep_bus_spool_bytes"),
            static_cast<int64_t>(44 + 2 * UINT16_MAX + BusWriter::kRecordBytesMax));
}

// More than the log takes at once: the group that was kept stays, the other is given back.
TEST_F(BusSpoolTest, OfARequestThatFailedHalfwayOnlyWhatIsKeptIsCounted) {
  open(1 << 30);
  bus.set_down(true);
  const std::string payload(BusWriter::kRecordBytesMax, 'x');
  const BusRecord three[] = {{.payload = "first"}, {.payload = payload}, {.payload = payload}};
  {
    int writes = 0;
    disk::FailingDisk failing(
        [&](const disk::Call& call) { return call.kind == disk::Call::Kind::kWrite && ++writes > 1 ? ENOSPC : 0; });
    EXPECT_EQ(spool->write(three).refused, BusWriter::Refused::kDown);
  }
  EXPECT_EQ(*spool->kept(),
            format("2 records (%zu bytes) are kept on disk until the bus takes them", 2 * 44 + 5 + payload.size()));
  EXPECT_EQ(counters.sum("lockstep_bus_records_spooled_total"), 0) << "its sender was told that it was not kept";
  EXPECT_EQ(spool->write(three).refused, BusWriter::Refused::kNone);
  EXPECT_EQ(counters.value("lockstep_bus_spool_records"), 5);
  EXPECT_EQ(counters.sum("lockstep_bus_records_spooled_total"), 3);
}

}  // namespace
}  // namespace lockstep
