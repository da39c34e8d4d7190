// GET /jaeger/api/dependencies: which service calls which, from parents and children in the newest traces.
#include <limits>
#include <map>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jaeger/jaeger_answer.h"

namespace lockstep {
namespace {

constexpr size_t kTracesLookedAt = 200;
constexpr size_t kSpansLookedAt = 200'000;
constexpr int64_t kMillisecondsMax = std::numeric_limits<int64_t>::max() / 1'000'000;

using Calls = std::map<std::pair<std::string, std::string>, int64_t>;

void add_calls(const std::vector<StoredSpan>& spans, Calls& calls) {
  std::map<SpanId, std::string_view> services;
  for (const StoredSpan& item : spans) services[item.span.span_id] = find_string(*item.resource, "service.name");
  for (const StoredSpan& item : spans) {
    auto parent = services.find(item.span.parent_span_id);
    if (parent == services.end()) continue;
    const std::string_view child = find_string(*item.resource, "service.name");
    if (parent->second != child) ++calls[{std::string(parent->second), std::string(child)}];
  }
}

}  // namespace

HttpResponse get_jaeger_dependencies(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> end = int_parameter(request.http, "endTs", 0, 0, kMillisecondsMax);
  if (!end.ok()) return jaeger_error(400, end.error() + " (milliseconds)");
  Result<int64_t> lookback = int_parameter(request.http, "lookback", 0, 0, kMillisecondsMax);
  if (!lookback.ok()) return jaeger_error(400, lookback.error() + " (milliseconds)");
  TraceQuery query;
  query.limit = kTracesLookedAt;
  query.start_to_unix_ns = *end * 1'000'000;
  const int64_t until = *end != 0 ? query.start_to_unix_ns : context.clock.unix_ns();
  if (*lookback > 0) query.start_from_unix_ns = std::max<int64_t>(1, until - *lookback * 1'000'000);
  Calls calls;
  size_t left = kSpansLookedAt;
  for (const TraceSummary& trace : context.spans.search(query).items) {
    if (trace.spans < 2 || left == 0) continue;
    const Page<StoredSpan> spans = context.spans.trace(trace.trace_id, std::min(left, kSpansOfTraceShownMax));
    left -= spans.items.size();
    add_calls(spans.items, calls);
  }
  return jaeger_answer(calls.size(), [&](JsonWriter& json) {
    json.begin_array();
    for (const auto& [services, count] : calls) {
      json.begin_object()
          .field("parent", services.first)
          .field("child", services.second)
          .field("callCount", count)
          .end_object();
    }
    json.end_array();
  });
}

}  // namespace lockstep
