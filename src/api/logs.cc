// GET /api/logs: log records, newest first.
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"

namespace lockstep {
namespace {

// Of so many records, the newest, those of a host or a time are looked for.
constexpr size_t kSearchedMax = 100'000;

int64_t time_of(const LogRecord& record) {
  return record.time_unix_ns != 0 ? record.time_unix_ns : record.observed_unix_ns;
}

}  // namespace

HttpResponse get_logs(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  Result<int64_t> from = int_parameter(request.http, "from", 0, 0, kLargest);
  if (!from.ok()) return error_answer(400, from.error());
  Result<int64_t> to = int_parameter(request.http, "to", kLargest, 0, kLargest);
  if (!to.ok()) return error_answer(400, to.error());
  const std::string host = request.http.parameter("host"), gpu = request.http.parameter("gpu");
  const std::string job = request.http.parameter("job"), rank_text = request.http.parameter("rank");
  const std::optional<int64_t> rank = parse_int(rank_text);
  if (!rank_text.empty() && !rank) return error_answer(400, "rank: a rank is a whole number");
  const bool filtered = !job.empty() || rank || !host.empty() || !gpu.empty() || *from > 0 || *to < kLargest;
  Page<StoredLog> page = context.steps.logs(request.http.parameter("service"), request.http.parameter("event"),
                                            filtered ? kSearchedMax : static_cast<size_t>(*limit));
  if (filtered) {
    std::erase_if(page.items, [&](const StoredLog& item) {
      const int64_t time = time_of(item.record);
      return time < *from || time > *to || (!host.empty() && find_string(*item.resource, "host.name") != host) ||
             (!job.empty() && find_string(*item.resource, "lockstep.job_id") != job) ||
             (rank && find_int(*item.resource, "lockstep.rank", -1) != *rank) ||
             (!gpu.empty() && find_string(*item.resource, "lockstep.gpu_uuid") != gpu);
    });
    page.total = page.items.size();
    if (page.items.size() > static_cast<size_t>(*limit)) page.items.resize(static_cast<size_t>(*limit));
  }
  JsonWriter json;
  json.begin_object().key("logs").begin_array();
  for (const StoredLog& item : page.items) {
    const LogRecord& record = item.record;
    json.begin_object()
        .field("time_unix_ns", time_of(record))
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
