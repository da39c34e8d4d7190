// Functions over range vectors: one window of one series at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/extrapolation.h"
#include "query/promql/printer.h"
#include "query/promql/sample_math.h"

namespace lockstep::promql {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// --- annotations

std::string name_of(const RangeCall& call) {
  return in_quotes(call.evaluator.metric_name(call.labels));
}
void warn_mixed(const RangeCall& call) {
  call.evaluator.annotate(true,
                          "PromQL warning: encountered a mix of histograms and floats for metric name " + name_of(call),
                          call.argument);
}
void warn_not_counter(const RangeCall& call) {
  call.evaluator.annotate(true, "PromQL warning: this native histogram metric is not a counter: " + name_of(call),
                          call.argument);
}
void warn_not_gauge(const RangeCall& call) {
  call.evaluator.annotate(true, "PromQL warning: this native histogram metric is not a gauge: " + name_of(call),
                          call.argument);
}
void warn_mixed_buckets(const RangeCall& call) {
  call.evaluator.annotate(
      true,
      "PromQL warning: vector contains a mix of histograms with exponential and custom buckets schemas "
      "for metric name " +
          name_of(call),
      call.argument);
}
void report_reconciled(const RangeCall& call, const char* operation) {
  call.evaluator.annotate(false, format("PromQL info: mismatched custom buckets were reconciled during %s", operation),
                          call.argument);
}
void report_ignored(const RangeCall& call) {
  call.evaluator.annotate(
      false,
      "PromQL info: ignored histograms in a range containing both floats and histograms for metric name " +
          name_of(call),
      call.argument);
}

// False: the two do not go together, which has been told.
bool put(FlatHistogram& to, const NativeHistogram& other, bool subtracting, const RangeCall& call) {
  const AddOutcome outcome = subtracting ? subtract(to, FlatHistogram(other)) : add(to, FlatHistogram(other));
  if (outcome.incompatible) {
    warn_mixed_buckets(call);
    return false;
  }
  if (outcome.bounds_reconciled) report_reconciled(call, subtracting ? "subtraction" : "addition");
  return true;
}

bool is_custom(const NativeHistogram& histogram) {
  return histogram.schema == NativeHistogram::kCustomBounds;
}

// --- rate, increase, delta

double interpolated(int64_t t0, double v0, int64_t t1, double v1, int64_t t, bool counter) {
  if (counter && v1 < v0) v0 = 0;
  return v0 + (v1 - v0) * static_cast<double>(t - t0) / static_cast<double>(t1 - t0);
}

// Which samples stand for the ends of an anchored or smoothed range; false: nothing to measure.
bool ends(std::span<const int64_t> times, const Window& window, bool smoothed, size_t& first, size_t& last) {
  last = times.size() - 1;
  const auto up_to_last = times.begin() + static_cast<ptrdiff_t>(last);
  first = static_cast<size_t>(std::upper_bound(times.begin(), up_to_last, window.range_start_ms) - times.begin());
  first = first > 0 ? first - 1 : 0;
  if (smoothed)
    last = static_cast<size_t>(std::lower_bound(times.begin(), up_to_last, window.range_end_ms) - times.begin());
  return times[last] > window.range_start_ms && !(smoothed && times[first] > window.range_end_ms);
}

RangeValue extended_floats(const Window& window, const RangeCall& call, bool counter, bool per_second) {
  size_t first = 0, last = 0;
  if (!ends(window.times, window, call.smoothed, first, last)) return {};
  const auto& t = window.times;
  const auto& v = window.values;
  const double left = call.smoothed && t[first] < window.range_start_ms
                          ? interpolated(t[first], v[first], t[first + 1], v[first + 1], window.range_start_ms, counter)
                          : v[first];
  const double right = call.smoothed && last > 0 && t[last] > window.range_end_ms
                           ? interpolated(t[last - 1], v[last - 1], t[last], v[last], window.range_end_ms, counter)
                           : v[last];
  double result = right - left;
  if (counter) {
    size_t begin = first;
    size_t end = last + 1;
    if (t[first] <= window.range_start_ms) ++begin;
    if (t[last] >= window.range_end_ms) --end;
    double before = left;
    for (size_t i = begin; i < end; ++i) {
      if (v[i] < before) result += before;
      before = v[i];
    }
    if (right < before) result += before;
  }
  if (per_second) result /= static_cast<double>(call.range_ms) / 1000;
  return {result, nullptr};
}

// The histogram at time t between two; nullopt-like null where they do not go together.
HistogramPtr between(const HistogramPtr& a, int64_t ta, const HistogramPtr& b, int64_t tb, int64_t t, bool counter,
                     const RangeCall& call) {
  if (t == ta) return a;
  if (t == tb) return b;
  const double share = static_cast<double>(t - ta) / static_cast<double>(tb - ta);
  FlatHistogram result(*b);
  if (counter && was_reset(*b, *a)) {
    result.scale(share);
    return result.pack();
  }
  if (!put(result, *a, true, call)) return nullptr;
  result.scale(share);
  if (!put(result, *a, false, call)) return nullptr;
  return result.pack();
}

RangeValue extended_histograms(const Window& window, const RangeCall& call, bool counter, bool per_second) {
  size_t first = 0, last = 0;
  const auto& t = window.histogram_times;
  const auto& h = window.histograms;
  if (!ends(t, window, call.smoothed, first, last)) return {};
  for (size_t i = first; i <= last; ++i) {
    if (is_custom(*h[i]) != is_custom(*h[first])) {
      warn_mixed_buckets(call);
      return {};
    }
    if (counter && h[i]->reset == CounterReset::kGauge) warn_not_counter(call);
  }
  HistogramPtr left = h[first];
  if (call.smoothed && t[first] < window.range_start_ms)
    left = between(h[first], t[first], h[first + 1], t[first + 1], window.range_start_ms, counter, call);
  HistogramPtr right = h[last];
  if (call.smoothed && last > 0 && t[last] > window.range_end_ms)
    right = between(h[last - 1], t[last - 1], h[last], t[last], window.range_end_ms, counter, call);
  if (!left || !right) return {};
  if (!counter && (left->reset != CounterReset::kGauge || right->reset != CounterReset::kGauge)) warn_not_gauge(call);
  FlatHistogram result(*right);
  if (!put(result, *left, true, call)) return {};
  if (counter) {
    // What stood before each reset is added; the ends stand for the first and the last sample.
    size_t begin = first + 1;
    HistogramPtr before = left;
    if (call.smoothed && t[first] < window.range_start_ms && was_reset(*h[first + 1], *h[first])) {
      before = h[first + 1];
      ++begin;
    }
    if (begin <= last) {
      for (size_t i = begin; i < last; ++i) {
        if (was_reset(*h[i], *before) && !put(result, *before, false, call)) return {};
        before = h[i];
      }
      if (was_reset(*right, *before) && !put(result, *before, false, call)) return {};
    }
  }
  if (per_second) result.divide(static_cast<double>(call.range_ms) / 1000);
  result.reset = CounterReset::kGauge;
  return {0, result.pack()};
}

// The difference between last and first, with what was lost at resets.
bool histogram_increase(const Window& window, const RangeCall& call, bool counter, FlatHistogram& result) {
  const auto& h = window.histograms;
  const NativeHistogram* first = h.front().get();
  const NativeHistogram& last = *h.back();
  NativeHistogram nothing;
  bool custom = is_custom(*first);
  if (counter && (first->reset == CounterReset::kGauge || last.reset == CounterReset::kGauge)) warn_not_counter(call);
  if (counter && was_reset(*h[1], *first)) {
    // The first sample is not needed then, so it may have any layout.
    nothing.schema = h[1]->schema;
    nothing.custom_bounds = h[1]->custom_bounds;
    first = &nothing;
    custom = is_custom(*h[1]);
  }
  if (is_custom(last) != custom) {
    warn_mixed_buckets(call);
    return false;
  }
  int32_t schema = std::min(last.schema, first->schema);
  if (counter) {
    for (size_t i = 1; i + 1 < h.size(); ++i) {
      if (h[i]->reset == CounterReset::kGauge) warn_not_counter(call);
      schema = std::min(schema, h[i]->schema);
      if (is_custom(*h[i]) != custom) {
        warn_mixed_buckets(call);
        return false;
      }
    }
  }
  result = FlatHistogram(last);
  if (!custom) reduce_resolution(result, schema);
  if (!put(result, *first, true, call)) return false;
  if (counter) {
    const NativeHistogram* before = first;
    for (size_t i = 1; i < h.size(); ++i) {
      if (was_reset(*h[i], *before) && !put(result, *before, false, call)) return false;
      before = h[i].get();
    }
  } else if (h.front()->reset != CounterReset::kGauge || last.reset != CounterReset::kGauge) {
    warn_not_gauge(call);
  }
  result.reset = CounterReset::kGauge;
  return true;
}

RangeValue extrapolated(const Window& window, const RangeCall& call, bool counter, bool per_second) {
  const bool has_histograms = !window.histograms.empty();
  if (has_histograms && !window.times.empty()) {
    warn_mixed(call);
    return {};
  }
  if (call.anchored || call.smoothed) {
    return has_histograms ? extended_histograms(window, call, counter, per_second)
                          : extended_floats(window, call, counter, per_second);
  }
  const std::span<const int64_t> times = has_histograms ? window.histogram_times : window.times;
  if (times.size() < 2) return {};
  double result = 0;
  FlatHistogram histogram;
  double first_value = 0;
  double total = 0;
  if (has_histograms) {
    if (!histogram_increase(window, call, counter, histogram)) return {};
    first_value = window.histograms.front()->count;
    total = histogram.count;
  } else {
    const double* v = window.values.data();
    const size_t count = window.values.size();
    result = v[count - 1] - v[0];
    if (counter) {
      for (size_t i = 1; i < count; ++i) {
        if (v[i] < v[i - 1]) result += v[i - 1];
      }
    }
    first_value = v[0];
    total = result;
  }
  Reach reach(times, window.range_start_ms, window.range_end_ms);
  if (counter) reach.begin_at_zero(first_value, total);
  double factor = reach.factor();
  if (per_second) factor /= static_cast<double>(call.range_ms) / 1000;
  if (!has_histograms) return {result * factor, nullptr};
  histogram.scale(factor);
  return {0, histogram.pack()};
}

RangeValue rate(const Window& w, const RangeCall& c) {
  return extrapolated(w, c, true, true);
}
RangeValue increase(const Window& w, const RangeCall& c) {
  return extrapolated(w, c, true, false);
}
RangeValue delta(const Window& w, const RangeCall& c) {
  return extrapolated(w, c, false, false);
}

struct AnySample {
  int64_t time = 0;
  double value = 0;
  const NativeHistogram* histogram = nullptr;
};

// Floats and histograms of a window in the order of time, from these indices on.
template <typename Visit>
void merged(const Window& w, size_t i, size_t k, Visit visit) {
  while (i < w.times.size() || k < w.histogram_times.size()) {
    if (k >= w.histogram_times.size() || (i < w.times.size() && w.times[i] < w.histogram_times[k])) {
      visit(AnySample{w.times[i], w.values[i], nullptr});
      ++i;
    } else {
      visit(AnySample{w.histogram_times[k], 0, w.histograms[k].get()});
      ++k;
    }
  }
}

RangeValue instant(const Window& w, const RangeCall& call, bool counter) {
  if (w.size() < 2) return {};
  AnySample before, now;
  merged(w, w.times.size() - std::min<size_t>(2, w.times.size()),
         w.histogram_times.size() - std::min<size_t>(2, w.histogram_times.size()), [&](const AnySample& sample) {
           before = now;
           now = sample;
         });
  const double seconds = static_cast<double>(now.time - before.time) / 1000;
  if (now.time == before.time) return {};
  if ((now.histogram == nullptr) != (before.histogram == nullptr)) {
    warn_mixed(call);
    return {};
  }
  if (now.histogram == nullptr) {
    double result = now.value;
    if (!counter || !(now.value < before.value)) result -= before.value;
    return {counter ? result / seconds : result, nullptr};
  }
  const bool gauges = now.histogram->reset == CounterReset::kGauge && before.histogram->reset == CounterReset::kGauge;
  const bool any_gauge =
      now.histogram->reset == CounterReset::kGauge || before.histogram->reset == CounterReset::kGauge;
  if (counter && any_gauge) warn_not_counter(call);
  if (!counter && !gauges) warn_not_gauge(call);
  FlatHistogram result(*now.histogram);
  if (!counter || !was_reset(*now.histogram, *before.histogram)) {
    if (!put(result, *before.histogram, true, call)) return {};
  }
  result.reset = CounterReset::kGauge;
  if (counter) result.divide(seconds);
  return {0, result.pack()};
}
RangeValue irate(const Window& w, const RangeCall& c) {
  return instant(w, c, true);
}
RangeValue idelta(const Window& w, const RangeCall& c) {
  return instant(w, c, false);
}

// --- aggregation over time

// Floats are added up by `floats`, histograms by HistogramSum: `add` takes one in, `end` is what they come to.
template <typename Floats>
RangeValue added_over_time(const Window& w, const RangeCall& call, Floats floats,
                           bool (HistogramSum::*add)(const NativeHistogram&), HistogramPtr (HistogramSum::*end)()) {
  if (!w.times.empty() && !w.histograms.empty()) {
    warn_mixed(call);
    return {};
  }
  if (w.histograms.empty()) return {floats(w.values), nullptr};
  HistogramSum sum;
  for (const HistogramPtr& histogram : w.histograms) {
    if (!(sum.*add)(*histogram)) {
      warn_mixed_buckets(call);
      return {};
    }
  }
  if (sum.collision())
    call.evaluator.annotate(true, "PromQL warning: conflicting counter resets during histogram aggregation",
                            call.argument);
  if (sum.reconciled()) report_reconciled(call, "aggregation");
  return {0, (sum.*end)()};
}

RangeValue sum_over_time(const Window& w, const RangeCall& call) {
  const auto floats = [](std::span<const double> values) {
    Compensated total;
    for (double value : values) total.add(value);
    return std::isinf(total.sum) ? total.sum : total.sum + total.lost;
  };
  return added_over_time(w, call, floats, &HistogramSum::add, &HistogramSum::total);
}

RangeValue avg_over_time(const Window& w, const RangeCall& call) {
  const auto floats = [](std::span<const double> values) {
    Mean mean;
    for (double value : values) mean.add(value);
    return mean.value();
  };
  return added_over_time(w, call, floats, &HistogramSum::add_to_mean, &HistogramSum::mean);
}

RangeValue count_over_time(const Window& w, const RangeCall&) {
  return {static_cast<double>(w.size()), nullptr};
}
RangeValue present_over_time(const Window&, const RangeCall&) {
  return {1, nullptr};
}

template <typename Better>
RangeValue extreme(const Window& w, const RangeCall& call, bool time, Better better) {
  if (w.times.empty()) return {};
  if (!w.histograms.empty()) report_ignored(call);
  double best = w.values[0];
  int64_t at = w.times[0];
  for (size_t i = 0; i < w.values.size(); ++i) {
    if (better(w.values[i], best) || std::isnan(best)) {
      best = w.values[i];
      at = w.times[i];
    }
  }
  return {time ? static_cast<double>(at) / 1000 : best, nullptr};
}
RangeValue max_over_time(const Window& w, const RangeCall& c) {
  return extreme(w, c, false, [](double a, double b) { return a > b; });
}
RangeValue min_over_time(const Window& w, const RangeCall& c) {
  return extreme(w, c, false, [](double a, double b) { return a < b; });
}
RangeValue ts_of_max(const Window& w, const RangeCall& c) {
  return extreme(w, c, true, [](double a, double b) { return a >= b; });
}
RangeValue ts_of_min(const Window& w, const RangeCall& c) {
  return extreme(w, c, true, [](double a, double b) { return a <= b; });
}
RangeValue ts_of_first(const Window& w, const RangeCall&) {
  int64_t at = std::numeric_limits<int64_t>::max();
  if (!w.times.empty()) at = w.times.front();
  if (!w.histogram_times.empty()) at = std::min(at, w.histogram_times.front());
  return {static_cast<double>(at) / 1000, nullptr};
}
RangeValue ts_of_last(const Window& w, const RangeCall&) {
  int64_t at = std::numeric_limits<int64_t>::min();
  if (!w.times.empty()) at = w.times.back();
  if (!w.histogram_times.empty()) at = std::max(at, w.histogram_times.back());
  return {static_cast<double>(at) / 1000, nullptr};
}
RangeValue last_over_time(const Window& w, const RangeCall&) {
  if (w.histograms.empty() || (!w.times.empty() && w.histogram_times.back() < w.times.back()))
    return {w.values.back(), nullptr};
  return {0, w.histograms.back()};
}
RangeValue first_over_time(const Window& w, const RangeCall&) {
  if (w.histograms.empty() || (!w.times.empty() && w.times.front() < w.histogram_times.front()))
    return {w.values.front(), nullptr};
  return {0, w.histograms.front()};
}

RangeValue quantile_over_time(const Window& w, const RangeCall& call) {
  if (w.times.empty()) return {};
  const double q = call.parameters[0];
  if (std::isnan(q) || q < 0 || q > 1)
    call.evaluator.annotate(true, "PromQL warning: quantile value should be between 0 and 1, got " + short_number(q),
                            call.call.child(0));
  if (!w.histograms.empty()) report_ignored(call);
  call.scratch->assign(w.values.begin(), w.values.end());
  return {quantile_of(q, *call.scratch), nullptr};
}

RangeValue mad_over_time(const Window& w, const RangeCall& call) {
  if (w.times.empty()) return {};
  if (!w.histograms.empty()) report_ignored(call);
  std::vector<double>& values = *call.scratch;
  values.assign(w.values.begin(), w.values.end());
  for (double value : values) {
    if (std::isnan(value)) return {kNan, nullptr};
  }
  const double median = quantile_of(0.5, values);
  for (double& value : values) value = std::fabs(value - median);
  return {quantile_of(0.5, values), nullptr};
}

RangeValue variance_over_time(const Window& w, const RangeCall& call, bool root) {
  if (w.times.empty()) return {};
  if (!w.histograms.empty()) report_ignored(call);
  double count = 0;
  Compensated mean, squares;
  for (double value : w.values) {
    ++count;
    const double off = value - (mean.sum + mean.lost);
    mean.add(off / count);
    squares.add(off * (value - (mean.sum + mean.lost)));
  }
  const double result = (squares.sum + squares.lost) / count;
  return {root ? std::sqrt(result) : result, nullptr};
}
RangeValue stddev_over_time(const Window& w, const RangeCall& c) {
  return variance_over_time(w, c, true);
}
RangeValue stdvar_over_time(const Window& w, const RangeCall& c) {
  return variance_over_time(w, c, false);
}

// --- changes and resets

// Where an anchored range begins: with the last sample at or before its start. False: no sample after it.
bool anchor(const Window& w, const RangeCall& call, size_t& first_float, size_t& first_histogram) {
  first_float = first_histogram = 0;
  if (!call.anchored) return true;
  const auto after = [&](std::span<const int64_t> times) {
    return static_cast<size_t>(std::upper_bound(times.begin(), times.end(), w.range_start_ms) - times.begin());
  };
  first_float = after(w.times);
  first_histogram = after(w.histogram_times);
  if (first_float >= w.times.size() && first_histogram >= w.histogram_times.size()) return false;
  if (first_float == 0 && first_histogram == 0) return true;
  if (first_histogram == 0 || (first_float > 0 && w.times[first_float - 1] >= w.histogram_times[first_histogram - 1])) {
    --first_float;
  } else {
    --first_histogram;
  }
  return true;
}

template <typename Differs>
RangeValue count_pairs(const Window& w, const RangeCall& call, Differs differs) {
  size_t i = 0, k = 0;
  if (!anchor(w, call, i, k)) return {};
  double count = 0;
  bool first = true;
  AnySample before;
  merged(w, i, k, [&](const AnySample& now) {
    if (!first && ((now.histogram == nullptr) != (before.histogram == nullptr) || differs(before, now))) ++count;
    first = false;
    before = now;
  });
  return {count, nullptr};
}
RangeValue resets(const Window& w, const RangeCall& call) {
  return count_pairs(w, call, [](const AnySample& a, const AnySample& b) {
    return b.histogram ? was_reset(*b.histogram, *a.histogram) : b.value < a.value;
  });
}
RangeValue changes(const Window& w, const RangeCall& call) {
  return count_pairs(w, call, [](const AnySample& a, const AnySample& b) {
    if (b.histogram) return !equal(*b.histogram, *a.histogram);
    return b.value != a.value && !(std::isnan(b.value) && std::isnan(a.value));
  });
}

// --- trends

bool enough_floats(const Window& w, const RangeCall& call) {
  if (!w.histograms.empty() && !w.times.empty()) report_ignored(call);
  return w.times.size() >= 2;
}

void regression(const Window& w, int64_t at, double& slope, double& intercept) {
  Compensated x_sum, y_sum, xy_sum, xx_sum;
  bool constant = true;
  for (size_t i = 0; i < w.times.size(); ++i) {
    const double y = w.values[i];
    if (constant && i > 0 && y != w.values[0]) constant = false;
    const double x = static_cast<double>(w.times[i] - at) / 1e3;
    x_sum.add(x);
    y_sum.add(y);
    xy_sum.add(x * y);
    xx_sum.add(x * x);
  }
  if (constant) {
    const bool infinite = std::isinf(w.values[0]);
    slope = infinite ? kNan : 0;
    intercept = infinite ? kNan : w.values[0];
    return;
  }
  const double n = static_cast<double>(w.times.size());
  const double sx = x_sum.sum + x_sum.lost, sy = y_sum.sum + y_sum.lost;
  const double covariance = (xy_sum.sum + xy_sum.lost) - sx * sy / n;
  const double spread = (xx_sum.sum + xx_sum.lost) - sx * sx / n;
  slope = covariance / spread;
  intercept = sy / n - slope * sx / n;
}

RangeValue deriv(const Window& w, const RangeCall& call) {
  if (!enough_floats(w, call)) return {};
  double slope = 0, intercept = 0;
  regression(w, w.times[0], slope, intercept);
  return {slope, nullptr};
}
RangeValue predict_linear(const Window& w, const RangeCall& call) {
  if (!enough_floats(w, call)) return {};
  double slope = 0, intercept = 0;
  regression(w, w.eval_ms, slope, intercept);
  return {slope * call.parameters[0] + intercept, nullptr};
}

RangeValue double_exponential_smoothing(const Window& w, const RangeCall& call) {
  const double smoothing = call.parameters[0];
  const double trend = call.parameters[1];
  if (smoothing <= 0 || smoothing >= 1)
    fail_execution(format("invalid smoothing factor. Expected: 0 < sf < 1, got: %f", smoothing));
  if (trend <= 0 || trend >= 1) fail_execution(format("invalid trend factor. Expected: 0 < tf < 1, got: %f", trend));
  if (!enough_floats(w, call)) return {};
  double before = 0;
  double now = w.values[0];
  double slope = w.values[1] - w.values[0];
  for (size_t i = 1; i < w.values.size(); ++i) {
    if (i > 1) slope = trend * (now - before) + (1 - trend) * slope;
    const double next = smoothing * w.values[i] + (1 - smoothing) * (now + slope);
    before = now;
    now = next;
  }
  return {now, nullptr};
}

}  // namespace

