// GET /tempo/api/search: traces by TraceQL (q) or by tags, newest first.
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jaeger/jaeger_answer.h"
#include "api/tempo/tempo_answer.h"
#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

constexpr int64_t kSpansShownMax = 100;

Result<void> add_logfmt_tags(const std::string& text, TraceQuery& also) {
  std::vector<AttributeMatch> tags = LOCKSTEP_TRY(tags_from_logfmt(text));
  for (AttributeMatch& tag : tags) {
    if (tag.key == "service.name") {
      also.service = tag.value;
    } else if (tag.key == "name") {
      also.name = tag.value;
    } else if (tag.key == "error" && tag.value == "true") {
      also.errors_only = true;
    } else {
      also.attributes.push_back(std::move(tag));
    }
  }
  return {};
}

Result<void> add_durations(const ServerRequest& request, TraceQuery& also) {
  for (auto [name, target] :
       {std::pair{"minDuration", &also.duration_least_ns}, {"maxDuration", &also.duration_most_ns}}) {
    const std::string text = request.parameter(name);
    if (text.empty()) continue;
    Result<int64_t> duration = duration_from_text(text);
    if (!duration.ok()) return prefixed(duration.failure(), format("%s: ", name));
    if (*duration < 0) return Error{format("%s is negative", name)};
    *target = *duration;
  }
  return {};
}

struct Wanted {
  TraceQl query;
  TraceSearch search;
};

Result<Wanted> search_of(const ServerRequest& request) {
  Wanted wanted;
  TraceQuery& also = wanted.search.also;
  if (const std::string q = request.parameter("q"); !q.empty()) {
    wanted.query = LOCKSTEP_TRY(parse_traceql(q));
  } else {
    LOCKSTEP_TRY(add_logfmt_tags(request.parameter("tags"), also));
  }
  LOCKSTEP_TRY(add_durations(request, also));
  LOCKSTEP_TRY(add_times(request, also));
  int64_t limit = LOCKSTEP_TRY(int_parameter(request, "limit", 20, 1, kTracesOfAnswerMax));
  int64_t shown = LOCKSTEP_TRY(int_parameter(request, "spss", 3, 1, kSpansShownMax));
  also.limit = static_cast<size_t>(limit);
  wanted.search.spans_shown = static_cast<size_t>(shown);
  return wanted;
}

void write_span_set(JsonWriter& json, const TraceSummary& trace, const std::vector<traceql::FieldRef>& fields) {
  const TraceFacts facts{trace.root_service, trace.root_name, trace.start_unix_ns, trace.end_unix_ns};
  json.begin_object().key("spans").begin_array();
  for (const StoredSpan& item : trace.matching) {
    const Span& span = item.span;
    json.begin_object()
        .field("spanID", to_hex(span.span_id))
        .field("name", span.name)
        .field("startTimeUnixNano", std::to_string(span.start_unix_ns))
        .field("durationNanos", std::to_string(span.end_unix_ns - span.start_unix_ns))
        .key("attributes");
    Attributes attributes;
    for (const traceql::FieldRef& field : fields) {
      // These stand in columns of their own.
      if (field.field == traceql::Field::kName || field.field == traceql::Field::kDuration) continue;
      Value value = value_of(field, item, facts);
      if (std::holds_alternative<std::monostate>(value.data)) continue;
      attributes.push_back({field.key.empty() ? field.text : field.key, std::move(value)});
    }
    write_otlp_attributes(json, attributes);
    json.end_object();
  }
  json.end_array().field("matched", static_cast<uint64_t>(trace.matched)).end_object();
}

}  // namespace

HttpResponse get_tempo_search(const ApiContext& context, const ApiRequest& request) {
  Result<Wanted> wanted = search_of(request.http);
  if (!wanted.ok()) return tempo_error(400, wanted.error());
  const FoundTraces found = search_traces(context.spans, wanted->query, wanted->search);
  const std::vector<traceql::FieldRef> fields = fields_of(wanted->query);
  JsonWriter json;
  json.begin_object().key("traces").begin_array();
  for (const TraceSummary& trace : found.traces) {
    const int64_t duration_ms = (trace.end_unix_ns - trace.start_unix_ns) / 1'000'000;
    json.begin_object()
        .field("traceID", to_hex(trace.trace_id))
        .field("rootServiceName", trace.root_service)
        .field("rootTraceName", trace.root_name)
        .field("startTimeUnixNano", std::to_string(trace.start_unix_ns))
        .field("durationMs", std::clamp<int64_t>(duration_ms, 0, std::numeric_limits<uint32_t>::max()));
    json.key("spanSet");
    write_span_set(json, trace, fields);
    json.key("spanSets").begin_array();
    write_span_set(json, trace, fields);
    json.end_array().end_object();
  }
  json.end_array()
      .key("metrics")
      .begin_object()
      .field("inspectedTraces", static_cast<uint64_t>(found.traces_looked_at))
      .field("inspectedSpans", std::to_string(found.spans_looked_at))
      .field("completedJobs", 1)
      .field("totalJobs", found.cut.empty() ? 1 : 2)
      .end_object();
  if (!found.cut.empty()) json.field("message", found.cut);
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
