// Spans of training steps and of any other service, kept for days.
//
// Contract (store/span_store_contract_test.cc runs it against every backing):
//  - what was appended is seen by the next query from any thread;
//  - a span with the same trace id, span id and start appended again is kept once (at-least-once delivery is harmless);
//  - queries answer in a defined order and never more than asked for; what is left out is counted in the answer;
//  - what is older than the retention, or beyond the limit in bytes, is dropped oldest first and counted.
// Spans of training steps (model/step_detail.h) are found by (job, attempt, step) and come back typed; the rest by
// service, name, time, duration and attributes.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/step_detail.h"
#include "model/telemetry.h"
#include "store/page.h"
#include "store/spans/span_columns.h"

namespace lockstep {

struct StoredSpan {
  std::shared_ptr<const Attributes> resource;
  Span span;
};

// An attribute of a span or of its resource must be equal to this, numbers and flags compared as text ("7", "true").
struct AttributeMatch {
  std::string key;
  std::string value;
};

struct TraceQuery {
  std::string service;  // service.name; empty: any
  std::string name;     // of a span; empty: any
  std::vector<AttributeMatch> attributes;
  int64_t start_from_unix_ns = 0;  // of a matching span; 0: no limit
  int64_t start_to_unix_ns = 0;
  int64_t duration_least_ns = 0;
  int64_t duration_most_ns = 0;  // 0: no limit
  bool errors_only = false;      // status code ERROR
  size_t limit = 20;             // traces
};

// Whether a span is what the query asks for.
bool matches(const StoredSpan& item, const TraceQuery& query);

struct TraceSummary {
  TraceId trace_id{};
  std::string root_service;  // of the earliest span without a parent, else of the earliest
  std::string root_name;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  size_t spans = 0;
  size_t matched = 0;                // of `spans`
  std::vector<StoredSpan> matching;  // the first few that matched, at most kMatchingShownMax
};
inline constexpr size_t kMatchingShownMax = 3;

struct RankDetail {
  Identity identity;
  StepDetail detail;
};

// A step of which spans are held.
struct TracedStep {
  StepNumber step;
  int64_t start_unix_ns = 0;  // earliest of its ranks
  size_t ranks = 0;           // that have sent their step's span
  size_t spans = 0;
};

class SpanStore {
 public:
  virtual ~SpanStore() = default;

  virtual void append(const ResourceGroup& group, int64_t received_unix_ns) = 0;
  // The same without Span objects. log_sequence: the record of the durable log they came from, for a store that
  // remembers up to where it has made spans durable by itself; 0: none.
  virtual void append(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence);

  // All spans of a trace by start, at most `limit`.
  virtual Page<StoredSpan> trace(const TraceId& trace_id, size_t limit) const = 0;
  // Newest first.
  virtual Page<TraceSummary> search(const TraceQuery& query) const = 0;
  // Newest first by arrival; service empty: any.
  virtual Page<StoredSpan> newest(std::string_view service, size_t limit) const = 0;

  // Sorted.
  virtual std::vector<std::string> services() const = 0;
  virtual std::vector<std::string> span_names(std::string_view service) const = 0;  // empty: of all
  struct AttributeNames {
    std::vector<std::string> resource;
    std::vector<std::string> span;
  };
  virtual AttributeNames attribute_names() const = 0;
  virtual std::vector<std::string> attribute_values(std::string_view key, size_t limit) const = 0;

  // Detail of one step by rank; ranks empty: of all that have sent some.
  virtual std::vector<RankDetail> step(std::string_view job_id, int64_t attempt, StepNumber step,
                                       const std::vector<Rank>& ranks) const = 0;
  // Steps of which there is detail, newest first.
  virtual Page<TracedStep> traced_steps(std::string_view job_id, int64_t attempt, size_t limit) const = 0;
};

}  // namespace lockstep
