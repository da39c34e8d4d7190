// A native histogram as one sample: buckets whose bounds follow from a schema, as in Prometheus.
//
// Schema -4..8: bucket i of the positive side covers (base^(i-1), base^i] with base = 2^(2^-schema), the negative side
// is its mirror image, and |value| <= zero_threshold is counted in zero_count. Schema -53: custom_bounds give the upper
// bounds, the last bucket is open, there is no negative side and no zero bucket.
// Counts are absolute (not differences), as floating point, whatever the wire carried.
// Thread rule: Immutable once handed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// `offset` indexes after the end of the span before (the first: from 0), then `length` buckets in a row.
struct HistogramSpan {
  int32_t offset = 0;
  uint32_t length = 0;
  bool operator==(const HistogramSpan&) const = default;
};

// Of one side of a sample that is taken from outside: what senders make has some hundred.
inline constexpr size_t kHistogramBucketsMax = 65'536;

enum class CounterReset : uint8_t { kUnknown, kYes, kNo, kGauge };

struct NativeHistogram {
  static constexpr int32_t kCustomBounds = -53;
  int32_t schema = 0;
  CounterReset reset = CounterReset::kUnknown;
  double zero_threshold = 0;
  double zero_count = 0;
  double count = 0;
  double sum = 0;  // a stale marker here makes the whole sample one
  std::vector<HistogramSpan> positive_spans;
  std::vector<HistogramSpan> negative_spans;
  std::vector<double> positive;
  std::vector<double> negative;
  std::vector<double> custom_bounds;
  bool operator==(const NativeHistogram&) const = default;
};

}  // namespace lockstep
