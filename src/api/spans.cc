// GET /api/spans: spans of a trace by start, else the newest first.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/characters.h"
#include "base/text.h"

namespace lockstep {

HttpResponse get_spans(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  std::string trace_id = request.http.parameter("trace_id");
  for (char& digit : trace_id) digit = hex_digit(digit) >= 0 ? lower_case(digit) : digit;
  bool is_hex = std::all_of(trace_id.begin(), trace_id.end(), [](char digit) { return hex_digit(digit) >= 0; });
  if (!trace_id.empty() && (trace_id.size() != 32 || !is_hex))
    return error_answer(400, format("trace_id is \"%.64s\"; it must be 32 hex digits", trace_id.c_str()));

  const size_t most = static_cast<size_t>(*limit);
  Page<StoredSpan> page = trace_id.empty() ? context.spans.newest(request.http.parameter("service"), most)
                                           : context.spans.trace(trace_id_from_hex(trace_id), most);
  JsonWriter json;
  json.begin_object().key("spans").begin_array();
  for (const StoredSpan& item : page.items) {
    const Span& span = item.span;
    json.begin_object()
        .field("trace_id", to_hex(span.trace_id))
        .field("span_id", to_hex(span.span_id))
        .field("parent_span_id", span.parent_span_id == SpanId{} ? std::string() : to_hex(span.parent_span_id))
        .field("service", find_string(*item.resource, "service.name"))
        .field("name", span.name)
        .field("kind", span.kind)
        .field("start_unix_ns", span.start_unix_ns)
        .field("end_unix_ns", span.end_unix_ns)
        .field("status", span.status_code)
        .field("status_message", span.status_message);
    write_attributes(json, "attributes", span.attributes);
    json.key("events").begin_array();
    for (const SpanEvent& event : span.events) {
      json.begin_object().field("time_unix_ns", event.time_unix_ns).field("name", event.name);
      write_attributes(json, "attributes", event.attributes);
      json.end_object();
    }
    json.end_array().key("links").begin_array();
    for (const SpanLink& link : span.links) {
      json.begin_object().field("trace_id", to_hex(link.trace_id)).field("span_id", to_hex(link.span_id));
      write_attributes(json, "attributes", link.attributes);
      json.end_object();
    }
    json.end_array();
    write_attributes(json, "resource", *item.resource);
    json.end_object();
  }
  return list_answer(json, page.total, page.items.size());
}

}  // namespace lockstep
