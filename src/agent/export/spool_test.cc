#include "agent/export/spool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/export/spool_testing.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::SmallDisk;
using testing::TemporaryFolder;

Spool open_spool(const std::string& folder, uint64_t bytes_max = 1000) {
  Result<Spool> spool = Spool::open(folder, bytes_max);
  EXPECT_TRUE(spool.ok()) << spool.error();
  return std::move(spool).value();
}

// The value by signal, as old agents had it.
SpoolPush push(Spool& spool, Signal signal, int64_t records, std::string_view payload) {
  return spool.push(signal, signal == Signal::kMetrics ? DataValue::kMetrics : DataValue::kSteps, records, payload);
}

std::string read_oldest(Spool& spool) {
  Result<std::string> payload = spool.read(*spool.oldest());
  return payload.ok() ? *payload : payload.error();
}

void remove_oldest(Spool& spool) {
  spool.remove(*spool.oldest());
}

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(Spool, GivesRequestsBackOldestFirst) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path());
  EXPECT_TRUE(spool.empty());
  ASSERT_TRUE(push(spool, Signal::kLogs, 3, "first").stored);
  ASSERT_TRUE(push(spool, Signal::kMetrics, 4, "second").stored);
  ASSERT_TRUE(spool.sync().ok());
  EXPECT_EQ(spool.records(), 7);
  EXPECT_EQ(spool.bytes(), 11u);

  EXPECT_EQ(spool.oldest()->signal, Signal::kLogs);
  EXPECT_EQ(spool.oldest()->records, 3);
  EXPECT_EQ(read_oldest(spool), "first");
  remove_oldest(spool);
  EXPECT_EQ(spool.oldest()->signal, Signal::kMetrics);
  EXPECT_EQ(read_oldest(spool), "second");
  remove_oldest(spool);
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(spool.bytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Spool, GivesBackTheOldestOfTheSignalsThatAreWanted) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path());
  push(spool, Signal::kLogs, 1, "log");
  push(spool, Signal::kMetrics, 1, "metric");
  EXPECT_EQ(spool.oldest({0, kDataValues, 0})->signal, Signal::kMetrics);
  EXPECT_FALSE(spool.oldest({kDataValues, kDataValues, 0}).has_value());
  EXPECT_TRUE(spool.has(Signal::kLogs));
  EXPECT_FALSE(spool.has(Signal::kSpans));
}

TEST(Spool, DropsTheOldestWhenFullAndSaysHowManyRecordsThatWere) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  EXPECT_EQ(push(spool, Signal::kLogs, 1, std::string(40, 'a')).dropped.total(), 0);
  EXPECT_EQ(push(spool, Signal::kLogs, 2, std::string(40, 'b')).dropped.total(), 0);
  EXPECT_EQ(push(spool, Signal::kLogs, 4, std::string(90, 'c')).dropped.total(), 3);
  EXPECT_EQ(spool.records(), 4);
  EXPECT_LE(spool.bytes(), 100u);
  EXPECT_EQ(read_oldest(spool).front(), 'c');
}

TEST(Spool, DropsTheLowestValueFirstAndAmongEqualsTheOldest) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  const std::string twenty(20, 'x');
  spool.push(Signal::kLogs, DataValue::kEvents, 1, twenty);
  spool.push(Signal::kSpans, DataValue::kSpans, 2, twenty);
  spool.push(Signal::kMetrics, DataValue::kMetrics, 4, twenty);
  spool.push(Signal::kMetrics, DataValue::kMetrics, 8, twenty);
  spool.push(Signal::kLogs, DataValue::kSteps, 16, twenty);
  auto dropped_for = [&](DataValue value, size_t bytes) {
    return spool.push(Signal::kLogs, value, 100, std::string(bytes, 'y')).dropped.records;
  };
  using Dropped = std::array<int64_t, kDataValues>;
  EXPECT_EQ(dropped_for(DataValue::kEvents, 20), (Dropped{4, 0, 0, 0}));
  EXPECT_EQ(dropped_for(DataValue::kEvents, 40), (Dropped{8, 2, 0, 0}));
  EXPECT_EQ(dropped_for(DataValue::kEvents, 20), (Dropped{0, 0, 16, 0}));
  EXPECT_EQ(dropped_for(DataValue::kEvents, 20), (Dropped{0, 0, 0, 1}));  // nothing but events left: the oldest
  EXPECT_EQ(spool.bytes(), 100u);
}

