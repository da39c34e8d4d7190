// The middle of some numbers, in the three ways that are used here (they differ only where there is an even number of
// them), and their spread about it.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep {

// The middle one, or half way between the two in the middle. NaN where there are none.
template <typename T>
double median_of(std::vector<T> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const auto upper = static_cast<double>(*middle);
  if (values.size() % 2 == 1) return upper;
  return (upper + static_cast<double>(*std::max_element(values.begin(), middle))) / 2;
}

// The same; 0 where there are none.
inline double median_or_zero(std::vector<double> values) {
  return values.empty() ? 0 : median_of(std::move(values));
}

// How far values lie from their middle, as a standard deviation that outliers do not move: 1.4826 makes it one of a
// normal distribution from the median distance. 0 where there are none.
inline double spread_of(std::vector<double> values, double middle) {
  if (values.empty()) return 0;
  for (double& value : values) value = std::fabs(value - middle);
  return 1.4826 * median_of(std::move(values));
}

// The middle one, or the upper or lower of the two in the middle: always one of them. T{} where there are none. In
// place: the values come in another order, and nothing is copied.
template <typename T>
T upper_median_in_place(std::vector<T>& values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
template <typename T>
T upper_median_of(std::vector<T> values) {
  return upper_median_in_place(values);
}
template <typename T>
T lower_median_in_place(std::vector<T>& values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep
