// /prometheus/api/v1/query and query_range.
#include <algorithm>
#include <cmath>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/duration.h"
#include "base/text.h"
#include "query/promql/lexer.h"

namespace lockstep {
namespace {

constexpr int64_t kStepsMax = 11'000;

void write_histogram(JsonWriter& json, const NativeHistogram& histogram) {
  json.begin_object().field("count", prometheus_number(histogram.count)).field("sum", prometheus_number(histogram.sum));
  bool open = false;
  for (const promql::BucketView& bucket : promql::all_buckets(histogram)) {
    if (bucket.count == 0) continue;
    if (!open) json.key("buckets").begin_array();
    open = true;
    const int bounds = bucket.lower_inclusive ? (bucket.upper_inclusive ? 3 : 1) : bucket.upper_inclusive ? 0 : 2;
    json.begin_array()
        .number(bounds)
        .string(prometheus_number(bucket.lower))
        .string(prometheus_number(bucket.upper))
        .string(prometheus_number(bucket.count))
        .end_array();
  }
  if (open) json.end_array();
  json.end_object();
}

void write_point(JsonWriter& json, int64_t time_ms, double value) {
  json.begin_array();
  write_prometheus_time(json, time_ms);
  json.string(prometheus_number(value)).end_array();
}
void write_point(JsonWriter& json, int64_t time_ms, const NativeHistogram& histogram) {
  json.begin_array();
  write_prometheus_time(json, time_ms);
  write_histogram(json, histogram);
  json.end_array();
}

void write_series(JsonWriter& json, const promql::ResultSeries& series, bool one_point) {
  json.begin_object().key("metric");
  write_prometheus_labels(json, series.labels);
  const auto is_histogram = [&](size_t i) { return !series.histograms.empty() && series.histograms[i]; };
  if (one_point) {
    if (is_histogram(0)) {
      json.key("histogram");
      write_point(json, series.times_ms[0], *series.histograms[0]);
    } else {
      json.key("value");
      write_point(json, series.times_ms[0], series.values[0]);
    }
  } else {
    for (const bool histograms : {false, true}) {
      bool open = false;
      for (size_t i = 0; i < series.times_ms.size(); ++i) {
        if (is_histogram(i) != histograms) continue;
        if (!open) json.key(histograms ? "histograms" : "values").begin_array();
        open = true;
        if (histograms) {
          write_point(json, series.times_ms[i], *series.histograms[i]);
        } else {
          write_point(json, series.times_ms[i], series.values[i]);
        }
      }
      if (open) json.end_array();
    }
  }
  json.end_object();
}

// What a request may ask of its evaluation beside the query.
struct AskedLimits {
  int64_t timeout_ms = 0;
  int64_t lookback_ms = 0;  // 0: the usual
  uint64_t series_max = 0;  // 0: all
};

Result<AskedLimits> read_limits(const PrometheusForm& form) {
  AskedLimits limits;
  limits.timeout_ms = LOCKSTEP_TRY(prometheus_timeout(form));
  if (const std::string text = form.value("lookback_delta"); !text.empty()) {
    const Result<int64_t> given = prometheus_duration(text);
    if (!given.ok()) return prefixed(given.failure(), "invalid parameter \"lookback_delta\": ");
    if (*given > 0) limits.lookback_ms = *given;
  }
  limits.series_max = LOCKSTEP_TRY(prometheus_limit(form));
  return limits;
}

HttpResponse failed_query(const promql::QueryResult& result, int64_t timeout_ms, int64_t waited_ms) {
  switch (result.failure) {
    case promql::QueryFailure::kBadQuery:
      return prometheus_error("bad_data", "invalid parameter \"query\": " + result.error);
    case promql::QueryFailure::kTimeout:
      return prometheus_error(
          "timeout", result.error + format(": it may take %s and waited %lld ms for its turn; narrow its range "
                                           "or selectors, or allow more by timeout= (at most %s)",
                                           duration_text(timeout_ms).c_str(), static_cast<long long>(waited_ms),
                                           duration_text(kPrometheusTimeoutMs).c_str()));
    case promql::QueryFailure::kCancelled:
      return prometheus_error("canceled", result.error);
    case promql::QueryFailure::kNoMemory:
      return prometheus_no_memory();
    case promql::QueryFailure::kNone:
    case promql::QueryFailure::kExecution:
      break;
  }
  return prometheus_error("execution", result.error);
}

PrometheusNotes notes_of(const std::vector<promql::Annotation>& annotations, const std::string& query) {
  constexpr size_t kNotesMax = 10;
  PrometheusNotes notes;
  size_t left_out[2] = {0, 0};
  for (const promql::Annotation& annotation : annotations) {
    std::vector<std::string>& list = annotation.warning ? notes.warnings : notes.infos;
    if (list.size() < kNotesMax) {
      list.push_back(promql::shown(annotation, query));
    } else {
      ++left_out[annotation.warning];
    }
  }
  if (left_out[1] > 0) notes.warnings.push_back(format("%zu more warning annotations omitted", left_out[1]));
  if (left_out[0] > 0) notes.infos.push_back(format("%zu more info annotations omitted", left_out[0]));
  return notes;
}

// False where the text became too large for what `memory` may hold; the array is closed all the same.
bool write_all_series(JsonWriter& json, const promql::QueryResult& result, MemoryLease& memory) {
  const uint64_t held_bytes = memory.bytes();
  bool has_room = true;
  json.begin_array();
  for (const promql::ResultSeries& series : result.series) {
    has_room = memory.hold(held_bytes + 2 * json.text().size());  // it grows by doubling
    if (!has_room) break;
    write_series(json, series, result.type == promql::ValueType::kVector);
  }
  json.end_array();
  return has_room;
}

bool write_result(JsonWriter& json, const promql::QueryResult& result, int64_t start_ms, MemoryLease& memory) {
  json.field("resultType", prometheus_type(result.type)).key("result");
  if (result.type == promql::ValueType::kScalar) {
    write_point(json, start_ms, result.scalar);
  } else if (result.type == promql::ValueType::kString) {
    json.begin_array();
    write_prometheus_time(json, start_ms);
    json.string(result.text).end_array();
  } else {
    return write_all_series(json, result, memory);
  }
  return true;
}

void write_stats(JsonWriter& json, const promql::QueryResult& result, double seconds, double waited_s) {
  json.key("stats").begin_object().key("timings").begin_object();
  json.field("evalTotalTime", seconds)
      .field("resultSortTime", 0)
      .field("queryPreparationTime", 0)
      .field("innerEvalTime", seconds)
      .field("execQueueTime", waited_s)
      .field("execTotalTime", waited_s + seconds)
      .end_object();
  json.key("samples")
      .begin_object()
      .field("totalQueryableSamples", result.samples_read)
      .field("peakSamples", result.peak_bytes / sizeof(double))
      .end_object()
      .end_object();
}

HttpResponse run(const ApiContext& context, const ServerRequest& request, const PrometheusForm& form,
                 promql::QueryTimes times) {
  const Result<AskedLimits> limits = read_limits(form);
  if (!limits.ok()) return prometheus_error("bad_data", limits.error());
  promql::QueryOptions options;
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  options.memory = &memory;
  options.cancelled = request.is_gone;
  const auto began = std::chrono::steady_clock::now();
  options.deadline = began + std::chrono::milliseconds(limits->timeout_ms - request.waited_ms);
  if (limits->lookback_ms > 0) options.lookback_ms = limits->lookback_ms;

  const std::string query = form.value("query");
  promql::QueryResult result = promql::run_query(query, context.metrics, times, options);
  if (result.failure != promql::QueryFailure::kNone) return failed_query(result, limits->timeout_ms, request.waited_ms);
  PrometheusNotes notes = notes_of(result.annotations, query);
  if (limits->series_max > 0 && result.series.size() > limits->series_max) {
    result.series.resize(limits->series_max);
    notes.warnings.push_back("results truncated due to limit");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  // What the evaluation held is gone but for the result; its text is besides.
  bool has_room = true;
  HttpResponse answer = prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_object();
        has_room = write_result(json, result, times.start_ms, memory);
        if (!form.value("stats").empty())
          write_stats(json, result, seconds, static_cast<double>(request.waited_ms) / 1000);
        json.end_object();
      },
      notes);
  return has_room ? std::move(answer) : prometheus_no_memory();
}

}  // namespace

