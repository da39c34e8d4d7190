// Questions that rollups answer, against the same questions over every sample: min, max, sum, count and mean are the
// same where windows begin and end with the rollups' points; counters lose nothing where they begin again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "query/promql/query.h"
#include "store/metrics/engine_world.h"
#include "store/metrics/reference_load.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::promql {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kEveryMs = 10'000;
constexpr int64_t kRows = 60 * 360;  // sixty hours

class RollupQueryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    world_ = new World;
    const int64_t begin_ms = world_->clock.unix_ms() / kHourMs * kHourMs;
    world_->engine->set_metadata("requests_total", "counter", "", "");
    double requests = 0, latencies = 0;
    for (int64_t i = 1; i <= kRows; ++i) {
      const int64_t time_ms = begin_ms + i * kEveryMs;
      world_->clock.advance_to(time_ms * 1'000'000);
      const double noise = static_cast<double>(metrics::ReferenceLoad::mix(static_cast<uint64_t>(i)) % 10'000) / 100;
      requests = i % 600 == 450 ? 5 : requests + 5;  // begins again every 100 minutes, in the middle of hours
      latencies += 2;
      NativeHistogram histogram;
      histogram.schema = 0;
      histogram.count = latencies;
      histogram.sum = latencies / 2;
      histogram.positive_spans = {{0, 1}};
      histogram.positive = {latencies};
      const auto pushed = metrics::TestPush()
                              .add("power{gpu=0}", time_ms, noise)
                              .add("power{gpu=1}", time_ms, i % 3'000 == 77 ? 999 : 50)
                              .add("requests_total{gpu=0}", time_ms, requests)
                              .histogram("latency{gpu=0}", time_ms, histogram)
                              .to(*world_->engine);
      if (!pushed.ok()) FAIL() << pushed.error();
      if (i % 360 == 0) {
        ASSERT_TRUE(world_->engine->seal().ok());
        ASSERT_TRUE(world_->engine->merge().ok());
      }
    }
    world_->begin_ms = begin_ms;
    world_->end_ms = begin_ms + 48 * kHourMs;  // all of it rolled up
  }
  static void TearDownTestSuite() { delete world_; }

  using Values = std::map<std::string, std::map<int64_t, double>>;
  static Values ask(const std::string& query, const QueryTimes& times, bool from_rollups, uint64_t* read = nullptr) {
    QueryOptions options;
    options.rollup_span_ms = from_rollups ? 0 : INT64_MAX;
    const QueryResult result = run_query(query, *world_->engine, times, options);
    EXPECT_TRUE(result.ok()) << result.error;
    if (read != nullptr) *read = result.samples_read;
    Values values;
    for (const ResultSeries& series : result.series) {
      std::string name;
      for (const auto& [key, value] : series.labels) name += key + "=" + value + " ";
      for (size_t i = 0; i < series.values.size(); ++i) values[name][series.times_ms[i]] = series.values[i];
    }
    return values;
  }
  static void expect_near(const std::string& query, const QueryTimes& times, double tolerance, uint64_t less_samples) {
    uint64_t all = 0, rolled_up = 0;
    const Values expected = ask(query, times, false, &all), there = ask(query, times, true, &rolled_up);
    EXPECT_FALSE(expected.empty()) << query;
    EXPECT_LT(rolled_up * less_samples, all) << query;
    ASSERT_EQ(there.size(), expected.size()) << query;
    for (const auto& [name, values] : expected) {
      ASSERT_EQ(there.at(name).size(), values.size()) << query << " " << name;
      for (const auto& [time_ms, value] : values)
        EXPECT_NEAR(there.at(name).at(time_ms), value, tolerance * std::max(std::abs(value), 1e-9))
            << query << " " << name << " at hour " << static_cast<double>(time_ms - world_->begin_ms) / kHourMs;
    }
  }

  struct World {
    testing::FakeClock clock{metrics::kStartNs};
    testing::TemporaryFolder folder;
    Counters counters{kStoreCounters};
    std::unique_ptr<MetricEngine> engine;
    int64_t begin_ms = 0, end_ms = 0;
    World() {
      MetricEngineOptions options;
      options.folder = folder.path();
      options.background = false;
      engine = MetricEngine::open(options, clock, counters).value();
    }
  };
  static inline World* world_ = nullptr;
  // Every hour, after the first nine.
  static QueryTimes hourly() { return {world_->begin_ms + 9 * kHourMs, world_->end_ms, kHourMs}; }
};

TEST_F(RollupQueryTest, ExtremesSumsCountsAndMeansAreThoseOfAllSamples) {
  for (const char* function : {"min_over_time", "max_over_time", "sum_over_time", "count_over_time", "avg_over_time"})
    expect_near(std::string(function) + "(power[4h])", hourly(), 1e-9, 50);
  expect_near("max by (gpu) (avg_over_time(power[4h]))", hourly(), 1e-9, 50);
  expect_near("count_over_time(latency[4h]) * 0 + 1", hourly(), 1e-9, 50);
}

TEST_F(RollupQueryTest, ACounterThatBeginsAgainWithinAnHourLosesNothing) {
  expect_near("increase(requests_total[8h])", hourly(), 0.01, 50);
  expect_near("rate(requests_total[8h])", hourly(), 0.01, 50);
  for (int64_t hour = 9; hour < 40; ++hour) {  // whatever it begins with
    const int64_t at_ms = world_->begin_ms + hour * kHourMs;
    expect_near("increase(requests_total[8h])", {at_ms, at_ms + kHourMs, kHourMs}, 0.01, 50);
  }
}

TEST_F(RollupQueryTest, NativeHistogramsAreKept) {
  expect_near("histogram_count(increase(latency[8h]))", hourly(), 0.01, 50);
  expect_near("histogram_avg(avg_over_time(latency[4h]))", hourly(), 0.01, 50);
}

TEST_F(RollupQueryTest, FunctionsThatNeedEverySampleGetThem) {
  for (const char* query : {"quantile_over_time(0.9, power[4h])", "stddev_over_time(power[4h])", "changes(power[4h])",
                            "resets(requests_total[4h])"})
    EXPECT_EQ(ask(query, hourly(), true), ask(query, hourly(), false)) << query;
}

}  // namespace
}  // namespace lockstep::promql
