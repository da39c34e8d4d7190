// The parts of an OTLP metrics request, read from their bytes one by one: what a metric is, and each of its points. No
// Batch is built; whoever walks the request (ingest/otlp/metric_mapping.h) decides what becomes of a point.
//
// A message may come in pieces and in any order, as protobuf allows.
// On error: the reader's WireError says it, and what was read is void. Memory is taken from the reader's lease. Hot
// path: a fleet sends over a million points a second.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/protobuf_wire.h"
#include "model/pushed_series.h"

namespace lockstep::otlp {

// A metric but for its points.
struct MetricHead {
  std::string_view name, unit, help;
  std::vector<std::string_view> data;  // pieces of one kind
  uint32_t kind = 0;                   // field number of the data
  bool is_delta = false;
  bool is_monotonic = false;
};

// Counts of one side of an exponential histogram, by Prometheus' index of the first.
struct BucketSide {
  int32_t first = 0;
  std::vector<uint64_t> counts;
};

// A point of any kind. Used again for the next one, for the sake of its memory.
struct WalkedPoint {
  static constexpr uint32_t kNoRecordedValue = 1;

  int64_t time_ms = 0;
  uint32_t flags = 0;
  double value = 0;
  bool has_value = false;
  uint64_t count = 0;
  std::vector<uint64_t> buckets;
  std::vector<double> bounds;
  int32_t scale = 0;
  uint64_t zero_count = 0;
  double zero_threshold = 0;
  BucketSide positive, negative;
  std::vector<std::pair<double, double>> quantiles;
  std::vector<PushedExemplar> exemplars;
  bool is_stale() const { return (flags & kNoRecordedValue) != 0; }
};

// in: the Metric message.
MetricHead read_metric_head(protobuf::WireReader in);

// kind: MetricHead::kind. attributes: the point's, each with its tag, as they came.
void read_point(uint32_t kind, protobuf::WireReader& in, WalkedPoint& out, std::string& attributes);

}  // namespace lockstep::otlp
