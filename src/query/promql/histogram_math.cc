#include "query/promql/histogram_math.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

namespace lockstep::promql {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<FlatBucket> flatten(const std::vector<HistogramSpan>& spans, const std::vector<double>& counts) {
  std::vector<FlatBucket> out;
  out.reserve(counts.size());
  int64_t index = 0;
  size_t at = 0;
  for (const HistogramSpan& span : spans) {
    index += span.offset;
    for (uint32_t i = 0; i < span.length; ++i, ++index) {
      if (at >= counts.size() || index > std::numeric_limits<int32_t>::max() ||
          index < std::numeric_limits<int32_t>::min())
        return out;
      out.push_back({static_cast<int32_t>(index), counts[at++], 0});
    }
  }
  return out;
}

void pack_side(const std::vector<FlatBucket>& buckets, std::vector<HistogramSpan>& spans, std::vector<double>& counts) {
  int64_t next = 0;
  for (const FlatBucket& bucket : buckets) {
    if (bucket.count == 0) continue;
    if (spans.empty() || bucket.index != next) spans.push_back({static_cast<int32_t>(bucket.index - next), 0});
    ++spans.back().length;
    counts.push_back(bucket.count);
    next = static_cast<int64_t>(bucket.index) + 1;
  }
}

double exponential_bound(int64_t index, int32_t schema) {
  if (schema < 0) {
    const int64_t exponent = index * (int64_t{1} << -schema);
    if (exponent == 1024) return std::numeric_limits<double>::max();
    return std::ldexp(1.0, static_cast<int>(std::clamp<int64_t>(exponent, -5000, 5000)));
  }
  const int64_t per_octave = int64_t{1} << schema;
  const int64_t part = index & (per_octave - 1);
  const int64_t exponent = index >> schema;
  // The last finite bucket ends at the largest number, not at infinity.
  if (part == 0 && exponent == 1024) return std::numeric_limits<double>::max();
  const double base = part == 0 ? 1.0 : std::exp2(static_cast<double>(part) / static_cast<double>(per_octave));
  return std::ldexp(base, static_cast<int>(std::clamp<int64_t>(exponent, -5000, 5000)));
}

double bound(int64_t index, int32_t schema, const std::vector<double>& custom) {
  if (schema != NativeHistogram::kCustomBounds) return exponential_bound(index, schema);
  if (index < 0) return -kInf;
  if (index >= static_cast<int64_t>(custom.size())) return kInf;
  return custom[static_cast<size_t>(index)];
}

BucketView positive_view(const FlatHistogram& h, const FlatBucket& bucket) {
  BucketView view{bound(int64_t{bucket.index} - 1, h.schema, h.custom_bounds),
                  bound(bucket.index, h.schema, h.custom_bounds), bucket.count};
  if (h.is_custom()) {
    view.lower_inclusive = bucket.index == 0;
    view.upper_inclusive = true;
  } else {
    view.lower_inclusive = view.lower < 0;
    view.upper_inclusive = view.upper > 0;
  }
  return view;
}
BucketView negative_view(const FlatHistogram& h, const FlatBucket& bucket) {
  BucketView view{-exponential_bound(bucket.index, h.schema), -exponential_bound(int64_t{bucket.index} - 1, h.schema),
                  bucket.count};
  view.lower_inclusive = view.lower < 0;
  view.upper_inclusive = view.upper > 0;
  return view;
}

void put(double value, double& sum, double& lost, bool compensate) {
  if (!compensate) {
    sum += value;
    return;
  }
  Compensated both{sum, lost};
  both.add(value);
  sum = both.sum;
  lost = both.lost;
}

// What the zero bucket would hold with a larger threshold. A threshold inside a bucket that holds something moves out
// to that bucket's far end.
double zero_count_for(const FlatHistogram& h, double& threshold, double* lost) {
  for (;;) {
    Compensated total{h.zero_count, h.zero_lost};
    for (const FlatBucket& bucket : h.positive) {
      const BucketView view = positive_view(h, bucket);
      if (view.lower >= threshold) break;
      total.add(bucket.count);
      total.add(bucket.lost);
      if (view.upper > threshold) {
        if (bucket.count != 0) threshold = view.upper;
        break;
      }
    }
    bool again = false;
    for (const FlatBucket& bucket : h.negative) {
      const BucketView view = negative_view(h, bucket);
      if (view.upper <= -threshold) break;
      total.add(bucket.count);
      total.add(bucket.lost);
      if (view.lower < -threshold) {
        if (bucket.count != 0) {
          threshold = -view.lower;
          again = true;
        }
        break;
      }
    }
    if (again) continue;
    *lost = total.lost;
    return total.sum;
  }
}

void widen_zero_bucket(FlatHistogram& h, double threshold) {
  double lost = 0;
  const double count = zero_count_for(h, threshold, &lost);
  h.zero_count = count;
  h.zero_lost = lost;
  h.zero_threshold = threshold;
  std::erase_if(h.positive, [&](const FlatBucket& b) { return positive_view(h, b).lower < threshold || b.count == 0; });
  std::erase_if(h.negative,
                [&](const FlatBucket& b) { return negative_view(h, b).upper > -threshold || b.count == 0; });
}

// Widens h's zero bucket as far as needed; returns what the other's would hold.
double reconcile_zero(FlatHistogram& h, const FlatHistogram& other) {
  double other_count = other.zero_count;
  double other_threshold = other.zero_threshold;
  while (other_threshold != h.zero_threshold) {
    if (std::isnan(other_threshold) || std::isnan(h.zero_threshold)) break;
    if (h.zero_threshold > other_threshold) {
      other_threshold = h.zero_threshold;
      double lost = 0;
      other_count = zero_count_for(other, other_threshold, &lost);
    }
    if (other_threshold > h.zero_threshold) widen_zero_bucket(h, other_threshold);
  }
  return other_count;
}

void merge_side(std::vector<FlatBucket>& to, const std::vector<FlatBucket>& from, double sign, bool compensate,
                int32_t schema, double threshold) {
  std::vector<FlatBucket> merged;
  merged.reserve(to.size() + from.size());
  size_t i = 0;
  for (const FlatBucket& bucket : from) {
    if (schema != NativeHistogram::kCustomBounds && threshold > 0 &&
        exponential_bound(bucket.index, schema) <= threshold)
      continue;
    while (i < to.size() && to[i].index < bucket.index) merged.push_back(to[i++]);
    FlatBucket sum{bucket.index, 0, 0};
    if (i < to.size() && to[i].index == bucket.index) sum = to[i++];
    put(sign * bucket.count, sum.count, sum.lost, compensate);
    if (compensate && bucket.lost != 0) put(sign * bucket.lost, sum.count, sum.lost, compensate);
    merged.push_back(sum);
  }
  while (i < to.size()) merged.push_back(to[i++]);
  to = std::move(merged);
}

std::vector<FlatBucket> reduced(const std::vector<FlatBucket>& buckets, int32_t by) {
  std::vector<FlatBucket> out;
  for (const FlatBucket& bucket : buckets) {
    const int32_t index = static_cast<int32_t>(((int64_t{bucket.index} - 1) >> by) + 1);
    if (out.empty() || out.back().index != index) {
      out.push_back({index, bucket.count, bucket.lost});
    } else {
      put(bucket.count, out.back().count, out.back().lost, true);
      put(bucket.lost, out.back().count, out.back().lost, true);
    }
  }
  return out;
}

// Buckets over `from` bounds put into those over `to`, which are some of them.
std::vector<FlatBucket> remapped(const std::vector<FlatBucket>& buckets, const std::vector<double>& from,
                                 const std::vector<double>& to) {
  std::vector<FlatBucket> out;
  for (const FlatBucket& bucket : buckets) {
    int32_t index = static_cast<int32_t>(to.size());
    if (bucket.index >= 0 && static_cast<size_t>(bucket.index) < from.size()) {
      const double upper = from[static_cast<size_t>(bucket.index)];
      index = static_cast<int32_t>(std::lower_bound(to.begin(), to.end(), upper) - to.begin());
    }
    if (out.empty() || out.back().index != index) out.push_back({index, 0, 0});
    put(bucket.count, out.back().count, out.back().lost, true);
    put(bucket.lost, out.back().count, out.back().lost, true);
  }
  return out;
}

std::vector<double> common_bounds(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

bool adjust_reset(CounterReset& mine, CounterReset other) {
  if (mine == other || mine == CounterReset::kGauge) return false;
  if (other == CounterReset::kGauge) {
    mine = CounterReset::kGauge;
    return false;
  }
  const bool collision = mine != CounterReset::kUnknown && other != CounterReset::kUnknown;
  mine = CounterReset::kUnknown;
  return collision;
}

AddOutcome combine(FlatHistogram& to, const FlatHistogram& given, double sign, bool compensate) {
  AddOutcome outcome;
  if (to.is_custom() != given.is_custom()) {
    outcome.incompatible = true;
    return outcome;
  }
  outcome.reset_collision = adjust_reset(to.reset, given.reset);
  if (!to.is_custom()) put(sign * reconcile_zero(to, given), to.zero_count, to.zero_lost, compensate);
  put(sign * given.count, to.count, to.count_lost, compensate);
  put(sign * given.sum, to.sum, to.sum_lost, compensate);
  if (to.is_custom()) {
    if (to.custom_bounds == given.custom_bounds) {
      merge_side(to.positive, given.positive, sign, compensate, to.schema, 0);
      return outcome;
    }
    outcome.bounds_reconciled = true;
    const std::vector<double> both = common_bounds(to.custom_bounds, given.custom_bounds);
    to.positive = remapped(to.positive, to.custom_bounds, both);
    const std::vector<FlatBucket> others = remapped(given.positive, given.custom_bounds, both);
    merge_side(to.positive, others, sign, true, to.schema, 0);
    if (!compensate) {
      for (FlatBucket& bucket : to.positive) bucket.lost = 0;
    }
    to.custom_bounds = both;
    return outcome;
  }
  if (given.schema < to.schema) reduce_resolution(to, given.schema);
  if (given.schema > to.schema) {
    const int32_t by = given.schema - to.schema;
    merge_side(to.positive, reduced(given.positive, by), sign, compensate, to.schema, to.zero_threshold);
    merge_side(to.negative, reduced(given.negative, by), sign, compensate, to.schema, to.zero_threshold);
  } else {
    merge_side(to.positive, given.positive, sign, compensate, to.schema, to.zero_threshold);
    merge_side(to.negative, given.negative, sign, compensate, to.schema, to.zero_threshold);
  }
  return outcome;
}

bool side_was_reset(const std::vector<FlatBucket>& now, const std::vector<FlatBucket>& before, int32_t schema,
                    double threshold) {
  size_t i = 0;
  for (const FlatBucket& bucket : before) {
    if (schema != NativeHistogram::kCustomBounds && threshold > 0 &&
        exponential_bound(bucket.index, schema) <= threshold)
      continue;
    while (i < now.size() && now[i].index < bucket.index) ++i;
    const bool there = i < now.size() && now[i].index == bucket.index;
    if (there ? now[i].count < bucket.count : bucket.count != 0) return true;
  }
  return false;
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}
bool same_side(const std::vector<FlatBucket>& a, const std::vector<FlatBucket>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const FlatBucket& x, const FlatBucket& y) {
    return x.index == y.index && same_bits(x.count, y.count);
  });
}