RangeFunction find_range_function(std::string_view name) {
  static const std::unordered_map<std::string_view, RangeFunction> kFunctions = {
      {"rate", rate},
      {"increase", increase},
      {"delta", delta},
      {"irate", irate},
      {"idelta", idelta},
      {"sum_over_time", sum_over_time},
      {"avg_over_time", avg_over_time},
      {"count_over_time", count_over_time},
      {"present_over_time", present_over_time},
      {"absent_over_time", present_over_time},
      {"max_over_time", max_over_time},
      {"min_over_time", min_over_time},
      {"ts_of_max_over_time", ts_of_max},
      {"ts_of_min_over_time", ts_of_min},
      {"ts_of_first_over_time", ts_of_first},
      {"ts_of_last_over_time", ts_of_last},
      {"last_over_time", last_over_time},
      {"first_over_time", first_over_time},
      {"quantile_over_time", quantile_over_time},
      {"mad_over_time", mad_over_time},
      {"stddev_over_time", stddev_over_time},
      {"stdvar_over_time", stdvar_over_time},
      {"resets", resets},
      {"changes", changes},
      {"deriv", deriv},
      {"predict_linear", predict_linear},
      {"double_exponential_smoothing", double_exponential_smoothing},
  };
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : found->second;
}

namespace {

// The samples within the lookback of a step, before it and after, and the first of them that is not before it.
struct Around {
  size_t begin = 0, end = 0, next = 0;
  Around(const std::vector<int64_t>& times, int64_t at, int64_t lookback)
      : begin(static_cast<size_t>(std::upper_bound(times.begin(), times.end(), at - lookback) - times.begin())),
        end(static_cast<size_t>(std::upper_bound(times.begin(), times.end(), at + lookback) - times.begin())),
        next(static_cast<size_t>(std::lower_bound(times.begin() + static_cast<ptrdiff_t>(begin),
                                                  times.begin() + static_cast<ptrdiff_t>(end), at) -
                                 times.begin())) {}
  bool any() const { return begin < end; }
};

double smoothed_float(const SeriesSamples& samples, const Around& around, int64_t at) {
  const std::vector<int64_t>& t = samples.times;
  const std::vector<double>& v = samples.values;
  const size_t k = around.next;
  if (k < around.end && t[k] == at) return v[k];
  if (k <= around.begin) return kAbsent;
  return k < around.end ? interpolated(t[k - 1], v[k - 1], t[k], v[k], at, false) : v[k - 1];
}

// Null: none.
HistogramPtr smoothed_histogram(const SeriesSamples& samples, const Around& around, int64_t at, const RangeCall& call) {
  const std::vector<int64_t>& t = samples.histogram_times;
  const std::vector<HistogramPtr>& h = samples.histograms;
  const size_t k = around.next;
  if (k < around.end && t[k] == at) return h[k];
  if (k <= around.begin) return nullptr;
  if (k < around.end) {
    if (is_custom(*h[k]) != is_custom(*h[k - 1])) {
      warn_mixed_buckets(call);
      return nullptr;
    }
    const bool counter = h[k]->reset != CounterReset::kGauge || h[k - 1]->reset != CounterReset::kGauge;
    return between(h[k - 1], t[k - 1], h[k], t[k], at, counter, call);
  }
  auto carried = std::make_shared<NativeHistogram>(*h[k - 1]);
  carried->reset = CounterReset::kUnknown;
  return carried;
}

}  // namespace

