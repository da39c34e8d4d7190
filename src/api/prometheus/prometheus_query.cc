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

HttpResponse run(const ApiContext& context, const ServerRequest& request, const PrometheusForm& form,
                 promql::QueryTimes times) {
  promql::QueryOptions options;
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  options.memory = &memory;
  options.cancelled = request.is_gone;
  const Result<int64_t> timeout_ms = prometheus_timeout(form);
  if (!timeout_ms.ok()) return prometheus_error("bad_data", timeout_ms.error());
  options.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(*timeout_ms - request.waited_ms);
  if (const std::string text = form.value("lookback_delta"); !text.empty()) {
    const Result<int64_t> given = prometheus_duration(text);
    if (!given.ok()) return prometheus_error("bad_data", "invalid parameter \"lookback_delta\": " + given.error());
    if (*given > 0) options.lookback_ms = *given;
  }
  const Result<uint64_t> limit = prometheus_limit(form);
  if (!limit.ok()) return prometheus_error("bad_data", limit.error());

  const std::string query = form.value("query");
  const auto began = std::chrono::steady_clock::now();
  promql::QueryResult result = promql::run_query(query, context.metrics, times, options);
  switch (result.failure) {
    case promql::QueryFailure::kNone:
      break;
    case promql::QueryFailure::kBadQuery:
      return prometheus_error("bad_data", "invalid parameter \"query\": " + result.error);
    case promql::QueryFailure::kTimeout:
      return prometheus_error(
          "timeout",
          result.error + format(": it may take %s and waited %lld ms for its turn; narrow its range "
                                "or selectors, or allow more by timeout= (at most %s)",
                                duration_text(*timeout_ms).c_str(), static_cast<long long>(request.waited_ms),
                                duration_text(kPrometheusTimeoutMs).c_str()));
    case promql::QueryFailure::kCancelled:
      return prometheus_error("canceled", result.error);
    case promql::QueryFailure::kExecution:
      return prometheus_error("execution", result.error);
    case promql::QueryFailure::kNoMemory:
      return prometheus_no_memory();
  }
  // What the evaluation held is gone but for the result; its text is besides.
  const uint64_t held_bytes = memory.bytes();
  bool has_room = true;
  PrometheusNotes notes;
  constexpr size_t kNotesMax = 10;
  size_t left_out[2] = {0, 0};
  for (const promql::Annotation& annotation : result.annotations) {
    std::vector<std::string>& list = annotation.warning ? notes.warnings : notes.infos;
    if (list.size() < kNotesMax) {
      list.push_back(promql::shown(annotation, query));
    } else {
      ++left_out[annotation.warning];
    }
  }
  if (left_out[1] > 0) notes.warnings.push_back(format("%zu more warning annotations omitted", left_out[1]));
  if (left_out[0] > 0) notes.infos.push_back(format("%zu more info annotations omitted", left_out[0]));
  if (*limit > 0 && result.series.size() > *limit) {
    result.series.resize(*limit);
    notes.warnings.push_back("results truncated due to limit");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  HttpResponse answer = prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_object().field("resultType", prometheus_type(result.type)).key("result");
        if (result.type == promql::ValueType::kScalar) {
          write_point(json, times.start_ms, result.scalar);
        } else if (result.type == promql::ValueType::kString) {
          json.begin_array();
          write_prometheus_time(json, times.start_ms);
          json.string(result.text).end_array();
        } else {
          json.begin_array();
          for (const promql::ResultSeries& series : result.series) {
            has_room = has_room && memory.hold(held_bytes + 2 * json.text().size());  // it grows by doubling
            if (!has_room) break;
            write_series(json, series, result.type == promql::ValueType::kVector);
          }
          json.end_array();
        }
        if (!form.value("stats").empty()) {
          json.key("stats").begin_object().key("timings").begin_object();
          json.field("evalTotalTime", seconds)
              .field("resultSortTime", 0)
              .field("queryPreparationTime", 0)
              .field("innerEvalTime", seconds)
              .field("execQueueTime", static_cast<double>(request.waited_ms) / 1000)
              .field("execTotalTime", static_cast<double>(request.waited_ms) / 1000 + seconds)
              .end_object();
          json.key("samples")
              .begin_object()
              .field("totalQueryableSamples", result.samples_read)
              .field("peakSamples", result.peak_bytes / sizeof(double))
              .end_object()
              .end_object();
        }
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
