// Metrics in memory: per series the newest samples, in time order.
//
// Limits: series_max, beyond which new series are refused; samples_per_series_max, and samples_max over all series:
// when
//         there are many series each may keep fewer (never less than 16), oldest samples dropped first.
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <shared_mutex>
#include <string>

#include "base/counters.h"
#include "store/metric_store.h"

namespace lockstep {

struct MemoryMetricStoreOptions {
  size_t series_max = 200'000;
  size_t samples_per_series_max = 1'000;
  size_t samples_max = 50'000'000;
};

class MemoryMetricStore final : public MetricStore {
 public:
  MemoryMetricStore(MemoryMetricStoreOptions options, Counters& counters);

  AppendOutcome append(std::string_view name, const Labels& labels, std::string_view unit, std::string_view kind,
                       Sample sample) override;
  std::vector<std::string> names() const override;
  std::vector<Series> select(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns, size_t series_max,
                             size_t* total) const override;

 private:
  struct Entry {
    std::string unit;
    std::string kind;
    std::vector<Sample> samples;  // from `first` on, sorted by time; before it: dropped, not yet moved away
    size_t first = 0;
  };

  const MemoryMetricStoreOptions options_;
  std::atomic<int64_t>& received_;
  std::atomic<int64_t>& replaced_;
  std::atomic<int64_t>& dropped_;
  std::atomic<int64_t>& refused_;
  std::atomic<int64_t>& held_;
  std::atomic<int64_t>& series_gauge_;

  mutable std::shared_mutex mutex_;
  // Under mutex_.
  std::map<std::string, std::map<Labels, Entry>, std::less<>> names_;
  size_t series_ = 0;
};

}  // namespace lockstep
