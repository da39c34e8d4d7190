// GET /api/logs: log records and events, newest first.
//
// Those on disk (store/logs); steps, which are events too, are in memory alone and have to be asked for by name.
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/log_patience.h"
#include "base/text.h"
#include "model/events.h"
#include "store/logs/columnar_log_store.h"

namespace lockstep {
namespace {

// Of so many records, the newest, those of a host or a time are looked for.
constexpr size_t kSearchedMax = 100'000;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

int64_t time_of(const LogRecord& record) {
  return record.time_unix_ns != 0 ? record.time_unix_ns : record.observed_unix_ns;
}

struct Asked {
  int64_t limit = 100, from = 0, to = kLargest, after = 0;
  std::string service, event, job, host, gpu;
  Rank rank = kNoRank;
  int32_t severity_min = 0;
  bool oldest_first = false;
  std::vector<LogFilter> filters;
};

// "warn" and what is worse; or OTLP's number.
Result<int32_t> severity_of(const std::string& text) {
  if (text.empty()) return 0;
  for (int32_t number = 1; number <= 24; number += 4) {
    if (text == severity_word(number)) return number;
  }
  const std::optional<int64_t> number = parse_int(text);
  if (!number || *number < 0 || *number > 24)
    return Error{"severity is trace, debug, info, warn, error or fatal, or OTLP's number from 0 to 24"};
  return static_cast<int32_t>(*number);
}

Result<Asked> read(const ServerRequest& request) {
  Asked asked;
  asked.limit = LOCKSTEP_TRY(int_parameter(request, "limit", 100, 1, 10'000));
  asked.from = LOCKSTEP_TRY(int_parameter(request, "from", 0, 0, kLargest));
  asked.to = LOCKSTEP_TRY(int_parameter(request, "to", kLargest, 0, kLargest));
  asked.after = LOCKSTEP_TRY(int_parameter(request, "after", 0, 0, kLargest));
  asked.service = request.parameter("service");
  asked.event = request.parameter("event");
  asked.job = request.parameter("job");
  asked.host = request.parameter("host");
  asked.gpu = request.parameter("gpu");
  asked.rank = Rank{static_cast<int32_t>(LOCKSTEP_TRY(int_parameter(request, "rank", kNoRank.value(), 0, INT32_MAX)))};
  asked.severity_min = LOCKSTEP_TRY(severity_of(request.parameter("severity")));
  const std::string order = request.parameter("order");
  if (!order.empty() && order != "newest" && order != "oldest") return Error{"order is newest or oldest"};
  asked.oldest_first = order == "oldest";
  if (std::string text = request.parameter("grep"); !text.empty()) asked.filters.push_back({.text = std::move(text)});
  if (const std::string pattern = request.parameter("match"); !pattern.empty())
    asked.filters.push_back({.text = "", .pattern = LOCKSTEP_TRY(log_pattern(pattern))});
  return asked;
}

HttpResponse answer_from_disk(const ApiContext& context, const ServerRequest& request, const Asked& asked) {
  const LogPatience patience(context, request);  // once it is over, the answer says that it is not whole
  LogQuery query{.filters = asked.filters,
                 .rank = asked.rank,
                 .from_unix_ns = asked.from,
                 .to_unix_ns = asked.to,
                 .severity_min = asked.severity_min,
                 .after = asked.after,
                 .limit = static_cast<size_t>(asked.limit),
                 .oldest_first = asked.oldest_first,
                 .give_up = [&] { return patience.is_over(); }};
  for (const auto& [field, text] : {std::pair{LogField::kService, &asked.service},
                                    {LogField::kEvent, &asked.event},
                                    {LogField::kJob, &asked.job},
                                    {LogField::kHost, &asked.host},
                                    {LogField::kGpu, &asked.gpu}}) {
    if (!text->empty()) query.matches.push_back({.field = field, .text = *text});
  }
  const LogPage page = context.logs->find(query);
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  // What was found, and the answer.
  if ((page.gave_up && patience.nobody_waits()) || !memory.add(2 * page.bytes)) return error_answer(503, kMemorySpent);
  JsonWriter json;
  json.begin_object().key("logs").begin_array();
  for (const LogEntry& entry : page.entries) {
    json.begin_object()
        .field("time_unix_ns", entry.time_unix_ns)
        .field("service", entry.service)
        .field("event", entry.event)
        .field("severity", entry.severity)
        .field("severity_text", entry.severity_text)
        .key("body")
        .raw(entry.body);
    if (entry.trace.size() == 48)
      json.field("trace_id", entry.trace.substr(0, 32)).field("span_id", entry.trace.substr(32));
    json.key("attributes").raw(entry.attributes).key("resource").raw(entry.resource).end_object();
  }
  json.end_array()
      .field("total", static_cast<uint64_t>(page.entries.size() + (page.more ? 1 : 0)))
      .field("shown", static_cast<uint64_t>(page.entries.size()))
      .field("whole", page.whole)  // else there was more to look through than one answer may
      .field("after", page.after)
      .end_object();
  return json_answer(json);
}

HttpResponse answer_from_memory(const ApiContext& context, const Asked& asked) {
  const bool filtered = !asked.job.empty() || asked.rank != kNoRank || !asked.host.empty() || !asked.gpu.empty() ||
                        asked.from > 0 || asked.to < kLargest || asked.severity_min > 0;
  Page<StoredLog> page =
      context.steps.logs(asked.service, asked.event, filtered ? kSearchedMax : static_cast<size_t>(asked.limit));
  if (filtered) {
    std::erase_if(page.items, [&](const StoredLog& item) {
      const int64_t time = time_of(item.record);
      return time < asked.from || time > asked.to || item.record.severity < asked.severity_min ||
             (!asked.host.empty() && find_string(*item.resource, "host.name") != asked.host) ||
             (!asked.job.empty() && find_string(*item.resource, "lockstep.job_id") != asked.job) ||
             (asked.rank != kNoRank && find_int(*item.resource, "lockstep.rank", -1) != asked.rank.value()) ||
             (!asked.gpu.empty() && find_string(*item.resource, "lockstep.gpu_uuid") != asked.gpu);
    });
    page.total = page.items.size();
    if (page.items.size() > static_cast<size_t>(asked.limit)) page.items.resize(static_cast<size_t>(asked.limit));
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

}  // namespace

HttpResponse get_logs(const ApiContext& context, const ApiRequest& request) {
  const Result<Asked> asked = read(request.http);
  if (!asked.ok()) return error_answer(400, asked.error());
  const bool is_step = asked->event == kEventTrainStep;
  if (is_step || context.logs == nullptr) {
    if (!asked->filters.empty() || asked->after > 0 || asked->oldest_first)
      return error_answer(400, "grep, match, order and after are not for steps");
    return answer_from_memory(context, *asked);
  }
  return answer_from_disk(context, request.http, *asked);
}

}  // namespace lockstep
