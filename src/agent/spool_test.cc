#include "agent/spool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/testing.h"

namespace lockstep {
namespace {

using testing::TempFolder;

Spool open_spool(const std::string& folder, uint64_t bytes_max = 1000) {
  Result<Spool> spool = Spool::open(folder, bytes_max);
  EXPECT_TRUE(spool.ok()) << spool.error();
  return std::move(spool).value();
}

TEST(Spool, GivesRequestsBackOldestFirst) {
  TempFolder folder;
  Spool spool = open_spool(folder.path());
  EXPECT_TRUE(spool.empty());
  ASSERT_TRUE(spool.push(Signal::kLogs, 3, "first").ok());
  ASSERT_TRUE(spool.push(Signal::kMetrics, 4, "second").ok());
  EXPECT_EQ(spool.records(), 7);
  EXPECT_EQ(spool.bytes(), 11u);

  EXPECT_EQ(spool.front().signal, Signal::kLogs);
  EXPECT_EQ(spool.front().records, 3);
  EXPECT_EQ(*spool.read_front(), "first");
  spool.pop_front();
  EXPECT_EQ(spool.front().signal, Signal::kMetrics);
  EXPECT_EQ(*spool.read_front(), "second");
  spool.pop_front();
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(spool.bytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Spool, DropsTheOldestWhenFullAndSaysHowManyRecordsThatWere) {
  TempFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  EXPECT_EQ(*spool.push(Signal::kLogs, 1, std::string(40, 'a')), 0);
  EXPECT_EQ(*spool.push(Signal::kLogs, 2, std::string(40, 'b')), 0);
  EXPECT_EQ(*spool.push(Signal::kLogs, 4, std::string(90, 'c')), 3);
  EXPECT_EQ(spool.records(), 4);
  EXPECT_LE(spool.bytes(), 100u);
  EXPECT_EQ(spool.read_front()->front(), 'c');
}

TEST(Spool, RefusesWhatIsLargerThanAllOfItAndKeepsTheRest) {
  TempFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  ASSERT_TRUE(spool.push(Signal::kLogs, 1, "small").ok());
  EXPECT_FALSE(spool.push(Signal::kLogs, 2, std::string(101, 'x')).ok());
  EXPECT_EQ(spool.records(), 1);
}

TEST(Spool, TakesUpWhatAnEarlierAgentLeftInItsOrder) {
  TempFolder folder;
  {
    Spool spool = open_spool(folder.path());
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(spool.push(Signal::kLogs, 1, "request " + std::to_string(i)).ok());
    spool.pop_front();
  }
  Spool spool = open_spool(folder.path());
  EXPECT_EQ(spool.records(), 11);
  ASSERT_TRUE(spool.push(Signal::kLogs, 1, "request 12").ok());
  for (int i = 1; i <= 12; ++i) {
    EXPECT_EQ(*spool.read_front(), "request " + std::to_string(i));
    spool.pop_front();
  }
}

TEST(Spool, LeavesOtherFilesAlone) {
  TempFolder folder;
  for (const char* name :
       {"README", "7-logs-1.otlp.tmp", "x-logs-1.otlp", "7-smoke-1.otlp", "7-logs--1.otlp", "7-logs.otlp"}) {
    std::ofstream(folder.path() + "/" + name) << "not ours";
  }
  Spool spool = open_spool(folder.path());
  EXPECT_TRUE(spool.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 6);
}

TEST(Spool, AFileThatHasGoneIsOneLineNotACrash) {
  TempFolder folder;
  Spool spool = open_spool(folder.path());
  ASSERT_TRUE(spool.push(Signal::kLogs, 1, "gone").ok());
  std::filesystem::remove_all(folder.path());
  EXPECT_FALSE(spool.read_front().ok());
  spool.pop_front();
  EXPECT_TRUE(spool.empty());
}

TEST(Spool, APushThatFailsDropsNothingUnseen) {
  TempFolder folder;
  Spool spool = open_spool(folder.path(), 100);
  ASSERT_TRUE(spool.push(Signal::kLogs, 10, std::string(60, 'a')).ok());
  std::filesystem::remove_all(folder.path());
  EXPECT_FALSE(spool.push(Signal::kLogs, 5, std::string(60, 'b')).ok());
  // The caller counts the five; the ten were not reported, so they must still be there.
  EXPECT_EQ(spool.records(), 10);
}

TEST(Spool, AFolderThatCannotBeMadeIsOneLine) {
  TempFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_FALSE(Spool::open(folder.path() + "/file/spool", 100).ok());
}

}  // namespace
}  // namespace lockstep
