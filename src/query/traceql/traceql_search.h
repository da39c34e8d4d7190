// Finds traces by a TraceQL query: the store looks for what it can, the rest is decided here, within limits.
//
// Where the store's own search decides the query (Pushdown::exact, or every span it found is at hand), no trace is
// read; else the spans of the candidates are, newest traces first, until kSpansLookedAtMax. What was not looked at is
// said in the answer.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "query/traceql/traceql.h"
#include "store/span_store.h"

namespace lockstep {

struct TraceSearch {
  // Service, name, attributes, durations and times that a span has to have besides; limit: of traces.
  TraceQuery also;
  size_t spans_shown = 3;  // of each trace
};
inline constexpr size_t kCandidateTracesMax = 1'000;
inline constexpr size_t kSpansOfTraceMax = 50'000;
inline constexpr size_t kSpansLookedAtMax = 500'000;

struct FoundTraces {
  std::vector<TraceSummary> traces;  // newest first; matched and matching are the query's
  size_t traces_looked_at = 0;
  size_t spans_looked_at = 0;
  std::string cut;  // empty: everything was looked at; else one line that says what was not
};

FoundTraces search_traces(const SpanStore& spans, const TraceQl& query, const TraceSearch& search);

}  // namespace lockstep
