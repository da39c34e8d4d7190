// Runs a PromQL query over a MetricReader.
//
// Evaluation is by columns: each selector is resolved once, a series' values at all steps lie side by side, labels are
// numbers, and text is made only for what is answered.
// Limits:   QueryLimits; more is an error that names the limit, never a cut.
// Cancel:   `cancelled` and the deadline are looked at every few thousand samples or series.
// Thread rule: Thread-safe (no state).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "query/promql/ast.h"
#include "query/promql/histogram_math.h"
#include "store/metric_reader.h"

namespace lockstep::promql {

struct QueryLimits {
  uint64_t samples_max = 50'000'000;  // read, over the whole query
  uint64_t series_max = 2'000'000;    // of one selector
  uint64_t bytes_max = 2ull << 30;    // of values, labels and the answer held at once
};

struct QueryOptions {
  int64_t lookback_ms = 5 * 60 * 1000;
  int64_t subquery_step_ms = 60 * 1000;  // where a subquery names none
  // Metric names go at the end of the query instead of at each operation (Prometheus's feature of that name).
  bool delayed_name_removal = false;
  // "Might not be a counter" is judged by the label __type__ instead of by the name's ending.
  bool type_and_unit_labels = false;
  // Queries that reach further than this let the store answer from a rollup as coarse as the step allows.
  int64_t rollup_span_ms = 24 * 3600 * 1000;
  QueryLimits limits;
  MemoryLease* memory = nullptr;  // where what the query holds is taken from; its owner keeps it as long as the result
  std::function<bool()> cancelled = {};  // empty: never
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// Instant: start == end and step == 0.
struct QueryTimes {
  int64_t start_ms = 0;
  int64_t end_ms = 0;
  int64_t step_ms = 0;
};

struct Annotation {
  bool warning = false;  // else info
  std::string message;
  uint32_t at = 0;      // byte of the query
  std::string details;  // shown besides, not part of what it is
};
// As the API shows it: with line and column.
std::string shown(const Annotation& annotation, std::string_view query);

struct ResultSeries {
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<int64_t> times_ms;  // an instant vector has one
  std::vector<double> values;
  std::vector<HistogramPtr> histograms;  // empty, or as long as the others; null: a float
};

// kNoMemory: the server has none now; the same query may succeed later.
enum class QueryFailure : uint8_t { kNone, kBadQuery, kExecution, kTimeout, kCancelled, kNoMemory };

struct QueryResult {
  QueryFailure failure = QueryFailure::kNone;
  std::string error;                  // one line
  ValueType type = ValueType::kNone;  // kMatrix for every range query
  double scalar = 0;
  std::string text;
  std::vector<ResultSeries> series;
  std::vector<Annotation> annotations;
  uint64_t samples_read = 0;
  uint64_t peak_bytes = 0;
  bool ok() const { return failure == QueryFailure::kNone; }
};

QueryResult run_query(std::string_view query, const MetricReader& reader, const QueryTimes& times,
                      const QueryOptions& options);
QueryResult run_query(std::unique_ptr<Expr> expr, const MetricReader& reader, const QueryTimes& times,
                      const QueryOptions& options);

}  // namespace lockstep::promql
