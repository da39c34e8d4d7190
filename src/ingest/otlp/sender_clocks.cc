#include "ingest/otlp/sender_clocks.h"

#include <algorithm>

namespace lockstep {
namespace {

// Of the times in a request, the one nearest to the server's: it says most of its sender's clock. Others were kept for
// a while, or are somebody's mistake.
struct NearestTime {
  int64_t now_ns;
  int64_t unix_ns = 0;  // 0: none
  uint64_t distance_ns = UINT64_MAX;
  void add(int64_t time_ns) {
    if (time_ns <= 0) return;
    const uint64_t distance = static_cast<uint64_t>(time_ns > now_ns ? time_ns - now_ns : now_ns - time_ns);
    if (distance >= distance_ns) return;
    distance_ns = distance;
    unix_ns = time_ns;
  }
};

}  // namespace

int64_t SenderClocks::latest_now(std::string_view sender, int64_t sent_unix_ns, int64_t now_ns) {
  if (witness_ == nullptr) return now_ns;
  witness_->note(sender, sent_unix_ns);
  return witness_->now().latest_unix_ns;
}

int64_t SenderClocks::latest_now(const Attributes& resource, int64_t sent_unix_ns, int64_t now_ns) {
  std::string_view sender = find_string(resource, "host.name");  // whatever runs there has the same clock
  if (sender.empty()) sender = find_string(resource, "service.instance.id");
  return latest_now(sender, sent_unix_ns, now_ns);
}

int64_t SenderClocks::latest_now(std::span<const ResourceGroup> groups, int64_t now_ns) {
  int64_t latest_ns = now_ns;
  for (const ResourceGroup& group : groups) {
    if (witness_ == nullptr) break;
    NearestTime nearest{now_ns};
    for (const LogRecord& record : group.logs)
      nearest.add(record.time_unix_ns != 0 ? record.time_unix_ns : record.observed_unix_ns);
    for (const Span& span : group.spans) nearest.add(span.end_unix_ns);
    latest_ns = std::max(latest_ns, latest_now(group.resource, nearest.unix_ns, now_ns));
  }
  return latest_ns;
}

int64_t SenderClocks::latest_now(const LogsRequest& request, int64_t now_ns) {
  if (witness_ == nullptr) return now_ns;
  int64_t latest_ns = latest_now(std::span(request.groups), now_ns);
  // Ranks of one node stand together.
  for (size_t first = 0; first < request.steps.size();) {
    const StepReport& step = request.steps[first];
    NearestTime nearest{now_ns};
    size_t end = first;
    for (; end < request.steps.size() && request.steps[end].identity.host == step.identity.host; ++end)
      nearest.add(request.steps[end].time_unix_ns());
    latest_ns =
        std::max(latest_ns, step.identity.host.empty() ? latest_now(*resource_of(step), nearest.unix_ns, now_ns)
                                                       : latest_now(step.identity.host, nearest.unix_ns, now_ns));
    first = end;
  }
  return latest_ns;
}

int64_t SenderClocks::latest_now(const otlp::MetricsRequest& request, int64_t now_ns) {
  int64_t latest_ns = now_ns;
  for (const otlp::WalkedScope& scope : request.scopes) {
    if (witness_ == nullptr) break;
    NearestTime nearest{now_ns};
    for (size_t k = scope.first_metric; k < scope.first_metric + scope.metrics; ++k) {
      const otlp::WalkedMetric& metric = request.metrics[k];
      for (size_t i = metric.first_point; i < metric.first_point + metric.points; ++i)
        nearest.add(request.points[i].time_unix_ns);
    }
    latest_ns = std::max(latest_ns, latest_now(request.resources[scope.resource], nearest.unix_ns, now_ns));
  }
  return latest_ns;
}

int64_t SenderClocks::latest_now(const DecodedSpans& spans, int64_t now_ns) {
  const auto& sources = spans.columns.sources;
  NearestTime nearest{now_ns};
  if (sources.size() == 1 && witness_ != nullptr) {  // of several, others tell
    nearest.add(static_cast<int64_t>(spans.latest_unix_ns));
    if (nearest.distance_ns > static_cast<uint64_t>(ClockWitness::kToleranceNs)) {
      for (const spans::SpanRow& row : spans.columns.rows) nearest.add(row.start_unix_ns);
    }
  }
  return latest_now(sources.size() == 1 ? *sources[0]->resource : Attributes(), nearest.unix_ns, now_ns);
}

}  // namespace lockstep
