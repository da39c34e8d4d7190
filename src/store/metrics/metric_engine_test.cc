// What MetricEngine promises beyond the contract of reading and writing: crashes, damage, full disks, tiers, limits.
#include "store/metrics/metric_engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "base/failing_disk.h"
#include "base/text.h"
#include "store/metrics/engine_world.h"
#include "store/metrics/reference_load.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::metrics {
namespace {

class MetricEngineTest : public ::testing::Test {
 protected:
  MetricEngineTest() {
    options_.folder = folder_.path();
    options_.background = false;
  }
  std::unique_ptr<MetricEngine> open() {
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options_, clock_, counters_);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.error();
      return nullptr;
    }
    return std::move(*engine);
  }
  int64_t now() const { return clock_.unix_ms(); }
  std::vector<std::string> files(const std::string& folder, const std::string& ending) const {
    std::vector<std::string> list;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/" + folder))
      if (entry.path().string().ends_with(ending)) list.push_back(entry.path().string());
    std::sort(list.begin(), list.end());
    return list;
  }
  static void change_byte(const std::string& path, uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }
  void expect_nothing_lost_unseen() {
    EXPECT_EQ(counters_.value("lockstep_metric_samples_received_total"),
              counters_.value("lockstep_metric_samples_stored_total") +
                  counters_.value("lockstep_metric_samples_replaced_total") +
                  counters_.value("lockstep_metric_samples_repeated_total") +
                  counters_.sum("lockstep_metric_samples_refused_total"));
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kStartNs};
  Counters counters_{kStoreCounters};
  MetricEngineOptions options_;
};

TEST_F(MetricEngineTest, CountsWhatBecameOfEverySample) {
  auto engine = open();
  ASSERT_TRUE(TestPush().add("m", now(), 1).add("n", now(), 1).to(*engine).ok());
  Result<PushOutcome> again = TestPush().add("m", now(), 1).add("n", now(), 2).add("m{pid=7}", now(), 1).to(*engine);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->repeated, 1u);
  EXPECT_EQ(again->replaced, 1u);
  EXPECT_EQ(counters_.value("lockstep_metric_samples_refused_total", "reason=\"label_forbidden\""), 1);
  // Also of a time that is in a strip or on its way to a block.
  for (int64_t i = 1; i < 40; ++i) ASSERT_TRUE(TestPush().add("m", now() + i, 1).to(*engine).ok());
  Result<PushOutcome> old = TestPush().add("m", now() + 3, 1).to(*engine);
  EXPECT_EQ(old->repeated, 1u);
  old = TestPush().add("m", now() + 3, 2).to(*engine);
  EXPECT_EQ(old->replaced, 1u);
  expect_nothing_lost_unseen();
}

TEST_F(MetricEngineTest, RefusesOnlyNewSeriesBeyondALimitAndSaysWhoMadeThem) {
  options_.limits.series_max = 100;
  options_.limits.series_per_metric_max = 10;
  options_.limits.series_per_job_max = 30;
  options_.limits.series_per_stream_max = 40;
  auto engine = open();
  auto push = [&](const char* metric, const char* job, int from, int to, const char* stream) {
    TestPush one;
    for (int i = from; i < to; ++i) one.add(format("%s{job_id=%s,i=%d}", metric, job, i), now(), i);
    Result<PushOutcome> outcome = one.to(*engine, stream);
    EXPECT_TRUE(outcome.ok());
    return outcome->refused.empty() ? std::string("none")
                                    : outcome->refused[0].reason + " " + std::to_string(outcome->refused[0].samples);
  };
  EXPECT_EQ(push("a", "j", 0, 12, "s"), "metric_limit 2");
  EXPECT_EQ(push("a", "j", 0, 10, "s"), "none");
  EXPECT_EQ(push("b", "j", 0, 10, "s"), "none");
  EXPECT_EQ(push("c", "j", 0, 10, "s"), "none");
  EXPECT_EQ(push("d", "j", 0, 10, "s"), "job_limit 10");
  EXPECT_EQ(push("d", "k", 0, 10, "s"), "none");
  EXPECT_EQ(push("e", "k", 0, 5, "s"), "agent_limit 5");
  for (int i = 0; i < 5; ++i) push(format("x%d", i).c_str(), "l", 0, 10, "t");
  for (int i = 0; i < 5; ++i) push(format("y%d", i).c_str(), "m", 0, 10, "u");
  EXPECT_EQ(push("z", "n", 0, 5, "v"), "series_limit 5");
  const CardinalityReport report = engine->cardinality(3);
  EXPECT_EQ(report.series, 100u);
  ASSERT_EQ(report.jobs.size(), 3u);
  EXPECT_EQ(report.jobs[0].series, 30u);
  EXPECT_EQ(report.streams[0].name, "s");
  EXPECT_EQ(report.streams[0].series, 40u);
  EXPECT_EQ(report.refused.at("job_limit"), 30);  // 10 of j, 20 of l
  expect_nothing_lost_unseen();
}

TEST_F(MetricEngineTest, LimitsTheSeriesOfATenant) {
  options_.limits.series_per_tenant_max = 5;
  auto engine = open();
  TestPush push;
  for (int i = 0; i < 7; ++i) push.add(format("m{tenant=acme,i=%d}", i), now(), i);
  for (int i = 0; i < 4; ++i) push.add(format("m{tenant=other,i=%d}", i), now(), i);
  for (int i = 0; i < 9; ++i) push.add(format("m{i=%d}", i), now(), i);
  Result<PushOutcome> outcome = push.to(*engine);
  ASSERT_TRUE(outcome.ok());
  ASSERT_EQ(outcome->refused.size(), 1u);
  EXPECT_EQ(outcome->refused[0].reason, "tenant_limit");
  EXPECT_EQ(outcome->refused[0].samples, 2u);
  const CardinalityReport report = engine->cardinality(3);
  ASSERT_EQ(report.tenants.size(), 2u);
  EXPECT_EQ(report.tenants[0].name, "acme");
  EXPECT_EQ(report.tenants[0].series, 5u);
  EXPECT_EQ(report.refused.at("tenant_limit"), 2);
  expect_nothing_lost_unseen();
}

