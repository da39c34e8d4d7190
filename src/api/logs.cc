// GET /api/logs: log records, newest first.
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_logs(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  Page<StoredLog> page = context.steps.logs(request.http.parameter("service"), request.http.parameter("event"),
                                            static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().key("logs").begin_array();
  for (const StoredLog& item : page.items) {
    const LogRecord& record = item.record;
    json.begin_object()
        .field("time_unix_ns", record.time_unix_ns != 0 ? record.time_unix_ns : record.observed_unix_ns)
        .field("service", find_string(*item.resource, "service.name"))
        .field("event", record.event_name)
        .field("severity", record.severity)
        .field("severity_text", record.severity_text)
        .key("body")
        .raw(to_text(record.body));
    if (record.trace_id != TraceId{})
      json.field("trace_id", to_hex(record.trace_id)).field("span_id", to_hex(record.span_id));
    write_attributes(json, "attributes", record.attributes);
    write_attributes(json, "resource", *item.resource);
    json.end_object();
  }
  return list_answer(json, page.total, page.items.size());
}

}  // namespace lockstep
