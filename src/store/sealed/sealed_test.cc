#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "store/sealed/file_info.h"
#include "store/sealed/found_files.h"
#include "store/sealed/lifecycle.h"
#include "store/sealed/part_file.h"
#include "store/sealed/seal_worker.h"
#include "store/store_counters.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::sealed {
namespace {

using testing::eventually;

struct TestFolder : testing::TemporaryFolder {
  void write(const std::string& name) const { std::ofstream(path() + "/" + name) << "x"; }
  bool has(const std::string& name) const { return std::filesystem::exists(path() + "/" + name); }
};

struct Info : FileInfo {
  static std::optional<Info> from_name(std::string_view name) {
    Info info;
    if (!parse_file_name("things", name, info)) return std::nullopt;
    return info;
  }
};

struct Thing {
  Info about;
  uint64_t size = 10;
  uint64_t row_count = 1;
  std::string where;
  const Info& info() const { return about; }
  uint64_t bytes() const { return size; }
  uint64_t readable_rows() const { return row_count; }
  const std::string& path() const { return where; }
};
using Things = std::vector<std::shared_ptr<const Thing>>;

std::shared_ptr<const Thing> thing(uint64_t number, int64_t received_unix_ns, uint64_t bytes = 10) {
  Thing made;
  made.about.number = number;
  made.about.received_unix_ns.add(received_unix_ns);
  made.size = bytes;
  return std::make_shared<const Thing>(std::move(made));
}

std::vector<uint64_t> numbers_of(const Things& things) {
  std::vector<uint64_t> numbers;
  for (const auto& one : things) numbers.push_back(one->info().number);
  return numbers;
}

TEST(SealedFileName, SaysNumberAndSequencesOfItsKindAlone) {
  FileInfo info;
  info.number = 7;
  info.first_sequence = 12;
  info.last_sequence = 900;
  EXPECT_EQ(file_name("things", info), "things-7-12-900.blk");
  FileInfo read;
  ASSERT_TRUE(parse_file_name("things", "things-7-12-900.blk", read));
  EXPECT_EQ(read.number, 7u);
  EXPECT_EQ(read.first_sequence, 12u);
  EXPECT_EQ(read.last_sequence, 900u);
  for (const char* name : {"things.blk", "things-.blk", "things-1-2.blk", "things-1-2-3-4.blk", "things-1-2-x.blk",
                           "things-1-2-3", "others-1-2-3.blk", "thing-1-2-3.blk", ""})
    EXPECT_FALSE(parse_file_name("things", name, read)) << name;
  EXPECT_EQ(read.number, 7u);
}

TEST(LostRecords, AreThoseOfTheFilesThatCouldNotBeRead) {
  LostRecords lost;
  FileInfo info;
  info.first_sequence = 5;
  info.last_sequence = 6;
  lost.add(info);
  EXPECT_FALSE(lost.has(4));
  EXPECT_TRUE(lost.has(5));
  EXPECT_TRUE(lost.has(6));
  EXPECT_FALSE(lost.has(7));
}

TEST(FoundFiles, PartsAreRemovedAndWhatIsNotOursIsLeftAlone) {
  TestFolder folder;
  for (const char* name : {"things-3-1-2.blk", "things-9-3-4.blk", "things-10-5-6.blk.part", "notes.txt", "odd.blk"})
    folder.write(name);
  Result<Found<Info>> found = find_files<Info>({folder.path(), formats::kSpanFile, "things"});
  ASSERT_TRUE(found.ok()) << found.error();
  ASSERT_EQ(found->files.size(), 2u);
  EXPECT_EQ(found->files[0].first, "things-3-1-2.blk");
  EXPECT_EQ(found->files[0].second.number, 3u);
  EXPECT_EQ(found->files[1].second.last_sequence, 4u);
  EXPECT_EQ(found->next_number, 10u);
  EXPECT_FALSE(folder.has("things-10-5-6.blk.part"));
  EXPECT_TRUE(folder.has("notes.txt"));
  EXPECT_TRUE(folder.has("odd.blk"));
}

TEST(FoundFiles, WhatAnotherFileWasMadeOfGoesFromListAndDisk) {
  TestFolder folder;
  Things things;
  for (uint64_t number : {1, 2, 3}) {
    Thing made;
    made.about.number = number;
    made.where = folder.path() + "/" + std::to_string(number);
    if (number == 3) made.about.replaces = {1};
    folder.write(std::to_string(number));
    things.push_back(std::make_shared<const Thing>(std::move(made)));
  }
  drop_replaced(things);
  EXPECT_EQ(numbers_of(things), (std::vector<uint64_t>{2, 3}));
  EXPECT_FALSE(folder.has("1"));
  EXPECT_TRUE(folder.has("2"));
}

TEST(PartFile, HasItsNameOnlyOnceItIsRenamed) {
  TestFolder folder;
  {
    PartFile file(folder.path(), "a.blk");
    ASSERT_TRUE(file.opened().ok());
    ASSERT_TRUE(file.write("whole").ok());
    ASSERT_TRUE(file.sync().ok());
    EXPECT_TRUE(folder.has("a.blk.part"));
    EXPECT_FALSE(folder.has("a.blk"));
    ASSERT_TRUE(file.rename().ok());
  }
  EXPECT_FALSE(folder.has("a.blk.part"));
  EXPECT_TRUE(folder.has("a.blk"));
  { PartFile given_up(folder.path(), "b.blk"); }
  EXPECT_FALSE(folder.has("b.blk.part"));
  EXPECT_EQ(PartFile(folder.path() + "/none", "c.blk").opened().error(), "No such file or directory");
}

TEST(SmallNeighbours, AreTheNewestInARowOldestFirst) {
  auto is_small = [](const Thing& one) { return one.bytes() < 100; };
  Things things = {thing(1, 0), thing(2, 0), thing(3, 0, 100), thing(4, 0), thing(5, 0), thing(6, 0), thing(7, 0, 100)};
  EXPECT_EQ(numbers_of(small_neighbours(things, 3, is_small)), (std::vector<uint64_t>{4, 5, 6}));
  EXPECT_EQ(numbers_of(small_neighbours(things, 2, is_small)), (std::vector<uint64_t>{5, 6}));
  EXPECT_TRUE(small_neighbours(things, 4, is_small).empty());
}

TEST(ExpiredFiles, ThoseThatAreOldWhereverTheyStandAndTheOldestBeyondALimit) {
  std::map<std::string, uint64_t> dropped;
  auto on_drop = [&](const char* reason, uint64_t rows) { dropped[reason] += rows; };
  const Things things = {thing(1, 50), thing(2, 10), thing(3, 60), thing(4, 70)};
  EXPECT_TRUE(expired_files(things, 10, {}, on_drop).empty());
  EXPECT_EQ(numbers_of(expired_files(things, 20, {}, on_drop)), (std::vector<uint64_t>{2}));
  EXPECT_EQ(dropped, (std::map<std::string, uint64_t>{{"retention", 1}}));
  dropped.clear();
  EXPECT_EQ(numbers_of(expired_files(things, 0, {.bytes_max = 25}, on_drop)), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(numbers_of(expired_files(things, 0, {.rows_max = 3, .rows = 4}, on_drop)), (std::vector<uint64_t>{1}));
  EXPECT_EQ(dropped, (std::map<std::string, uint64_t>{{"limit", 3}}));
}

TEST(SealWorker, TriesAgainLaterAfterASealThatFailed) {
  testing::FakeClock clock;
  Counters counters{kStoreCounters};
  SealWorker worker(clock, counters);
  std::atomic<int> tried = 0, maintained = 0;
  std::atomic<bool> works = false;
  SealWork work;
  work.store = "things";
  work.count_failed = "lockstep_span_seals_failed_total";
  work.is_due = [&] { return !works; };
  work.seal = [&]() -> Result<bool> {
    if (++tried == 1) return Error{"no room"};
    works = true;
    return true;
  };
  work.limit = [] { return std::string("none"); };
  work.maintain = [&] { ++maintained; };
  std::jthread thread([&](std::stop_token stop) { worker.run(stop, work); });
  ASSERT_TRUE(eventually([&] { return maintained == 1; }));  // at the start, whether sealed or not
  EXPECT_EQ(tried, 1);
  clock.advance(6'000'000'000);
  worker.wake();
  ASSERT_TRUE(eventually([&] { return maintained == 2; }));  // after a seal
  EXPECT_EQ(tried, 2);
}

}  // namespace
}  // namespace lockstep::sealed
