// OTLP metrics into the metrics store: the points of a request (wire/otlp_metric_walk.h) handed on as series, one push
// per resource and scope, without building a Batch.
//
// Names and labels are Prometheus' (model/prometheus_name.h). Labels: the point's attributes, and of the resource
//   host.name as host, lockstep.X as X, service.name as service_name and, as Prometheus' rules for OTLP say, as job
//   (with service.namespace/ before it), service.instance.id as instance; the point wins.
// gauge, sum -> the value; histogram -> NAME_bucket{le}, NAME_sum, NAME_count; exponential histogram -> a native one
//   (a scale above 8 is merged down to 8); summary -> NAME{quantile}, NAME_sum, NAME_count. "No recorded value" is a
//   stale marker. Exemplars go with the series, of a histogram with their bucket.
// Delta points are added up to counters (delta_sums.h).
// Refused besides: native histograms below scale -4 (bad_histogram), points with neither value nor flag.
// Raw labels: 'O', then what the labels are made of as it came.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/memory_budget.h"
#include "ingest/metric_intake.h"
#include "ingest/otlp/delta_sums.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep {

class MetricMapping {
 public:
  // memory: where a request's is taken from; nullptr: no limit but its own.
  MetricMapping(MetricIntake& intake, const Clock& clock, MemoryBudget* memory = nullptr)
      : intake_(intake), memory_(memory), deltas_(clock, memory) {}

  struct Outcome {
    uint64_t refused = 0;  // samples; the rest is durable
    std::string line;      // why; empty where none
  };
  // An error: the store takes nothing, or there is no memory; what was pushed before may be pushed again without harm.
  Result<Outcome> push(std::string_view receiver, const otlp::MetricsRequest& request, int64_t received_unix_ns);

  // What raw labels made here stand for.
  static Result<Labels> labels_of(std::string_view raw_labels);
  // Who sends, by the name of a stream as the store counts it; empty: it is no stream of OTLP.
  static Attributes resource_of(std::string_view stream);

 private:
  friend class RequestMapping;

  MetricIntake& intake_;
  MemoryBudget* const memory_;
  DeltaSums deltas_;
};

}  // namespace lockstep
