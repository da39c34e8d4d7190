#include "store/logs/columnar_log_store.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/text.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 1'700'000'000 * kSecond;

class LogStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ColumnarLogStore> open() {
    Result<std::unique_ptr<ColumnarLogStore>> store = ColumnarLogStore::open(options_, clock_, counters_);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error());
    return store.ok() ? std::move(*store) : nullptr;
  }
  // A line of a rank, so many seconds after the beginning.
  static void say(ColumnarLogStore& store, const std::string& text, int64_t second, int rank = 0, uint64_t sequence = 0,
                  int severity = 9) {
    LogRecord record;
    record.time_unix_ns = kBegin + second * kSecond;
    record.severity = severity;
    record.body = text;
    record.attributes = {{"second", second}};
    logs::LogColumns columns;
    columns.add({{"lockstep.job_id", "train"},
                 {"lockstep.rank", int64_t{rank}},
                 {"host.name", format("node-%d", rank / 8)},
                 {"service.name", "trainer"}},
                record, record.time_unix_ns + 1);
    store.append(std::move(columns), record.time_unix_ns + 1, sequence);
  }
  static std::vector<std::string> bodies(const LogPage& page) {
    std::vector<std::string> found;
    for (const LogEntry& entry : page.entries) found.push_back(entry.body);
    return found;
  }
  using Texts = std::vector<std::string>;

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kBegin};
  Counters counters_{kStoreCounters};
  ColumnarLogStoreOptions options_{.folder = folder_.path() + "/logs", .background = false};
};

TEST_F(LogStoreTest, FindsByWhomWhenHowBadAndWhatWhetherSealedOrNot) {
  auto store = open();
  for (int second = 0; second < 20; ++second)
    say(*store, format("loss is %d", second), second, second % 16, 0, second == 7 ? 17 : 9);
  for (const bool sealed : {false, true}) {
    if (sealed) ASSERT_TRUE(store->seal().ok());
    EXPECT_EQ(bodies(store->find({.limit = 2})), (Texts{"\"loss is 19\"", "\"loss is 18\""}));
    EXPECT_EQ(bodies(store->find({.limit = 2, .oldest_first = true})), (Texts{"\"loss is 0\"", "\"loss is 1\""}));
    EXPECT_EQ(bodies(store->find({.rank = 3_rank})), (Texts{"\"loss is 19\"", "\"loss is 3\""}));
    EXPECT_EQ(store->find({.matches = {{.field = LogField::kHost, .text = "node-1"}}}).entries.size(), 8u);
    EXPECT_EQ(store->find({.matches = {{.field = LogField::kJob, .text = "another"}}}).entries.size(), 0u);
    EXPECT_EQ(bodies(store->find({.severity_min = 17})), Texts{"\"loss is 7\""});
    EXPECT_EQ(bodies(store->find({.filters = {{.text = "is 12"}}})), Texts{"\"loss is 12\""});
    EXPECT_EQ(bodies(store->find({.filters = {{.text = "", .pattern = *log_pattern("is 1[89]")}}, .limit = 9})),
              (Texts{"\"loss is 19\"", "\"loss is 18\""}));
    EXPECT_EQ(bodies(store->find({.from_unix_ns = kBegin + 4 * kSecond, .to_unix_ns = kBegin + 5 * kSecond})),
              (Texts{"\"loss is 5\"", "\"loss is 4\""}));
    EXPECT_EQ(bodies(store->find({.after = kBegin + 18 * kSecond + 1})), Texts{"\"loss is 19\""});
  }
}

