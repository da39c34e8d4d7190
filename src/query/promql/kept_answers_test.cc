// Answers that stay what they are: arithmetic on histograms of every kind, and each function, operator and aggregation over
// series of every kind. What is kept was written by the evaluator when it agreed with Prometheus's own scripts and with the
// list of queries that a real Prometheus has answered (answers.test); a change that is meant is looked up there first.
// LOCKSTEP_REFRESH=1 query_test --gtest_filter='KeptAnswers.*' writes it anew.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "query/promql/histogram_math.h"
#include "query/promql/parser.h"
#include "query/promql/printer.h"
#include "query/promql/query.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep::promql {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// Line by line, so that a difference is one line; the first is enough.
void expect_kept(const char* name, const std::string& text) {
  const std::string path = std::string(LOCKSTEP_PROMQL_KEPT) + "/" + name;
  if (std::getenv("LOCKSTEP_REFRESH") != nullptr) {
    ASSERT_TRUE(write_file_atomically(path, text).ok());
  }
  const std::string kept = *read_file(path, 16u << 20);
  const std::vector<std::string_view> was = split(kept, '\n'), is = split(text, '\n');
  for (size_t i = 0; i < std::min(was.size(), is.size()); ++i) ASSERT_EQ(was[i], is[i]) << name << " line " << i + 1;
  EXPECT_EQ(was.size(), is.size());
}

// Which sign a NaN has is the compiler's business.
std::string number_text(double number) {
  return std::isnan(number) ? "nan" : format("%.6g", number);
}

std::string text_of(const NativeHistogram& h) {
  static constexpr const char* kResets[] = {"", " reset", " goes on", " gauge"};
  std::string text = format("[%d ", h.schema) + number_text(h.count) + " " + number_text(h.sum) +
                     format(" z%.6g:", h.zero_threshold) + number_text(h.zero_count);
  const auto side = [&](const char* mark, const std::vector<HistogramSpan>& spans, const std::vector<double>& counts) {
    for (const HistogramSpan& span : spans) text += format(" %s%d/%u", mark, span.offset, span.length);
    for (const double count : counts) text += " " + number_text(count);
  };
  side("-", h.negative_spans, h.negative);
  side("+", h.positive_spans, h.positive);
  for (const double bound : h.custom_bounds) text += format(" <%.6g", bound);
  return text + kResets[static_cast<size_t>(h.reset)] + "]";
}

NativeHistogram exponential(int32_t schema, double zero_threshold, double zero_count, std::vector<HistogramSpan> spans,
                            std::vector<double> counts, std::vector<HistogramSpan> negative_spans = {},
                            std::vector<double> negative = {}, CounterReset reset = CounterReset::kUnknown) {
  NativeHistogram h;
  h.schema = schema;
  h.zero_threshold = zero_threshold;
  h.zero_count = h.count = zero_count;
  for (const double count : counts) h.count += count;
  for (const double count : negative) h.count += count;
  h.sum = 1.5 * h.count - 4;
  h.positive_spans = std::move(spans);
  h.positive = std::move(counts);
  h.negative_spans = std::move(negative_spans);
  h.negative = std::move(negative);
  h.reset = reset;
  return h;
}
NativeHistogram custom(std::vector<double> bounds, std::vector<double> counts) {
  NativeHistogram h =
      exponential(NativeHistogram::kCustomBounds, 0, 0, {{0, static_cast<uint32_t>(counts.size())}}, counts);
  h.custom_bounds = std::move(bounds);
  return h;
}