HttpResponse prometheus_query(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<int64_t> time = prometheus_time(*form, "time", context.clock.unix_ns() / 1'000'000);
  if (!time.ok()) return prometheus_error("bad_data", time.error());
  return run(context, request.http, *form, {*time, *time, 0});
}

HttpResponse prometheus_query_range(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  for (const char* name : {"start", "end"}) {
    if (form->value(name).empty())
      return prometheus_error("bad_data",
                              format("invalid parameter \"%s\": cannot parse \"\" to a valid timestamp", name));
  }
  const Result<int64_t> start = prometheus_time(*form, "start", 0);
  if (!start.ok()) return prometheus_error("bad_data", start.error());
  const Result<int64_t> end = prometheus_time(*form, "end", 0);
  if (!end.ok()) return prometheus_error("bad_data", end.error());
  if (*end < *start) return prometheus_error("bad_data", "invalid parameter \"end\": the end is before the start");
  const Result<int64_t> step = prometheus_duration(form->value("step"));
  if (!step.ok()) return prometheus_error("bad_data", "invalid parameter \"step\": " + step.error());
  if (*step <= 0)
    return prometheus_error(
        "bad_data", "invalid parameter \"step\": it must be greater than zero; try a positive number of seconds");
  if ((*end - *start) / *step > kStepsMax)
    return prometheus_error(
        "bad_data", "exceeded maximum resolution of 11,000 points per timeseries. Try a larger step (?step=XX)");
  return run(context, request.http, *form, {*start, *end, *step});
}

}  // namespace lockstep