TEST(Spool, ARequestOfLowerValueThanEverythingIsItselfTheOneToGo) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  ASSERT_TRUE(spool.push(Signal::kLogs, DataValue::kEvents, 1, std::string(90, 'e')).stored);
  const SpoolPush pushed = spool.push(Signal::kMetrics, DataValue::kMetrics, 7, std::string(20, 'm'));
  EXPECT_FALSE(pushed.stored);
  EXPECT_EQ(pushed.why, "");
  EXPECT_EQ(pushed.dropped.records, (std::array<int64_t, kDataValues>{7, 0, 0, 0}));
  EXPECT_EQ(spool.records(), 1);
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(Spool, KnowsWhatABatchIsWorth) {
  Batch metrics{.signal = Signal::kMetrics, .groups = {}};
  Batch spans{.signal = Signal::kSpans, .groups = {}};
  EXPECT_EQ(value_of(metrics), DataValue::kMetrics);
  EXPECT_EQ(value_of(spans), DataValue::kSpans);
  Batch logs{.signal = Signal::kLogs, .groups = {ResourceGroup{}}};
  logs.groups[0].logs.resize(2);
  logs.groups[0].logs[0].event_name = "train.step";
  EXPECT_EQ(value_of(logs), DataValue::kSteps);
  for (const char* name : {"rank.status", "job.start", "job.end", "gpu.xid"}) {
    logs.groups[0].logs[1].event_name = name;
    EXPECT_EQ(value_of(logs), DataValue::kEvents) << name;
  }
}

TEST(Spool, RefusesWhatIsLargerThanAllOfItAndKeepsTheRest) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  ASSERT_TRUE(push(spool, Signal::kLogs, 1, "small").stored);
  const SpoolPush pushed = push(spool, Signal::kLogs, 2, std::string(101, 'x'));
  EXPECT_FALSE(pushed.stored);
  EXPECT_NE(pushed.why, "");
  EXPECT_EQ(pushed.dropped.total(), 0);
  EXPECT_EQ(spool.records(), 1);
}

TEST(Spool, TakesUpWhatAnEarlierAgentLeftInItsOrder) {
  TemporaryFolder folder;
  {
    Spool spool = open_spool(folder.path());
    for (int i = 0; i < 12; ++i)
      ASSERT_TRUE(spool
                      .push(Signal::kLogs, i % 2 == 0 ? DataValue::kSteps : DataValue::kEvents, 1,
                            "request " + std::to_string(i))
                      .stored);
    remove_oldest(spool);
  }
  Spool spool = open_spool(folder.path());
  EXPECT_EQ(spool.records(), 11);
  ASSERT_TRUE(push(spool, Signal::kLogs, 1, "request 12").stored);
  for (int i = 1; i <= 12; ++i) {
    EXPECT_EQ(read_oldest(spool), "request " + std::to_string(i));
    EXPECT_EQ(spool.oldest()->value, i % 2 == 0 ? DataValue::kSteps : DataValue::kEvents);
    remove_oldest(spool);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Spool, TakesUpTheNamesOfOlderAgents) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/00000000000000000007-logs-3.otlp") << "old";
  std::ofstream(folder.path() + "/00000000000000000009-metrics-2.otlp") << "older";
  Spool spool = open_spool(folder.path());
  ASSERT_TRUE(push(spool, Signal::kLogs, 1, "new").stored);
  EXPECT_EQ(spool.oldest()->records, 3);
  EXPECT_EQ(spool.oldest()->value, DataValue::kSteps);
  EXPECT_EQ(read_oldest(spool), "old");
  remove_oldest(spool);
  EXPECT_EQ(spool.oldest()->value, DataValue::kMetrics);
  EXPECT_EQ(read_oldest(spool), "older");
  remove_oldest(spool);
  EXPECT_EQ(read_oldest(spool), "new");
  remove_oldest(spool);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Spool, RefusesWhatAPowerCutHasTornAndSaysHowMuchThatWas) {
  TemporaryFolder folder;
  {
    Spool spool = open_spool(folder.path());
    spool.push(Signal::kLogs, DataValue::kEvents, 5, "cut short");
    spool.push(Signal::kMetrics, DataValue::kMetrics, 7, "empty now");
    spool.push(Signal::kLogs, DataValue::kSteps, 9, "whole");
  }
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = file.path().filename();
    if (name.find("events") != std::string::npos) std::filesystem::resize_file(file.path(), 4);
    if (name.find("metrics") != std::string::npos) std::filesystem::resize_file(file.path(), 0);
  }
  std::ofstream(folder.path() + "/00000000000000000001-spans-11.otlp");  // an older agent's, empty
  std::ofstream(folder.path() + "/00000000000000000004-logs-3-events-9.otlp.tmp") << "never fini";
  Spool spool = open_spool(folder.path());
  EXPECT_EQ(spool.torn().records, (std::array<int64_t, kDataValues>{7, 11, 0, 5}));
  EXPECT_EQ(spool.records(), 9);
  EXPECT_EQ(read_oldest(spool), "whole");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(Spool, LeavesOtherFilesAlone) {
  TemporaryFolder folder;
  for (const char* name : {"README", "7-logs-1.otlp.tmp", "x-logs-1.otlp", "7-smoke-1.otlp", "7-logs--1.otlp",
                           "7-logs.otlp", "7-logs-1-gold-3.otlp", "7-logs-1-events-x.otlp"}) {
    std::ofstream(folder.path() + "/" + name) << "not ours";
  }
  Spool spool = open_spool(folder.path());
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(files_in(folder.path()), 8u);
}

