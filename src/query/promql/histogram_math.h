// Arithmetic on native histograms: what PromQL's operators and functions need.
//
// A FlatHistogram is a NativeHistogram with its buckets as a list of (index, count), which is simpler to merge than
// spans. Sums may carry a compensation for each number (Neumaier), so that adding many histograms stays exact where
// adding many floats does. Malformed input (spans and buckets that do not fit) is read as far as it fits.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/native_histogram.h"

namespace lockstep::promql {

using HistogramPtr = std::shared_ptr<const NativeHistogram>;

// A sum with what rounding has lost so far.
struct Compensated {
  double sum = 0;
  double lost = 0;
  void add(double value) {
    const double next = sum + value;
    if (next > 1.7976931348623157e308 || next < -1.7976931348623157e308) {
      lost = 0;
    } else if ((sum < 0 ? -sum : sum) >= (value < 0 ? -value : value)) {
      lost += (sum - next) + value;
    } else {
      lost += (value - next) + sum;
    }
    sum = next;
  }
};

struct FlatBucket {
  int32_t index = 0;
  double count = 0;
  double lost = 0;
};

// Where a bucket lies and how many it holds.
struct BucketView {
  double lower = 0, upper = 0, count = 0;
  bool lower_inclusive = false, upper_inclusive = false;
};

struct FlatHistogram {
  int32_t schema = 0;
  CounterReset reset = CounterReset::kUnknown;
  double zero_threshold = 0;
  double zero_count = 0, count = 0, sum = 0;
  double zero_lost = 0, count_lost = 0, sum_lost = 0;
  std::vector<FlatBucket> positive, negative;  // by index
  std::vector<double> custom_bounds;

  FlatHistogram() = default;
  explicit FlatHistogram(const NativeHistogram& histogram);
  HistogramPtr pack() const;  // without empty buckets; compensations are dropped: settle() first

  bool is_custom() const { return schema == NativeHistogram::kCustomBounds; }
  void scale(double factor);
  void divide(double by);
  void settle();  // adds what was lost to the sums
  bool has_overflow() const;
};

struct AddOutcome {
  bool incompatible = false;       // exponential with custom bounds: nothing was done
  bool reset_collision = false;    // one says that it was reset, the other that it was not
  bool bounds_reconciled = false;  // custom bounds differed: only those in both are left
};
AddOutcome add(FlatHistogram& to, const FlatHistogram& other, bool compensate = false);
AddOutcome subtract(FlatHistogram& from, const FlatHistogram& other);
void reduce_resolution(FlatHistogram& histogram, int32_t schema);

// Whether the counter was reset between the two.
bool was_reset(const NativeHistogram& now, const NativeHistogram& before);
bool equal(const NativeHistogram& a, const NativeHistogram& b);  // bit for bit, empty buckets aside

// All buckets from the lowest to the highest, the zero bucket if it holds something.
std::vector<BucketView> all_buckets(const NativeHistogram& histogram);

// What is skewed by observations of NaN.
enum class NanEffect : uint8_t { kNone, kResult, kSkew };
double quantile(double q, const NativeHistogram& histogram, NanEffect* effect);
double fraction(double lower, double upper, const NativeHistogram& histogram, bool* has_nan);
double variance(const NativeHistogram& histogram);
// Keeps what lies below (upper) or above a bound.
HistogramPtr trimmed(const NativeHistogram& histogram, double bound, bool upper);

// {count:2, sum:3, (0.5,1]:2}
std::string to_text(const NativeHistogram& histogram);
// A number as %g with as many digits as it needs.
std::string short_number(double number);

}  // namespace lockstep::promql