double fraction_below(const BucketView& bucket, double value, bool linear) {
  if (linear) return (value - bucket.lower) / (bucket.upper - bucket.lower);
  const double log_lower = std::log2(std::fabs(bucket.lower));
  const double log_upper = std::log2(std::fabs(bucket.upper));
  const double log_value = std::log2(std::fabs(value));
  if (value > 0) return (log_value - log_lower) / (log_upper - log_lower);
  return 1 - (log_value - log_upper) / (log_lower - log_upper);
}

double middle(double lower, double upper, bool positive, bool linear) {
  if (std::isinf(lower)) {
    if (std::isinf(upper)) return 0;
    return upper > 0 ? upper / 2 : upper;
  }
  if (std::isinf(upper)) return lower;
  if (linear) return (lower + upper) / 2;
  const double geometric = std::sqrt(std::fabs(lower * upper));
  return positive ? geometric : -geometric;
}

struct Kept {
  double count, middle;
};

Kept trim_infinite(const BucketView& b, double at, bool upper) {
  const auto finite_or_zero = [](double x) { return std::isinf(x) ? 0.0 : x; };
  if (b.lower == -kInf) {
    if (upper) {
      if (at >= b.upper) return {b.count, 0};
      if (at > 0 && b.upper > 0 && b.upper != kInf) return {b.count * at / b.upper, at / 2};
      if (b.upper <= 0) return {b.count, at};
      return {0, finite_or_zero(b.upper)};
    }
    if (at <= b.lower) return {b.count, 0};
    if (at >= 0 && b.upper > at && b.upper != kInf) return {b.count * (1 - at / b.upper), (at + b.upper) / 2};
    return {0, finite_or_zero(b.upper)};
  }
  if (upper) return {0, finite_or_zero(b.lower)};
  if (at >= b.lower) return {b.count, at};
  return {0, finite_or_zero(b.lower)};
}