TEST(Spool, AFileThatHasGoneOrShrunkIsOneLineNotACrash) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path());
  ASSERT_TRUE(push(spool, Signal::kLogs, 1, "shrunk").stored);
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::resize_file(file.path(), 2);
  EXPECT_FALSE(spool.read(*spool.oldest()).ok());
  std::filesystem::remove_all(folder.path());
  EXPECT_FALSE(spool.read(*spool.oldest()).ok());
  remove_oldest(spool);
  EXPECT_TRUE(spool.empty());
}

TEST(Spool, APushThatFailsDropsNothingUnseen) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  ASSERT_TRUE(push(spool, Signal::kLogs, 10, std::string(60, 'a')).stored);
  std::filesystem::remove_all(folder.path());
  const SpoolPush pushed = push(spool, Signal::kLogs, 5, std::string(60, 'b'));
  EXPECT_FALSE(pushed.stored);
  EXPECT_FALSE(pushed.disk_full);
  EXPECT_EQ(pushed.dropped.total(), 0);
  // The caller counts the five; the ten were not reported, so they must still be there.
  EXPECT_EQ(spool.records(), 10);
}

TEST(Spool, AFolderThatCannotBeMadeIsOneLine) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_FALSE(Spool::open(folder.path() + "/file/spool", 100).ok());
}