TEST_F(LogStoreTest, MatchesFieldsByPatternsAndByWhatTheyAreNotAndShowsAllThatIsThere) {
  auto store = open();
  for (int second = 0; second < 20; ++second)
    say(*store, format("loss is %d", second), second, second, 0, second == 7 ? 17 : 9);
  const auto match = [](LogField field, const char* text, bool is_pattern, bool is_not) {
    return LogMatch{field, text, is_pattern ? *log_pattern(text) : nullptr, is_not};
  };
  const std::pair<LogMatch, size_t> cases[] = {{match(LogField::kHost, "node-[01]", true, false), 16},
                                               {match(LogField::kHost, "node-[01]", true, true), 4},
                                               {match(LogField::kHost, "node", true, false), 0},
                                               {match(LogField::kHost, "node-1", false, true), 12},
                                               {match(LogField::kRank, "1", false, false), 1},
                                               {match(LogField::kRank, "1.", true, false), 10},
                                               {match(LogField::kRank, "", false, false), 0},
                                               {match(LogField::kLevel, "error", false, false), 1},
                                               {match(LogField::kLevel, "error|fatal", true, true), 19},
                                               {match(LogField::kGpu, "", false, false), 20},
                                               {match(LogField::kJob, "another", false, true), 20},
                                               {match(LogField::kJob, "train", false, true), 0}};
  for (const bool sealed : {false, true}) {
    if (sealed) ASSERT_TRUE(store->seal().ok());
    for (const auto& [one, count] : cases) {
      const LogQuery query{.matches = {one}};
      EXPECT_EQ(store->find(query).entries.size(), count) << one.text;
      for (const bool with_lines : {false, true}) {
        size_t seen = 0;
        const LogScan scan = store->scan(query, with_lines, [&](const logs::LogColumns& columns, auto rows, uint64_t) {
          seen += rows.size();
          for (const uint32_t at : rows)
            EXPECT_TRUE(!with_lines || columns.entry(columns.rows[at]).body.starts_with("\"loss is "));
        });
        EXPECT_EQ(seen, count) << one.text;
        EXPECT_TRUE(scan.whole);
      }
    }
  }
  const LogQuery few{.also = [](const logs::LogColumns&, const logs::LogRow& row) { return row.rank % 5 == 0; }};
  EXPECT_EQ(bodies(store->find(few)), (Texts{"\"loss is 15\"", "\"loss is 10\"", "\"loss is 5\"", "\"loss is 0\""}));
  EXPECT_FALSE(store->scan({.rows_max = 19}, false, [](const auto&, auto, uint64_t) {}).whole);
  EXPECT_TRUE(store->scan({.give_up = [] { return true; }}, false, [](const auto&, auto, uint64_t) {}).gave_up);
}

TEST_F(LogStoreTest, WhatAScanHasNoTimeForIsTheOldest) {
  auto store = open();
  const auto scanned = [&](uint64_t rows_max) {
    Texts seen;
    const LogScan scan =
        store->scan({.rows_max = rows_max}, true, [&](const logs::LogColumns& columns, auto rows, uint64_t) {
          for (const uint32_t at : rows) seen.push_back(columns.entry(columns.rows[at]).body);
        });
    EXPECT_FALSE(scan.whole);
    return seen;
  };
  say(*store, "old", 1);
  ASSERT_TRUE(store->seal().ok());
  say(*store, "newest", 4);
  ASSERT_TRUE(store->seal().ok());
  say(*store, "new", 3);
  ASSERT_TRUE(store->seal().ok());
  say(*store, "came late", 2);
  EXPECT_EQ(scanned(1), Texts{"\"newest\""});
  EXPECT_EQ(scanned(2), (Texts{"\"newest\"", "\"new\""}));
  EXPECT_EQ(scanned(3), (Texts{"\"newest\"", "\"new\"", "\"came late\""}));
}

TEST_F(LogStoreTest, KeepsEverythingOverAStartAndKnowsWhatTheLogNeedNotBringAgain) {
  {
    auto store = open();
    say(*store, "first", 1, 0, 41);
    say(*store, "second", 2, 0, 42);
    EXPECT_EQ(store->first_unsealed(), 41u);
    ASSERT_TRUE(store->seal().ok());
    EXPECT_EQ(store->first_unsealed(), UINT64_MAX);
    say(*store, "third", 3, 0, 50);
  }  // seals the rest
  auto store = open();
  EXPECT_EQ(bodies(store->find({})), (Texts{"\"third\"", "\"second\"", "\"first\""}));
  EXPECT_TRUE(store->holds(42, kBegin + 2 * kSecond + 1));
  EXPECT_TRUE(store->holds(50, kBegin + 3 * kSecond + 1));
  EXPECT_FALSE(store->holds(51, kBegin + 4 * kSecond));
  EXPECT_EQ(store->find({}).entries[0].attributes, "{\"second\":3}");
}

TEST_F(LogStoreTest, WhoFollowsGetsEachRecordOnceWhateverItsTimeAndHoweverManyCameAtOnce) {
  auto store = open();
  say(*store, "before", 5);
  int64_t after = store->find({.limit = 1}).after;
  Texts said, heard;
  const auto hear = [&](size_t at_most) {
    for (size_t i = 0; i < at_most; ++i) {
      const LogPage page = store->find({.after = after, .limit = 3, .oldest_first = true, .rows_max = 1});
      for (const std::string& body : bodies(page)) heard.push_back(body);
      EXPECT_GT(page.after, after);
      after = page.after;
      if (!page.more && page.whole) return;
    }
  };
  // Ten in one request, at one time of the server, whose own times run backwards; then one that is an hour late.
  logs::LogColumns columns;
  for (int i = 0; i < 10; ++i) {
    LogRecord record;
    record.time_unix_ns = kBegin + (100 - i) * kSecond;
    record.body = format("%d", i);
    columns.add({}, record, kBegin);
    said.push_back(format("\"%d\"", i));
  }
  store->append(std::move(columns), kBegin, 1);
  hear(2);
  say(*store, "late", -3600, 0, 2);
  said.push_back("\"late\"");
  ASSERT_TRUE(store->seal().ok());
  hear(100);
  say(*store, "after the start", 7, 0, 3);
  said.push_back("\"after the start\"");
  store = nullptr;
  store = open();
  hear(100);
  std::sort(heard.begin(), heard.end());
  std::sort(said.begin(), said.end());
  EXPECT_EQ(heard, said);
  EXPECT_EQ(store->find({.after = after}).after, after);
}

