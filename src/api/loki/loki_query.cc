// /loki/api/v1/query and query_range: lines of logs, and counts of them over time.
#include <algorithm>
#include <cmath>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/loki/loki_answer.h"
#include "base/text.h"
#include "query/logql/log_lines.h"
#include "query/logql/metric_query.h"

namespace lockstep {
namespace {

constexpr int64_t kLinesMax = 10'000;  // as in /api/logs
constexpr int64_t kLinesDefault = 100;
constexpr int64_t kMs = 1'000'000;

// What was looked at, as far as Explore shows it.
void write_stats(JsonWriter& json, uint64_t rows, size_t entries, double seconds) {
  json.key("stats").begin_object().key("summary").begin_object();
  json.field("totalLinesProcessed", rows)
      .field("totalEntriesReturned", static_cast<uint64_t>(entries))
      .field("execTime", seconds)
      .end_object()
      .end_object();
}

double seconds_since(const Clock& clock, int64_t began_ns) {
  return static_cast<double>(clock.monotonic_ns() - began_ns) / 1e9;
}

// Grafana asks for what the line does not say of itself apart from the stream's labels.
bool wants_labels_apart(const ServerRequest& request) {
  return request.header("x-loki-response-encoding-flags").find("categorize-labels") != std::string_view::npos;
}

void write_stream(JsonWriter& json, const logql::LogStream& stream, bool labels_apart) {
  json.begin_object().key("stream");
  write_prometheus_labels(json, stream.labels);
  json.key("values").begin_array();
  for (const logql::LogLine& line : stream.lines) {
    json.begin_array().string(std::to_string(line.time_unix_ns)).string(line.text);
    if (labels_apart) {
      json.begin_object();
      for (const auto& [name, labels] : {std::pair{"structuredMetadata", &line.metadata}, {"parsed", &line.parsed}}) {
        if (labels->empty()) continue;
        json.key(name);
        write_prometheus_labels(json, *labels);
      }
      json.end_object();
    }
    json.end_array();
  }
  json.end_array().end_object();
}

Result<logql::LinesWanted> lines_wanted(const ServerRequest& request, const PrometheusForm& form,
                                        const LokiRange& range) {
  logql::LinesWanted wanted{.from_unix_ns = range.start_unix_ns,
                            .to_unix_ns = range.end_unix_ns - 1,  // Loki's range has no end of its own
                            .labels_apart = wants_labels_apart(request)};
  const std::string direction = form.value("direction");
  wanted.oldest_first = direction == "forward" || direction == "FORWARD";
  if (!wanted.oldest_first && !direction.empty() && direction != "backward" && direction != "BACKWARD")
    return Error{"direction is forward or backward"};
  const std::string limit = form.value("limit");
  const std::optional<int64_t> lines = limit.empty() ? kLinesDefault : parse_int(limit);
  if (!lines || *lines < 1) return Error{"limit must be a positive value"};
  if (*lines > kLinesMax)
    return Error{format("max entries limit per query exceeded, limit > max_entries_limit (%lld > %lld)",
                        static_cast<long long>(*lines), static_cast<long long>(kLinesMax))};
  wanted.limit = static_cast<size_t>(*lines);
  return wanted;
}

HttpResponse answer_lines(const ApiContext& context, const ServerRequest& request, const PrometheusForm& form,
                          const logql::LogSelection& selection, const LokiRange& range) {
  Result<logql::LinesWanted> wanted = lines_wanted(request, form, range);
  if (!wanted.ok()) return loki_error(400, wanted.error());
  const int64_t began_ns = context.clock.monotonic_ns();
  const LogPatience patience(context, request);
  wanted->give_up = [&] { return patience.is_over(); };
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  wanted->memory = &memory;
  const logql::LogLines found = logql::find_lines(*context.logs, selection, *wanted);
  if (found.no_memory) return loki_no_memory();
  if (found.gave_up && found.lines == 0) return loki_refusal(patience);
  PrometheusNotes notes;
  if (!found.whole)
    notes.warnings.push_back(
        "not every log record was looked at, for time or number of them; narrow the query by time or labels");
  if (found.cut)
    notes.warnings.push_back("the answer is cut at 32 MiB of log records; narrow the query by time or labels");
  return prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_object().field("resultType", "streams");
        if (wanted->labels_apart) json.key("encodingFlags").begin_array().string("categorize-labels").end_array();
        json.key("result").begin_array();
        for (const logql::LogStream& stream : found.streams) write_stream(json, stream, wanted->labels_apart);
        json.end_array();
        write_stats(json, found.rows_looked_at, found.lines, seconds_since(context.clock, began_ns));
        json.end_object();
      },
      notes);
}

void write_point(JsonWriter& json, const logql::MetricTimes& times, const logql::MetricSeries& series, size_t at) {
  json.begin_array();
  write_prometheus_time(json, (times.start_unix_ns + static_cast<int64_t>(at) * times.step_ns) / kMs);
  json.string(prometheus_number(series.values[at])).end_array();
}

