// A backup of real stores: what is held is whole, stays while they go on, and opens as a data folder.
#include "server/backup_holder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "base/files.h"
#include "ingest/counters_table.h"
#include "store/metrics/engine_world.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kNowNs = 1'800'000'000'000'000'000;
constexpr int64_t kNowMs = kNowNs / 1'000'000;

// What one data folder holds, opened; nothing happens in it by itself.
struct World {
  explicit World(const std::string& data, uint64_t step_bytes_max = 1ull << 40) {
    LogOptions log_options{.folder = data + "/log", .segment_bytes_max = 2000, .total_bytes_max = 8000};
    log_options.sealed_through = [this] { return steps->first_unsealed() - 1; };
    log_options.seal = [this] { EXPECT_TRUE(steps->seal().ok()); };
    log = DurableLog::open(std::move(log_options), counters).value();
    ColumnarStepStoreOptions step_options;
    step_options.folder = data + "/steps";
    step_options.bytes_max = step_bytes_max;
    step_options.background = false;
    steps = ColumnarStepStore::open(step_options, clock, counters).value();
    ColumnarSpanStoreOptions span_options;
    span_options.folder = data + "/spans";
    span_options.background = false;
    spans = ColumnarSpanStore::open(span_options, clock, counters).value();
    logs = ColumnarLogStore::open({.folder = data + "/logs", .background = false}, clock, counters).value();
    MetricEngineOptions metric_options;
    metric_options.folder = data + "/metrics";
    metric_options.background = false;
    metrics = MetricEngine::open(metric_options, clock, counters).value();
    state = open_sqlite_state_store(data + "/state.sqlite").value();
  }

  void append_step(StepNumber step) {
    const Result<uint64_t> sequence = log->append(RecordKind::kOtlpLogs, kNowNs, std::string(500, 'r'));
    ASSERT_TRUE(sequence.ok()) << sequence.error();
    StepSummary summary;
    summary.step = step;
    summary.duration_ns = 1'000'000;
    steps->begin_record(*sequence, kNowNs);
    steps->append_step({.job_id = "job", .rank = 0_rank, .world_size = 1, .host = "node-0"}, summary, kNowNs);
    steps->end_record();
  }
  void push(const std::string& metric, double value) {
    time_ms += 1000;
    ASSERT_TRUE(metrics::TestPush().add(metric, time_ms, value).to(*metrics).ok());
  }
  size_t series_of(const std::string& metric) const {
    const Result<std::unique_ptr<MetricSelection>> found =
        metrics->select(std::vector{label_is("__name__", metric)}, {.from_ms = 0, .to_ms = INT64_MAX});
    return found.ok() ? (*found)->size() : 0;
  }
  size_t records() {
    size_t count = 0;
    EXPECT_TRUE(log->replay([&](uint64_t, RecordKind, int64_t, std::string_view) { ++count; }).ok());
    return count;
  }

  testing::FakeClock clock{kNowNs};
  Counters counters{kServerCounters};
  int64_t time_ms = kNowMs - 600'000;
  std::unique_ptr<DurableLog> log;
  std::unique_ptr<ColumnarStepStore> steps;
  std::unique_ptr<ColumnarSpanStore> spans;
  std::unique_ptr<ColumnarLogStore> logs;
  std::unique_ptr<MetricEngine> metrics;
  std::unique_ptr<StateStore> state;
};

class BackupHolderTest : public ::testing::Test {
 protected:
  std::unique_ptr<BackupHolder> holder_of(World& world, const std::string& name = "") {
    return std::make_unique<BackupHolder>(
        data_,
        [&world, name] {
          return std::vector<StoreSet>{
              {name, *world.log, *world.steps, *world.spans, *world.logs, *world.metrics, *world.state}};
        },
        world.clock, world.counters);
  }
  // As `lockstep backup` and `lockstep restore` do it.
  void copy(BackupHolder& holder, const HeldBackup& held) {
    for (const HeldBackup::File& file : held.files) {
      std::string content;
      while (content.size() < file.bytes) {
        const Result<std::string> piece = holder.read(held.id, file.name, content.size(), 700);
        ASSERT_TRUE(piece.ok()) << piece.error();
        ASSERT_FALSE(piece->empty()) << file.name;
        content += *piece;
      }
      EXPECT_EQ(content.size(), file.bytes);
      const std::string path = copy_ + "/" + file.name;
      ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))).ok());
      ASSERT_TRUE(write_file_atomically(path, content).ok());
    }
  }
  // What is asked for sets that are not all there.
  static Result<std::vector<StoreSet>> none() { return Error{"tenant blue is being read back"}; }
  static size_t files_in(const std::string& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }

  testing::TemporaryFolder folder_;
  const std::string data_ = folder_.path() + "/data", copy_ = folder_.path() + "/copy";
};

