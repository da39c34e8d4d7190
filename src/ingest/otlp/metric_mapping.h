// OTLP metrics into the metrics store: a walk over an ExportMetricsServiceRequest that hands series on as views, one
// push per resource and scope, without building a Batch.
//
// Names and labels are Prometheus' (model/prometheus_name.h). Labels: the point's attributes, and of the resource
//   host.name as host, lockstep.X as X, service.name as service_name and, as Prometheus' rules for OTLP say, as job
//   (with service.namespace/ before it), service.instance.id as instance; the point wins.
// gauge, sum -> the value; histogram -> NAME_bucket{le}, NAME_sum, NAME_count; exponential histogram -> a native one
//   (a scale above 8 is merged down to 8); summary -> NAME{quantile}, NAME_sum, NAME_count. "No recorded value" is a
//   stale marker. Exemplars go with the series, of a histogram with their bucket.
// Delta points are added up to counters from the first one on, so that rate() and increase() mean the same everywhere;
// what
//   has been added is remembered for kDeltaIdleNs after the last point and for kDeltasMax series, and begins anew (a
//   counter reset) after a restart. A delta that is not later than the one before is refused: it was counted already.
// Refused besides: native histograms below scale -4 (bad_histogram), points with neither value nor flag.
// Raw labels: 'O', then what the labels are made of as it came.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/memory_budget.h"
#include "ingest/metric_intake.h"

namespace lockstep {

class MetricMapping {
 public:
  static constexpr size_t kDeltasMax = 200'000;
  static constexpr int64_t kDeltaIdleNs = 3'600'000'000'000;

  // memory: where a request's is taken from; nullptr: no limit but its own.
  MetricMapping(MetricIntake& intake, const Clock& clock, MemoryBudget* memory = nullptr)
      : intake_(intake), clock_(clock), memory_(memory), delta_memory_(memory, MemoryUse::kSeries) {}

  struct Outcome {
    uint64_t refused = 0;  // samples; the rest is durable
    std::string line;      // why; empty where none
  };
  // bytes: the request in protobuf, decoded well before (otlp::decode() judges it). An error: the store takes nothing,
  // there is no memory, or the bytes are no such request; what was pushed before may be pushed again without harm.
  Result<Outcome> push(std::string_view receiver, std::string_view bytes, int64_t received_unix_ns);

  // What raw labels made here stand for.
  static Result<Labels> labels_of(std::string_view raw_labels);

 private:
  friend class OtlpMetricWalk;
  struct Delta {
    double sum = 0;
    NativeHistogram histogram;
    int64_t time_ms = 0;
    int64_t used_ns = 0;
  };
  static uint64_t bytes_of(std::string_view raw_labels) { return raw_labels.size() + sizeof(Delta) + 64; }
  void forget_idle_deltas(int64_t now_ns);

  MetricIntake& intake_;
  const Clock& clock_;
  MemoryBudget* const memory_;
  std::mutex delta_mutex_;  // held over a push that has deltas: they are taken back where it fails
  std::unordered_map<std::string, Delta> deltas_;  // by raw labels; guarded by delta_mutex_
  MemoryPool delta_memory_;                        // of their keys; guarded by delta_mutex_
  int64_t next_sweep_ns_ = 0;                      // guarded by delta_mutex_
};

}  // namespace lockstep
