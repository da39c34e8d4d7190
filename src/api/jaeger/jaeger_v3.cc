// GET /jaeger/api/v3/traces (search) and /jaeger/api/v3/traces/{id}: OTLP as JSON, as newer clients of Jaeger ask.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jaeger/jaeger_answer.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

Result<JaegerSearch> search_of(const ServerRequest& request) {
  JaegerSearch wanted;
  TraceQuery& also = wanted.search.also;
  also.service = request.parameter("query.service_name");
  if (also.service.empty()) return Error{"query.service_name is missing: /api/v3/services lists them"};
  also.name = request.parameter("query.operation_name");
  if (Result<void> tags = add_tags(wanted, request.parameter("query.attributes")); !tags.ok())
    return prefixed(tags.failure(), "query.attributes: ");
  struct {
    const char* name;
    Result<int64_t> (*read)(std::string_view);
    int64_t* target;
  } const values[] = {{"query.duration_min", duration_from_text, &also.duration_least_ns},
                      {"query.duration_max", duration_from_text, &also.duration_most_ns},
                      {"query.start_time_min", unix_ns_from_rfc3339, &also.start_from_unix_ns},
                      {"query.start_time_max", unix_ns_from_rfc3339, &also.start_to_unix_ns}};
  for (const auto& value : values) {
    const std::string text = request.parameter(value.name);
    if (text.empty()) continue;
    Result<int64_t> read = value.read(text);
    if (!read.ok()) return prefixed(read.failure(), format("%s: ", value.name));
    if (*read < 0) return Error{format("%s is negative", value.name)};
    *value.target = *read;
  }
  // Called num_traces at first, search_depth since.
  const char* name = request.parameter("query.search_depth").empty() ? "query.num_traces" : "query.search_depth";
  int64_t limit = LOCKSTEP_TRY(int_parameter(request, name, 20, 1, kTracesOfAnswerMax));
  also.limit = static_cast<size_t>(limit);
  return wanted;
}

HttpResponse spans_answer(std::span<const StoredSpan> spans) {
  JsonWriter json;
  json.begin_object().key("result").begin_object().key("resourceSpans");
  write_resource_spans(json, spans, OtlpJson::kOtlp);
  json.end_object().end_object();
  return json_answer(json);
}

}  // namespace

HttpResponse get_jaeger_v3_traces(const ApiContext& context, const ApiRequest& request) {
  Result<JaegerSearch> wanted = search_of(request.http);
  if (!wanted.ok()) return jaeger_v3_error(400, wanted.error());
  std::vector<StoredSpan> spans;
  for (TraceOfAnswer& trace : traces_of(context, *wanted)) {
    spans.insert(spans.end(), std::make_move_iterator(trace.spans.items.begin()),
                 std::make_move_iterator(trace.spans.items.end()));
  }
  return spans_answer(spans);
}

HttpResponse get_jaeger_v3_trace(const ApiContext& context, const ApiRequest& request) {
  Result<TraceId> id = trace_id_from_text(request.name);
  if (!id.ok()) return jaeger_v3_error(400, id.error());
  const Page<StoredSpan> spans = context.spans.trace(*id, kSpansOfTraceShownMax);
  if (spans.items.empty()) return jaeger_v3_error(404, "trace not found");
  return spans_answer(spans.items);
}

}  // namespace lockstep