TEST_F(BackupHolderTest, WhatIsHeldOpensAsADataFolderWithEverythingAcknowledgedBefore) {
  std::filesystem::create_directories(data_);
  World world(data_);
  for (StepNumber step = 0_step; step < 5_step; ++step) world.append_step(step);
  ASSERT_TRUE(world.steps->seal().ok());
  world.append_step(5_step);
  world.push("m", 1);
  world.metrics->set_metadata("m", "gauge", "what it is", "");
  ASSERT_TRUE(world.metrics->seal().ok());
  world.push("m", 2);
  Verdict verdict;
  verdict.id = "v1";
  verdict.job_id = "job";
  ASSERT_TRUE(world.state->save_verdict(verdict).ok());
  auto holder = holder_of(world);
  const Result<HeldBackup> held = holder->hold();
  ASSERT_TRUE(held.ok()) << held.error();
  EXPECT_EQ(held->log_sequence, 6u);
  copy(*holder, *held);
  ASSERT_TRUE(holder->release(held->id).ok());

  World again(copy_);
  EXPECT_EQ(again.log->next_sequence(), 7u);
  EXPECT_EQ(again.records(), 6u);
  EXPECT_EQ(again.steps->steps("job", 0_step, 100_step).size(), 5u);  // the sixth is the log's to tell
  EXPECT_TRUE(again.steps->holds(5, kNowNs));
  EXPECT_FALSE(again.steps->holds(6, kNowNs));
  EXPECT_EQ(again.series_of("m"), 1u);
  SampleColumns samples;
  const std::unique_ptr<MetricSelection> selection =
      again.metrics->select(std::vector{label_is("__name__", "m")}, {.from_ms = 0, .to_ms = INT64_MAX}).value();
  ASSERT_TRUE(selection->samples(0, 0, INT64_MAX, samples).ok());
  EXPECT_EQ(samples.values, (std::vector<double>{1, 2}));
  ASSERT_EQ(again.metrics->metadata().size(), 1u);
  EXPECT_EQ(again.metrics->metadata()[0].help, "what it is");
  EXPECT_EQ(again.state->verdicts("job").size(), 1u);
}

TEST_F(BackupHolderTest, RetentionAndMergingMeanwhileTakeNothingAway) {
  std::filesystem::create_directories(data_);
  World world(data_, 1);  // bytes: no file of steps outlives a maintain()
  for (StepNumber step = 0_step; step < 5_step; ++step) world.append_step(step);
  ASSERT_TRUE(world.steps->seal().ok());
  world.push("m", 1);
  auto holder = holder_of(world);
  const Result<HeldBackup> held = holder->hold();
  ASSERT_TRUE(held.ok()) << held.error();

  world.steps->maintain();
  EXPECT_EQ(files_in(data_ + "/steps"), 0u);
  for (StepNumber step = 5_step; step < 60_step; ++step) world.append_step(step);  // the log drops its oldest segments
  EXPECT_GT(world.counters.value("lockstep_log_segments_dropped_total"), 0);
  ASSERT_TRUE(world.metrics->remove(std::vector{label_is("__name__", "m")}, INT64_MIN, INT64_MAX).ok());
  ASSERT_TRUE(world.metrics->clean().ok());
  EXPECT_EQ(world.series_of("m"), 0u);

  copy(*holder, *held);
  World again(copy_);
  EXPECT_EQ(again.records(), 5u);
  EXPECT_EQ(again.steps->steps("job", 0_step, 100_step).size(), 5u);
  EXPECT_EQ(again.series_of("m"), 1u);
}