std::vector<NativeHistogram> histograms() {
  std::vector<NativeHistogram> all = {
      exponential(0, 0, 0, {{0, 2}, {1, 1}}, {1, 2, 1}),
      exponential(0, 0.25, 3, {{0, 2}, {1, 1}}, {1, 2, 1}, {{0, 1}, {2, 1}}, {2, 1}),
      exponential(0, 0.75, 1, {{0, 4}}, {4, 3, 2, 1}, {{-1, 2}}, {1, 5}, CounterReset::kYes),
      exponential(2, 0.001, 1, {{-3, 8}}, {1, 0, 2, 3, 0, 1, 4, 2}, {}, {}, CounterReset::kNo),
      exponential(1, 1.5, 2, {{-2, 3}, {2, 2}}, {1, 2, 1, 7, 1}, {{3, 1}}, {2}),
      exponential(-1, 0.5, 2, {{0, 3}}, {5, 6, 7}, {{1, 2}}, {1, 2}),
      exponential(0, 0.25, 4, {}, {}, {{0, 3}}, {3, 1, 2}, CounterReset::kGauge),
      exponential(3, 2, 5, {}, {}),
      exponential(0, 0, 0, {}, {}),
      exponential(8, 0, 0, {{250, 4}, {3, 2}}, {1, 2, 3, 4, 5, 6}, {}, {}, CounterReset::kNo),
      custom({1, 2, 5}, {1, 2, 3, 4}),
      custom({1, 5}, {2, 3, 1}),
      custom({-2, -1, 1}, {3, 2, 1, 1}),
      custom({0.5}, {3, 0}),
      exponential(0, 0.5, 1e308, {{0, 2}}, {1e308, 1.2e308}),
      exponential(0, 0.25, 3, {{1, 2}}, {1, 2}),
      exponential(0, 0, 2, {{0, 2}}, {1, 2}, {{0, 1}}, {1}),
  };
  all[14].count = 1.7e308;
  all[15].sum = kNan;  // observations of NaN are in no bucket
  all[15].count = 9;
  return all;
}

std::string buckets_and_quantiles(size_t number, const NativeHistogram& h) {
  std::string text =
      format("histogram %zu %s variance %s\nbuckets", number, text_of(h).c_str(), number_text(variance(h)).c_str());
  for (const BucketView& b : all_buckets(h))
    text += format(" %c%.6g,%.6g%c:%.6g", b.lower_inclusive ? '[' : '(', b.lower, b.upper,
                   b.upper_inclusive ? ']' : ')', b.count);
  text += "\nquantiles";
  for (const double q : {-0.1, 0.0, 0.05, 0.1, 0.25, 0.4, 0.499, 0.5, 0.6, 0.75, 0.9, 0.99, 1.0, 1.1, kNan}) {
    NanEffect effect;
    const double value = quantile(q, h, &effect);
    text += " " + number_text(value) + format("/%d", static_cast<int>(effect));
  }
  return text + "\n";
}

std::string fractions_and_trims(const NativeHistogram& h) {
  const double kBounds[] = {-kInf, -4, -2,  -1, -0.6, -0.25, 0, 0.1, 0.25, 0.5, 0.6,
                            0.75,  1,  1.5, 2,  3,    4,     5, 8,   20,   kInf};
  std::string text;
  for (const double lower : kBounds) {
    text += format("from %.6g:", lower);
    for (const double upper : kBounds) {
      bool has_nan = false;
      const double part = fraction(lower, upper, h, &has_nan);
      text += " " + number_text(part) + (has_nan ? "!" : "");
    }
    text += format("\nup to %s\nfrom %s\n", text_of(*trimmed(h, lower, true)).c_str(),
                   text_of(*trimmed(h, lower, false)).c_str());
  }
  bool has_nan = false;
  return text + "NaN: " + number_text(fraction(kNan, 1, h, &has_nan)) + " " +
         number_text(fraction(0, kNan, h, &has_nan)) + "\n";
}

std::string coarser_and_scaled(const NativeHistogram& h) {
  std::string text;
  for (const int32_t schema : {-3, -1, 0, 1, 2}) {
    FlatHistogram coarse(h);
    reduce_resolution(coarse, schema);
    text += format("schema %d: %s\n", schema, text_of(*coarse.pack()).c_str());
  }
  for (const double by : {-2.0, 0.0, 0.5}) {
    FlatHistogram scaled(h), divided(h);
    scaled.scale(by);
    divided.divide(by);
    text += format("by %g: %s %s %d\n", by, text_of(*scaled.pack()).c_str(), text_of(*divided.pack()).c_str(),
                   divided.has_overflow());
  }
  return text;
}

