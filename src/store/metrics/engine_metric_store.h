// MetricStore over the metrics engine: for those who ask for metrics by name and write sample by sample. Who has a
// whole push writes it to the engine at once (MetricWriter), which costs a fraction.
//
// Times are kept to the millisecond. Kind and unit are the metric's metadata, so the last one told is everybody's.
// Thread rule: Thread-safe.
#pragma once

#include <atomic>

#include "base/counters.h"
#include "store/metric_store.h"
#include "store/metrics/metric_engine.h"

namespace lockstep {

class EngineMetricStore final : public MetricStore {
 public:
  EngineMetricStore(MetricEngine& engine, Counters& counters);

  AppendOutcome append(std::string_view name, const Labels& labels, std::string_view unit, std::string_view kind,
                       Sample sample) override;
  std::vector<std::string> names() const override;
  std::vector<Series> select(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns, size_t series_max,
                             size_t* total) const override;

 private:
  MetricEngine& engine_;
  Counters& counters_;
  std::atomic<int64_t>&received_, &replaced_, &held_;
};

}  // namespace lockstep