Kept trim_bucket(const BucketView& b, double at, bool upper, bool positive, bool linear) {
  if (b.lower == -kInf || b.upper == kInf) return trim_infinite(b, at, upper);
  const double below = at <= b.lower ? 0 : at >= b.upper ? b.count : b.count * fraction_below(b, at, linear);
  if (upper) return {below, middle(b.lower, at, positive, linear)};
  return {b.count - below, middle(at, b.upper, positive, linear)};
}

Kept trim_zero(const FlatHistogram& h, double at, bool has_negative, bool has_positive, bool upper) {
  const double low = has_positive && !has_negative ? 0 : -h.zero_threshold;
  const double high = has_negative && !has_positive ? 0 : h.zero_threshold;
  if (upper) {
    if (at <= low) return {0, 0};
    if (at >= high) return {h.zero_count, (low + high) / 2};
    return {h.zero_count * ((at - low) / (high - low)), (low + at) / 2};
  }
  if (at <= low) return {h.zero_count, (low + high) / 2};
  if (at >= high) return {0, 0};
  return {h.zero_count * ((high - at) / (high - low)), (at + high) / 2};
}

}  // namespace

FlatHistogram::FlatHistogram(const NativeHistogram& histogram)
    : schema(histogram.schema == NativeHistogram::kCustomBounds ? histogram.schema
                                                                : std::clamp(histogram.schema, -9, 20)),
      reset(histogram.reset),
      zero_threshold(histogram.zero_threshold),
      zero_count(histogram.zero_count),
      count(histogram.count),
      sum(histogram.sum),
      positive(flatten(histogram.positive_spans, histogram.positive)),
      negative(flatten(histogram.negative_spans, histogram.negative)),
      custom_bounds(histogram.custom_bounds) {}