TEST_F(MetricEngineTest, MovesALabelToExemplarsWhereItIsTold) {
  options_.labels = {{}, {"step"}};
  auto engine = open();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(TestPush().add(format("loss{rank=0,step=%d}", i), now() + i, i).to(*engine).ok());
  const Found all = found(*engine, "loss");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.at("loss{rank=0}").values.size(), 5u);
  Result<std::vector<Exemplar>> exemplars =
      engine->exemplars(std::vector<LabelMatcher>{label_is("__name__", "loss")}, now(), now() + 10);
  ASSERT_EQ(exemplars->size(), 5u);
  EXPECT_EQ((*exemplars)[3].labels, (Labels{{"step", "3"}}));
}

TEST_F(MetricEngineTest, AFullDiskRefusesPushesAndRecovers) {
  std::signal(SIGXFSZ, SIG_IGN);
  auto engine = open();
  ASSERT_TRUE(TestPush().add("m", now(), 1).to(*engine).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 64;
  setrlimit(RLIMIT_FSIZE, &full);
  Result<PushOutcome> refused = TestPush().add("m", now() + 1, 2).to(*engine);
  Result<PushOutcome> again = TestPush().add("m", now() + 2, 3).to(*engine);
  Result<void> sealed = engine->seal();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE(again.ok());
  EXPECT_FALSE(sealed.ok());
  EXPECT_EQ(refused.error().find('\n'), std::string::npos);
  ASSERT_TRUE(TestPush().add("m", now() + 1, 2).to(*engine).ok());
  ASSERT_TRUE(TestPush().add("m", now() + 2, 3).to(*engine).ok());
  EXPECT_EQ(found(*engine, "m").at("m").values, (std::vector<double>{1, 2, 3}));
  engine.reset();
  engine = open();
  EXPECT_EQ(found(*engine, "m").at("m").values, (std::vector<double>{1, 2, 3}));
  ASSERT_TRUE(engine->seal().ok());
  EXPECT_EQ(found(*engine, "m").at("m").values, (std::vector<double>{1, 2, 3}));
}

// What was acknowledged is there; and whatever is there has the value that its time was given: their distance from
// `start_ms` is the same.
void expect_own_values(const Found& all, const std::map<std::string, std::vector<double>>& acknowledged,
                       int64_t start_ms) {
  for (const auto& [series, values] : acknowledged) {
    ASSERT_TRUE(all.contains(series)) << series;
    const std::vector<double>& there = all.at(series).values;
    for (double sample : values) EXPECT_TRUE(std::find(there.begin(), there.end(), sample) != there.end()) << series;
  }
  for (const auto& [series, columns] : all) {
    for (size_t i = 0; i < columns.values.size(); ++i)
      ASSERT_EQ(columns.values[i], static_cast<double>(columns.times_ms[i] - start_ms)) << series;
  }
}

// Nobody knows what is on disk after a sync that failed: everything is said anew, elsewhere.
TEST_F(MetricEngineTest, AfterAFailedSyncOfTheLogEverySeriesKeepsItsOwnValues) {
  for (const Ack ack : {Ack::kFsynced, Ack::kWritten}) {
    std::filesystem::remove_all(folder_.path());
    options_.shards = 1;
    options_.ack = ack;
    auto engine = open();
    double value = 0;
    std::map<std::string, std::vector<double>> acknowledged;
    auto push = [&](int first, int count) {
      TestPush batch;
      std::vector<std::pair<std::string, double>> pushed;
      for (int k = first; k < first + count; ++k) {
        pushed.emplace_back(format("m{k=%d,name=series-%d}", k, k * 7), ++value);
        batch.add(pushed.back().first, now() + static_cast<int64_t>(value), value);
      }
      if (!batch.to(*engine).ok()) return false;
      for (const auto& [series, sample] : pushed) acknowledged[series].push_back(sample);
      return true;
    };
    bool fails = false;
    auto disk = std::make_unique<disk::FailingDisk>([&](const disk::Call& call) {
      const bool is_log = call.kind == disk::Call::Kind::kSync && fails;
      return is_log && std::exchange(fails, false) ? EIO : 0;
    });
    ASSERT_TRUE(push(0, 20));
    EXPECT_EQ(engine->trouble(), std::nullopt);
    fails = true;
    if (ack == Ack::kFsynced) {
      EXPECT_FALSE(push(20, 20));
    } else {
      ASSERT_TRUE(push(20, 20));
      engine->set_metadata("m", "gauge", "", "");
      EXPECT_FALSE(engine->sync().ok());
    }
    EXPECT_NE(engine->trouble().value_or("").find("sync"), std::string::npos);
    EXPECT_FALSE(push(40, 20));  // the disk is well again; that file is not to be trusted
    EXPECT_FALSE(engine->sync().ok());
    engine->step();
    EXPECT_EQ(engine->trouble(), std::nullopt);
    ASSERT_TRUE(push(10, 60));
    ASSERT_TRUE(push(0, 80));
    // Killed: nothing that it does while it ends reaches the disk.
    disk.reset();
    disk = std::make_unique<disk::FailingDisk>([](const disk::Call&) { return EIO; });
    engine.reset();
    disk.reset();
    engine = open();
    expect_own_values(found(*engine, "m"), acknowledged, now());
    EXPECT_EQ(counters_.sum("lockstep_metric_damage_total"), 0);
    engine.reset();
  }
}

TEST_F(MetricEngineTest, DeletesWhatIsThereAndNotWhatComesLater) {
  auto engine = open();
  for (int64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(TestPush().add("m{h=a}", now() + i, 1).add("m{h=b}", now() + i, 1).to(*engine).ok());
  ASSERT_TRUE(engine->remove(std::vector<LabelMatcher>{label_is("h", "a")}, now() + 2, now() + 5).ok());
  EXPECT_EQ(found(*engine, "m").at("m{h=a}").times_ms.size(), 6u);
  EXPECT_EQ(found(*engine, "m").at("m{h=b}").times_ms.size(), 10u);
  ASSERT_TRUE(TestPush().add("m{h=a}", now() + 3, 7).to(*engine).ok());
  EXPECT_EQ(found(*engine, "m").at("m{h=a}").times_ms.size(), 7u);
  engine.reset();
  options_.merge_ms = 0;
  engine = open();
  EXPECT_EQ(found(*engine, "m").at("m{h=a}").times_ms.size(), 7u);
  ASSERT_TRUE(engine->seal().ok());
  ASSERT_TRUE(*engine->merge());
  EXPECT_EQ(found(*engine, "m").at("m{h=a}").times_ms.size(), 7u);
  EXPECT_EQ(counters_.value("lockstep_metric_samples_dropped_total", "reason=\"deleted\""), 4);
}

// As if it had not begun again: 1,000 times 5, 3, and 5 each time since, what it rose between blocks included.
void expect_rise_over_reset(const SampleColumns& counter, int64_t start_ms, int64_t rows_all) {
  EXPECT_EQ(counter.values.back(), 5'000.0 + 3 + 5.0 * static_cast<double>(rows_all - 1'001));
  for (size_t i = 0; i < counter.times_ms.size(); ++i) {
    const int64_t rows = std::min<int64_t>((counter.times_ms[i] - start_ms) / 10'000, rows_all - 1);
    ASSERT_EQ(counter.values[i],
              rows < 1'000 ? 5.0 * static_cast<double>(rows + 1) : 5.0 * static_cast<double>(rows) + 3);
  }
}

TEST_F(MetricEngineTest, TiersAnswerCoarseQuestionsAndWhatRetentionLeft) {
  options_.merge_ms = 3'600'000;
  options_.keep_ms[0] = 2 * 3'600'000;
  auto engine = open();
  engine->set_metadata("requests", "counter", "", "");
  const int64_t start = now() - 12 * 3'600'000;
  std::map<int64_t, std::vector<double>> minutes;
  double requests = 0;
  for (int64_t i = 0; i < 12 * 360; ++i) {
    const int64_t time_ms = start + i * 10'000;
    const double power = 600 + static_cast<double>(ReferenceLoad::mix(static_cast<uint64_t>(i)) % 1000) / 10;
    requests = i == 1000 ? 3 : requests + 5;
    ASSERT_TRUE(TestPush().add("power{h=a}", time_ms, power).add("requests{h=a}", time_ms, requests).to(*engine).ok());
    minutes[(time_ms + 59'999) / 60'000 * 60'000].push_back(power);
    if (i % 360 == 359) {
      ASSERT_TRUE(engine->seal().ok());
      ASSERT_TRUE(engine->merge().ok());
    }
  }
  auto ask = [&](Rollup rollup, const char* metric) {
    return found(*engine, {label_is("__name__", metric)},
                 {.from_ms = start, .to_ms = now(), .spacing_ms = 60'000, .rollup = rollup});
  };
  auto check = [&](Rollup rollup, const std::function<double(const std::vector<double>&)>& expected) {
    const SampleColumns columns = ask(rollup, "power").begin()->second;
    size_t i = 0;
    for (const auto& [end_ms, values] : minutes) {
      if (i >= columns.times_ms.size() || columns.times_ms[i] != end_ms) break;  // not rolled up yet: raw from here on
      EXPECT_NEAR(columns.values[i], expected(values), 1e-6);
      ++i;
    }
    EXPECT_GT(i, 500u);
  };
  check(Rollup::kLast, [](const auto& values) { return values.back(); });
  check(Rollup::kMin, [](const auto& values) { return *std::min_element(values.begin(), values.end()); });
  check(Rollup::kMax, [](const auto& values) { return *std::max_element(values.begin(), values.end()); });
  check(Rollup::kCount, [](const auto& values) { return static_cast<double>(values.size()); });
  check(Rollup::kSum, [](const auto& values) { return std::accumulate(values.begin(), values.end(), 0.0); });
  expect_rise_over_reset(ask(Rollup::kIncrease, "requests").begin()->second, start, 12 * 360);
  // Of counters nothing else is kept: the last stands for it.
  EXPECT_EQ(ask(Rollup::kMax, "requests").begin()->second.values,
            ask(Rollup::kLast, "requests").begin()->second.values);
  EXPECT_EQ(ask(Rollup::kLast, "requests").size(), 1u);
  const size_t raw_before = found(*engine, "power").begin()->second.times_ms.size();
  EXPECT_EQ(raw_before, 12u * 360);
  engine->retain();
  clock_.advance(3'600'000'000'000);  // a day of history in an hour, and no more
  engine->retain();
  EXPECT_GT(counters_.value("lockstep_metric_samples_dropped_total", "reason=\"retention\""), 0);
  const SampleColumns after = found(*engine, "power").begin()->second;
  EXPECT_LT(after.times_ms.size(), raw_before / 2);
  EXPECT_LE(after.times_ms.front(), start + 60'000);  // the tier's answer for what raw has no more
  EXPECT_TRUE(std::is_sorted(after.times_ms.begin(), after.times_ms.end()));
}

TEST_F(MetricEngineTest, WhatWasRemovedLeavesTheDiskWhenToldTo) {
  auto engine = open();
  const int64_t start = now() - 4 * 3'600'000;
  for (int64_t i = 0; i < 4 * 360; ++i) {
    const double noise = static_cast<double>(ReferenceLoad::mix(static_cast<uint64_t>(i)));
    const int64_t time_ms = start + i * 10'000;
    ASSERT_TRUE(TestPush().add("secret{h=a}", time_ms, noise).add("open{h=a}", time_ms, 1).to(*engine).ok());
    if (i % 720 == 719) {
      ASSERT_TRUE(engine->seal().ok());
    }
  }
  while (*engine->merge()) {
  }
  const uint64_t before = engine->disk_bytes();
  ASSERT_TRUE(engine->remove(std::vector{label_is("__name__", "secret")}, start, start + 3'600'000).ok());
  const Found shown = found(*engine, "secret");
  EXPECT_EQ(engine->disk_bytes(), before);
  ASSERT_TRUE(engine->clean().ok());
  EXPECT_LT(engine->disk_bytes(), before - 1'000);
  EXPECT_EQ(found(*engine, "secret").begin()->second.values, shown.begin()->second.values);
  EXPECT_EQ(found(*engine, "open").begin()->second.values.size(), 4u * 360);
  EXPECT_EQ(std::filesystem::file_size(folder_.path() + "/tombstones"), 17u);  // none are left

  // All of it: no empty block stays.
  ASSERT_TRUE(engine->remove(std::vector{label_is("h", "a")}, INT64_MIN, INT64_MAX).ok());
  ASSERT_TRUE(engine->clean().ok());
  EXPECT_EQ(engine->disk_bytes(), 0u);
  EXPECT_TRUE(found(*engine, "open").empty());
  ASSERT_TRUE(TestPush().add("open{h=a}", now(), 2).to(*engine).ok());
  engine.reset();
  engine = open();
  EXPECT_EQ(found(*engine, "open").begin()->second.values, (std::vector<double>{2}));
}

// Whoever reads keeps a table by number.
TEST_F(MetricEngineTest, TextsThatOnlyBlocksHaveAreNumberedAfterThoseOfMemory) {
  options_.idle_ms = 60'000;
  auto engine = open();
  TestPush old;
  for (int i = 0; i < 100; ++i) old.add("old{host=node-" + std::to_string(i) + "}", now() - 3'600'000, 1);
  ASSERT_TRUE(old.to(*engine, "a").ok());
  ASSERT_TRUE(TestPush().add("new{host=other}", now(), 1).to(*engine, "b").ok());
  ASSERT_TRUE(engine->seal().ok());
  engine.reset();
  engine = open();  // of the old ones memory knows nothing any more
  ASSERT_TRUE(TestPush().add("new{host=other}", now(), 1).to(*engine, "b").ok());
  const std::vector<LabelMatcher> all{{"host", LabelMatcher::Op::kRegex, ".+"}};
  const auto selection = engine->select(all, {.from_ms = now() - 7'200'000, .to_ms = now()}).value();
  ASSERT_EQ(selection->size(), 101u);
  std::map<uint32_t, std::string> texts;
  for (size_t i = 0; i < selection->size(); ++i) {
    for (const LabelSymbols& label : selection->labels(i)) {
      for (uint32_t symbol : {label.name, label.value}) {
        EXPECT_LT(symbol, 1'000u);
        texts[symbol] = selection->text(symbol);
      }
    }
  }
  std::set<std::string> different;
  for (const auto& [symbol, text] : texts) different.insert(text);
  EXPECT_EQ(different.size(), texts.size());
  EXPECT_EQ(different.size(), 2u + 2 + 101);  // names of labels, of metrics, hosts
}

TEST_F(MetricEngineTest, ASnapshotIsAFolderThatOpens) {
  auto engine = open();
  ASSERT_TRUE(TestPush().add("m{h=a}", now() - 2'000, 1).add("gone{h=a}", now() - 2'000, 1).to(*engine).ok());
  ASSERT_TRUE(engine->remove(std::vector{label_is("__name__", "gone")}, INT64_MIN, INT64_MAX).ok());
  ASSERT_TRUE(TestPush().add("m{h=a}", now() - 1'000, 2).to(*engine).ok());
  const Result<std::string> name = engine->snapshot();
  ASSERT_TRUE(name.ok()) << name.error();
  ASSERT_TRUE(TestPush().add("m{h=a}", now(), 3).to(*engine).ok());
  const Result<std::string> next = engine->snapshot();
  ASSERT_TRUE(next.ok());
  EXPECT_NE(*next, *name);
  // As it was, whatever the engine does with its own since.
  ASSERT_TRUE(engine->remove(std::vector{label_is("h", "a")}, INT64_MIN, INT64_MAX).ok());
  ASSERT_TRUE(engine->clean().ok());
  testing::TemporaryFolder other;
  std::filesystem::copy(folder_.path() + "/snapshots/" + *name, other.path(), std::filesystem::copy_options::recursive);
  engine.reset();
  options_.folder = other.path();
  engine = open();
  EXPECT_EQ(found(*engine, "m").begin()->second.values, (std::vector<double>{1, 2}));
  EXPECT_TRUE(found(*engine, "gone").begin()->second.values.empty());
}

TEST_F(MetricEngineTest, RetentionByBytesDropsTheOldestFirst) {
  options_.merge_ms = int64_t{1} << 60;
  auto engine = open();
  for (int64_t block = 0; block < 4; ++block) {
    for (int64_t i = 0; i < 50; ++i)
      ASSERT_TRUE(TestPush().add("m", now() + block * 1000 + i, std::sin(static_cast<double>(i))).to(*engine).ok());
    ASSERT_TRUE(engine->seal().ok());
  }
  const uint64_t all = engine->disk_bytes();
  engine.reset();
  options_.bytes_max[0] = all - 1;
  engine = open();
  engine->retain();
  EXPECT_LT(engine->disk_bytes(), all);
  EXPECT_EQ(found(*engine, "m").at("m").times_ms.size(), 150u);
  EXPECT_EQ(found(*engine, "m").at("m").times_ms.front(), now() + 1000);
  EXPECT_EQ(counters_.value("lockstep_metric_samples_dropped_total", "reason=\"limit\""), 50);
}

TEST_F(MetricEngineTest, SeriesThatNobodyWritesToLeaveMemoryAndComeBack) {
  options_.idle_ms = 60'000;
  auto engine = open();
  ASSERT_TRUE(TestPush().add("old", now() - 120'000, 1).to(*engine, "a").ok());
  ASSERT_TRUE(TestPush().add("new", now(), 1).to(*engine, "b").ok());
  ASSERT_TRUE(engine->seal().ok());
  EXPECT_EQ(engine->cardinality(1).series, 1u);
  EXPECT_EQ(found(*engine, "old").at("old").values, (std::vector<double>{1}));
  ASSERT_TRUE(TestPush().add("old", now(), 2).to(*engine, "a").ok());
  EXPECT_EQ(found(*engine, "old").at("old").values, (std::vector<double>{1, 2}));
  engine.reset();
  engine = open();
  EXPECT_EQ(found(*engine, "old").at("old").values, (std::vector<double>{1, 2}));
}

// 720 series once took 700 MB, and kept them for good.
TEST_F(MetricEngineTest, TextsOfSeriesThatLeftAreGivenBackAndWhatStaysKeepsItsLabels) {
  options_.idle_ms = 500'000;
  MemoryBudget budget(256u << 20, [] { return 0; });
  options_.memory = &budget;
  options_.segment_bytes_max = 1 << 30;  // one segment: its numbers of texts outlive ours
  auto engine = open();
  const std::string stays = "stays{host=a}";
  size_t early_bytes = 0;
  std::unique_ptr<MetricSelection> selection;  // keeps the texts it was made with
  for (int round = 0; round < 8; ++round) {
    TestPush push;
    push.add(stays, now(), round);
    for (int i = 0; i < 100; ++i)
      push.add(format("wide{i=%d,text=%s}", i, (format("%d-%d-", round, i) + std::string(3000, 'x')).c_str()), now(),
               i);
    ASSERT_TRUE(push.to(*engine).ok());
    const std::vector<LabelMatcher> all = {label_is("__name__", "wide")};
    Result<std::unique_ptr<MetricSelection>> selected = engine->select(all, {.from_ms = 0, .to_ms = INT64_MAX / 2});
    ASSERT_TRUE(selected.ok());
    if (round == 0) selection = std::move(*selected);
    for (int i = 0; i < 3; ++i) {
      clock_.advance(400'000'000'000);
      ASSERT_TRUE(TestPush().add(stays, now(), round).to(*engine).ok());
      ASSERT_TRUE(engine->seal().ok());
    }
    if (round == 3) early_bytes = engine->memory_bytes();
    ASSERT_TRUE(TestPush().add(stays, now() + 1, 1).add(format("new{round=%d}", round), now(), 1).to(*engine).ok());
  }
  EXPECT_LT(engine->memory_bytes(), early_bytes * 5 / 4);
  EXPECT_LT(engine->memory_bytes(), 4u << 20);
  EXPECT_LT(budget.taken(MemoryUse::kSeries), 4u << 20);
  ASSERT_EQ(selection->size(), 100u);
  for (size_t i = 0; i < selection->size(); ++i) {
    for (const LabelSymbols& label : selection->labels(i)) {
      if (selection->text(label.name) != "text") continue;
      EXPECT_EQ(selection->text(label.value).size(), 3000u + (i < 10 ? 4 : 5));
    }
  }
  auto check = [&] {
    EXPECT_EQ(found(*engine, "stays").at(stays).times_ms.size(), 8u * 4 + 1)
        << "the last of a round is of the next too";
    EXPECT_EQ(found(*engine, "wide").size(), 800u);
    for (int round = 0; round < 8; ++round)
      EXPECT_EQ(found(*engine, "new").at(format("new{round=%d}", round)).values, std::vector<double>{1});
  };
  check();
  engine.reset();
  engine = open();
  check();
  EXPECT_GT(budget.taken(MemoryUse::kSeries), 0u) << "what the log brought back";
}

TEST_F(MetricEngineTest, RefusesNewSeriesWhereThereIsNoMemoryAndGoesOnWithTheOthers) {
  MemoryBudget budget(8u << 20, [] { return 0; });
  options_.memory = &budget;
  auto engine = open();
  ASSERT_TRUE(TestPush().add("known", now(), 1).to(*engine).ok());
  TestPush push;
  for (int i = 0; i < 3000; ++i) push.add(format("wide{text=%d%s}", i, std::string(3000, 'x').c_str()), now(), i);
  push.add("known", now() + 1, 2);
  const Result<PushOutcome> outcome = push.to(*engine);
  ASSERT_TRUE(outcome.ok());
  ASSERT_EQ(outcome->refused.size(), 1u);
  EXPECT_EQ(outcome->refused[0].reason, "memory_limit");
  EXPECT_NE(outcome->refused[0].example.find("--memory-max"), std::string::npos) << outcome->refused[0].example;
  EXPECT_GT(outcome->stored, 500u);
  EXPECT_LE(budget.taken(MemoryUse::kSeries), 4u << 20);
  EXPECT_EQ(found(*engine, "known").at("known").values, (std::vector<double>{1, 2}));
  expect_nothing_lost_unseen();
  for (int i = 0; i < 3000; ++i) engine->set_metadata(format("metric_%d", i), "gauge", std::string(4000, 'h'), "");
  EXPECT_GT(counters_.value("lockstep_metric_metadata_refused_total"), 0);
}

TEST_F(MetricEngineTest, LabelsAndMetadataTakeFromTheBudgetAsMuchAsTheyAre) {
  MemoryBudget budget(1u << 30, [] { return 0; });
  options_.memory = &budget;
  auto engine = open();
  constexpr size_t kSeries = 2000, kText = 3000;
  TestPush push;
  for (size_t i = 0; i < kSeries; ++i)
    push.add(format("wide{text=%zu%s}", i, std::string(kText, 'x').c_str()), now(), 1);
  ASSERT_EQ(push.to(*engine)->stored, kSeries);
  const uint64_t labels = budget.taken(MemoryUse::kSeries);
  EXPECT_GE(labels, kSeries * kText);
  EXPECT_LE(labels, kSeries * (kText + 1000) + (4u << 20));
  // Each of its texts, and both of their copies.
  const std::string text(kText / 3, 't');
  for (size_t i = 0; i < kSeries; ++i) engine->set_metadata(format("%zu", i) + text, "gauge", text, text);
  const uint64_t metadata = budget.taken(MemoryUse::kSeries) - labels;
  EXPECT_GE(metadata + (1u << 20), kSeries * 2 * kText);
  EXPECT_LE(metadata, kSeries * 2 * (kText + 500) + (4u << 20));
}

TEST_F(MetricEngineTest, StreamsThatBringNothingLeaveNoTrace) {
  options_.limits.series_max = 1;
  auto engine = open();
  ASSERT_TRUE(TestPush().add("known", now(), 1).to(*engine, "first").ok());
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(TestPush().add(format("new{i=%d}", i), now(), 1).to(*engine, format("made up %d", i)).ok());
  EXPECT_EQ(engine->cardinality(1000).streams.size(), 1u);
}

// An agent whose series have another label with every job.
TEST_F(MetricEngineTest, JobsComeAndGoAndMemoryStaysAsItIs) {
  options_.idle_ms = 500'000;
  options_.gone_series_max = 100;
  options_.limits.series_per_stream_max = 3'500;
  constexpr int kSeries = 1'000, kHostSeries = 100, kJobs = 40;
  auto engine = open();
  auto series_of = [](int job, int i) { return format("gpu{job_id=job-%d,gpu=%d}", job, i); };
  size_t early_bytes = 0;
  for (int job = 0; job < kJobs; ++job) {
    for (int look = 0; look < 4; ++look) {
      TestPush push;
      for (int i = 0; i < kHostSeries; ++i) push.add(format("host{i=%d}", i), now(), i);
      for (int i = 0; i < kSeries; ++i) push.add(series_of(job, i), now(), job * 10'000 + i);
      push.exemplar({{{"trace_id", format("%d-%d", job, look)}}, 1, now()});
      Result<PushOutcome> outcome = push.to(*engine, "agent");
      ASSERT_TRUE(outcome.ok());
      ASSERT_TRUE(outcome->refused.empty()) << job << ": " << outcome->refused[0].example;
      ASSERT_EQ(push.asked, look == 0 ? size_t{kSeries} + (job == 0 ? size_t{kHostSeries} : 0u) : 0u);
      clock_.advance(150'000'000'000);
    }
    ASSERT_TRUE(engine->seal().ok());
    EXPECT_LE(engine->cardinality(1).series, 3u * kSeries + kHostSeries);
    if (job == 5) early_bytes = engine->memory_bytes();
  }
  EXPECT_LT(engine->memory_bytes(), early_bytes * 5 / 4);
  auto check = [&] {
    for (int job : {0, 1, kJobs / 2, kJobs - 1}) {
      Found all = found(*engine, {label_is("job_id", format("job-%d", job))}, {.from_ms = 0, .to_ms = INT64_MAX});
      ASSERT_EQ(all.size(), size_t{kSeries}) << job;
      for (int i : {0, 17, kSeries - 1}) {
        const SampleColumns& samples = all[format("gpu{gpu=%d,job_id=job-%d}", i, job)];
        EXPECT_EQ(samples.values, std::vector<double>(4, job * 10'000 + i)) << job << " " << i;
      }
      const auto exemplars =
          engine->exemplars(std::vector<LabelMatcher>{label_is("job_id", format("job-%d", job))}, 0, INT64_MAX);
      ASSERT_EQ(exemplars->size(), 4u) << job;
      for (const Exemplar& one : *exemplars)
        EXPECT_TRUE(one.labels[0].second.starts_with(std::to_string(job) + "-")) << one.labels[0].second;
    }
    EXPECT_EQ(found(*engine, {label_is("__name__", "host"), label_is("i", "7")}, {.from_ms = 0, .to_ms = INT64_MAX})
                  .begin()
                  ->second.values.size(),
              size_t{4 * kJobs});
  };
  check();
  engine.reset();
  engine = open();
  check();
}

// Whoever reads meets series under their own labels, however often they get other numbers meanwhile.
TEST_F(MetricEngineTest, NumbersAreGivenAnewWhileOthersReadAndWrite) {
  options_.idle_ms = 1'000;
  options_.gone_series_max = 1;
  options_.future_ms = int64_t{1} << 40;
  auto engine = open();
  std::atomic<int64_t> time_ms{now()};
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, seen{0};
  auto value_of = [](int writer, int round, int i) { return writer * 1'000'000 + round * 100 + i; };
  auto write = [&](int writer) {
    for (int round = 0; !done; ++round) {
      const int64_t at = time_ms.fetch_add(700) + 700;
      TestPush push;
      for (int i = 0; i < 80; ++i)
        push.add(format("m{v=%d}", value_of(writer, round, i)), at, value_of(writer, round, i));
      Result<PushOutcome> outcome = push.to(*engine, format("writer %d", writer));
      if (!outcome.ok() || !outcome->refused.empty()) ++wrong;
      // Sent by all: it lives in one shard and is written from others.
      (void)TestPush().add("shared", at, 1).to(*engine, format("writer %d", writer));
    }
  };
  auto read = [&] {
    while (!done) {
      const int64_t to = time_ms;
      for (const auto& [series, samples] :
           found(*engine, {label_is("__name__", "m")}, {.from_ms = to - 5'000, .to_ms = to})) {
        for (double value : samples.values) {
          if (series != format("m{v=%d}", static_cast<int>(value))) ++wrong;
          ++seen;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(write, i);
  threads.emplace_back(read);
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(engine->seal().ok());
    const int64_t sealed_ms = time_ms;  // then both writers go on
    EXPECT_TRUE(testing::eventually([&] { return time_ms >= sealed_ms + 4 * 700; }));
  }
  EXPECT_TRUE(testing::eventually([&] { return seen > 0; }));
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(seen, 0);
  Found all = found(*engine, {label_is("__name__", "m")}, {.from_ms = 0, .to_ms = INT64_MAX});
  for (const auto& [series, samples] : all) {
    ASSERT_EQ(samples.values.size(), 1u) << series;
    ASSERT_EQ(series, format("m{v=%d}", static_cast<int>(samples.values[0])));
  }
  EXPECT_LT(engine->cardinality(1).series, all.size() / 2);
}

// Streams go to shards by a hash that is another in every process: of many streams some are in another shard.
TEST_F(MetricEngineTest, WhatOtherShardsHoldTakesExemplarsAndComesBackAfterItLeft) {
  options_.idle_ms = 60'000;
  std::unique_ptr<MetricEngine> engine = open();
  ASSERT_TRUE(TestPush().add("loss{rank=0}", now(), 1.0).to(*engine, "first")->refused.empty());
  auto from_all = [&](int64_t time_ms) {
    uint64_t refused = 0;
    for (int i = 0; i < 32; ++i) {
      Result<PushOutcome> outcome = TestPush()
                                        .add("loss{rank=0}", time_ms + i, 2.0)
                                        .exemplar({{{"trace_id", std::to_string(i)}}, 2.0, time_ms + i})
                                        .to(*engine, "other " + std::to_string(i));
      for (const RefusedSamples& one : outcome->refused) refused += one.samples;
    }
    return refused;
  };
  auto exemplars = [&] {
    return engine->exemplars(std::vector<LabelMatcher>{label_is("__name__", "loss")}, 0, INT64_MAX)->size();
  };
  EXPECT_EQ(from_all(now() + 100), 0u);
  EXPECT_EQ(exemplars(), 32u);
  engine = nullptr;
  engine = open();
  EXPECT_EQ(exemplars(), 32u);

  // The series leaves; who still knows it by its place is refused once and then looks it up again.
  EXPECT_EQ(from_all(now() + 200), 0u);
  clock_.advance(3'600'000'000'000);
  ASSERT_TRUE(TestPush().add("other", now(), 1.0).to(*engine, "first")->refused.empty());
  ASSERT_TRUE(engine->seal().ok());
  const uint64_t refused = from_all(now() + 100);
  EXPECT_LE(refused, 32u);
  EXPECT_EQ(from_all(now() + 200), 0u);
  EXPECT_EQ(from_all(now() + 300), 0u);
  expect_nothing_lost_unseen();
}

TEST_F(MetricEngineTest, AChangedByteIsAGapAndNeverAWrongNumber) {
  std::map<std::string, std::map<int64_t, double>> expected;
  {
    auto engine = open();
    for (int64_t i = 0; i < 60; ++i) {
      TestPush push;
      for (int k = 0; k < 8; ++k) {
        const std::string name = format("m{k=%d}", k);
        const double value = std::round(1000 * std::sin(static_cast<double>(i * (k + 1)))) / 1000;
        push.add(name, now() + i * 1000, value);
        expected[name][now() + i * 1000] = value;
      }
      ASSERT_TRUE(push.to(*engine).ok());
    }
    ASSERT_TRUE(engine->seal().ok());
  }
  const std::vector<std::string> blocks = files("blocks", ".blk");
  ASSERT_EQ(blocks.size(), 1u);
  const uint64_t size = std::filesystem::file_size(blocks[0]);
  std::mt19937_64 random(1);
  int damaged = 0;
  for (int round = 0; round < 150; ++round) {
    const uint64_t at = random() % size;
    change_byte(blocks[0], at);
    auto engine = open();
    size_t samples = 0;
    for (const auto& [name, columns] : found(*engine, "m")) {
      ASSERT_TRUE(expected.contains(name)) << name << " byte " << at;
      for (size_t i = 0; i < columns.times_ms.size(); ++i) {
        ASSERT_TRUE(expected[name].contains(columns.times_ms[i])) << "byte " << at;
        ASSERT_EQ(expected[name][columns.times_ms[i]], columns.values[i]) << "byte " << at;
        ++samples;
      }
    }
    if (samples < 480) ++damaged;
    engine.reset();
    change_byte(blocks[0], at);
  }
  EXPECT_GT(damaged, 140);
  EXPECT_GT(counters_.sum("lockstep_metric_damage_total"), 0);
  auto engine = open();
  EXPECT_EQ(found(*engine, "m").size(), 8u);
}

TEST_F(MetricEngineTest, DamageInTheLogIsToldAndATornEndIsCut) {
  options_.shards = 1;
  options_.segment_bytes_max = 400;
  auto fill = [&](MetricEngine& engine) {
    for (int64_t i = 0; i < 60; ++i)
      ASSERT_TRUE(TestPush().add("m", now() + i, std::sin(static_cast<double>(i))).to(engine).ok());
  };
  {
    auto engine = open();
    fill(*engine);
  }
  std::vector<std::string> segments = files("log", ".wal");
  ASSERT_GT(segments.size(), 3u);
  // The end of the last is cut off in the middle of a record.
  std::filesystem::resize_file(segments.back(), std::filesystem::file_size(segments.back()) - 3);
  {
    auto engine = open();
    EXPECT_EQ(found(*engine, "m").at("m").times_ms.size(), 59u);
    EXPECT_EQ(counters_.value("lockstep_metric_log_torn_total"), 1);
    EXPECT_EQ(counters_.sum("lockstep_metric_damage_total"), 0);
  }
  change_byte(segments[1], 30);
  {
    auto engine = open();
    const SampleColumns left = found(*engine, "m").at("m");
    EXPECT_LT(left.times_ms.size(), 59u);
    EXPECT_GT(left.times_ms.size(), 20u);
    for (size_t i = 0; i < left.times_ms.size(); ++i)
      EXPECT_EQ(left.values[i], std::sin(static_cast<double>(left.times_ms[i] - now())));
    EXPECT_GT(counters_.value("lockstep_metric_damage_total", "where=\"log\""), 0);
  }
}

TEST_F(MetricEngineTest, SaysHowManySamplesBelongToSeriesThatDamageHasHidden) {
  options_.shards = 1;
  options_.segment_bytes_max = 400;
  {
    auto engine = open();
    for (int64_t i = 0; i < 60; ++i)
      ASSERT_TRUE(TestPush().add("m", now() + i, std::sin(static_cast<double>(i))).to(*engine).ok());
  }
  // The first segment says what series there is; its samples are lost with it, unseen.
  const std::vector<std::string> segments = files("log", ".wal");
  ASSERT_GT(segments.size(), 2u);
  change_byte(segments[0], 30);
  ::testing::internal::CaptureStderr();
  auto engine = open();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(found(*engine, "m").empty());
  const size_t line = said.find(" samples of the log belong to series that damage has hidden");
  ASSERT_NE(line, std::string::npos) << said;
  const size_t begin = said.rfind(' ', line - 1) + 1;
  const int lost = std::atoi(said.c_str() + begin);
  EXPECT_GT(lost, 20) << said;
  EXPECT_LT(lost, 60) << said;
}

TEST_F(MetricEngineTest, AnotherVersionOfABlockIsRefusedWithALine) {
  {
    auto engine = open();
    ASSERT_TRUE(TestPush().add("m", now(), 1).to(*engine).ok());
    ASSERT_TRUE(engine->seal().ok());
  }
  change_byte(files("blocks", ".blk")[0], 8);
  auto engine = open();
  EXPECT_TRUE(found(*engine, "m").empty());
  EXPECT_EQ(counters_.value("lockstep_metric_damage_total", "where=\"block\""), 1);
}

TEST_F(MetricEngineTest, AFolderBelongsToOneEngine) {
  auto engine = open();
  EXPECT_FALSE(MetricEngine::open(options_, clock_, counters_).ok());
}

// Of the series `k` at this tick of a writer that is killed.
double value_to_keep(int64_t tick, int k) {
  return static_cast<double>(ReferenceLoad::mix(tick * 100 + k) % 100'000) / 100;
}

// A child that is to be killed: writes the number of each tick into the pipe once its samples are stored.
[[noreturn]] void write_until_killed(const MetricEngineOptions& options, const testing::FakeClock& clock,
                                     Counters& counters, int64_t first_tick, int series, int pipe) {
  Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options, clock, counters);
  if (!engine.ok()) ::_exit(3);
  for (int64_t tick = first_tick;; ++tick) {
    TestPush push;
    for (int k = 0; k < series; ++k)
      push.add(format("m{k=%d}", k), clock.unix_ms() + tick * 100, value_to_keep(tick, k));
    Result<PushOutcome> outcome = push.to(**engine);
    if (!outcome.ok() || !outcome->refused.empty()) ::_exit(4);
    if (::write(pipe, &tick, sizeof tick) != sizeof tick) ::_exit(5);
    if (tick % 37 == 36 && !(*engine)->seal().ok()) ::_exit(6);
    if (tick % 111 == 110 && !(*engine)->merge().ok()) ::_exit(7);
  }
}

// A process that writes is killed at a random moment, again and again; what it was told is stored is there afterwards.
TEST_F(MetricEngineTest, NothingAcknowledgedIsLostWhenTheProcessIsKilled) {
  const char* asked = std::getenv("LOCKSTEP_CRASH_ROUNDS");
  const int rounds = asked == nullptr ? 8 : std::atoi(asked);
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(format("seed %llu", static_cast<unsigned long long>(seed)));
  std::mt19937_64 random(seed);
  options_.segment_bytes_max = 8'000;
  options_.merge_ms = 0;
  options_.future_ms = int64_t{1} << 40;  // many rounds go far ahead of the standing clock
  constexpr int kSeries = 20;
  int64_t next = 0, acknowledged = 0;
  for (int round = 0; round < rounds; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(pipe[0]);
      write_until_killed(options_, clock_, counters_, next, kSeries, pipe[1]);
    }
    ::close(pipe[1]);
    const uint64_t acks = 1 + random() % 200;
    int64_t tick = 0;
    for (uint64_t i = 0; i < acks && ::read(pipe[0], &tick, sizeof tick) == sizeof tick; ++i) acknowledged = tick + 1;
    // The sleep is the point: it decides where in its work the writer is killed.
    ::usleep(static_cast<useconds_t>(random() % 3000));
    ::kill(child, SIGKILL);
    while (::read(pipe[0], &tick, sizeof tick) == sizeof tick) acknowledged = tick + 1;
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer gave up: " << WEXITSTATUS(status);

    auto engine = open();
    ASSERT_NE(engine, nullptr);
    const Found all = found(*engine, "m");
    ASSERT_EQ(all.size(), static_cast<size_t>(kSeries));
    int64_t seen = 0;
    for (int k = 0; k < kSeries; ++k) {
      const SampleColumns& columns = all.at(format("m{k=%d}", k));
      ASSERT_GE(static_cast<int64_t>(columns.times_ms.size()), acknowledged) << "round " << round;
      for (size_t i = 0; i < columns.times_ms.size(); ++i) {
        ASSERT_EQ(columns.times_ms[i], now() + static_cast<int64_t>(i) * 100);
        ASSERT_EQ(columns.values[i], value_to_keep(static_cast<int64_t>(i), k));
      }
      seen = std::max(seen, static_cast<int64_t>(columns.times_ms.size()));
    }
    next = seen;
  }
  EXPECT_EQ(counters_.sum("lockstep_metric_damage_total"), 0);
}

}  // namespace
}  // namespace lockstep::metrics