std::string sum_and_difference(size_t i, const NativeHistogram& a, size_t k, const NativeHistogram& b) {
  FlatHistogram sum(a), difference(a);
  const AddOutcome added = add(sum, FlatHistogram(b), true);
  AddOutcome again = add(sum, FlatHistogram(b), true);
  sum.settle();
  const AddOutcome less = subtract(difference, FlatHistogram(b));
  std::string text = format("%zu %zu: %d%d%d %d %d%d was reset %d equal %d %d\n", i, k, added.incompatible,
                            added.reset_collision, added.bounds_reconciled, again.reset_collision, less.incompatible,
                            less.bounds_reconciled, was_reset(a, b), equal(a, b), sum.has_overflow());
  text += format("  + %s\n  - %s\n", text_of(*sum.pack()).c_str(), text_of(*difference.pack()).c_str());
  return text;
}

// What rounding loses is kept beside, and there where it is settled.
std::string settled() {
  std::string text;
  FlatHistogram large(exponential(0, 0.25, 1e16, {{0, 2}}, {1e16, 1e16}, {{0, 1}}, {1e16}));
  for (int i = 0; i < 5; ++i) add(large, FlatHistogram(exponential(0, 0.25, 1, {{0, 2}}, {1, 1}, {{0, 1}}, {1})), true);
  large.settle();
  for (const double number :
       {large.zero_count, large.count, large.sum, large.positive[0].count, large.negative[0].count})
    text += format("%.17g ", number);
  for (const double number : {0.0, 1.0, 0.1, 123456.0, 1234567.0, 0.0001, 0.00001, 999999.5, -2.5, kInf, -kInf, kNan})
    text += short_number(number) + " ";
  return text;
}

// Of one the closest others, which were reset or are another.
std::string neighbours(const NativeHistogram& h) {
  std::vector<NativeHistogram> others(10, h);
  others[0].zero_count += 1;
  others[1].zero_count -= 1;
  others[2].count += 1;
  others[3].count -= 1;
  others[4].sum += 1;
  if (!h.positive.empty()) others[5].positive.back() -= 0.5;
  if (!h.positive.empty()) others[6].positive.front() += 1;
  if (!h.negative.empty()) others[7].negative.back() -= 0.5;
  others[8].zero_threshold *= 2;
  if (!h.custom_bounds.empty()) others[9].custom_bounds.back() += 1;
  std::string text = "\nneighbours";
  for (NativeHistogram& other : others) {
    text += equal(h, other) ? " same" : " other";
    for (const CounterReset reset : {CounterReset::kUnknown, CounterReset::kYes, CounterReset::kNo}) {
      other.reset = reset;
      text += was_reset(other, h) ? "!" : ".";
    }
  }
  return text;
}

TEST(KeptAnswers, OfArithmeticOnHistograms) {
  const std::vector<NativeHistogram> all = histograms();
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    text += buckets_and_quantiles(i, all[i]) + fractions_and_trims(all[i]) + coarser_and_scaled(all[i]);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < all.size(); ++k) text += sum_and_difference(i, all[i], k, all[k]);
  }
  text += settled();
  for (const NativeHistogram& h : all) text += neighbours(h);
  expect_kept("histograms.kept", text + "\n");
}