HistogramPtr FlatHistogram::pack() const {
  auto out = std::make_shared<NativeHistogram>();
  out->schema = schema;
  out->reset = reset;
  out->zero_threshold = zero_threshold;
  out->zero_count = zero_count;
  out->count = count;
  out->sum = sum;
  pack_side(positive, out->positive_spans, out->positive);
  pack_side(negative, out->negative_spans, out->negative);
  out->custom_bounds = custom_bounds;
  return out;
}

void FlatHistogram::scale(double factor) {
  for (double* value : {&zero_count, &count, &sum, &zero_lost, &count_lost, &sum_lost}) *value *= factor;
  for (auto* side : {&positive, &negative}) {
    for (FlatBucket& bucket : *side) {
      bucket.count *= factor;
      bucket.lost *= factor;
    }
  }
  if (factor < 0) reset = CounterReset::kGauge;
}

void FlatHistogram::divide(double by) {
  for (double* value : {&zero_count, &count, &sum, &zero_lost, &count_lost, &sum_lost}) *value /= by;
  if (by == 0) {
    positive.clear();
    negative.clear();
    zero_lost = count_lost = sum_lost = 0;
    return;
  }
  for (auto* side : {&positive, &negative}) {
    for (FlatBucket& bucket : *side) {
      bucket.count /= by;
      bucket.lost /= by;
    }
  }
  if (by < 0) reset = CounterReset::kGauge;
}