void write_series(JsonWriter& json, const logql::MetricTimes& times, const logql::MetricSeries& series, bool is_range) {
  json.begin_object().key("metric");
  write_prometheus_labels(json, series.labels);
  if (!is_range) {
    json.key("value");
    write_point(json, times, series, 0);
  } else {
    json.key("values").begin_array();
    for (size_t at = 0; at < series.values.size(); ++at) {
      if (series.exists[at] != 0) write_point(json, times, series, at);
    }
    json.end_array();
  }
  json.end_object();
}

HttpResponse answer_metric(const ApiContext& context, const ServerRequest& request, const logql::Expression& expression,
                           const logql::MetricTimes& times, bool is_range) {
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  const int64_t began_ns = context.clock.monotonic_ns();
  const LogPatience patience(context, request);
  const logql::MetricResult result = logql::run_metric_query(
      *context.logs, expression, {.times = times, .memory = &memory, .give_up = [&] { return patience.is_over(); }});
  switch (result.failure) {
    case logql::MetricFailure::kNone:
      break;
    case logql::MetricFailure::kRefused:
      return loki_error(400, result.error);
    case logql::MetricFailure::kGaveUp:
      return loki_refusal(patience);
    case logql::MetricFailure::kNoMemory:
      return loki_no_memory();
  }
  const uint64_t held_bytes = memory.bytes();
  bool has_room = true;
  const bool is_scalar = !is_range && expression.type == logql::Expression::Type::kConstant && !expression.is_vector;
  HttpResponse answer = prometheus_answer([&](JsonWriter& json) {
    json.begin_object().field("resultType", is_range ? "matrix" : is_scalar ? "scalar" : "vector").key("result");
    if (is_scalar) {
      write_point(json, times, result.series.at(0), 0);
    } else {
      json.begin_array();
      for (const logql::MetricSeries& series : result.series) {
        has_room = has_room && memory.hold(held_bytes + 2 * json.text().size());
        if (!has_room) break;
        if (is_range || series.exists[0] != 0) write_series(json, times, series, is_range);
      }
      json.end_array();
    }
    write_stats(json, result.rows_looked_at, result.series.size(), seconds_since(context.clock, began_ns));
    json.end_object();
  });
  return has_room ? std::move(answer) : loki_no_memory();
}

// Seconds or a duration; absent: 250 points, a second each at least.
Result<int64_t> step_of(const PrometheusForm& form, const LokiRange& range) {
  constexpr int64_t kSecond = 1000 * kMs;
  const std::string text = form.value("step");
  if (text.empty()) {
    const int64_t seconds = (range.end_unix_ns - range.start_unix_ns + 250 * kSecond - 1) / (250 * kSecond);
    return std::max<int64_t>(1, seconds) * kSecond;
  }
  const Result<int64_t> step_ms = prometheus_duration(text);
  if (!step_ms.ok()) return prefixed(step_ms.failure(), "step: ");
  if (*step_ms <= 0)
    return Error{"zero or negative query resolution step widths are not accepted. Try a positive integer"};
  constexpr int64_t kStepMsMax = INT64_MAX / kMs / 2;
  return std::min(*step_ms, kStepMsMax) * kMs;
}

Result<logql::Expression> expression_of(const PrometheusForm& form) {
  const std::string query = form.value("query");
  if (query.empty()) return Error{"query is missing: a selector such as {job_id=\"train\"}"};
  return logql::parse(query);
}

}  // namespace

HttpResponse loki_query_range(const ApiContext& context, const ApiRequest& request) {
  if (context.logs == nullptr) return loki_error(404, "no log records are kept here");
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return loki_error(400, form.error());
  const Result<logql::Expression> expression = expression_of(*form);
  if (!expression.ok()) return loki_error(400, expression.error());
  const Result<LokiRange> range = loki_range(*form, context.clock, "1h");
  if (!range.ok()) return loki_error(400, range.error());
  if (expression->type == logql::Expression::Type::kLogs)
    return answer_lines(context, request.http, *form, expression->logs, *range);
  const Result<int64_t> step_ns = step_of(*form, *range);
  if (!step_ns.ok()) return loki_error(400, step_ns.error());
  const logql::MetricTimes times{range->start_unix_ns, range->end_unix_ns, *step_ns};
  if (times.points() > static_cast<size_t>(logql::kPointsMax))
    return loki_error(400,
                      "exceeded maximum resolution of 11,000 points per time series. Try increasing the value of the "
                      "step parameter");
  return answer_metric(context, request.http, *expression, times, true);
}

HttpResponse loki_query(const ApiContext& context, const ApiRequest& request) {
  if (context.logs == nullptr) return loki_error(404, "no log records are kept here");
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return loki_error(400, form.error());
  const Result<logql::Expression> expression = expression_of(*form);
  if (!expression.ok()) return loki_error(400, expression.error());
  if (expression->type == logql::Expression::Type::kLogs)
    return loki_error(400,
                      "log queries are not supported as an instant query type, please change your query to a range "
                      "query type");
  const Result<int64_t> time = loki_time(*form, "time", context.clock.unix_ns());
  if (!time.ok()) return loki_error(400, time.error());
  return answer_metric(context, request.http, *expression, {*time, *time, 1}, false);
}

}  // namespace lockstep