TEST_F(LogStoreTest, AnAnswerHasItsLimitOfBytesAndEndsWhenNobodyWaits) {
  auto store = open();
  for (int second = 0; second < 20; ++second) say(*store, std::string(10'000, static_cast<char>('a' + second)), second);
  for (const bool sealed : {false, true}) {
    if (sealed) ASSERT_TRUE(store->seal().ok());
    LogPage page = store->find({.bytes_max = 50'000});
    ASSERT_EQ(page.entries.size(), 4u);
    EXPECT_EQ(page.entries[3].time_unix_ns, kBegin + 16 * kSecond);  // the newest four, none between them left out
    EXPECT_TRUE(page.more);
    EXPECT_TRUE(page.whole);
    EXPECT_EQ(store->find({.bytes_max = 1}).entries.size(), 1u);
    size_t heard = 0;
    for (int64_t after = 1; heard < 20; heard += page.entries.size()) {
      page = store->find({.after = after, .bytes_max = 50'000});
      ASSERT_FALSE(page.entries.empty());
      after = page.after;
    }
    EXPECT_EQ(heard, 20u);
    EXPECT_FALSE(page.more);
    page = store->find({.give_up = [] { return true; }});
    EXPECT_TRUE(page.gave_up);
    EXPECT_FALSE(page.whole);
    EXPECT_EQ(page.rows_looked_at, 0u);
    // Just before the first: nothing is skipped.
    EXPECT_EQ(store->find({.after = 5, .give_up = [] { return true; }}).after, kBegin);
  }
}

TEST_F(LogStoreTest, SmallFilesBecomeOneAndOldOnesGo) {
  auto store = open();
  for (int second = 0; second < 8; ++second) {
    say(*store, format("%d", second), second);
    ASSERT_TRUE(store->seal().ok());
  }
  EXPECT_EQ(list_directory(options_.folder)->size(), 8u);
  store->maintain();
  EXPECT_EQ(list_directory(options_.folder)->size(), 1u);
  EXPECT_EQ(store->find({}).entries.size(), 8u);
  clock_.advance(30ll * 86'400 * kSecond);
  store->maintain();
  clock_.advance(3600 * kSecond);  // no faster than RetentionPace
  store->maintain();
  EXPECT_TRUE(store->find({}).entries.empty());
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"log_records\",reason=\"retention\""), 8);
}

TEST_F(LogStoreTest, HostileLinesAreCutAndStayText) {
  auto store = open();
  say(*store, std::string(1 << 20, 'x') + "\n", 1);
  say(*store, std::string("bell\a, escape\x1b[2J, and \xff\xfe half a character \xc3", 46), 2);
  ASSERT_TRUE(store->seal().ok());
  const LogPage page = store->find({});
  ASSERT_EQ(page.entries.size(), 2u);
  EXPECT_EQ(page.entries[0].body.find_first_of("\a\x1b\xff"), std::string::npos) << page.entries[0].body;
  EXPECT_LT(page.entries[1].body.size(), logs::kBodyBytesMax + 100);
  EXPECT_TRUE(page.entries[1].body.ends_with("... (1048577 bytes)\""));
  EXPECT_EQ(counters_.value("lockstep_log_records_cut_total"), 1);
}

TEST_F(LogStoreTest, WhatCannotBeReadIsKeptOutAndTheLogBringsItAgain) {
  {
    auto store = open();
    say(*store, "lost", 1, 0, 7);
  }
  const std::string path = options_.folder + "/" + list_directory(options_.folder)->at(0);
  std::string bytes = *read_file(path, 1 << 20);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
  ASSERT_TRUE(write_file_atomically(path, bytes).ok());
  auto store = open();
  EXPECT_TRUE(store->find({}).entries.empty());
  EXPECT_EQ(counters_.sum("lockstep_log_record_groups_corrupt_total") +
                counters_.sum("lockstep_log_record_files_refused_total"),
            1);
}

TEST_F(LogStoreTest, OfMoreThanMemoryTakesTheOldestGoAndAreCounted) {
  options_.unsealed_bytes_max = 100'000;
  auto store = open();
  for (int second = 0; second < 500; ++second)
    say(*store, format("%d %s", second, std::string(500, 'x').c_str()), second);
  const int64_t dropped =
      counters_.value("lockstep_store_rows_dropped_total", "table=\"log_records\",reason=\"unsealed\"");
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(counters_.value("lockstep_store_rows", "table=\"log_records\"") + dropped, 500);
}

}  // namespace
}  // namespace lockstep
