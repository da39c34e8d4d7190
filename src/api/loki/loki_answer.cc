#include "api/loki/loki_answer.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "api/answer.h"
#include "base/duration.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "query/logql/metric_query.h"
#include "store/logs/columnar_log_store.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLatestNs = 9'000'000'000 * kSecond;

}  // namespace

HttpResponse loki_error(int status, std::string_view line) {
  return text_answer(status, "text/plain; charset=utf-8", std::string(line) + "\n");
}

HttpResponse loki_not_served(std::string_view path) {
  if (path == "/loki/api/v1/tail")
    return loki_error(404, "live tail is not served here: ask query_range again, or lockstep logs --follow");
  return loki_error(404,
                    format("%.200s is not served here (docs/guide/logs.md has what is)", as_one_line(path).c_str()));
}

HttpResponse loki_no_memory() {
  HttpResponse refused = loki_error(503, kMemorySpent);
  refused.headers.emplace_back("retry-after", "1");
  return refused;
}

Result<int64_t> loki_time(const PrometheusForm& form, std::string_view name, int64_t fallback_unix_ns) {
  const std::string text = form.value(name);
  if (text.empty()) return fallback_unix_ns;
  const auto bad = [&] {
    return Error{format("\"%.60s\" is no time for %s: nanoseconds, seconds or RFC 3339 are", as_one_line(text).c_str(),
                        std::string(name).c_str())};
  };
  if (const std::optional<int64_t> whole = parse_int(text)) {
    const bool in_seconds = text.size() <= 10;
    if (*whole < 0 || *whole > (in_seconds ? kLatestNs / kSecond : kLatestNs)) return bad();
    return in_seconds ? *whole * kSecond : *whole;
  }
  if (const std::optional<double> seconds = parse_double(text)) {
    if (!(*seconds >= 0) || *seconds > static_cast<double>(kLatestNs / kSecond)) return bad();
    return static_cast<int64_t>(std::llround(*seconds * 1e6)) * 1000;
  }
  const Result<int64_t> ns = unix_ns_from_rfc3339(text);
  if (!ns.ok() || *ns < 0 || *ns > kLatestNs) return bad();
  return *ns;
}

Result<LokiRange> loki_range(const PrometheusForm& form, const Clock& clock, std::string_view since) {
  const std::string asked = form.value("since");
  int64_t since_ms = 0;
  if (!parse_duration_ms(asked.empty() ? since : asked, &since_ms).empty())
    return Error{format("\"%.40s\" is no duration for since", as_one_line(asked).c_str())};
  LokiRange range;
  range.end_unix_ns = LOCKSTEP_TRY(loki_time(form, "end", clock.unix_ns()));
  const int64_t start = std::max<int64_t>(0, range.end_unix_ns / 1'000'000 - since_ms) * 1'000'000;
  range.start_unix_ns = LOCKSTEP_TRY(loki_time(form, "start", start));
  if (range.end_unix_ns < range.start_unix_ns) return Error{"end timestamp must not be before or equal to start time"};
  return range;
}

HttpResponse loki_refusal(const LogPatience& patience) {
  if (patience.is_gone()) return loki_error(499, "the client has gone");
  if (patience.has_no_memory()) return loki_no_memory();
  return loki_error(503, format("the query took more than %lld seconds; narrow it by time or labels",
                                static_cast<long long>(LogPatience::kSeconds)));
}

namespace {

// One of a scan's; empty: it saw all that there was.
std::string shortage_of(const LogScan& scan, size_t streams) {
  if (streams > logql::kStreamsMax)
    return format("there are more than %zu streams; narrow them by time or labels", logql::kStreamsMax);
  if (scan.gave_up)
    return format("not every log record was looked at within %lld seconds; narrow them by time or labels",
                  static_cast<long long>(LogPatience::kSeconds));
  if (!scan.whole)
    return format("there are more than %s log records; narrow them by time or labels",
                  with_thousands(static_cast<int64_t>(kLogIndexRowsMax)).c_str());
  return {};
}

}  // namespace

LokiStreamsFound loki_streams(const ApiContext& context, const ServerRequest& request, const LokiRange& range,
                              const std::vector<std::string>& selectors) {
  LokiStreamsFound answer;
  const auto refuse = [&](HttpResponse refusal) {
    answer.refusal = std::move(refusal);
    answer.is_refused = true;
    return std::move(answer);
  };
  if (context.logs == nullptr) return refuse(loki_error(404, "no log records are kept here"));
  const LogPatience patience(context, request);
  std::vector<LokiStream>& streams = answer.found.streams;
  std::unordered_map<std::string, size_t> known;
  for (const std::string& selector : selectors.empty() ? std::vector<std::string>{"{}"} : selectors) {
    const Result<std::vector<logql::Matcher>> matchers = logql::parse_matchers(selector);
    if (!matchers.ok()) return refuse(loki_error(400, matchers.error()));
    const std::optional<std::vector<LogMatch>> matches = logql::matches_of(*matchers);
    if (!matches) continue;
    logql::StreamKeys keys;
    std::vector<size_t> stream_of;
    const LogQuery query{.matches = *matches,
                         .from_unix_ns = range.start_unix_ns,
                         .to_unix_ns = range.end_unix_ns,
                         .rows_max = kLogIndexRowsMax,
                         .give_up = [&] { return streams.size() > logql::kStreamsMax || patience.is_over(); }};
    const LogScan scan = context.logs->scan(
        query, false, [&](const logs::LogColumns& columns, std::span<const uint32_t> rows, uint64_t bytes) {
          keys.begin();
          ++answer.found.groups;
          for (const uint32_t at : rows) {
            const uint32_t key = keys.of(columns, columns.rows[at], [&](logql::Labels labels) {
              const auto [one, is_new] = known.try_emplace(logql::to_text(labels), streams.size());
              if (is_new) streams.push_back({.labels = std::move(labels)});
              stream_of.push_back(one->second);
            });
            streams[stream_of[key]].records += 1;
            streams[stream_of[key]].bytes += static_cast<double>(bytes) / static_cast<double>(rows.size());
          }
        });
    if (scan.gave_up && patience.nobody_waits()) return refuse(loki_refusal(patience));
    answer.found.shortage = shortage_of(scan, streams.size());
    if (!answer.found.shortage.empty()) break;
  }
  std::sort(streams.begin(), streams.end(), [](const auto& a, const auto& b) { return a.labels < b.labels; });
  return answer;
}

}  // namespace lockstep