void FlatHistogram::settle() {
  zero_count += zero_lost;
  count += count_lost;
  sum += sum_lost;
  zero_lost = count_lost = sum_lost = 0;
  for (auto* side : {&positive, &negative}) {
    for (FlatBucket& bucket : *side) {
      bucket.count += bucket.lost;
      bucket.lost = 0;
    }
  }
}

bool FlatHistogram::has_overflow() const {
  if (std::isinf(zero_count) || std::isinf(count) || std::isinf(sum)) return true;
  for (const auto* side : {&positive, &negative}) {
    for (const FlatBucket& bucket : *side) {
      if (std::isinf(bucket.count)) return true;
    }
  }
  return false;
}

AddOutcome add(FlatHistogram& to, const FlatHistogram& other, bool compensate) {
  return combine(to, other, 1, compensate);
}
AddOutcome subtract(FlatHistogram& from, const FlatHistogram& other) {
  return combine(from, other, -1, false);
}

void reduce_resolution(FlatHistogram& histogram, int32_t schema) {
  if (schema >= histogram.schema || histogram.is_custom()) return;
  const int32_t by = std::min(histogram.schema - schema, 31);
  histogram.positive = reduced(histogram.positive, by);
  histogram.negative = reduced(histogram.negative, by);
  histogram.schema = schema;
}

bool was_reset(const NativeHistogram& now_packed, const NativeHistogram& before_packed) {
  if (now_packed.reset == CounterReset::kYes) return true;
  if (now_packed.reset == CounterReset::kNo) return false;
  if (now_packed.count < before_packed.count) return true;
  FlatHistogram now(now_packed);
  FlatHistogram before(before_packed);
  if (now.is_custom()) {
    if (!before.is_custom()) return true;
    if (now.custom_bounds != before.custom_bounds) {
      const std::vector<double> both = common_bounds(now.custom_bounds, before.custom_bounds);
      now.positive = remapped(now.positive, now.custom_bounds, both);
      before.positive = remapped(before.positive, before.custom_bounds, both);
    }
    return side_was_reset(now.positive, before.positive, now.schema, 0);
  }
  if (before.is_custom() || now.schema > before.schema) return true;
  if (now.zero_threshold < before.zero_threshold) return true;
  double before_zero = before.zero_count;
  if (now.zero_threshold > before.zero_threshold) {
    double threshold = now.zero_threshold;
    double lost = 0;
    before_zero = zero_count_for(before, threshold, &lost);
    if (threshold != now.zero_threshold) return true;
  }
  if (now.zero_count < before_zero) return true;
  reduce_resolution(before, now.schema);
  return side_was_reset(now.positive, before.positive, now.schema, now.zero_threshold) ||
         side_was_reset(now.negative, before.negative, now.schema, now.zero_threshold);
}

bool equal(const NativeHistogram& a_packed, const NativeHistogram& b_packed) {
  if (a_packed.schema != b_packed.schema || !same_bits(a_packed.count, b_packed.count) ||
      !same_bits(a_packed.sum, b_packed.sum) || a_packed.zero_threshold != b_packed.zero_threshold ||
      !same_bits(a_packed.zero_count, b_packed.zero_count))
    return false;
  const FlatHistogram a(a_packed);
  const FlatHistogram b(b_packed);
  if (a.is_custom() && a.custom_bounds != b.custom_bounds) return false;
  return same_side(a.positive, b.positive) && same_side(a.negative, b.negative);
}

std::vector<BucketView> all_buckets(const NativeHistogram& histogram) {
  const FlatHistogram h(histogram);
  std::vector<BucketView> out;
  out.reserve(h.positive.size() + h.negative.size() + 1);
  for (auto bucket = h.negative.rbegin(); bucket != h.negative.rend(); ++bucket) {
    BucketView view = negative_view(h, *bucket);
    if (view.upper < 0 && view.upper > -h.zero_threshold) view.upper = -h.zero_threshold;
    out.push_back(view);
  }
  if (h.zero_count > 0) out.push_back({-h.zero_threshold, h.zero_threshold, h.zero_count, true, true});
  for (const FlatBucket& bucket : h.positive) {
    BucketView view = positive_view(h, bucket);
    if (view.lower > 0 && view.lower < h.zero_threshold) view.lower = h.zero_threshold;
    out.push_back(view);
  }
  return out;
}