class KeptSeries {
 public:
  KeptSeries() {
    const std::vector<NativeHistogram> some = histograms();
    for (int64_t i = 0; i <= 24; ++i) {
      const int64_t at = i * 50'000;
      const auto number = static_cast<double>(i);
      add("c", "a", at, i < 9 ? 3 * number : i < 17 ? 2 * number - 17 : number - 16);
      add("c", "b", at + 7'000, 100 + 0.5 * number * number);
      if (i % 5 != 3) add("g", "a", at, std::round(100 * std::sin(number)) / 10);
      if (i < 6 || i > 18) add("g", "b", at, 5 - number);
      add("g", "c", at, i % 7 == 2 ? kNan : i % 7 == 4 ? kInf : i % 11 == 6 ? -kInf : number);
      add("few", "a", at, 4, i % 8 == 1);
      add("flat", "a", at, 2);
      add_histogram("h", "a", at, some[static_cast<size_t>(i % 2)], i < 14 ? 1 + number : number - 13);
      add_histogram("h", "b", at, some[i < 12 ? 3u : 4u], 1 + number);
      add_histogram("gauge", "a", at, some[6], 1 + std::fabs(12 - number));
      add_histogram("own", "a", at, some[10], 1 + number);
      add_histogram("own", "b", at, some[i % 3 == 0 ? 11u : 10u], 1 + number / 2);
      add_histogram("turns", "a", at, some[i < 12 ? 0u : 10u], 1 + number);
      if (i % 2 == 0)
        add("mixed", "a", at, number);
      else
        add_histogram("mixed", "a", at, some[1], number);
      for (const auto& [le, part] :
           {std::pair("0.5", 1.0), std::pair("1", 3.0), std::pair("2", 3.0), std::pair("+Inf", 4.0)})
        reader_.add({{"__name__", "le_bucket"}, {"job", "a"}, {"le", le}}, at, part * number);
      reader_.add({{"__name__", "labels"}, {"job", "a"}, {"text", "x-1"}, {"version", "v10"}}, at, number);
      reader_.add({{"__name__", "labels"}, {"job", "b"}, {"text", "y-22"}, {"version", "v9"}}, at, -number);
      reader_.add({{"__name__", "target_info"}, {"job", "a"}, {"instance", "i"}, {"os", "linux"}}, at, 1);
    }
  }
  std::string answers(std::string_view query, const QueryTimes& times) const {
    const QueryResult result = run_query(query, reader_, times, {});
    std::string text;
    if (!result.ok()) return "error: " + result.error;
    if (result.type == ValueType::kScalar && times.step_ms == 0) text += number_text(result.scalar) + " ";
    text += result.text;
    for (const ResultSeries& series : result.series) {
      text += "{";
      for (const auto& [name, value] : series.labels) text += name + "=" + value + " ";
      text += "}";
      for (size_t i = 0; i < series.values.size(); ++i) {
        const HistogramPtr histogram = series.histograms.empty() ? nullptr : series.histograms[i];
        if (!series.times_ms.empty()) text += format(" %lld:", static_cast<long long>(series.times_ms[i] / 1000));
        text += histogram != nullptr ? promql::text_of(*histogram) : number_text(series.values[i]);
      }
      text += " ";
    }
    for (const Annotation& annotation : result.annotations) text += "| " + shown(annotation, query) + " ";
    return text;
  }

 private:
  void add(const char* name, const char* job, int64_t at, double value, bool there = true) {
    if (there) reader_.add({{"__name__", name}, {"job", job}, {"n", job}}, at, value);
  }
  void add_histogram(const char* name, const char* job, int64_t at, const NativeHistogram& one, double times) {
    FlatHistogram scaled(one);
    scaled.scale(times);
    scaled.reset = one.reset == CounterReset::kGauge ? CounterReset::kGauge : CounterReset::kUnknown;
    reader_.add({{"__name__", name}, {"job", job}, {"n", job}}, at, scaled.pack());
  }
  MemoryMetricReader reader_;
};

// $ is each of the arguments.
struct Pattern {
  std::vector<const char*> queries, arguments;
};
const Pattern kPatterns[] = {
    {{"rate($)",
      "increase($)",
      "delta($)",
      "irate($)",
      "idelta($)",
      "sum_over_time($)",
      "avg_over_time($)",
      "count_over_time($)",
      "max_over_time($)",
      "ts_of_max_over_time($)",
      "ts_of_min_over_time($)",
      "ts_of_first_over_time($)",
      "ts_of_last_over_time($)",
      "first_over_time($)",
      "last_over_time($)",
      "quantile_over_time(0.3, $)",
      "mad_over_time($)",
      "stddev_over_time($)",
      "resets($)",
      "changes($)",
      "deriv($)",
      "predict_linear($, 100)",
      "double_exponential_smoothing($, 0.3, 0.6)",
      "absent_over_time($)"},
     {"c[160s]", "g[5m]", "few[500s]", "h[160s]", "mixed[160s]", "turns[3m]", "c[4m:30s]", "h[4m:70s] offset 40s"}},
    {{"rate($)", "increase($)", "delta($)"},
     {"c[2m] smoothed", "g[170s] smoothed", "h[130s] smoothed", "own[110s] smoothed", "gauge[2m] smoothed",
      "c[2m] anchored", "h[130s] anchored", "mixed[2m] anchored", "few[10m] smoothed", "turns[4m] smoothed", "own[3m]",
      "gauge[3m]"}},
    {{"resets($)", "changes($)"}, {"c[2m] anchored", "h[130s] anchored", "mixed[2m] anchored", "few[10m] anchored"}},
    {{"sum($)", "avg($)", "min($)", "max($)", "count($)", "group($)", "stddev($)", "stdvar($)", "topk(1, $)",
      "bottomk(2, $)", "quantile(0.4, $)", "count_values(\"v\", $)", "limitk(1, $)", "limit_ratio(0.5, $)",
      "limit_ratio(-0.5, $)", "sum by (job) ($)", "avg without (job) ($)"},
     {"c", "g", "h", "own", "mixed", "{n=~\"a|b\"}", "gauge"}},
    {{"$ + $",
      "$ - $",
      "$ * 2",
      "2 / $",
      "$ % 3",
      "$ ^ 2",
      "$ > 4",
      "$ >= bool 4",
      "4 < $",
      "$ != $",
      "$ == $",
      "$ atan2 2",
      "$ and c",
      "$ or c",
      "$ unless c",
      "$ + on (job) c",
      "c - ignoring (n) $",
      "$ * on (job) group_left labels",
      "$ <= 10",
      "-$",
      "$ / c"},
     {"c", "g", "h", "own", "mixed"}},
    {{"abs($)",
      "ceil($)",
      "floor($)",
      "exp($)",
      "ln($)",
      "log2($)",
      "log10($)",
      "sqrt($)",
      "sgn($)",
      "round($)",
      "round($, 0.3)",
      "clamp($, 2, 10)",
      "clamp($, 3, 2)",
      "clamp_min($, 4)",
      "clamp_max($, 4)",
      "sin($)",
      "tanh($)",
      "acosh($)",
      "deg($)",
      "rad($)",
      "sort($)",
      "sort_desc($)",
      "timestamp($)",
      "absent($)",
      "scalar($)",
      "histogram_count($)",
      "histogram_sum($)",
      "histogram_avg($)",
      "histogram_stddev($)",
      "histogram_stdvar($)",
      "histogram_fraction(0.3, 3, $)",
      "histogram_quantile(0.3, $)",
      "histogram_quantile(0.9, $)",
      "histogram_quantiles($, \"q\", 0.2, 0.7)",
      "minute($)",
      "day_of_month(86400 * 20 * $)",
      "month(86400 * 20 * $)",
      "year(86400 * 90 * $)",
      "day_of_year(86400 * 50 * $)",
      "days_in_month(86400 * 30 * $)",
      "day_of_week(86400 * $)",
      "hour(1000 * $)",
      "$ smoothed",
      "$ offset -70s",
      "$ @ 333",
      "$ @ start()",
      "$ offset (step() * 2)"},
     {"g", "h", "own", "few"}},
    {{"histogram_quantile($, le_bucket)", "histogram_fraction($, 1.5, le_bucket)",
      "histogram_fraction(0.2, $, le_bucket)"},
     {"0", "0.2", "0.25", "0.6", "0.75", "0.9", "1", "-1", "2"}},
    {{"h > $", "h < $", "h </ $", "h >/ $", "own </ $", "own >/ $"}, {"0.3", "-0.5", "1", "3", "9"}},
};
const char* const kQueries[] = {"label_replace(labels, \"new\", \"$1-$2\", \"text\", \"(.)-(\\\\d+)\")",
                                "label_replace(labels, \"text\", \"\", \"job\", \"a\")",
                                "label_join(labels, \"all\", \"/\", \"job\", \"text\", \"none\")",
                                "sort_by_label(labels, \"version\")",
                                "sort_by_label_desc(labels, \"version\", \"job\")",
                                "info(labels)",
                                "info(c, {os=\"linux\"})",
                                "time()",
                                "vector(time())",
                                "pi()",
                                "1 + 2 * 3 ^ 2 - -1",
                                "1 > bool 2",
                                "\"text\"",
                                "c[70s]",
                                "c[2m:40s]",
                                "c[1m] smoothed",
                                "c[1m] anchored",
                                "sum by (job) (c) / ignoring (n) sum by (job) (c)",
                                "c * on (job) group_right labels",
                                "labels * on (job) group_left (n) c",
                                "c + on (n) g",
                                "c and on () g",
                                "g or on (job) c",
                                "c unless ignoring (job, n) g",
                                "max_over_time(rate(c[2m])[3m:1m])",
                                "sum_over_time((c > 10)[4m:])",
                                "avg_over_time(time()[5m:1m])",
                                "scalar(c{job=\"a\"}) + g",
                                "absent(none{a=\"b\", c=~\"d\"})",
                                "absent_over_time(none[1m])",
                                "c{job!=\"a\"}",
                                "c{job=~\"a|x\"}",
                                "c{job!~\"b\"}",
                                "{__name__=~\"c|few\"}",
                                "topk(scalar(flat), c)",
                                "sum(c) by ()",
                                "min by (job) (g) == on (job) max by (job) (g)",
                                "c offset 1m30s",
                                "c @ end() - c @ start()",
                                "rate(c[2m] @ 700)",
                                "c[1m",
                                "c{",
                                "sum(",
                                "rate(c)",
                                "c[1m] + 1",
                                "c + on (job) group_left g * 2 +",
                                "1 + \"a\"",
                                "nothing(1)",
                                "c offset 5"};

std::vector<std::string> kept_queries() {
  std::vector<std::string> all;
  for (const Pattern& pattern : kPatterns) {
    for (const char* text : pattern.queries) {
      for (const char* argument : pattern.arguments) {
        std::string query(text);
        for (size_t at; (at = query.find('$')) != std::string::npos;) query.replace(at, 1, argument);
        all.push_back(query);
      }
    }
  }
  all.insert(all.end(), std::begin(kQueries), std::end(kQueries));
  return all;
}

TEST(KeptAnswers, OfEveryFunctionOverSeriesOfEveryKind) {
  const KeptSeries series;
  std::string text;
  for (const std::string& query : kept_queries()) {
    text += query + "\n";
    if (const Result<std::unique_ptr<Expr>> tree = parse(query); tree.ok()) {
      if (to_text(**tree) != query) text += "= " + to_text(**tree) + "\n";
      if (pretty(**tree) != to_text(**tree)) text += pretty(**tree) + "\n";
    }
    for (const int64_t at : {451'000, 800'000}) text += "  " + series.answers(query, {at, at, 0}) + "\n";
    text += "  " + series.answers(query, {300'000, 900'000, 120'000}) + "\n";
  }
  expect_kept("functions.kept", text);
}

}  // namespace
}  // namespace lockstep::promql
