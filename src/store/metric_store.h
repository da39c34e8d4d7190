// Metrics: series of samples by name and labels.
//
// Contract (store/metric_store_contract_test.cc runs it against every backing):
//  - a sample appended is seen by the next query from any thread; NaN keeps its payload bits;
//  - the same (series, time) appended again: the last one wins, and is counted;
//  - samples of a series come back in time order whatever order they came in;
//  - beyond its limits the store refuses new series and drops the oldest samples, and counts both.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/metric_descriptor.h"

namespace lockstep {

struct Sample {
  int64_t time_unix_ns = 0;
  double value = 0;
};

struct Series {
  std::string name;
  Labels labels;  // sorted by name, names unique
  std::string unit;
  std::string kind;  // gauge counter histogram_bucket histogram_sum histogram_count summary
  std::vector<Sample> samples;
};

enum class AppendOutcome { kStored, kReplaced, kRefusedSeriesLimit };

class MetricStore {
 public:
  virtual ~MetricStore() = default;
  virtual AppendOutcome append(std::string_view name, const Labels& labels, std::string_view unit,
                               std::string_view kind, Sample sample) = 0;
  virtual std::vector<std::string> names() const = 0;  // sorted
  // Exact name, from <= time <= to, at most series_max series in label order; total says how many there are.
  virtual std::vector<Series> select(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns, size_t series_max,
                                     size_t* total) const = 0;
};

}  // namespace lockstep
