// Files of another format version: never read as damage, never passed over, never deleted. open() refuses with one line
// that names both versions, and leaves every byte as it was.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/crc32c.h"
#include "base/files.h"
#include "base/format_versions.h"
#include "base/text.h"
#include "store/metrics/engine_world.h"
#include "store/spans/columnar_span_store.h"
#include "store/sqlite_state_store.h"
#include "store/steps/columnar_step_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using metrics::found;
using metrics::TestPush;

class OtherVersions : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  static void put_word(const std::string& file, int64_t at, uint32_t number) {  // at < 0: from the end
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
    out.write(reinterpret_cast<const char*>(&number), sizeof number);
  }
  std::string only_file(const std::string& folder, const std::string& ending) const {
    std::string one;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder)))
      if (entry.path().string().ends_with(ending)) one = entry.path().string();
    EXPECT_FALSE(one.empty());
    return one;
  }
  std::map<std::string, std::string> content(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(folder)))
      if (entry.is_regular_file()) all[entry.path().string()] = *read_file(entry.path().string(), 1 << 24);
    return all;
  }
  template <typename Opened>
  void expect_refused(const Opened& opened, const std::string& file, uint32_t version) {
    ASSERT_FALSE(opened.ok());
    EXPECT_TRUE(opened.error().starts_with(file)) << opened.error();
    EXPECT_NE(opened.error().find(format("of format version %u, and this server reads version", version)),
              std::string::npos)
        << opened.error();
    EXPECT_EQ(opened.error().find('\n'), std::string::npos);
  }

  Result<std::unique_ptr<MetricEngine>> open_metrics() {
    MetricEngineOptions options;
    options.folder = path("metrics");
    options.background = false;
    return MetricEngine::open(options, clock_, counters_);
  }
  Result<std::unique_ptr<ColumnarStepStore>> open_steps() {
    return ColumnarStepStore::open({.folder = path("steps"), .background = false}, clock_, counters_);
  }
  Result<std::unique_ptr<ColumnarSpanStore>> open_spans() {
    return ColumnarSpanStore::open({.folder = path("spans"), .background = false}, clock_, counters_);
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{metrics::kStartNs};
  Counters counters_{kStoreCounters};
};

TEST_F(OtherVersions, OfTheMetricsLogIsRefusedAndNotDeleted) {
  ASSERT_TRUE(TestPush().add("m", clock_.unix_ms(), 1).to(**open_metrics()).ok());
  const std::string file = only_file("metrics/log", ".wal");
  put_word(file, 8, 2);
  const auto before = content("metrics");
  expect_refused(open_metrics(), file, 2);
  EXPECT_EQ(content("metrics"), before);
  put_word(file, 8, 1);
  auto engine = open_metrics();
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(found(**engine, "m").at("m").values, std::vector<double>{1});
}

TEST_F(OtherVersions, OfMetricBlocksIsRefusedAndOneThatIsDamagedIsNot) {
  {
    auto engine = open_metrics();
    ASSERT_TRUE(TestPush().add("m", clock_.unix_ms(), 1).to(**engine).ok());
    ASSERT_TRUE((*engine)->seal().ok());
  }
  const std::string file = only_file("metrics/blocks", ".blk");
  put_word(file, 8, 9);  // the head alone: damage
  EXPECT_TRUE(open_metrics().ok());
  EXPECT_EQ(counters_.value("lockstep_metric_damage_total", "where=\"block\""), 1);
  put_word(file, -8, 9);
  const auto before = content("metrics");
  expect_refused(open_metrics(), file, 9);
  EXPECT_EQ(content("metrics"), before);
}

TEST_F(OtherVersions, OfStepFilesIsRefused) {
  {
    auto store = open_steps();
    Identity identity;
    identity.job_id = "job";
    StepSummary step;
    step.step = 1_step;
    (*store)->append_step(identity, step, clock_.unix_ns());
  }
  const std::string file = only_file("steps", ".blk");
  put_word(file, 8, 2);
  put_word(file, -8, 2);
  const auto before = content("steps");
  expect_refused(open_steps(), file, 2);
  EXPECT_EQ(content("steps"), before);
}

TEST_F(OtherVersions, OfSpanFilesIsRefused) {
  {
    auto store = open_spans();
    spans::SpanColumnsBuilder builder;
    builder.begin_source({{"service.name", "shop"}}, "", "");
    Span span;
    span.trace_id = {1};
    builder.add(span);
    (*store)->append(builder.take(), clock_.unix_ns(), 1);
  }
  const std::string file = only_file("spans", ".blk");
  put_word(file, 8, 2);
  put_word(file, -8, 2);
  const auto before = content("spans");
  expect_refused(open_spans(), file, 2);
  EXPECT_EQ(content("spans"), before);
}

TEST_F(OtherVersions, TheListOfDeletionsOfBeforeThereWereVersionsIsStillRead) {
  {
    auto engine = open_metrics();
    ASSERT_TRUE(TestPush().add("m", clock_.unix_ms(), 1).add("n", clock_.unix_ms(), 1).to(**engine).ok());
    ASSERT_TRUE((*engine)->remove(std::vector{label_is("__name__", "m")}, INT64_MIN, INT64_MAX).ok());
  }
  const std::string file = path("metrics/tombstones");
  std::string bytes = *read_file(file, 1 << 20);
  ASSERT_TRUE(bytes.starts_with("LKSTMDEL"));
  // As version 1 was: no head, a checksum over the rest.
  bytes = bytes.substr(12, bytes.size() - 16);
  const uint32_t crc = crc32c(bytes);
  bytes.append(reinterpret_cast<const char*>(&crc), 4);
  ASSERT_TRUE(write_file_atomically(file, bytes).ok());
  auto engine = open_metrics();
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE(found(**engine, "m").empty() || found(**engine, "m").begin()->second.values.empty());
  EXPECT_EQ(found(**engine, "n").begin()->second.values.size(), 1u);
  engine->reset();
  ASSERT_TRUE(write_file_atomically(file, "LKSTMDEL" + std::string("\3\0\0\0rest", 8)).ok());
  expect_refused(open_metrics(), file, 3);
}

TEST_F(OtherVersions, OfTheStateDatabaseIsUpgradedWhereOlderAndRefusedWhereNewer) {
  const std::string file = path("state.sqlite");
  auto run = [&](const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  };
  Verdict verdict;
  verdict.id = "v1";
  verdict.job_id = "job";
  ASSERT_TRUE((*open_sqlite_state_store(file))->save_verdict(verdict).ok());
  // As it was before there were versions, and before tokens.
  run("DROP TABLE tokens; DROP TABLE audit; DROP TABLE owners; PRAGMA user_version=0");
  {
    auto store = open_sqlite_state_store(file);
    ASSERT_TRUE(store.ok()) << store.error();
    EXPECT_EQ((*store)->verdicts("job").size(), 1u);
    EXPECT_TRUE((*store)->save_token({.id = "t1"}).ok());
  }
  const uint32_t newer = formats::kState.version + 1;
  run(format("PRAGMA user_version=%u", newer).c_str());
  expect_refused(open_sqlite_state_store(file), file, newer);
  run(format("PRAGMA user_version=%u", newer - 1).c_str());  // nothing was changed meanwhile
  EXPECT_EQ((*open_sqlite_state_store(file))->verdicts("job").size(), 1u);
}

}  // namespace
}  // namespace lockstep
