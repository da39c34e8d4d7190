// Small sums that several parts of the evaluator use.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "query/promql/histogram_math.h"

namespace lockstep::promql {

// NaN sorts before everything.
inline bool value_less(double a, double b) {
  return std::isnan(a) ? !std::isnan(b) : a < b;
}

// Apart by less than this share of their sizes.
inline bool nearly(double a, double b, double tolerance) {
  if (a == b) return true;
  const double sum = std::fabs(a) + std::fabs(b);
  const double difference = std::fabs(a - b);
  constexpr double kSmallest = std::numeric_limits<double>::min();
  if (a == 0 || b == 0 || sum < kSmallest) return difference < tolerance * kSmallest;
  return difference / std::min(sum, std::numeric_limits<double>::max()) < tolerance;
}

// Between the two values that the rank lies between; sorts `values`.
inline double quantile_of(double q, std::vector<double>& values) {
  if (values.empty() || std::isnan(q)) return std::numeric_limits<double>::quiet_NaN();
  if (q < 0) return -std::numeric_limits<double>::infinity();
  if (q > 1) return std::numeric_limits<double>::infinity();
  const double rank = q * static_cast<double>(values.size() - 1);
  const double below = std::floor(rank);
  const size_t lower = static_cast<size_t>(std::max(0.0, below));
  const size_t upper = std::min(values.size() - 1, lower + 1);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(lower), values.end(), value_less);
  double high = values[lower];
  if (upper > lower)
    high = *std::min_element(values.begin() + static_cast<std::ptrdiff_t>(lower) + 1, values.end(), value_less);
  const double weight = rank - below;
  return values[lower] * (1 - weight) + high * weight;
}

// The mean by a compensated sum; where that would overflow, by moving the mean.
class Mean {
 public:
  void add(double value) {
    ++count_;
    if (count_ == 1) {
      sum_.sum = value;
      return;
    }
    if (!moving_) {
      Compensated next = sum_;
      next.add(value);
      if (!std::isinf(next.sum)) {
        sum_ = next;
        return;
      }
      moving_ = true;
      mean_ = {sum_.sum / (count_ - 1), sum_.lost / (count_ - 1)};
    }
    const double q = (count_ - 1) / count_;
    mean_ = {q * mean_.sum, q * mean_.lost};
    mean_.add(value / count_);
  }
  double value() const { return moving_ ? mean_.sum + mean_.lost : sum_.sum / count_ + sum_.lost / count_; }

 private:
  double count_ = 0;
  bool moving_ = false;
  Compensated sum_, mean_;
};

// The same for histograms, and what is to be told of their addition.
class HistogramSum {
 public:
  // False: this one does not go with those before.
  bool add(const NativeHistogram& histogram) {
    note(histogram);
    if (++count_ == 1) {
      sum_ = FlatHistogram(histogram);
      return true;
    }
    return put(sum_, FlatHistogram(histogram));
  }
  bool add_to_mean(const NativeHistogram& histogram) {
    if (count_ == 0) return add(histogram);
    note(histogram);
    ++count_;
    FlatHistogram given(histogram);
    if (!moving_) {
      FlatHistogram next = sum_;
      if (!put(next, given)) return false;
      if (!next.has_overflow()) {
        sum_ = std::move(next);
        return true;
      }
      moving_ = true;
      sum_.divide(count_ - 1);
    }
    sum_.scale((count_ - 1) / count_);
    given.divide(count_);
    return put(sum_, given);
  }
  HistogramPtr total() {
    sum_.settle();
    return sum_.pack();
  }
  HistogramPtr mean() {
    if (!moving_) sum_.divide(count_);
    return total();
  }
  bool collision() const { return reset_seen_ && no_reset_seen_; }
  bool reconciled() const { return reconciled_; }

 private:
  void note(const NativeHistogram& histogram) {
    reset_seen_ |= histogram.reset == CounterReset::kYes;
    no_reset_seen_ |= histogram.reset == CounterReset::kNo;
  }
  bool put(FlatHistogram& to, const FlatHistogram& other) {
    const AddOutcome outcome = promql::add(to, other, true);
    reconciled_ |= outcome.bounds_reconciled;
    return !outcome.incompatible;
  }
  double count_ = 0;
  bool moving_ = false, reset_seen_ = false, no_reset_seen_ = false, reconciled_ = false;
  FlatHistogram sum_;
};

}  // namespace lockstep::promql