double quantile(double q, const NativeHistogram& h, NanEffect* effect) {
  *effect = NanEffect::kNone;
  if (q < 0) return -kInf;
  if (q > 1) return kInf;
  if (h.count == 0 || std::isnan(q)) return std::numeric_limits<double>::quiet_NaN();
  const bool custom = h.schema == NativeHistogram::kCustomBounds;
  const bool has_nan = std::isnan(h.sum);
  const bool forward = has_nan || q < 0.5;
  std::vector<BucketView> buckets = all_buckets(h);
  if (!forward) std::reverse(buckets.begin(), buckets.end());
  double rank = forward ? q * h.count : (1 - q) * h.count;
  BucketView bucket;
  double count = 0;
  size_t at = 0;
  for (; at < buckets.size(); ++at) {
    bucket = buckets[at];
    if (bucket.count == 0) continue;
    count += bucket.count;
    if (count >= rank) break;
  }
  if (!custom && bucket.lower < 0 && bucket.upper > 0) {
    if (h.negative.empty() && !h.positive.empty()) {
      bucket.lower = 0;
    } else if (h.positive.empty() && !h.negative.empty()) {
      bucket.upper = 0;
    }
  } else if (custom) {
    if (bucket.lower == -kInf) {
      if (bucket.upper <= 0) return bucket.upper;
      bucket.lower = 0;
    } else if (bucket.upper == kInf) {
      return bucket.lower;
    }
  }
  if (count > h.count) count = h.count;
  if (count < rank) {
    if (!has_nan) return bucket.upper;
    *effect = NanEffect::kResult;
    return std::numeric_limits<double>::quiet_NaN();
  }
  rank = forward ? rank - (count - bucket.count) : count - rank;
  if (has_nan) {
    for (++at; at < buckets.size(); ++at) count += buckets[at].count;
    if (count < h.count) *effect = NanEffect::kSkew;
  }
  const double part = rank / bucket.count;
  if (custom || (bucket.lower <= 0 && bucket.upper >= 0)) return bucket.lower + (bucket.upper - bucket.lower) * part;
  const double log_lower = std::log2(std::fabs(bucket.lower));
  const double log_upper = std::log2(std::fabs(bucket.upper));
  if (bucket.lower > 0) return std::exp2(log_lower + (log_upper - log_lower) * part);
  return -std::exp2(log_upper + (log_lower - log_upper) * (1 - part));
}

double fraction(double lower, double upper, const NativeHistogram& h, bool* has_nan) {
  *has_nan = false;
  if (h.count == 0 || std::isnan(lower) || std::isnan(upper)) return std::numeric_limits<double>::quiet_NaN();
  if (lower >= upper) return 0;
  const bool custom = h.schema == NativeHistogram::kCustomBounds;
  const std::vector<BucketView> buckets = all_buckets(h);
  double count = 0, rank = 0, lower_rank = 0, upper_rank = 0;
  bool lower_set = false, upper_set = false;
  size_t at = 0;
  for (; at < buckets.size(); ++at) {
    BucketView b = buckets[at];
    count += b.count;
    bool zero = false;
    if (b.lower <= 0 && b.upper >= 0) {
      zero = true;
      if (h.negative.empty() && !h.positive.empty()) {
        b.lower = 0;
      } else if (h.positive.empty() && !h.negative.empty()) {
        b.upper = 0;
      }
    }
    const auto rank_of = [&](double value) {
      const bool linear = custom || zero;
      if (linear && b.lower == -kInf) return b.count;
      return rank + b.count * fraction_below(b, value, linear);
    };
    if (!lower_set && b.lower >= lower) {
      lower_rank = rank;
      lower_set = true;
    }
    if (!upper_set && b.lower >= upper) {
      upper_rank = rank;
      upper_set = true;
    }
    if (lower_set && upper_set) break;
    if (!lower_set && b.lower < lower && b.upper > lower) {
      lower_rank = rank_of(lower);
      lower_set = true;
    }
    if (!upper_set && b.lower < upper && b.upper > upper) {
      upper_rank = rank_of(upper);
      upper_set = true;
    }
    if (lower_set && upper_set) break;
    rank += b.count;
  }
  if (std::isnan(h.sum)) {
    for (++at; at < buckets.size(); ++at) count += buckets[at].count;
    if (count < h.count) *has_nan = true;
  } else {
    count = h.count;
  }
  if (!lower_set || lower_rank > count) lower_rank = count;
  if (!upper_set || upper_rank > count) upper_rank = count;
  return (upper_rank - lower_rank) / h.count;
}

