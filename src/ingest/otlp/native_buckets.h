// Buckets of OTLP's exponential histograms as Prometheus' native histograms have them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/native_histogram.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep::native_buckets {

using Buckets = std::map<int32_t, double>;  // counts by index, as Prometheus numbers them

Buckets of(const otlp::BucketSide& side);
// Halves the resolution `by` times.
Buckets merged(const Buckets& buckets, int32_t by);
void put(const Buckets& buckets, std::vector<HistogramSpan>& spans, std::vector<double>& counts);
// `sum` += `more`, at the coarser resolution of the two.
void add(NativeHistogram& sum, const NativeHistogram& more);

}  // namespace lockstep::native_buckets
