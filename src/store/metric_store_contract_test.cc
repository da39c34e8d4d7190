// What every MetricStore promises. A new backing joins by one row in kBackings.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "store/memory_metric_store.h"
#include "store/metrics/engine_metric_store.h"
#include "store/metrics/engine_world.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// Times are promised to the millisecond.
constexpr int64_t kMs = 1'000'000;

// The engine with a folder of its own.
class EngineInAFolder final : public MetricStore {
 public:
  EngineInAFolder(size_t series_max, Counters& counters) {
    MetricEngineOptions options;
    options.folder = folder_.path();
    options.ack = metrics::Ack::kMemory;
    options.limits.series_max = series_max;
    options.background = false;
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options, clock_, counters);
    engine_ = std::move(*engine);
    store_ = std::make_unique<EngineMetricStore>(*engine_, counters);
  }
  AppendOutcome append(std::string_view name, const Labels& labels, std::string_view unit, std::string_view kind,
                       Sample sample) override {
    return store_->append(name, labels, unit, kind, sample);
  }
  std::vector<std::string> names() const override { return store_->names(); }
  std::vector<Series> select(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns, size_t series_max,
                             size_t* total) const override {
    return store_->select(name, from_unix_ns, to_unix_ns, series_max, total);
  }

 private:
  metrics::TestFolder folder_;
  SystemClock clock_;
  std::unique_ptr<MetricEngine> engine_;
  std::unique_ptr<EngineMetricStore> store_;
};

struct Backing {
  const char* name;
  bool drops_oldest_samples;  // has a limit on samples per series; else retention is by age and bytes
  std::function<std::unique_ptr<MetricStore>(size_t series_max, size_t samples_per_series_max, Counters&)> make;
};
const Backing kBackings[] = {
    {"memory", true,
     [](size_t series_max, size_t samples_max, Counters& counters) {
       return std::make_unique<MemoryMetricStore>(
           MemoryMetricStoreOptions{.series_max = series_max, .samples_per_series_max = samples_max}, counters);
     }},
    {"engine", false,
     [](size_t series_max, size_t, Counters& counters) {
       return std::make_unique<EngineInAFolder>(series_max, counters);
     }},
};

class MetricStoreContract : public ::testing::TestWithParam<Backing> {
 protected:
  std::unique_ptr<MetricStore> make(size_t series_max = 1000, size_t samples_max = 1000) {
    return GetParam().make(series_max, samples_max, counters_);
  }
  void expect_nothing_lost_unseen() {
    EXPECT_EQ(counters_.value("lockstep_store_rows_received_total", "table=\"samples\""),
              counters_.value("lockstep_store_rows", "table=\"samples\"") +
                  counters_.value("lockstep_store_rows_replaced_total", "table=\"samples\"") +
                  counters_.sum("lockstep_store_rows_dropped_total") +
                  counters_.sum("lockstep_store_rows_refused_total"));
  }
  static std::vector<int64_t> times(const Series& series) {
    std::vector<int64_t> list;
    for (const Sample& sample : series.samples) list.push_back(sample.time_unix_ns / kMs);
    return list;
  }
  Counters counters_{kStoreCounters};
};

TEST_P(MetricStoreContract, GivesSamplesBackInTimeOrderWhateverOrderTheyCameIn) {
  auto store = make();
  for (int64_t time : {30, 10, 20, 50, 40})
    EXPECT_EQ(store->append("power", {{"host", "a"}}, "W", "gauge", {time * kMs, static_cast<double>(time)}),
              AppendOutcome::kStored);
  size_t total = 0;
  std::vector<Series> series = store->select("power", 0, kAll, 10, &total);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(total, 1u);
  EXPECT_EQ(times(series[0]), (std::vector<int64_t>{10, 20, 30, 40, 50}));
  EXPECT_EQ(series[0].unit, "W");
  EXPECT_EQ(series[0].kind, "gauge");
  EXPECT_EQ(series[0].labels, (Labels{{"host", "a"}}));
  EXPECT_EQ(times(store->select("power", 20 * kMs, 40 * kMs, 10, nullptr).at(0)), (std::vector<int64_t>{20, 30, 40}));
  EXPECT_TRUE(store->select("power", 51 * kMs, kAll, 10, &total).empty());
  EXPECT_EQ(total, 0u);
}

TEST_P(MetricStoreContract, TheSameTimeAgainReplacesTheValueAndIsCounted) {
  auto store = make();
  store->append("power", {}, "W", "gauge", {10 * kMs, 1});
  EXPECT_EQ(store->append("power", {}, "W", "gauge", {10 * kMs, 2}), AppendOutcome::kReplaced);
  std::vector<Series> series = store->select("power", 0, kAll, 10, nullptr);
  ASSERT_EQ(series.at(0).samples.size(), 1u);
  EXPECT_EQ(series[0].samples[0].value, 2);
  EXPECT_EQ(counters_.value("lockstep_store_rows_replaced_total", "table=\"samples\""), 1);
  expect_nothing_lost_unseen();
}

