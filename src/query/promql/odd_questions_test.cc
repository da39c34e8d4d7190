// Answers beside the values that Prometheus's scripts and the list of queries hold: warnings with their place, histograms of
// which some are gauges or have other buckets, names that go at the end of a query, limits at their borders.
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"
#include "query/promql/query.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep::promql {
namespace {

class OddQuestions : public ::testing::Test {
 protected:
  static HistogramPtr histogram(double scale, CounterReset reset, int schema = 0, double zero = 0) {
    NativeHistogram one;
    one.schema = schema;
    one.zero_threshold = zero;
    one.zero_count = scale;
    one.positive_spans = {{0, 2}, {1, 1}};
    one.positive = {scale, 2 * scale, scale};
    one.negative_spans = {{1, 1}};
    one.negative = {scale};
    one.count = 6 * scale;
    one.sum = 9 * scale;
    one.reset = reset;
    return std::make_shared<const NativeHistogram>(one);
  }
  static HistogramPtr with_bounds(double scale, std::vector<double> bounds) {
    NativeHistogram one;
    one.schema = -53;
    one.custom_bounds = std::move(bounds);
    one.positive_spans = {{0, static_cast<uint32_t>(one.custom_bounds.size() + 1)}};
    one.positive.assign(one.custom_bounds.size() + 1, scale);
    one.count = scale * static_cast<double>(one.positive.size());
    one.sum = 5 * scale;
    return std::make_shared<const NativeHistogram>(one);
  }
  void SetUp() override {
    for (int64_t i = 0; i <= 20; ++i) {
      const int64_t at = i * 60'000;
      const auto number = static_cast<double>(i);
      reader_.add({{"__name__", "requests_total"}, {"job", "a"}}, at, i < 12 ? 3 * number : number);
      reader_.add({{"__name__", "requests_total"}, {"job", "b"}}, at, number);
      reader_.add({{"__name__", "level"}, {"job", "a"}}, at, i % 4 == 3 ? 7 : -number);
      reader_.add({{"__name__", "typed"}, {"__type__", "counter"}}, at, number);
      reader_.add({{"__name__", "h"}, {"job", "a"}}, at, histogram(1 + number, CounterReset::kUnknown));
      reader_.add({{"__name__", "h"}, {"job", "b"}}, at, histogram(1 + number, CounterReset::kUnknown, 1, 0.25));
      reader_.add({{"__name__", "hg"}, {"job", "a"}}, at, histogram(5 - number / 8, CounterReset::kGauge));
      reader_.add({{"__name__", "half"}, {"job", "a"}}, at,
                  histogram(1 + number, i % 2 == 0 ? CounterReset::kGauge : CounterReset::kUnknown));
      reader_.add({{"__name__", "falls"}, {"job", "a"}}, at,
                  histogram(i < 9 ? 2 * number : number, CounterReset::kUnknown));
      reader_.add({{"__name__", "own"}, {"job", "a"}}, at, with_bounds(1 + number, {1, 2, 5}));
      reader_.add({{"__name__", "own"}, {"job", "b"}}, at, with_bounds(1 + number, {1, 5}));
      reader_.add({{"__name__", "changes"}}, at,
                  with_bounds(1 + number, i % 2 == 0 ? std::vector<double>{1, 2} : std::vector<double>{2, 3}));
      if (i % 2 == 0) {
        reader_.add({{"__name__", "mixed"}, {"job", "a"}}, at, number);
      } else {
        reader_.add({{"__name__", "mixed"}, {"job", "a"}}, at, histogram(1 + number, CounterReset::kUnknown));
      }
      for (const auto& [le, part] : {std::pair("0.5", 1.0), std::pair("1", 3.0), std::pair("+Inf", 4.0)}) {
        reader_.add({{"__name__", "lat_bucket"}, {"le", le}}, at, part * number);
        reader_.add({{"__name__", "odd_bucket"}, {"le", le}}, at, (part == 3 ? 0.5 : part) * number);
      }
      reader_.add({{"__name__", "bad_bucket"}, {"le", "x"}}, at, number);
    }
  }
  static std::string text_of(const QueryResult& result, std::string_view query) {
    if (!result.ok()) return "error: " + result.error;
    std::string text;
    if (result.type == ValueType::kScalar) text += format("%.8g ", result.scalar);
    for (const ResultSeries& series : result.series) {
      text += "{";
      for (const auto& [name, value] : series.labels) text += name + "=" + value + " ";
      text += "}";
      for (size_t i = 0; i < series.values.size(); ++i) {
        const HistogramPtr histogram = series.histograms.empty() ? nullptr : series.histograms[i];
        if (histogram == nullptr) {
          text += format(" %.8g", series.values[i]);
          continue;
        }
        text += format(" [%d %.6g %.6g:", histogram->schema, histogram->count, histogram->sum);
        for (const double count : histogram->negative) text += format(" -%.6g", count);
        text += format(" (%.6g)", histogram->zero_count);
        for (const double count : histogram->positive) text += format(" %.6g", count);
        text += histogram->reset == CounterReset::kGauge ? " gauge]" : "]";
      }
      text += " ";
    }
    for (const Annotation& annotation : result.annotations) text += "| " + shown(annotation, query) + " ";
    return text;
  }
  std::string at(std::string_view query, int64_t time_ms = 600'000) {
    return text_of(run_query(query, reader_, {time_ms, time_ms, 0}, options_), query);
  }
  std::string range(std::string_view query) {
    return text_of(run_query(query, reader_, {540'000, 660'000, 60'000}, options_), query);
  }

  MemoryMetricReader reader_;
  QueryOptions options_;
};

struct Case {
  const char* query;
  const char* answer;
};

// Line by line what is told of each; a change that is meant is looked up in Prometheus first.
const Case kAnswers[] = {
    {"rate(level[2m])",
     "{job=a } -0.16666667 | PromQL info: metric might not be a counter, name does not end in "
     "_total/_sum/_count/_bucket: \"level\" (1:6) "},
    {"increase(requests_total[2m])", "{job=a } 6 {job=b } 2 "},
    {"rate(typed[2m])",
     "{} 0.016666667 | PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "
     "\"typed\" (1:6) "},
    {"idelta(half[3m])",
     "{job=a } [0 6 9: -1 (1) 1 2 1 gauge] | PromQL warning: this native histogram metric is not a gauge: \"half\" "
     "(1:8) "},
    {"irate(half[3m])",
     "{job=a } [0 0.1 0.15: -0.0166667 (0.0166667) 0.0166667 0.0333333 0.0166667 gauge] | PromQL warning: this native "
     "histogram metric is not a counter: \"half\" (1:7) "},
    {"idelta(hg[3m])", "{job=a } [0 -0.75 -1.125: --0.125 (-0.125) -0.125 -0.25 -0.125 gauge] "},
    {"irate(hg[3m])",
     "{job=a } [0 0.375 0.5625: -0.0625 (0.0625) 0.0625 0.125 0.0625 gauge] | PromQL warning: this native histogram "
     "metric is not a counter: \"hg\" (1:7) "},
    {"idelta(h{job=\"a\"}[3m])",
     "{job=a } [0 6 9: -1 (1) 1 2 1 gauge] | PromQL warning: this native histogram metric is not a gauge: \"h\" "
     "(1:8) "},
    {"irate(h{job=\"a\"}[3m])", "{job=a } [0 0.1 0.15: -0.0166667 (0.0166667) 0.0166667 0.0333333 0.0166667 gauge] "},
    {"rate(hg[3m])",
     "{job=a } [0 0.38125 0.571875: -0.0635417 (0.0635417) 0.0635417 0.127083 0.0635417 gauge] | PromQL warning: this "
     "native histogram metric is not a counter: \"hg\" (1:6) "},
    {"rate(half[3m])",
     "{job=a } [0 0.1 0.15: -0.0166667 (0.0166667) 0.0166667 0.0333333 0.0166667 gauge] | PromQL warning: this native "
     "histogram metric is not a counter: \"half\" (1:6) "},
    {"delta(h{job=\"a\"}[3m])",
     "{job=a } [0 18 27: -3 (3) 3 6 3 gauge] | PromQL warning: this native histogram metric is not a gauge: \"h\" "
     "(1:7) "},
    {"delta(hg[3m])", "{job=a } [0 -2.25 -3.375: --0.375 (-0.375) -0.375 -0.75 -0.375 gauge] "},
    {"delta(half[3m])", "{job=a } [0 18 27: -3 (3) 3 6 3 gauge] "},
    {"rate(falls[3m])", "{job=a } [0 0.5 0.75: -0.0833333 (0.0833333) 0.0833333 0.166667 0.0833333 gauge] "},
    {"irate(falls[3m])", "{job=a } [0 0.1 0.15: -0.0166667 (0.0166667) 0.0166667 0.0333333 0.0166667 gauge] "},
    {"increase(falls[5m])", "{job=a } [0 105 157.5: -17.5 (17.5) 17.5 35 17.5 gauge] "},
    {"rate(mixed[3m])",
     "| PromQL warning: encountered a mix of histograms and floats for metric name \"mixed\" (1:6) "},
    {"irate(mixed[3m])",
     "| PromQL warning: encountered a mix of histograms and floats for metric name \"mixed\" (1:7) "},
    {"idelta(mixed[3m])",
     "| PromQL warning: encountered a mix of histograms and floats for metric name \"mixed\" (1:8) "},
    {"delta(mixed[3m])",
     "| PromQL warning: encountered a mix of histograms and floats for metric name \"mixed\" (1:7) "},
    {"sum_over_time(mixed[3m])",
     "| PromQL warning: encountered a mix of histograms and floats for metric name \"mixed\" (1:15) "},
    {"avg_over_time(mixed[3m])",
     "| PromQL warning: encountered a mix of histograms and floats for metric name \"mixed\" (1:15) "},
    {"sum_over_time(changes[3m])",
     "{} [-53 90 150: (0) 50 40] | PromQL info: mismatched custom buckets were reconciled during aggregation (1:15) "},
    {"avg_over_time(changes[3m])",
     "{} [-53 30 50: (0) 16.6667 13.3333] | PromQL info: mismatched custom buckets were reconciled during aggregation "
     "(1:15) "},
    {"rate(changes[3m])",
     "{} [-53 0.5 0.833333: (0) 0.253968 0.246032 gauge] | PromQL info: mismatched custom buckets were reconciled "
     "during subtraction (1:6) | PromQL info: mismatched custom buckets were reconciled during addition (1:6) "},
    {"irate(changes[3m])", "{} [-53 0.55 0.916667: (0) 0.183333 0.183333 0.183333 gauge] "},
    {"sum(own)",
     "{} [-53 77 110: (0) 22 33 22] | PromQL info: mismatched custom buckets were reconciled during aggregation "
     "(1:5) "},
    {"avg(own)",
     "{} [-53 38.5 55: (0) 11 16.5 11] | PromQL info: mismatched custom buckets were reconciled during aggregation "
     "(1:5) "},
    {"sum(h)", "{} [0 132 198: -22 (22) 22 44 11 11] "},
    {"avg(h)", "{} [0 66 99: -11 (11) 11 22 5.5 5.5] "},
    {"sum(mixed) + sum(h)",
     "| PromQL info: incompatible sample types encountered for binary operator \"+\": float + histogram (1:1) "},
    {"sum({__name__=~\"h|level\"})",
     "| PromQL warning: encountered a mix of histograms and floats for aggregation (1:5) "},
    {"avg({__name__=~\"h|level\"})",
     "| PromQL warning: encountered a mix of histograms and floats for aggregation (1:5) "},
    {"min(h)", "| PromQL info: ignored histogram in min aggregation (1:5) "},
    {"max({__name__=~\"h|level\"})", "{} -10 | PromQL info: ignored histogram in max aggregation (1:5) "},
    {"topk(1, {__name__=~\"h|level\"})",
     "{__name__=level job=a } -10 | PromQL info: ignored histogram in topk aggregation (1:1) "},
    {"bottomk(1, h)", "| PromQL info: ignored histogram in bottomk aggregation (1:1) "},
    {"quantile(0.5, {__name__=~\"h|level\"})",
     "{} -10 | PromQL info: ignored histogram in quantile aggregation (1:15) "},
    {"stddev({__name__=~\"h|level\"})", "{} 0 | PromQL info: ignored histogram in stddev aggregation (1:8) "},
    {"count(h)", "{} 2 "},
    {"group(h)", "{} 1 "},
    {"count_values(\"v\", level)", "{v=-10 } 1 "},
    {"quantile(1.5, level)", "{} inf | PromQL warning: quantile value should be between 0 and 1, got 1.5 (1:10) "},
    {"quantile(-1, level)", "{} -inf | PromQL warning: quantile value should be between 0 and 1, got -1 (1:10) "},
    {"quantile(NaN, level)", "{} nan | PromQL warning: quantile value should be between 0 and 1, got NaN (1:10) "},
    {"h + h", "{job=a } [0 132 198: -22 (22) 22 44 22] {job=b } [1 132 198: -22 (22) 22 44 22] "},
    {"h - h", "{job=a } [0 0 0: (0) gauge] {job=b } [1 0 0: (0) gauge] "},
    {"h + 1",
     "| PromQL info: incompatible sample types encountered for binary operator \"+\": histogram + float (1:1) "},
    {"1 + h",
     "| PromQL info: incompatible sample types encountered for binary operator \"+\": float + histogram (1:1) "},
    {"h * 2", "{job=a } [0 132 198: -22 (22) 22 44 22] {job=b } [1 132 198: -22 (22) 22 44 22] "},
    {"2 * h", "{job=a } [0 132 198: -22 (22) 22 44 22] {job=b } [1 132 198: -22 (22) 22 44 22] "},
    {"h / 2", "{job=a } [0 33 49.5: -5.5 (5.5) 5.5 11 5.5] {job=b } [1 33 49.5: -5.5 (5.5) 5.5 11 5.5] "},
    {"2 / h",
     "| PromQL info: incompatible sample types encountered for binary operator \"/\": float / histogram (1:1) "},
    {"h * h",
     "| PromQL info: incompatible sample types encountered for binary operator \"*\": histogram * histogram (1:1) "},
    {"h > 1",
     "| PromQL info: incompatible sample types encountered for binary operator \">\": histogram > float (1:1) "},
    {"h == h", "{__name__=h job=a } [0 66 99: -11 (11) 11 22 11] {__name__=h job=b } [1 66 99: -11 (11) 11 22 11] "},
    {"h != h", ""},
    {"h == bool h", "{job=a } 1 {job=b } 1 "},
    {"own{job=\"a\"} + ignoring(job) own{job=\"b\"}",
     "{} [-53 77 110: (0) 22 33 22] | PromQL info: mismatched custom buckets were reconciled during addition (1:1) "},
    {"own{job=\"a\"} == ignoring(job) own{job=\"b\"}", ""},
    {"-h{job=\"a\"}", "{job=a } [0 -66 -99: --11 (-11) -11 -22 -11 gauge] "},
    {"histogram_quantile(0.5, h)", "{job=a } 1 {job=b } 1 "},
    {"histogram_quantile(2, h)",
     "{job=a } inf {job=b } inf | PromQL warning: quantile value should be between 0 and 1, got 2 (1:20) "},
    {"histogram_quantile(-1, h)",
     "{job=a } -inf {job=b } -inf | PromQL warning: quantile value should be between 0 and 1, got -1 (1:20) "},
    {"histogram_quantile(0.5, lat_bucket)", "{} 0.75 "},
    {"histogram_quantile(0.5, odd_bucket)",
     "{} 1 | PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
     "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile), from buckets 1 to 1, with "
     "a max diff of 5, over 1 samples from 1970-01-01T00:10:00Z to 1970-01-01T00:10:00Z (1:25) "},
    {"histogram_quantile(0.5, bad_bucket)",
     "| PromQL warning: bucket label \"le\" is missing or has a malformed value of \"x\" (1:25) "},
    {"histogram_quantile(0.9, own)", "{job=a } 5 {job=b } 5 "},
    {"histogram_quantile(NaN, lat_bucket)",
     "{} nan | PromQL warning: quantile value should be between 0 and 1, got NaN (1:20) "},
    {"histogram_fraction(0, 2, h)", "{job=a } 0.66666667 {job=b } 0.58333333 "},
    {"histogram_fraction(0.5, 1, lat_bucket)", "{} 0.5 "},
    {"histogram_fraction(1, 0, h)", "{job=a } 0 {job=b } 0 "},
    {"histogram_fraction(-2, 0.1, h)", "{job=a } 0.33333333 {job=b } 0.28333333 "},
    {"histogram_avg(h)", "{job=a } 1.5 {job=b } 1.5 "},
    {"histogram_count(h)", "{job=a } 66 {job=b } 66 "},
    {"histogram_sum(h)", "{job=a } 99 {job=b } 99 "},
    {"histogram_stddev(h)", "{job=a } 2.1857675 {job=b } 1.3466655 "},
    {"histogram_stdvar(own)", "{job=a } inf {job=b } inf "},
    {"histogram_sum(level)", ""},
    {"resets(falls[10m])", "{job=a } 1 "},
    {"changes(h{job=\"a\"}[3m])", "{job=a } 2 "},
    {"resets(requests_total{job=\"a\"}[10m])", "{job=a } 0 "},
    {"changes(requests_total[3m])", "{job=a } 2 {job=b } 2 "},
    {"last_over_time(mixed[3m])", "{__name__=mixed job=a } 10 "},
    {"first_over_time(mixed[3m])", "{__name__=mixed job=a } 8 "},
    {"min_over_time(mixed[3m])",
     "{job=a } 8 | PromQL info: ignored histograms in a range containing both floats and histograms for metric name "
     "\"mixed\" (1:15) "},
    {"max_over_time(h[3m])", ""},
    {"quantile_over_time(0.5, level[5m])", "{job=a } -8 "},
    {"quantile_over_time(2, level[5m])",
     "{job=a } inf | PromQL warning: quantile value should be between 0 and 1, got 2 (1:20) "},
    {"deriv(level[5m])", "{job=a } -0.04 "},
    {"predict_linear(level[5m], 60)", "{job=a } -12.4 "},
    {"double_exponential_smoothing(level[5m], 0.5, 0.5)", "{job=a } -3.875 "},
    {"double_exponential_smoothing(level[5m], 2, 0.5)",
     "error: invalid smoothing factor. Expected: 0 < sf < 1, got: 2.000000"},
    {"mad_over_time(level[5m])", "{job=a } 2 "},
    {"stddev_over_time(level[5m])", "{job=a } 6.2417946 "},
    {"ts_of_max_over_time(level[5m])", "{job=a } 420 "},
    {"ts_of_min_over_time(level[5m])", "{job=a } 600 "},
    {"ts_of_last_over_time(level[5m])", "{job=a } 600 "},
    {"absent(nothing{a=\"b\",c=~\"d\"})", "{a=b } 1 "},
    {"absent(level)", ""},
    {"absent_over_time(nothing{a=\"b\"}[5m])", "{a=b } 1 "},
    {"present_over_time(level[5m])", "{job=a } 1 "},
    {"count_over_time(mixed[3m])", "{job=a } 3 "},
    {"requests_total == bool 10", "{job=a } 0 {job=b } 1 "},
    {"requests_total > bool 10", "{job=a } 1 {job=b } 0 "},
    {"level > 3", ""},
    {"3 < level", ""},
    {"requests_total and on(job) level", "{__name__=requests_total job=a } 30 "},
    {"requests_total unless on(job) level", "{__name__=requests_total job=b } 10 "},
    {"requests_total or level", "{__name__=requests_total job=a } 30 {__name__=requests_total job=b } 10 "},
    {"requests_total / on(job) group_left level", "{job=a } -3 "},
    {"level * on(job) group_right requests_total", "{job=a } -300 "},
    {"sum by (job) (requests_total) > 10", "{job=a } 30 "},
    {"-requests_total", "{job=a } -30 {job=b } -10 "},
    {"+requests_total", "{__name__=requests_total job=a } 30 {__name__=requests_total job=b } 10 "},
    {"abs(level)", "{job=a } 10 "},
    {"clamp(level, -3, 3)", "{job=a } -3 "},
    {"clamp(level, 3, -3)", ""},
    {"clamp_min(level, -3)", "{job=a } -3 "},
    {"clamp_max(level, -30)", "{job=a } -30 "},
    {"round(level, 4)", "{job=a } -8 "},
    {"round(level / 4)", "{job=a } -2 "},
    {"sort(requests_total)", "{__name__=requests_total job=b } 10 {__name__=requests_total job=a } 30 "},
    {"sort_desc(requests_total)", "{__name__=requests_total job=a } 30 {__name__=requests_total job=b } 10 "},
    {"sort_by_label(requests_total, \"job\")",
     "{__name__=requests_total job=a } 30 {__name__=requests_total job=b } 10 "},
    {"sort_by_label_desc(requests_total, \"job\")",
     "{__name__=requests_total job=b } 10 {__name__=requests_total job=a } 30 "},
    {"label_replace(level, \"x\", \"$1\", \"job\", \"(.)\")", "{__name__=level job=a x=a } -10 "},
    {"label_replace(level, \"job\", \"\", \"\", \"\")", "{__name__=level } -10 "},
    {"label_join(level, \"x\", \"-\", \"job\", \"job\")", "{__name__=level job=a x=a-a } -10 "},
    {"limitk(1, requests_total)", "{__name__=requests_total job=a } 30 "},
    {"limit_ratio(0.5, requests_total)", "{__name__=requests_total job=a } 30 "},
    {"limit_ratio(-0.5, requests_total)", "{__name__=requests_total job=b } 10 "},
    {"limit_ratio(2, requests_total)",
     "{__name__=requests_total job=a } 30 {__name__=requests_total job=b } 10 | PromQL warning: ratio value should be "
     "between -1 and 1, got 2, capping to 1 (1:13) "},
    {"scalar(level)", "-10 "},
    {"scalar(requests_total)", "nan "},
    {"vector(1)", "{} 1 "},
    {"time()", "600 "},
    {"timestamp(level)", "{job=a } 600 "},
    {"minute(level * 100)", "{job=a } 43 "},
    {"pi()", "3.1415927 "},
    {"1 == bool 1", "1 "},
    {"2 ^ 3 ^ 2", "512 "},
    {"7 % 4", "3 "},
    {"-7 % 4", "-3 "},
    {"5 atan2 1", "1.3734008 "},
    {"requests_total{job=\"a\"} offset 3m", "{__name__=requests_total job=a } 21 "},
    {"requests_total{job=\"a\"} @ 60", "{__name__=requests_total job=a } 3 "},
    {"requests_total{job=\"a\"} @ start()", "{__name__=requests_total job=a } 30 "},
    {"requests_total{job=\"a\"} @ end()", "{__name__=requests_total job=a } 30 "},
    {"sum_over_time(requests_total{job=\"a\"}[3m:1m])", "{job=a } 81 "},
    {"max_over_time(rate(requests_total{job=\"a\"}[2m])[3m:])", "{job=a } 0.05 "},
    {"rate({__name__=~\"requests_total|level\"}[2m])", "error: vector cannot contain metrics with the same labelset"},
    {"{__name__=~\"requests_total|level\"} * 2", "error: vector cannot contain metrics with the same labelset"},
    {"sum(requests_total) by (nothing)", "{} 40 "},
    {"info(level)", "{__name__=level job=a } -10 "},
    {"histogram_quantile(0.5, sum by (le) (rate(lat_bucket[2m])))", "{} 0.75 "},
    {"histogram_quantiles(h, \"q\", 0.5, 0.9)",
     "{job=a q=0.5 } 1 {job=b q=0.5 } 1 {job=a q=0.9 } 5.2780316 {job=b q=0.9 } 2.2973967 "},
    {"requests_total * on() group_left(job) level",
     "error: multiple matches for labels: grouping labels must ensure unique matches"},
    {"requests_total + requests_total", "{job=a } 60 {job=b } 20 "},
    {"level + on(job) requests_total", "{job=a } 20 "},
};

TEST_F(OddQuestions, AreAnsweredWithWarningsAndTheirPlaces) {
  for (const Case& one : kAnswers) EXPECT_EQ(at(one.query), one.answer) << one.query;
}

TEST_F(OddQuestions, WhereNamesGoAtTheEndOfAQueryTheyAreThereForAsLong) {
  options_.delayed_name_removal = true;
  const Case kOthers[] = {
      {"histogram_quantile(0.5, odd_bucket)",
       "{} 1 | PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
       "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile) for metric name "
       "\"odd_bucket\", from buckets 1 to 1, with a max diff of 5, over 1 samples from 1970-01-01T00:10:00Z to "
       "1970-01-01T00:10:00Z (1:25) "},
      {"histogram_quantile(0.5, bad_bucket)",
       "| PromQL warning: bucket label \"le\" is missing or has a malformed value of \"x\" for metric name "
       "\"bad_bucket\" (1:25) "},
  };
  std::map<std::string_view, const char*> expected;
  for (const Case& one : kAnswers) expected[one.query] = one.answer;
  for (const Case& one : kOthers) expected[one.query] = one.answer;
  for (const auto& [query, answer] : expected) EXPECT_EQ(at(query), answer) << query;
}

// What a label is made of while the name is still there.
TEST_F(OddQuestions, ANameThatIsToGoCanStillBeLookedAt) {
  std::string text;
  for (const bool delayed : {false, true}) {
    options_.delayed_name_removal = delayed;
    for (const char* query : {"-level",
                              "abs(level)",
                              "level + 1",
                              "1 + level",
                              "level == bool -10",
                              "level == bool on(job) level",
                              "level > bool on(job) group_left requests_total",
                              "level + on(job) level",
                              "level == on(job) level",
                              "sum_over_time(level[2m])",
                              "last_over_time(level[2m])",
                              "rate(requests_total{job=\"a\"}[2m])",
                              "histogram_count(hg)",
                              "histogram_quantile(0.5, hg)",
                              "minute(level)",
                              "timestamp(level)",
                              "level @ 60",
                              "sum by (__name__) (-level)",
                              "max_over_time((-level)[2m:1m])",
                              "clamp(level, 0, 1)",
                              "level and level",
                              "topk(1, -level)",
                              "sort(-level)"}) {
      const std::string shown =
          at("label_replace(" + std::string(query) + ", \"was\", \"<$1>\", \"__name__\", \"(.*)\")");
      text += shown.find("was=<>") != std::string::npos ? '.' : shown.find("was=<") != std::string::npos ? 'n' : '?';
    }
    text += '\n';
  }
  EXPECT_EQ(text,
            "..........n.....n...n..\n"
            "nnnnn.n..nnnnnnnnnnnnnn\n");
}

TEST_F(OddQuestions, AMeanIsThereWhereItsSumIsMoreThanANumberHolds) {
  const double values[] = {1.6e308, 1.7e308, 1.5e308, 1.2e308};
  for (size_t i = 0; i < 4; ++i) {
    reader_.add({{"__name__", "huge"}, {"i", std::to_string(i)}}, 600'000, values[i]);
    reader_.add({{"__name__", "huge_one"}}, 450'000 + static_cast<int64_t>(i) * 50'000, values[i]);
  }
  EXPECT_EQ(at("avg(huge)"), "{} 1.5e+308 ");
  EXPECT_EQ(at("sum(huge)"), "{} inf ");
  EXPECT_EQ(at("avg_over_time(huge_one[5m])"), "{} 1.5e+308 ");
  EXPECT_EQ(at("avg(-huge)"), "{} -1.5e+308 ");
  EXPECT_EQ(at("avg(huge{i=~\"0|1\"} / 2)"), "{} 8.25e+307 ");
}

// Which samples a question asks its store for.
class RememberingReader : public MemoryMetricReader {
 public:
  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override {
    asked.push_back(options);
    return MemoryMetricReader::select(matchers, options);
  }
  mutable std::vector<SelectOptions> asked;
};

TEST(AskedOfTheStore, RollupsOnlyWhereAQuestionReachesFurtherThanIsSaid) {
  RememberingReader reader;
  reader.add({{"__name__", "m"}}, 600'000, 1);
  QueryOptions options;
  auto asked = [&](std::string_view query, const QueryTimes& times) {
    reader.asked.clear();
    EXPECT_TRUE(run_query(query, reader, times, options).ok()) << query;
    EXPECT_EQ(reader.asked.size(), 1u);
    return reader.asked.at(0);
  };
  const QueryTimes times{10'000'000, 20'000'000, 1'000'000};
  EXPECT_EQ(asked("m", times).from_ms, 10'000'000 - 300'000 + 1);
  EXPECT_EQ(asked("m", times).to_ms, 20'000'000);
  EXPECT_EQ(asked("m offset 1m", times).to_ms, 20'000'000 - 60'000);
  EXPECT_EQ(asked("m @ 15000", times).to_ms, 15'000'000);
  EXPECT_EQ(asked("m @ 15000", times).from_ms, 15'000'000 - 300'000 + 1);
  EXPECT_EQ(asked("sum_over_time(m[10m])", times).from_ms, 10'000'000 - 600'000 + 1);
  options.lookback_ms = 1'000;
  EXPECT_EQ(asked("m", times).from_ms, 10'000'000 - 1'000 + 1);
  options = {};
  for (const char* query :
       {"max_over_time(m[30m])", "sum_over_time(m[30m])", "rate(m[30m])", "count_over_time(m[30m])"}) {
    options = {};
    const SelectOptions first = asked(query, times);
    EXPECT_EQ(first.spacing_ms, 0) << query;
    options.rollup_span_ms = first.to_ms - first.from_ms;
    EXPECT_EQ(asked(query, times).spacing_ms, 0) << query << ": just as far as is said";
    --options.rollup_span_ms;
    EXPECT_GT(asked(query, times).spacing_ms, 0) << query;
  }
}

// A minute is one more of the histogram that SetUp() counts with: 6 observations, 9 in all.
TEST_F(OddQuestions, AHistogramBetweenTwoHasItsShareOfTheWay) {
  for (const int64_t time_ms : {600'000, 615'000, 630'000, 659'999})
    EXPECT_EQ(at("increase(h{job=\"a\"}[1m] smoothed)", time_ms), "{job=a } [0 6 9: -1 (1) 1 2 1 gauge] ") << time_ms;
  EXPECT_EQ(at("rate(h{job=\"a\"}[1m] smoothed)", 630'000),
            "{job=a } [0 0.1 0.15: -0.0166667 (0.0166667) 0.0166667 0.0333333 0.0166667 gauge] ");
  // From 15 to 16, and then from none half of the way to 9.
  EXPECT_EQ(at("increase(falls[1m] smoothed)", 510'000), "{job=a } [0 33 49.5: -5.5 (5.5) 5.5 11 5.5 gauge] ");
}

// Of four observations one is up to 0.5, two more are up to 1.
TEST_F(OddQuestions, TheShareOfObservationsBetweenTwoBoundsOfBuckets) {
  EXPECT_EQ(at("histogram_fraction(0, Inf, lat_bucket)"), "{} 1 ");
  EXPECT_EQ(at("histogram_fraction(-Inf, Inf, lat_bucket)"), "{} 1 ");
  EXPECT_EQ(at("histogram_fraction(1, Inf, lat_bucket)"), "{} 0.25 ");
  EXPECT_EQ(at("histogram_fraction(2, Inf, lat_bucket)"), "{} 0.25 ") << "nobody knows where above 1";
  EXPECT_EQ(at("histogram_fraction(0.25, 0.75, lat_bucket)"), "{} 0.375 ") << "half of the first, half of the next two";
  EXPECT_EQ(at("histogram_fraction(0.5, 1, lat_bucket)"), "{} 0.5 ");
  EXPECT_EQ(at("histogram_fraction(-1, 0, lat_bucket)"), "{} 0 ");
  EXPECT_EQ(at("histogram_fraction(1, 1, lat_bucket)"), "{} 0 ");
  EXPECT_EQ(at("histogram_fraction(NaN, 1, lat_bucket)"), "{} nan ");
}

// 30, 33, and then it begins anew at 12: of the first two alone a minute had 3, and two minutes have twice that. A series
// that becomes a histogram is taken window by window.
TEST_F(OddQuestions, AResetBehindItsRangeIsNoneOfIt) {
  const std::pair<int64_t, double> samples[] = {{600'000, 30}, {660'000, 33}, {720'000, 12}, {780'000, 13}};
  for (const char* name : {"floats_total", "turned_total"}) {
    for (const auto& [time_ms, value] : samples) reader_.add({{"__name__", name}}, time_ms, value);
  }
  reader_.add({{"__name__", "turned_total"}}, 900'000, histogram(1, CounterReset::kUnknown));
  const auto increases = [&](std::string_view name) {
    const QueryTimes times{660'000, 900'000, 60'000};
    return text_of(run_query(format("increase(%s[2m])", name.data()), reader_, times, options_), "");
  };
  EXPECT_EQ(increases("floats_total"), "{} 6 24 2 ");
  EXPECT_EQ(increases("turned_total"), "{} 6 24 2 ");
}

// Series that take turns in a group are matched step by step: of job a there is none below 12 any more.
TEST_F(OddQuestions, WhereTheFirstOfAGroupIsAbsentAnotherIsMatched) {
  EXPECT_EQ(range("(requests_total < 12) * on() level"), "{} -81 -100 77 ");
  EXPECT_EQ(range("level * on() (requests_total < 12)"), "{} -81 -100 77 ");
}

TEST_F(OddQuestions, OverARangeHaveTheAnswersOfTheirSteps) {
  for (const Case& one : kAnswers) {
    if (std::string_view(one.query).find("start()") != std::string_view::npos ||
        std::string_view(one.query).find("end()") != std::string_view::npos)
      continue;
    const QueryResult all = run_query(one.query, reader_, {540'000, 660'000, 60'000}, options_);
    std::map<std::string, std::string> steps, alone;
    for (const ResultSeries& series : all.series) {
      for (size_t i = 0; i < series.values.size(); ++i) {
        QueryResult single;
        single.series = {{series.labels, {}, {series.values[i]}, {}}};
        if (!series.histograms.empty()) single.series[0].histograms = {series.histograms[i]};
        steps[std::to_string(series.times_ms[i]) + text_of(single, "")];
      }
    }
    std::string error;
    for (const int64_t time_ms : {540'000, 600'000, 660'000}) {
      QueryResult result = run_query(one.query, reader_, {time_ms, time_ms, 0}, options_);
      error = result.error;
      if (result.type == ValueType::kScalar) result.series = {{{}, {}, {result.scalar}, {}}};
      for (ResultSeries& series : result.series) {
        QueryResult single;
        single.series = {std::move(series)};
        alone[std::to_string(time_ms) + text_of(single, "")];
      }
    }
    EXPECT_EQ(steps, alone) << one.query;
    EXPECT_EQ(all.error, error) << one.query;
  }
}

}  // namespace
}  // namespace lockstep::promql