// A smoothed instant selector: between the samples around a step, the value on the line from one to the other.
Block Evaluator::eval_smoothed(const Expr& expr, const Grid& grid) {
  const bool fixed = expr.at != AtModifier::kNone;
  const int64_t lookback = options_.lookback_ms;
  const int64_t from = (fixed ? expr.at_ms : grid.start) - expr.offset_ms - lookback + 1;
  const int64_t to = (fixed ? expr.at_ms : grid.last()) - expr.offset_ms + lookback;
  const MetricSelection* selection = select(expr.matchers, from, to, 0);
  const std::vector<LabelSpan> names = labels_of(*selection);
  Block block;
  block.steps = grid.count;
  SampleColumns columns;
  SeriesSamples samples;
  for (size_t i = 0; i < selection->size(); ++i) {
    if (Result<void> read = selection->samples(i, from, to, columns); !read.ok()) fail_execution(read.error());
    charge(columns.times_ms.size() + grid.count);
    split_samples(columns, samples);
    const size_t row = block.add_row(names[i]);
    const RangeCall call{*this, expr, expr, names[i], {0, 0}, false, true, 0, nullptr};
    for (size_t s = 0; s < grid.count; ++s) {
      const int64_t at = (fixed ? expr.at_ms : grid.time(s)) - expr.offset_ms;
      const Around floats(samples.times, at, lookback);
      const Around histograms(samples.histogram_times, at, lookback);
      if (floats.any() && histograms.any()) {
        warn_mixed(call);
      } else if (floats.any()) {
        block.row(row)[s] = smoothed_float(samples, floats, at);
      } else if (histograms.any()) {
        if (HistogramPtr out = smoothed_histogram(samples, histograms, at, call))
          block.set_histogram(row, s, std::move(out));
      }
    }
  }
  block.drop_empty_rows();
  charge_block(block);
  return block;
}

}  // namespace lockstep::promql
