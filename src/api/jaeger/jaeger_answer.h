// What the endpoints below /jaeger/ share: Jaeger's envelope, its errors, a trace in its JSON, and its way to ask.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/context.h"
#include "base/json_writer.h"
#include "net/http_server.h"
#include "query/traceql/traceql_search.h"
#include "store/span_store.h"

namespace lockstep {

// A browser cannot hold more of one trace, nor does a person read it; the Perfetto file has all of a step.
inline constexpr size_t kSpansOfTraceShownMax = 20'000;
inline constexpr size_t kSpansOfAnswerMax = 60'000;
inline constexpr int64_t kTracesOfAnswerMax = 1'000;

// {"data": ..., "total": n, "limit": 0, "offset": 0, "errors": null}; write_data writes one value.
HttpResponse jaeger_answer(size_t total, const std::function<void(JsonWriter&)>& write_data);
HttpResponse jaeger_error(int status, std::string_view line);
// The same for /api/v3: {"error": {"httpCode": 400, "message": "..."}}.
HttpResponse jaeger_v3_error(int status, std::string_view line);

void write_jaeger_trace(JsonWriter& json, const TraceId& trace_id, const Page<StoredSpan>& spans);

// service, operation, tags, durations and times as either API calls them. A tag is compared as text; "error" and
// "span.kind" mean what Jaeger makes of the status and kind of a span.
struct JaegerSearch {
  TraceQl query;
  TraceSearch search;
};
Result<void> add_tags(JaegerSearch& search, const std::string& tags_json);

// Newest first, each with the spans that may be shown of it.
struct TraceOfAnswer {
  TraceId trace_id{};
  Page<StoredSpan> spans;
};
std::vector<TraceOfAnswer> traces_of(const ApiContext& context, const JaegerSearch& search);

}  // namespace lockstep
