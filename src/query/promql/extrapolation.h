// What rate, increase and delta take a series to do between its samples and the ends of a range.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::promql {

// How far a window's samples reach, and how much further the series is taken to, in seconds. A sample is missing at an
// end of the range where one would be due: then the series is taken to begin or end half an interval further out,
// otherwise it is taken to reach the end.
struct Reach {
  double sampled = 0, to_start = 0, to_end = 0;
  Reach() = default;
  Reach(std::span<const int64_t> times, int64_t range_start_ms, int64_t range_end_ms)
      : Reach(times.front(), times.back(), times.size(), range_start_ms, range_end_ms) {}
  Reach(int64_t first_ms, int64_t last_ms, uint64_t count, int64_t range_start_ms, int64_t range_end_ms)
      : sampled(static_cast<double>(last_ms - first_ms) / 1000),
        to_start(static_cast<double>(first_ms - range_start_ms) / 1000),
        to_end(static_cast<double>(range_end_ms - last_ms) / 1000) {
    const double between_samples = sampled / static_cast<double>(count - 1);
    const double threshold = between_samples * 1.1;
    if (to_start >= threshold) to_start = between_samples / 2;
    if (to_end >= threshold) to_end = between_samples / 2;
  }
  // A counter does not go below zero: where it would have been that, it is taken to have begun.
  void begin_at_zero(double first_value, double total) {
    if (!(total > 0 && first_value >= 0)) return;
    const double to_zero = sampled * (first_value / total);
    if (to_zero < to_start) to_start = to_zero;
  }
  // What the change between the first and the last sample is to be multiplied by, for the whole of the range.
  double factor() const { return sampled != 0 ? (sampled + to_start + to_end) / sampled : 1; }
};

}  // namespace lockstep::promql