TEST_F(BackupHolderTest, TakenWhileRecordsComeItHasEachWholeOrNotAtAll) {
  std::filesystem::create_directories(data_);
  World world(data_);
  auto holder = holder_of(world);
  const std::jthread writer([&](std::stop_token stop) {
    for (StepNumber step = 0_step; !stop.stop_requested() && step < 10'000_step; ++step) world.append_step(step);
  });
  for (int round = 0; round < 5; ++round) {
    const uint64_t acknowledged = world.log->next_sequence() - 1;
    const Result<HeldBackup> held = holder->hold();
    ASSERT_TRUE(held.ok()) << held.error();
    std::filesystem::remove_all(copy_);
    copy(*holder, *held);
    ASSERT_TRUE(holder->release(held->id).ok());
    World again(copy_);
    EXPECT_GE(held->log_sequence, acknowledged);
    EXPECT_EQ(again.log->next_sequence(), held->log_sequence + 1);
    EXPECT_EQ(again.counters.value("lockstep_log_torn_tails_total"), 0);
    // No store knows of a record that the log does not have; what the log has dropped is in the stores.
    std::set<uint64_t> logged;
    EXPECT_TRUE(
        again.log->replay([&](uint64_t one, RecordKind, int64_t, std::string_view) { logged.insert(one); }).ok());
    EXPECT_FALSE(again.steps->holds(held->log_sequence + 1, kNowNs));
    const size_t in_files = again.steps->steps("job", 0_step, 10'000_step).size();
    EXPECT_GE(in_files + 1, logged.empty() ? 1 : *logged.begin());
  }
}

TEST_F(BackupHolderTest, TheSameFileHasTheSameStampAndOneThatGrewKeepsIts) {
  std::filesystem::create_directories(data_);
  World world(data_);
  world.append_step(1_step);
  ASSERT_TRUE(world.steps->seal().ok());
  auto holder = holder_of(world);
  const Result<HeldBackup> first = holder->hold();
  ASSERT_TRUE(first.ok());
  world.append_step(2_step);
  const Result<HeldBackup> second = holder->hold();
  ASSERT_TRUE(second.ok());
  size_t same = 0, grown = 0;
  for (const HeldBackup::File& before : first->files) {
    for (const HeldBackup::File& after : second->files) {
      if (before.name != after.name || before.stamp != after.stamp) continue;
      same += before.bytes == after.bytes;
      grown += before.grows && before.bytes < after.bytes;
    }
  }
  EXPECT_GE(same, 1u);
  EXPECT_EQ(grown, 1u);
}

TEST_F(BackupHolderTest, WhatNobodyReadsFromIsReleasedAndSoIsWhatAnEarlierProcessLeft) {
  std::filesystem::create_directories(data_ + "/backup/old");
  World world(data_);
  world.append_step(1_step);
  auto holder = holder_of(world);
  EXPECT_FALSE(std::filesystem::exists(data_ + "/backup/old"));
  const Result<HeldBackup> first = holder->hold();
  const Result<HeldBackup> second = holder->hold();
  ASSERT_TRUE(first.ok() && second.ok());
  const Result<HeldBackup> third = holder->hold();
  ASSERT_FALSE(third.ok());
  EXPECT_NE(third.error().find("2 backups are being read already (limit 2)"), std::string::npos) << third.error();
  world.clock.advance(BackupSource::kLeaseNs / 2);
  EXPECT_TRUE(holder->read(first->id, "state.sqlite", 0, 10).ok());
  world.clock.advance(BackupSource::kLeaseNs / 2);
  holder->tick();
  EXPECT_TRUE(holder->read(first->id, "state.sqlite", 0, 10).ok());
  const Result<std::string> gone = holder->read(second->id, "state.sqlite", 0, 10);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.code(), ErrorCode::kNotFound);
  EXPECT_EQ(files_in(data_ + "/backup"), 1u);
  EXPECT_EQ(world.counters.value("lockstep_backup_leases_ended_total"), 1);
}

TEST_F(BackupHolderTest, WithoutOneOfItsSetsThereIsNoBackup) {
  std::filesystem::create_directories(data_);
  World world(data_);
  BackupHolder holder(data_, none, world.clock, world.counters);
  const Result<HeldBackup> held = holder.hold();
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.error(), "no backup: tenant blue is being read back");
  EXPECT_FALSE(std::filesystem::exists(data_ + "/backup"));
  EXPECT_EQ(world.counters.value("lockstep_backup_refused_total", "reason=\"failed\""), 1);
}

TEST_F(BackupHolderTest, NothingButItsFilesIsReadAndATenantsAreBelowItsFolder) {
  std::filesystem::create_directories(data_ + "/tenants/blue");
  World world(data_ + "/tenants/blue");
  world.append_step(1_step);
  auto holder = holder_of(world, "tenants/blue");
  const Result<HeldBackup> held = holder->hold();
  ASSERT_TRUE(held.ok()) << held.error();
  for (const HeldBackup::File& file : held->files) EXPECT_TRUE(file.name.starts_with("tenants/blue/")) << file.name;
  EXPECT_TRUE(holder->read(held->id, "tenants/blue/state.sqlite", 0, 10).ok());
  for (const char* name : {"../../state.sqlite", "lock", "", "/etc/passwd", "tenants/blue/../blue/state.sqlite"})
    EXPECT_EQ(holder->read(held->id, name, 0, 10).code(), ErrorCode::kNotFound) << name;
  EXPECT_EQ(holder->release("../..").code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lockstep
