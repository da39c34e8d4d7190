// Counts of log records over time, and what is made of them.
//
// A point at t counts records of (t - range, t]. sum by (...) of them is counted as it is asked for, so that its series are
// all that takes memory.
// Limits: kSeriesMax in an answer, kPointsMax of each; kCellsMax points and kStreamsMax streams and series counted; rows
//   and time as the log search has.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "query/logql/log_labels.h"
#include "query/logql/logql.h"
#include "store/logs/columnar_log_store.h"

namespace lockstep::logql {

inline constexpr size_t kSeriesMax = 500;
inline constexpr int64_t kPointsMax = 11'000;
inline constexpr size_t kCellsMax = 8'000'000;
inline constexpr size_t kStreamsMax = 50'000;

struct MetricSeries {
  Labels labels;
  std::vector<double> values;   // by point
  std::vector<uint8_t> exists;  // by point: 0 where there is none
};

struct MetricTimes {
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;  // inclusive
  int64_t step_ns = 1;
  size_t points() const { return static_cast<size_t>((end_unix_ns - start_unix_ns) / step_ns) + 1; }
};

enum class MetricFailure : uint8_t { kNone, kRefused, kGaveUp, kNoMemory };

struct MetricResult {
  MetricFailure failure = MetricFailure::kNone;
  std::string error;                 // one line
  std::vector<MetricSeries> series;  // sorted by labels; of topk and bottomk at one time by value
  uint64_t rows_looked_at = 0;
};

struct MetricOptions {
  MetricTimes times;
  MemoryLease* memory = nullptr;       // nullptr: no limit
  std::function<bool()> give_up = {};  // nobody waits any more
};

// The expression is no selection of lines, and has points() of at most kPointsMax.
MetricResult run_metric_query(const ColumnarLogStore& store, const Expression& expression,
                              const MetricOptions& options);

}  // namespace lockstep::logql
