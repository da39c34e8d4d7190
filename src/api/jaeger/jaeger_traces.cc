// GET /jaeger/api/traces (search) and /jaeger/api/traces/{id}: traces in Jaeger's JSON.
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jaeger/jaeger_answer.h"
#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

constexpr int64_t kMicrosecondsMax = std::numeric_limits<int64_t>::max() / 1000;

Result<int64_t> duration_parameter(const ServerRequest& request, const char* name) {
  const std::string text = request.parameter(name);
  if (text.empty()) return int64_t{0};
  Result<int64_t> duration = duration_from_text(text);
  if (!duration.ok()) return prefixed(duration.failure(), format("%s: ", name));
  if (*duration < 0) return Error{format("%s is negative", name)};
  return duration;
}

Result<JaegerSearch> search_of(const ApiContext& context, const ServerRequest& request) {
  JaegerSearch wanted;
  TraceQuery& also = wanted.search.also;
  also.service = request.parameter("service");
  if (also.service.empty()) return Error{"service is missing: /api/services lists them"};
  const std::string operation = request.parameter("operation");
  if (operation != "all") also.name = operation;
  LOCKSTEP_TRY(add_tags(wanted, request.parameter("tags")));
  int64_t least = LOCKSTEP_TRY(duration_parameter(request, "minDuration"));
  int64_t most = LOCKSTEP_TRY(duration_parameter(request, "maxDuration"));
  if (most != 0 && most < least) return Error{"maxDuration is less than minDuration"};
  Result<int64_t> start = int_parameter(request, "start", 0, 0, kMicrosecondsMax);
  if (!start.ok()) return Error{start.error() + " (microseconds)", start.code()};
  Result<int64_t> end = int_parameter(request, "end", 0, 0, kMicrosecondsMax);
  if (!end.ok()) return Error{end.error() + " (microseconds)", end.code()};
  if (*end != 0 && *end < *start) return Error{"end is before start"};
  int64_t limit = LOCKSTEP_TRY(int_parameter(request, "limit", 20, 1, kTracesOfAnswerMax));
  also.duration_least_ns = least;
  also.duration_most_ns = most;
  also.start_from_unix_ns = *start * 1000;
  also.start_to_unix_ns = *end * 1000;
  also.limit = static_cast<size_t>(limit);
  if (*start == 0) {
    int64_t lookback = LOCKSTEP_TRY(duration_parameter(request, "lookback"));
    const int64_t until = *end != 0 ? *end * 1000 : context.clock.unix_ns();
    if (lookback > 0) also.start_from_unix_ns = std::max<int64_t>(1, until - lookback);
  }
  return wanted;
}

}  // namespace

HttpResponse get_jaeger_traces(const ApiContext& context, const ApiRequest& request) {
  Result<JaegerSearch> wanted = search_of(context, request.http);
  if (!wanted.ok()) return jaeger_error(400, wanted.error());
  const std::vector<TraceOfAnswer> traces = traces_of(context, *wanted);
  return jaeger_answer(traces.size(), [&](JsonWriter& json) {
    json.begin_array();
    for (const TraceOfAnswer& trace : traces) write_jaeger_trace(json, trace.trace_id, trace.spans);
    json.end_array();
  });
}

HttpResponse get_jaeger_trace(const ApiContext& context, const ApiRequest& request) {
  Result<TraceId> id = trace_id_from_text(request.name);
  if (!id.ok()) return jaeger_error(400, id.error());
  const Page<StoredSpan> spans = context.spans.trace(*id, kSpansOfTraceShownMax);
  if (spans.items.empty()) return jaeger_error(404, "trace not found");
  return jaeger_answer(1, [&](JsonWriter& json) {
    json.begin_array();
    write_jaeger_trace(json, *id, spans);
    json.end_array();
  });
}

}  // namespace lockstep
