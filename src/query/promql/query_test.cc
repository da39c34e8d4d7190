// Evaluation: limits, cancelling and what the scripts of Prometheus do not look at. Values are held against those
// scripts (tests/promql/scripts.py) and against a real Prometheus (tests/promql/differential.py).
#include "query/promql/query.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "query/promql/testing/script.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep::promql {
namespace {

class PromqlQuery : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int instance = 0; instance < 4; ++instance) {
      for (int64_t i = 0; i <= 40; ++i) {
        reader_.add(
            {{"__name__", "requests_total"}, {"instance", std::to_string(instance)}, {"job", instance < 2 ? "a" : "b"}},
            i * 15'000, static_cast<double>(i * (instance + 1)));
      }
    }
  }
  QueryResult at(std::string_view query, int64_t time_ms = 600'000) {
    return run_query(query, reader_, {time_ms, time_ms, 0}, options_);
  }
  QueryResult range(std::string_view query) { return run_query(query, reader_, {300'000, 600'000, 60'000}, options_); }

  MemoryMetricReader reader_;
  QueryOptions options_;
};

TEST_F(PromqlQuery, AddsUpRatesByGroup) {
  const QueryResult result = at("sum by (job) (rate(requests_total[1m]))");
  ASSERT_TRUE(result.ok()) << result.error;
  ASSERT_EQ(result.series.size(), 2u);
  EXPECT_NEAR(result.series[0].values[0], 3.0 / 15, 1e-12);
  EXPECT_NEAR(result.series[1].values[0], 7.0 / 15, 1e-12);
}

TEST_F(PromqlQuery, AnswersARangeSortedByLabelsWithAValuePerStep) {
  const QueryResult result = range("requests_total");
  ASSERT_EQ(result.type, ValueType::kMatrix);
  ASSERT_EQ(result.series.size(), 4u);
  EXPECT_EQ(result.series[0].labels[1].second, "0");
  EXPECT_EQ(result.series[3].labels[1].second, "3");
  EXPECT_EQ(result.series[0].times_ms, (std::vector<int64_t>{300'000, 360'000, 420'000, 480'000, 540'000, 600'000}));
}

TEST_F(PromqlQuery, LooksBackFiveMinutesAndNotAMillisecondMore) {
  EXPECT_EQ(at("requests_total", 600'000 + 299'999).series.size(), 4u);
  EXPECT_EQ(at("requests_total", 600'000 + 300'000).series.size(), 0u);
}

TEST_F(PromqlQuery, AStaleMarkerEndsASeries) {
  reader_.add({{"__name__", "requests_total"}, {"instance", "0"}, {"job", "a"}}, 601'000,
              std::bit_cast<double>(kStaleBits));
  EXPECT_EQ(at("requests_total", 602'000).series.size(), 3u);
  EXPECT_EQ(at("count_over_time(requests_total[1m])", 602'000).series.size(), 4u);
}

TEST_F(PromqlQuery, SaysWhichLimitItWouldCross) {
  options_.limits.samples_max = 10;
  const QueryResult samples = at("rate(requests_total[5m])");
  EXPECT_EQ(samples.failure, QueryFailure::kExecution);
  EXPECT_NE(samples.error.find("too many samples"), std::string::npos) << samples.error;
  options_ = {};
  options_.limits.series_max = 3;
  EXPECT_NE(at("requests_total").error.find("at most 3"), std::string::npos);
  options_ = {};
  options_.limits.bytes_max = 64;
  EXPECT_NE(range("requests_total").error.find("64 bytes"), std::string::npos);
}

TEST_F(PromqlQuery, BothSidesOfAnOperationCountAgainstTheMemoryThatAQueryMayHold) {
  const std::string query = "sum(requests_total + requests_total)";
  const QueryResult alone = range("sum(requests_total)");
  const QueryResult both = range(query);
  const uint64_t values_bytes = 4 * both.series[0].values.size() * sizeof(double);
  EXPECT_GE(both.peak_bytes, alone.peak_bytes + 2 * values_bytes) << "the other side, and the sum";
  options_.limits.bytes_max = both.peak_bytes;
  EXPECT_TRUE(range(query).ok());
  options_.limits.bytes_max = both.peak_bytes - 1;
  EXPECT_NE(range(query).error.find("bytes at once; narrow its range"), std::string::npos);
  EXPECT_TRUE(range("sum(requests_total)").ok());
}

TEST_F(PromqlQuery, WhatAnOperationHeldIsGivenBackWithItsResult) {
  const std::string one = "sum(requests_total + requests_total)";
  std::string many = one;
  for (int i = 0; i < 20; ++i) many += " + " + one;
  EXPECT_LE(range(many).peak_bytes, 2 * range(one).peak_bytes);
}

// 4 kB of query once became 6.5 GB: labels that double with every level.
TEST_F(PromqlQuery, LabelsThatAQueryMakesCountAgainstTheMemoryThatItMayHold) {
  options_.limits.bytes_max = 16u << 20;
  std::string joined = "requests_total", replaced = "requests_total";
  for (int i = 0; i < 40; ++i) {
    joined = "label_join(" + joined + ", \"job\", \"--------\", \"job\", \"job\")";
    replaced = "label_replace(" + replaced + ", \"job\", \"$1$1$1$1\", \"job\", \"(.*)\")";
  }
  for (const std::string& query : {joined, replaced}) {
    const QueryResult result = at(query);
    EXPECT_EQ(result.failure, QueryFailure::kExecution) << query;
    EXPECT_NE(result.error.find("16777216 bytes at once"), std::string::npos) << result.error;
  }
  std::string once;
  for (int i = 0; i < 40'000; ++i) once += "$1";
  const QueryResult wide = at("label_replace(label_replace(requests_total, \"x\", \"" + std::string(100'000, 'x') +
                              "\", \"\", \"\"), \"y\", \"" + once + "\", \"x\", \"(.*)\")");
  EXPECT_EQ(wide.failure, QueryFailure::kExecution) << "a single text of 4 GB";
}

TEST_F(PromqlQuery, LabelsOfTheAnswerCountAsManyTimesAsTheyAreTold) {
  // One text that all rows share inside the query, and none of them in its answer.
  const std::string query = "label_replace(requests_total, \"x\", \"" + std::string(100'000, 'x') + "\", \"\", \"\")";
  const QueryResult all = at(query);
  ASSERT_TRUE(all.ok()) << all.error;
  EXPECT_GE(all.peak_bytes, 400'000u);
}

TEST_F(PromqlQuery, TakesWhatItHoldsFromTheBudgetOfTheProcess) {
  uint64_t resident = 0;
  MemoryBudget budget(64u << 20, [&] { return resident; });
  {
    MemoryLease lease(&budget, MemoryUse::kQueries);
    options_.memory = &lease;
    EXPECT_TRUE(range("requests_total").ok());
    EXPECT_GT(budget.taken(MemoryUse::kQueries), 0u);
  }
  EXPECT_EQ(budget.taken(MemoryUse::kQueries), 0u);
  std::string query = "requests_total";
  for (int i = 0; i < 40; ++i) query = "label_join(" + query + ", \"job\", \"-\", \"job\", \"job\")";
  MemoryLease lease(&budget, MemoryUse::kQueries);
  options_.memory = &lease;
  EXPECT_EQ(at(query).failure, QueryFailure::kNoMemory);
  EXPECT_LE(lease.bytes(), 32u << 20);
  lease.reset();
  resident = 64u << 20;
  ASSERT_FALSE(budget.take(MemoryUse::kBodies, 8u << 20)) << "read again";
  EXPECT_EQ(at("requests_total").failure, QueryFailure::kNoMemory) << "others have it all";
}

TEST_F(PromqlQuery, RefusesASubqueryOfAStepTooSmallForItsRange) {
  const QueryResult result = at("max_over_time(vector(1)[1000d:1ms])");
  EXPECT_EQ(result.failure, QueryFailure::kExecution);
  EXPECT_NE(result.error.find("too many samples"), std::string::npos);
}

TEST_F(PromqlQuery, StopsWhenItIsCancelledOrLate) {
  options_.cancelled = [] { return true; };
  EXPECT_EQ(at("requests_total").failure, QueryFailure::kCancelled);
  options_ = {};
  options_.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ(at("requests_total").failure, QueryFailure::kTimeout);
}

TEST_F(PromqlQuery, ReportsWhatIsOddWhereItStands) {
  const QueryResult result = at("sum(rate(requests[1m])) or quantile(2, requests_total)");
  ASSERT_EQ(result.annotations.size(), 1u);
  EXPECT_EQ(shown(result.annotations[0], "x"), "PromQL warning: quantile value should be between 0 and 1, got 2 (1:2)");
}

TEST_F(PromqlQuery, AMistakeInTheQueryIsToldWithItsPlace) {
  const QueryResult result = at("sum(");
  EXPECT_EQ(result.failure, QueryFailure::kBadQuery);
  EXPECT_EQ(result.error, "1:5: parse error: a left parenthesis is not closed");
  EXPECT_EQ(range("\"text\"").failure, QueryFailure::kBadQuery);
}

TEST_F(PromqlQuery, MoreThanOneMatchOnTheOneSideIsAnErrorThatNamesTheSeries) {
  const QueryResult result = at("requests_total * on(job) requests_total");
  EXPECT_EQ(result.failure, QueryFailure::kExecution);
  EXPECT_NE(result.error.find("found duplicate series for the match group {job=\"a\"}"), std::string::npos)
      << result.error;
}

TEST_F(PromqlQuery, TheFirstOfEqualsComesFirst) {
  for (const char* query :
       {"topk(4, requests_total * 0)", "bottomk(4, requests_total * 0)", "topk(3, requests_total * 0)"}) {
    const QueryResult result = at(query);
    ASSERT_TRUE(result.ok()) << result.error;
    for (size_t i = 0; i < result.series.size(); ++i)
      EXPECT_EQ(result.series[i].labels[0].second, std::to_string(i)) << query;
  }
}

TEST_F(PromqlQuery, SmoothedAndAnchoredRangesHaveValuesAtTheirEnds) {
  using Points = std::vector<std::pair<int64_t, double>>;
  const auto points = [&](std::string_view range, int64_t time_ms) {
    const QueryResult result = at("requests_total{instance=\"0\"}" + std::string(range), time_ms);
    EXPECT_TRUE(result.ok()) << result.error;
    Points all;
    for (const ResultSeries& series : result.series) {
      for (size_t i = 0; i < series.times_ms.size(); ++i) all.emplace_back(series.times_ms[i], series.values[i]);
    }
    return all;
  };
  // A sample each 15 s, one higher than the one before.
  EXPECT_EQ(points("[1m] smoothed", 202'500),
            (Points{{142'500, 9.5}, {150'000, 10}, {165'000, 11}, {180'000, 12}, {195'000, 13}, {202'500, 13.5}}));
  EXPECT_EQ(points("[1m] anchored", 202'500),
            (Points{{142'500, 9}, {150'000, 10}, {165'000, 11}, {180'000, 12}, {195'000, 13}, {202'500, 13}}));
  for (const char* how : {"[1m] smoothed", "[1m] anchored"}) {
    EXPECT_EQ(points(how, 210'000),
              (Points{{150'000, 10}, {165'000, 11}, {180'000, 12}, {195'000, 13}, {210'000, 14}}));
  }
  EXPECT_EQ(points("[15s] smoothed", 22'500), (Points{{7'500, 0.5}, {15'000, 1}, {22'500, 1.5}}));
  EXPECT_EQ(points("[1m] smoothed", 30'000), (Points{{-30'000, 0}, {0, 0}, {15'000, 1}, {30'000, 2}})) << "none before";
  EXPECT_EQ(points("[1m] anchored", 650'000), (Points{{590'000, 39}, {600'000, 40}, {650'000, 40}})) << "none after";
  EXPECT_EQ(points("[1m] anchored", 660'000), Points{}) << "none in it";
  EXPECT_EQ(points("[1m] smoothed", 660'000), Points{});
}

TEST_F(PromqlQuery, ARangeIsWhatItsStepsAreAlone) {
  for (int64_t i = 0; i <= 40; ++i) {  // resets, and a gap
    if (i > 20 && i < 27) continue;
    reader_.add({{"__name__", "restarts_total"}, {"job", "c"}}, i * 15'000, static_cast<double>((i * 7) % 23));
  }
  for (const char* query :
       {"rate(restarts_total[1m])", "increase(restarts_total[150s])", "delta(restarts_total[45s])",
        "rate(requests_total[31s] offset 20s)", "increase(restarts_total[2m] @ 200)",
        "sum by (job) (rate(requests_total[1m]))", "max by (instance, none) (requests_total)",
        "timestamp(requests_total @ 200)", "timestamp(requests_total)", "timestamp(requests_total @ 200 + 0)",
        "sum(requests_total @ 200) + time()", "requests_total @ 200 - requests_total",
        "-(requests_total @ 570 offset 30s)", "sum_over_time(requests_total[1m:7s] @ 300)",
        "max_over_time(vector(time())[1m:15s])", "day_of_week(requests_total @ 200 * 86400)", "requests_total smoothed",
        "restarts_total smoothed", "restarts_total smoothed offset 7s"}) {
    const QueryResult all = run_query(query, reader_, {0, 720'000, 5'000}, options_);
    ASSERT_TRUE(all.ok()) << all.error;
    ASSERT_FALSE(all.series.empty());
    for (int64_t time_ms = 0; time_ms <= 720'000; time_ms += 5'000) {
      const QueryResult one = at(query, time_ms);
      size_t there = 0;
      for (const auto& series : all.series) {
        const auto step = std::find(series.times_ms.begin(), series.times_ms.end(), time_ms);
        if (step == series.times_ms.end()) continue;
        ASSERT_LT(there, one.series.size()) << query << " at " << time_ms;
        EXPECT_EQ(one.series[there].labels, series.labels);
        EXPECT_EQ(one.series[there++].values[0], series.values[static_cast<size_t>(step - series.times_ms.begin())])
            << query << " at " << time_ms;
      }
      EXPECT_EQ(there, one.series.size()) << query << " at " << time_ms;
    }
  }
}

TEST(PromqlHistograms, AddAcrossSchemasAndZeroBuckets) {
  NativeHistogram fine;
  fine.schema = 1;
  fine.zero_threshold = 0.001;
  fine.zero_count = 1;
  fine.count = 7;
  fine.sum = 10;
  fine.positive_spans = {{0, 4}};
  fine.positive = {1, 2, 2, 1};
  NativeHistogram coarse;
  coarse.schema = 0;
  coarse.zero_threshold = 0.5;
  coarse.zero_count = 2;
  coarse.count = 5;
  coarse.sum = 6;
  coarse.positive_spans = {{1, 1}};
  coarse.positive = {3};
  FlatHistogram sum(fine);
  const AddOutcome outcome = add(sum, FlatHistogram(coarse));
  EXPECT_FALSE(outcome.incompatible);
  EXPECT_EQ(sum.schema, 0);
  EXPECT_EQ(sum.zero_threshold, 0.5);
  EXPECT_EQ(sum.count, 12);
  double in_buckets = sum.zero_count;
  for (const FlatBucket& bucket : sum.positive) in_buckets += bucket.count;
  EXPECT_EQ(in_buckets, 12);  // nothing is lost
}

// What a list held before it became shorter is not there any more, though its memory is.
TEST(PromqlHistograms, ABucketBehindTheLastIsNotAddedTo) {
  NativeHistogram one;
  one.positive_spans = {{0, 2}};
  one.positive = {1, 2};
  FlatHistogram sum(one);
  sum.positive.pop_back();
  add(sum, FlatHistogram(one));
  ASSERT_EQ(sum.positive.size(), 2u);
  EXPECT_EQ(sum.positive[0].count, 2);
  EXPECT_EQ(sum.positive[1].count, 2);
}

TEST(PromqlHistograms, SpansThatDoNotFitTheirBucketsAreReadAsFarAsTheyDo) {
  NativeHistogram odd;
  odd.schema = 100;
  odd.count = 3;
  odd.positive_spans = {{2'000'000'000, 4'000'000'000u}, {2'000'000'000, 7}};
  odd.positive = {1, 2};
  NanEffect effect;
  (void)quantile(0.5, odd, &effect);  // whatever it is: bounds out there are infinite
  EXPECT_EQ(all_buckets(odd).size(), 2u);
  FlatHistogram sum(odd);
  add(sum, FlatHistogram(odd));
  EXPECT_EQ(sum.positive.size(), 2u);
}

TEST(PromqlScripts, ComparesWhatIsLoadedWithWhatIsExpected) {
  const ScriptOutcome good =
      run_script("load 1m\n  up{a=\"b\"} 1+1x5\n\neval instant at 3m up * 2\n  {a=\"b\"} 8\n", false);
  ASSERT_EQ(good.cases.size(), 1u);
  EXPECT_EQ(good.cases[0].problem, "");
  const ScriptOutcome bad = run_script("load 1m\n  up 1\n\neval instant at 0m up\n  up 2\n", false);
  ASSERT_EQ(bad.cases.size(), 1u);
  EXPECT_NE(bad.cases[0].problem, "");
  EXPECT_NE(run_script("nonsense\n", false).broken, "");
}

// The list of queries that tests/promql/differential.py holds against a real Prometheus, with answers (answers.py).
TEST(PromqlScripts, AnswersTheListOfQueriesAsItDidWhenPrometheusAgreed) {
  const ScriptOutcome outcome = run_script(*read_file(LOCKSTEP_PROMQL_ANSWERS, 16u << 20), false);
  EXPECT_EQ(outcome.broken, "");
  EXPECT_GT(outcome.cases.size(), 1000u);
  for (const ScriptCase& one : outcome.cases) {
    EXPECT_EQ(one.problem, "") << "line " << one.line << ": " << one.query;
    if (!one.problem.empty()) return;  // one is enough: the rest mostly follows from it
  }
}

}  // namespace
}  // namespace lockstep::promql
