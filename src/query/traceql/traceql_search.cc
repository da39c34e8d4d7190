#include "query/traceql/traceql_search.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

using namespace traceql;

// Both at once, as far as a store can look for them; false: it cannot.
bool join(TraceQuery& query, const TraceQuery& also) {
  if (!also.service.empty() && !query.service.empty() && also.service != query.service) return false;
  if (!also.name.empty() && !query.name.empty() && also.name != query.name) return false;
  if (!also.service.empty()) query.service = also.service;
  if (!also.name.empty()) query.name = also.name;
  query.attributes.insert(query.attributes.end(), also.attributes.begin(), also.attributes.end());
  query.start_from_unix_ns = also.start_from_unix_ns;
  query.start_to_unix_ns = also.start_to_unix_ns;
  query.duration_least_ns = std::max(query.duration_least_ns, also.duration_least_ns);
  if (also.duration_most_ns != 0) {
    query.duration_most_ns =
        query.duration_most_ns == 0 ? also.duration_most_ns : std::min(query.duration_most_ns, also.duration_most_ns);
  }
  query.errors_only = query.errors_only || also.errors_only;
  return true;
}

// Which of the spans are in the set; empty: the set asks for something that the trace has not.
std::vector<bool> members(const SpanSet& set, const std::vector<const StoredSpan*>& spans, const TraceFacts& facts) {
  std::vector<bool> in(spans.size());
  if (set.type == SpanSet::Type::kFilter) {
    for (size_t i = 0; i < spans.size(); ++i) in[i] = matches(set.condition, *spans[i], facts);
    return in;
  }
  for (const SpanSet& part : set.parts) {
    const std::vector<bool> one = members(part, spans, facts);
    const bool is_any = std::find(one.begin(), one.end(), true) != one.end();
    if (!is_any && set.type == SpanSet::Type::kAnd) return std::vector<bool>(spans.size());
    for (size_t i = 0; i < spans.size(); ++i) in[i] = in[i] || one[i];
  }
  return in;
}

// False: the trace is out.
bool apply(const Stage& stage, std::vector<const StoredSpan*>& spans, const TraceFacts& facts) {
  if (stage.type == Stage::Type::kSelect) return true;
  if (stage.type == Stage::Type::kFilter) {
    std::erase_if(spans, [&](const StoredSpan* span) { return !matches(stage.condition, *span, facts); });
    return !spans.empty();
  }
  if (stage.type == Stage::Type::kCount) return holds(stage.op, static_cast<double>(spans.size()), stage.value);
  double sum = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  size_t count = 0;
  for (const StoredSpan* span : spans) {
    const Value value = value_of(stage.of, *span, facts);
    double number = 0;
    if (const int64_t* whole = std::get_if<int64_t>(&value.data)) {
      number = static_cast<double>(*whole);
    } else if (const double* real = std::get_if<double>(&value.data)) {
      number = *real;
    } else {
      continue;
    }
    sum += number;
    least = std::min(least, number);
    most = std::max(most, number);
    ++count;
  }
  if (count == 0) return false;
  switch (stage.type) {
    case Stage::Type::kAverage:
      return holds(stage.op, sum / static_cast<double>(count), stage.value);
    case Stage::Type::kMinimum:
      return holds(stage.op, least, stage.value);
    case Stage::Type::kMaximum:
      return holds(stage.op, most, stage.value);
    default:
      return holds(stage.op, sum, stage.value);
  }
}

TraceFacts facts_of(const TraceSummary& trace) {
  return {trace.root_service, trace.root_name, trace.start_unix_ns, trace.end_unix_ns};
}

// The query over the spans at hand; 0: the trace is not what was asked for.
size_t decide(const TraceQl& query, const TraceSearch& search, const std::vector<StoredSpan>& at_hand,
              TraceSummary& trace) {
  const TraceFacts facts = facts_of(trace);
  std::vector<const StoredSpan*> spans;
  for (const StoredSpan& span : at_hand) {
    if (matches(span, search.also)) spans.push_back(&span);
  }
  const std::vector<bool> in = members(query.spans, spans, facts);
  std::vector<const StoredSpan*> chosen;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (in[i]) chosen.push_back(spans[i]);
  }
  if (chosen.empty()) return 0;
  for (const Stage& stage : query.stages) {
    if (!apply(stage, chosen, facts)) return 0;
  }
  std::vector<StoredSpan> shown;
  for (size_t i = 0; i < chosen.size() && i < search.spans_shown; ++i) shown.push_back(*chosen[i]);
  trace.matched = chosen.size();
  trace.matching = std::move(shown);
  return trace.matched;
}

}  // namespace

FoundTraces search_traces(const SpanStore& spans, const TraceQl& query, const TraceSearch& search) {
  FoundTraces found;
  Pushdown pushed = push_down(query);
  if (!join(pushed.query, search.also)) return found;  // two names at once: nothing has them
  const bool is_single = query.spans.type == SpanSet::Type::kFilter;
  pushed.query.limit = pushed.exact ? search.also.limit : kCandidateTracesMax;
  Page<TraceSummary> candidates = spans.search(pushed.query);
  size_t cut_traces = 0;
  for (TraceSummary& trace : candidates.items) {
    if (found.traces.size() >= search.also.limit) break;
    ++found.traces_looked_at;
    const bool is_whole = trace.matched <= trace.matching.size();
    if (pushed.exact && (is_whole || search.spans_shown <= trace.matching.size())) {
      if (trace.matching.size() > search.spans_shown) trace.matching.resize(search.spans_shown);
      found.spans_looked_at += trace.matching.size();
      found.traces.push_back(std::move(trace));
      continue;
    }
    std::vector<StoredSpan> at_hand;
    if (is_single && is_whole) {
      at_hand = std::move(trace.matching);
    } else {
      if (found.spans_looked_at >= kSpansLookedAtMax) {
        --found.traces_looked_at;
        break;
      }
      Page<StoredSpan> page = spans.trace(trace.trace_id, kSpansOfTraceMax);
      cut_traces += page.total > page.items.size();
      at_hand = std::move(page.items);
    }
    found.spans_looked_at += at_hand.size();
    if (decide(query, search, at_hand, trace) > 0) found.traces.push_back(std::move(trace));
  }
  if (found.traces.size() < search.also.limit && found.traces_looked_at < candidates.total) {
    found.cut =
        format("looked at the newest %zu of %zu traces that may match; narrow the time, or add a condition with =",
               found.traces_looked_at, candidates.total);
  } else if (cut_traces > 0) {
    found.cut = format("of %zu traces only the first %zu spans were looked at", cut_traces, kSpansOfTraceMax);
  }
  return found;
}

}  // namespace lockstep