TEST(Spool, AFullDiskTakesTheLowestValueFirstAndIsWellAgainWhenThereIsRoom) {
  SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  Spool spool = open_spool(disk.path(), 1 << 20);
  std::ofstream(disk.path() + "/somebody else's") << std::string(32'000, 'x');
  ASSERT_TRUE(spool.push(Signal::kMetrics, DataValue::kMetrics, 1, std::string(12'000, 'm')).stored);
  ASSERT_TRUE(spool.push(Signal::kLogs, DataValue::kEvents, 2, std::string(12'000, 'e')).stored);
  // No room for a third: metrics make it for an event, and nothing makes it for metrics.
  const SpoolPush event = spool.push(Signal::kLogs, DataValue::kEvents, 4, std::string(12'000, 'f'));
  EXPECT_TRUE(event.stored) << event.why;
  EXPECT_EQ(event.dropped.records, (std::array<int64_t, kDataValues>{1, 0, 0, 0}));
  const SpoolPush metrics = spool.push(Signal::kMetrics, DataValue::kMetrics, 8, std::string(12'000, 'm'));
  EXPECT_FALSE(metrics.stored);
  EXPECT_TRUE(metrics.disk_full);
  EXPECT_NE(metrics.why.find("No space left"), std::string::npos) << metrics.why;
  EXPECT_EQ(metrics.dropped.total(), 0);
  EXPECT_EQ(spool.records(), 6);
  EXPECT_EQ(files_in(disk.path()), 3u);  // nothing half written is left behind

  std::filesystem::remove(disk.path() + "/somebody else's");
  EXPECT_TRUE(spool.push(Signal::kMetrics, DataValue::kMetrics, 8, std::string(12'000, 'm')).stored);
  EXPECT_EQ(spool.records(), 14);
}

TEST(Spool, WhatWasWrittenFirstGoesFirstWhateverItsSignalOrValue) {
  const std::pair<Signal, DataValue> kKinds[] = {
      {Signal::kLogs, DataValue::kEvents}, {Signal::kSpans, DataValue::kSpans},
      {Signal::kLogs, DataValue::kSteps},  {Signal::kMetrics, DataValue::kMetrics},
      {Signal::kLogs, DataValue::kSpans},  {Signal::kMetrics, DataValue::kSpans}};
  // Every kind before and after every other.
  for (size_t first = 0; first < std::size(kKinds); ++first) {
    TemporaryFolder folder;
    const auto fill = [&](Spool& spool) {
      for (size_t i = 0; i < std::size(kKinds); ++i) {
        const auto& [signal, value] = kKinds[(first + i) % std::size(kKinds)];
        ASSERT_TRUE(spool.push(signal, value, 1, "request " + std::to_string(i)).stored);
      }
    };
    Spool spool = open_spool(folder.path());
    fill(spool);
    Spool again = open_spool(folder.path());
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      EXPECT_EQ(read_oldest(spool), "request " + std::to_string(i));
      EXPECT_EQ(read_oldest(again), "request " + std::to_string(i)) << "by the next agent";
      again.remove(*again.oldest());
      spool.remove(*spool.oldest());
    }
  }
}

TEST(Spool, NumbersOfAnyLengthAreInTheOrderOfNumbers) {
  TemporaryFolder folder;
  for (const char* number : {"9", "10", "00000000000000000011", "100"})
    std::ofstream(folder.path() + "/" + number + "-logs-1.otlp") << number;
  Spool spool = open_spool(folder.path());
  ASSERT_TRUE(push(spool, Signal::kLogs, 1, "new").stored);
  for (const char* wanted : {"9", "10", "00000000000000000011", "100", "new"}) {
    EXPECT_EQ(read_oldest(spool), wanted);
    remove_oldest(spool);
  }
}

TEST(Spool, AmongEqualsOfSeveralSignalsTheOldestMakesRoom) {
  for (const bool metrics_first : {true, false}) {
    TemporaryFolder folder;
    Spool spool = open_spool(folder.path(), 100);
    const Signal first = metrics_first ? Signal::kMetrics : Signal::kSpans;
    const Signal second = metrics_first ? Signal::kSpans : Signal::kMetrics;
    spool.push(first, DataValue::kSpans, 1, std::string(50, 'a'));
    spool.push(second, DataValue::kSpans, 2, std::string(50, 'b'));
    EXPECT_EQ(spool.push(Signal::kLogs, DataValue::kSteps, 4, std::string(50, 'c')).dropped.total(), 1);
    EXPECT_EQ(read_oldest(spool).front(), 'b');
  }
}

TEST(Spool, IsFullAtItsLimitAndNotBefore) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  EXPECT_TRUE(push(spool, Signal::kLogs, 1, std::string(100, 'a')).stored) << "all of it";
  EXPECT_EQ(push(spool, Signal::kLogs, 1, std::string(40, 'b')).dropped.total(), 1);
  EXPECT_EQ(push(spool, Signal::kLogs, 1, std::string(60, 'c')).dropped.total(), 0);
  EXPECT_EQ(spool.bytes(), 100u);
  EXPECT_EQ(push(spool, Signal::kLogs, 1, "d").dropped.total(), 1);
  // What is worth more leaves room for exactly this.
  TemporaryFolder other;
  Spool worthy = open_spool(other.path(), 100);
  ASSERT_TRUE(worthy.push(Signal::kLogs, DataValue::kEvents, 1, std::string(80, 'e')).stored);
  EXPECT_FALSE(worthy.push(Signal::kMetrics, DataValue::kMetrics, 1, std::string(21, 'm')).stored);
  EXPECT_TRUE(worthy.push(Signal::kMetrics, DataValue::kMetrics, 1, std::string(20, 'm')).stored);
}

TEST(Spool, RemovingTwiceTakesNothingElse) {
  TemporaryFolder folder;
  Spool spool = open_spool(folder.path());
  push(spool, Signal::kLogs, 1, "first");
  push(spool, Signal::kLogs, 2, "second");
  const SpooledRequest first = *spool.oldest();
  spool.remove(first);
  spool.remove(first);
  EXPECT_EQ(spool.records(), 2);
  EXPECT_EQ(spool.bytes(), 6u);
  EXPECT_EQ(read_oldest(spool), "second");
  remove_oldest(spool);
  spool.remove(first);
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(spool.records(), 0);
}

}  // namespace
}  // namespace lockstep
