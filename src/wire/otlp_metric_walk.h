// An OTLP metrics request (ExportMetricsServiceRequest), read in one walk over its bytes: the only place that knows how
// it is laid out. What comes of it are flat lists of views for whoever needs a point's numbers alone
// (ingest/otlp/metric_mapping.h), and objects of as many points as somebody asks for (to_batch()).
//
// A message may come in pieces and in any order, as protobuf allows; judged as libprotobuf does, which
// wire/otlp_oracle_fuzz.cc compares. Limits besides: nesting (wire/otlp.h), copies (wire/copy_budget.h). Hot path: a
// fleet sends over a million points a second (ingest/otlp/metric_mapping_bench.cc).
// Thread rule: Immutable once decoded.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/result.h"
#include "model/pushed_series.h"
#include "model/telemetry.h"

namespace lockstep::otlp {

// Counts of one side of an exponential histogram, by OTLP's index of the first.
struct BucketSide {
  int32_t first = 0;
  std::vector<uint64_t> counts;
};

// What points have that are no plain numbers.
struct WalkedHistogram {
  uint64_t count = 0;
  std::vector<uint64_t> buckets;
  std::vector<double> bounds;           // of a summary: its quantiles
  std::vector<double> quantile_values;  // as long as bounds
  int32_t scale = 0;
  uint64_t zero_count = 0;
  double zero_threshold = 0;
  BucketSide positive, negative;
};

struct WalkedPoint {
  std::string_view attributes;  // fields that are KeyValues, each with its tag, as they came
  int64_t start_unix_ns = 0;
  int64_t time_unix_ns = 0;
  double value = 0;       // histogram and summary: the sum
  int64_t int_value = 0;  // exact value when is_int
  uint32_t flags = 0;
  uint32_t histogram = 0;  // its number, for those that are no plain numbers
  uint32_t first_exemplar = 0, exemplars = 0;
  bool has_value = false;
  bool is_int = false;
  bool is_stale() const { return (flags & MetricPoint::kNoRecordedValue) != 0; }
};

// A metric that has points, from first_point on.
struct WalkedMetric {
  std::string_view name, unit, help;
  MetricKind kind = MetricKind::kGauge;
  Temporality temporality = Temporality::kUnspecified;
  bool monotonic = false;
  size_t first_point = 0, points = 0;
};

// Metrics of one resource and scope.
struct WalkedScope {
  size_t resource = 0;
  std::string_view name, version;
  size_t first_metric = 0, metrics = 0;
};

// Views into the bytes it was read from, which must live as long.
struct MetricsRequest {
  std::vector<Attributes> resources;
  std::vector<WalkedScope> scopes;
  std::vector<WalkedMetric> metrics;
  std::vector<WalkedPoint> points;
  std::vector<WalkedHistogram> histograms;
  std::vector<PushedExemplar> exemplars;
  std::deque<std::string> joined;  // attributes that did not stand together

  // keep: by number of the point. The rest are points of no metric any more.
  void keep_points(const std::vector<bool>& keep);
};

// An error: malformed or over a limit, in one line. lease: where the memory for it is taken from, that of to_batch()
// included; its owner keeps it as long as the request.
Result<MetricsRequest> decode_metrics(std::string_view bytes, MemoryLease* lease = nullptr);

// is_wanted: whether points of a metric are, by its name; empty: all are. Every scope is a group, with and without
// points.
Batch to_batch(const MetricsRequest& request, const std::function<bool(std::string_view name)>& is_wanted = {});

}  // namespace lockstep::otlp
