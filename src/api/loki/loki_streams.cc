// /loki/api/v1/labels, label/NAME/values, series, index/stats and index/volume: which streams there are, and how much of
// them.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/loki/loki_answer.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kSince = "6h";  // as Loki looks back where nobody says how far
constexpr int64_t kVolumesMax = 1'000;

struct Asked {
  PrometheusForm form;
  LokiRange range;
  LokiStreams all;
};

// A list that is not whole says so; a sum would be wrong.
enum class Wanted : uint8_t { kList, kSum };

// Streams of what a request asks for, or why not.
std::optional<HttpResponse> read_streams(const ApiContext& context, const ApiRequest& request, Wanted wanted,
                                         Asked& asked) {
  Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return loki_error(400, form.error());
  asked.form = std::move(*form);
  const Result<LokiRange> range = loki_range(asked.form, context.clock, kSince);
  if (!range.ok()) return loki_error(400, range.error());
  asked.range = *range;
  std::vector<std::string> selectors;
  for (const char* name : {"match[]", "match", "query"}) {
    for (std::string& text : asked.form.values(name)) {
      if (!trim(text).empty()) selectors.push_back(std::move(text));
    }
  }
  LokiStreamsFound found = loki_streams(context, request.http, asked.range, selectors);
  if (found.is_refused) return std::move(found.refusal);
  asked.all = std::move(found.found);
  if (wanted == Wanted::kSum && !asked.all.shortage.empty()) return loki_error(400, asked.all.shortage);
  return std::nullopt;
}

PrometheusNotes notes_of(const Asked& asked) {
  PrometheusNotes notes;
  if (!asked.all.shortage.empty()) notes.warnings.push_back(asked.all.shortage);
  return notes;
}

HttpResponse list_of(const std::set<std::string>& names, const Asked& asked) {
  return prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_array();
        for (const std::string& name : names) json.string(name);
        json.end_array();
      },
      notes_of(asked));
}

// The labels that volumes are told apart by: those asked for, else those that the selector names, else all.
std::set<std::string> volume_labels(const PrometheusForm& form) {
  std::set<std::string> names;
  for (const std::string_view name : split(form.value("targetLabels"), ',')) {
    if (!trim(name).empty()) names.emplace(trim(name));
  }
  if (!names.empty()) return names;
  if (const auto matchers = logql::parse_matchers(form.value("query")); matchers.ok()) {
    for (const logql::Matcher& matcher : *matchers) names.insert(matcher.name);
  }
  return names;
}

}  // namespace

HttpResponse loki_labels(const ApiContext& context, const ApiRequest& request) {
  Asked asked;
  if (std::optional<HttpResponse> refusal = read_streams(context, request, Wanted::kList, asked))
    return std::move(*refusal);
  std::set<std::string> names;
  for (const LokiStream& stream : asked.all.streams) {
    for (const auto& [name, value] : stream.labels) names.insert(name);
  }
  return list_of(names, asked);
}

HttpResponse loki_label_values(const ApiContext& context, const ApiRequest& request) {
  Asked asked;
  if (std::optional<HttpResponse> refusal = read_streams(context, request, Wanted::kList, asked))
    return std::move(*refusal);
  std::set<std::string> values;
  for (const LokiStream& stream : asked.all.streams) {
    for (const auto& [name, value] : stream.labels) {
      if (name == request.name) values.insert(value);
    }
  }
  return list_of(values, asked);
}

HttpResponse loki_series(const ApiContext& context, const ApiRequest& request) {
  Asked asked;
  if (std::optional<HttpResponse> refusal = read_streams(context, request, Wanted::kList, asked))
    return std::move(*refusal);
  return prometheus_answer(
      [&](JsonWriter& json) {
        json.begin_array();
        for (const LokiStream& stream : asked.all.streams) write_prometheus_labels(json, stream.labels);
        json.end_array();
      },
      notes_of(asked));
}

// Not in an envelope, as Loki answers it.
HttpResponse loki_index_stats(const ApiContext& context, const ApiRequest& request) {
  Asked asked;
  if (std::optional<HttpResponse> refusal = read_streams(context, request, Wanted::kSum, asked))
    return std::move(*refusal);
  uint64_t records = 0;
  double bytes = 0;
  for (const LokiStream& stream : asked.all.streams) {
    records += stream.records;
    bytes += stream.bytes;
  }
  JsonWriter json;
  json.begin_object()
      .field("streams", static_cast<uint64_t>(asked.all.streams.size()))
      .field("chunks", asked.all.groups)
      .field("bytes", static_cast<uint64_t>(std::llround(bytes)))
      .field("entries", records)
      .end_object();
  return json_answer(json);
}

HttpResponse loki_index_volume(const ApiContext& context, const ApiRequest& request) {
  Asked asked;
  if (std::optional<HttpResponse> refusal = read_streams(context, request, Wanted::kSum, asked))
    return std::move(*refusal);
  const std::string by = asked.form.value("aggregateBy");
  if (!by.empty() && by != "series" && by != "labels") return loki_error(400, "aggregateBy is series or labels");
  const std::string limit_text = asked.form.value("limit");
  const std::optional<int64_t> limit = limit_text.empty() ? 100 : parse_int(limit_text);
  if (!limit || *limit < 1 || *limit > kVolumesMax) return loki_error(400, "limit is a number from 1 to 1,000");
  const std::set<std::string> names = volume_labels(asked.form);
  std::map<logql::Labels, double> volumes;
  for (const LokiStream& stream : asked.all.streams) {
    logql::Labels labels;
    for (const auto& label : stream.labels) {
      if (!names.empty() && !names.contains(label.first)) continue;
      if (by == "labels") {
        volumes[{{label.first, ""}}] += stream.bytes;
      } else {
        labels.push_back(label);
      }
    }
    if (by != "labels") volumes[labels] += stream.bytes;
  }
  std::vector<std::pair<logql::Labels, double>> sorted(volumes.begin(), volumes.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (sorted.size() > static_cast<size_t>(*limit)) sorted.resize(static_cast<size_t>(*limit));
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().field("resultType", "vector").key("result").begin_array();
    for (const auto& [labels, bytes] : sorted) {
      json.begin_object().key("metric");
      write_prometheus_labels(json, labels);
      json.key("value").begin_array();
      write_prometheus_time(json, asked.range.end_unix_ns / 1'000'000);
      json.string(std::to_string(std::llround(bytes))).end_array().end_object();
    }
    json.end_array().end_object();
  });
}

}  // namespace lockstep