double variance(const NativeHistogram& h) {
  const double mean = h.sum / h.count;
  Compensated total;
  for (const BucketView& b : all_buckets(h)) {
    if (b.count == 0) continue;
    double value = 0;
    if (h.schema == NativeHistogram::kCustomBounds) {
      value = (b.upper + b.lower) / 2;
    } else if (!(b.lower <= 0 && b.upper >= 0)) {
      value = std::sqrt(b.upper * b.lower);
      if (b.upper < 0) value = -value;
    }
    const double delta = value - mean;
    total.add(b.count * delta * delta);
  }
  return (total.sum + total.lost) / h.count;
}

HistogramPtr trimmed(const NativeHistogram& histogram, double at, bool upper) {
  FlatHistogram h(histogram);
  const bool custom = h.is_custom();
  double count = 0, sum = 0;
  bool changed = false, has_positive = false, has_negative = false;
  const auto trim_side = [&](std::vector<FlatBucket>& side, bool positive, bool& has) {
    for (FlatBucket& bucket : side) {
      if (bucket.count == 0) continue;
      has = true;
      const BucketView view = positive ? positive_view(h, bucket) : negative_view(h, bucket);
      const bool whole = upper ? view.upper <= at : view.lower >= at;
      const bool part = upper ? view.lower < at : view.upper > at;
      if (whole) {
        count += bucket.count;
        sum += middle(view.lower, view.upper, positive, custom) * bucket.count;
      } else if (part) {
        const Kept kept = trim_bucket(view, at, upper, positive, custom);
        count += kept.count;
        sum += kept.middle * kept.count;
        changed |= bucket.count != kept.count;
        bucket.count = kept.count;
      } else {
        bucket.count = 0;
        changed = true;
      }
    }
  };
  trim_side(h.positive, true, has_positive);
  trim_side(h.negative, false, has_negative);
  if (h.zero_count > 0) {
    const Kept kept = trim_zero(h, at, has_negative, has_positive, upper);
    changed |= h.zero_count != kept.count;
    h.zero_count = kept.count;
    sum += kept.middle * kept.count;
    count += kept.count;
  }
  if (changed) {
    h.count = count;
    h.sum = sum;
  }
  return h.pack();
}

std::string short_number(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Inf" : "+Inf";
  char buffer[64];
  std::to_chars_result result = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string scientific(buffer, result.ptr);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent < -4 || exponent >= 6) return scientific;
  result = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  return std::string(buffer, result.ptr);
}

std::string to_text(const NativeHistogram& histogram) {
  std::string text = "{count:" + short_number(histogram.count) + ", sum:" + short_number(histogram.sum);
  const auto write = [&](const BucketView& b) {
    text += std::string(", ") + (b.lower_inclusive ? '[' : '(') + short_number(b.lower) + ',' + short_number(b.upper) +
            (b.upper_inclusive ? ']' : ')') + ':' + short_number(b.count);
  };
  const FlatHistogram h(histogram);
  for (auto bucket = h.negative.rbegin(); bucket != h.negative.rend(); ++bucket) {
    if (bucket->count != 0) write(negative_view(h, *bucket));
  }
  if (h.zero_count != 0) write({-h.zero_threshold, h.zero_threshold, h.zero_count, true, true});
  for (const FlatBucket& bucket : h.positive) {
    if (bucket.count != 0) write(positive_view(h, bucket));
  }
  return text + "}";
}

}  // namespace lockstep::promql
