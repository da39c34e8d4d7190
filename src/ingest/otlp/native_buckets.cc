#include "ingest/otlp/native_buckets.h"

#include <algorithm>

namespace lockstep::native_buckets {
namespace {

Buckets of(const std::vector<HistogramSpan>& spans, const std::vector<double>& counts) {
  Buckets buckets;
  int32_t index = 0;
  size_t at = 0;
  for (const HistogramSpan& span : spans) {
    index += span.offset;
    for (uint32_t i = 0; i < span.length && at < counts.size(); ++i) buckets[index++] += counts[at++];
  }
  return buckets;
}

}  // namespace

// OTLP's bucket i is (base^i, base^(i+1)], Prometheus' is (base^(i-1), base^i].
Buckets of(const otlp::BucketSide& side) {
  Buckets buckets;
  for (size_t i = 0; i < side.counts.size(); ++i) {
    if (side.counts[i] != 0) {
      buckets[static_cast<int32_t>(std::clamp<int64_t>(int64_t{side.first} + static_cast<int64_t>(i) + 1, INT32_MIN,
                                                       INT32_MAX))] += static_cast<double>(side.counts[i]);
    }
  }
  return buckets;
}

Buckets merged(const Buckets& buckets, int32_t by) {
  Buckets result;
  for (const auto& [index, count] : buckets) {
    const int64_t up = (int64_t{1} << std::min(by, 31)) - 1;
    result[static_cast<int32_t>((int64_t{index} + up) >> std::min(by, 31))] += count;
  }
  return result;
}

void put(const Buckets& buckets, std::vector<HistogramSpan>& spans, std::vector<double>& counts) {
  spans.clear();
  counts.clear();
  int64_t next = 0;
  for (const auto& [index, count] : buckets) {
    if (spans.empty() || index != next) {
      spans.push_back({static_cast<int32_t>(index - next), 0});
    }
    ++spans.back().length;
    counts.push_back(count);
    next = int64_t{index} + 1;
  }
}

void add(NativeHistogram& sum, const NativeHistogram& more) {
  const int32_t schema = std::min(sum.schema, more.schema);
  auto side = [&](auto spans, auto counts) {
    Buckets buckets = merged(of(sum.*spans, sum.*counts), sum.schema - schema);
    for (const auto& [index, count] : merged(of(more.*spans, more.*counts), more.schema - schema)) {
      buckets[index] += count;
    }
    put(buckets, sum.*spans, sum.*counts);
  };
  side(&NativeHistogram::positive_spans, &NativeHistogram::positive);
  side(&NativeHistogram::negative_spans, &NativeHistogram::negative);
  sum.schema = schema;
  sum.count += more.count;
  sum.sum += more.sum;
  sum.zero_count += more.zero_count;
  sum.zero_threshold = std::max(sum.zero_threshold, more.zero_threshold);
}

}  // namespace lockstep::native_buckets