TEST_P(MetricStoreContract, KeepsThePayloadBitsOfNaN) {
  auto store = make();
  uint64_t bits = 0x7FF8000000000002;
  store->append("power", {}, "W", "gauge", {10 * kMs, std::bit_cast<double>(bits)});
  EXPECT_EQ(std::bit_cast<uint64_t>(store->select("power", 0, kAll, 1, nullptr).at(0).samples.at(0).value), bits);
}

TEST_P(MetricStoreContract, SelectsByExactNameInLabelOrderAndSaysHowManyThereAre) {
  auto store = make();
  for (const char* host : {"c", "a", "b"}) store->append("power", {{"host", host}}, "W", "gauge", {10 * kMs, 1});
  store->append("power.limit", {}, "W", "gauge", {10 * kMs, 1});
  EXPECT_EQ(store->names(), (std::vector<std::string>{"power", "power.limit"}));
  size_t total = 0;
  std::vector<Series> series = store->select("power", 0, kAll, 2, &total);
  EXPECT_EQ(total, 3u);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].labels[0].second, "a");
  EXPECT_EQ(series[1].labels[0].second, "b");
  EXPECT_TRUE(store->select("pow", 0, kAll, 2, &total).empty());
}

TEST_P(MetricStoreContract, RefusesSeriesBeyondItsLimitAndCountsThem) {
  auto store = make(2);
  EXPECT_EQ(store->append("a", {}, "", "gauge", {1 * kMs, 1}), AppendOutcome::kStored);
  EXPECT_EQ(store->append("b", {}, "", "gauge", {1 * kMs, 1}), AppendOutcome::kStored);
  EXPECT_EQ(store->append("c", {}, "", "gauge", {1 * kMs, 1}), AppendOutcome::kRefusedSeriesLimit);
  EXPECT_EQ(store->append("a", {}, "", "gauge", {2 * kMs, 1}), AppendOutcome::kStored);
  EXPECT_EQ(store->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(counters_.sum("lockstep_store_rows_refused_total"), 1);
  expect_nothing_lost_unseen();
}

TEST_P(MetricStoreContract, DropsTheOldestSamplesBeyondItsLimitAndCountsThem) {
  if (!GetParam().drops_oldest_samples) GTEST_SKIP() << "keeps them by age and bytes";
  auto store = make(10, 100);
  for (int64_t time = 0; time < 1000; ++time)
    store->append("a", {}, "", "gauge", {time * kMs, static_cast<double>(time)});
  std::vector<Series> series = store->select("a", 0, kAll, 1, nullptr);
  ASSERT_EQ(series.at(0).samples.size(), 100u);
  EXPECT_EQ(series[0].samples.front().time_unix_ns, 900 * kMs);
  EXPECT_EQ(series[0].samples.back().time_unix_ns, 999 * kMs);
  EXPECT_EQ(counters_.sum("lockstep_store_rows_dropped_total"), 900);
  expect_nothing_lost_unseen();
}

TEST_P(MetricStoreContract, AppendsAndQueriesFromManyThreadsAtOnce) {
  auto store = make();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t time = 0; time < 500; ++time) {
        store->append("a", {{"thread", std::to_string(t)}}, "", "gauge", {time * kMs, 1});
        if (time % 50 == 0) store->select("a", 0, kAll, 10, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Series> series = store->select("a", 0, kAll, 10, nullptr);
  ASSERT_EQ(series.size(), 4u);
  for (const Series& one : series) EXPECT_EQ(one.samples.size(), 500u);
  expect_nothing_lost_unseen();
}

INSTANTIATE_TEST_SUITE_P(Backings, MetricStoreContract, ::testing::ValuesIn(kBackings),
                         [](const auto& test) { return test.param.name; });

TEST(MemoryMetricStore, ManySeriesShareTheLimitOnSamples) {
  Counters counters(kStoreCounters);
  MemoryMetricStore store({.series_max = 1000, .samples_per_series_max = 1000, .samples_max = 2000}, counters);
  for (int64_t time = 0; time < 500; ++time) {
    for (int i = 0; i < 50; ++i) store.append("a", {{"i", std::to_string(i)}}, "", "gauge", {time, 1});
  }
  EXPECT_LE(counters.value("lockstep_store_rows", "table=\"samples\""), 2000);
  EXPECT_EQ(store.select("a", 0, kAll, 1, nullptr).at(0).samples.size(), 40u);
}

}  // namespace
}  // namespace lockstep
