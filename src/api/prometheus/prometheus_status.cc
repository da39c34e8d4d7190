// /prometheus/api/v1/status/... and alertmanagers: what clients ask before and besides queries.
#include <algorithm>
#include <unordered_map>

#include "alert/alert_center.h"
#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/text.h"

namespace lockstep {
namespace {

// The Prometheus whose language and API this is; clients choose by it what they may ask.
constexpr const char* kSpokenVersion = "3.14.0";
constexpr int64_t kRecentMs = 60 * 60 * 1000;

using Counts = std::vector<std::pair<std::string, uint64_t>>;

void write_counts(JsonWriter& json, const char* name, Counts counts, size_t most) {
  std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (counts.size() > most) counts.resize(most);
  json.key(name).begin_array();
  for (const auto& [what, count] : counts) json.begin_object().field("name", what).field("value", count).end_object();
  json.end_array();
}

}  // namespace

HttpResponse prometheus_buildinfo(const ApiContext&, const ApiRequest&) {
  return prometheus_answer([](JsonWriter& json) {
    json.begin_object()
        .field("version", kSpokenVersion)
        .field("revision", "lockstep-" LOCKSTEP_VERSION)
        .field("branch", "")
        .field("buildUser", "")
        .field("buildDate", "")
        .field("goVersion", "")
        .end_object();
  });
}

HttpResponse prometheus_runtimeinfo(const ApiContext& context, const ApiRequest&) {
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object()
        .field("serverTime", context.clock.unix_ns() / 1'000'000'000)
        .field("reloadConfigSuccess", true)
        .field("corruptionCount", 0)
        .field("storageRetention", "")
        .end_object();
  });
}

HttpResponse prometheus_flags(const ApiContext&, const ApiRequest&) {
  return prometheus_answer([](JsonWriter& json) { json.begin_object().end_object(); });
}

HttpResponse prometheus_config(const ApiContext&, const ApiRequest&) {
  return prometheus_answer([](JsonWriter& json) { json.begin_object().field("yaml", "").end_object(); });
}

HttpResponse prometheus_alertmanagers(const ApiContext& context, const ApiRequest&) {
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object();
    json.key("activeAlertmanagers").begin_array();
    if (context.alerts != nullptr) {
      for (const AlertmanagerState& one : context.alerts->alertmanagers())
        json.begin_object().field("url", one.url + "/api/v2/alerts").end_object();
    }
    json.end_array();
    json.key("droppedAlertmanagers").begin_array().end_array();
    json.end_object();
  });
}

// Counted over the series of the last hour.
HttpResponse prometheus_tsdb(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<uint64_t> limit = prometheus_limit(*form);
  if (!limit.ok()) return prometheus_error("bad_data", limit.error());
  const size_t most = *limit == 0 ? 10 : static_cast<size_t>(*limit);
  const int64_t now = context.clock.unix_ns() / 1'000'000;
  const LabelMatcher every{"__name__", LabelMatcher::Op::kNotEqual, ""};
  SelectOptions options;
  options.from_ms = now - kRecentMs;
  options.to_ms = now;
  options.give_up = request.http.is_gone;
  Result<std::unique_ptr<MetricSelection>> selection = context.metrics.select({&every, 1}, options);
  if (!selection.ok()) return prometheus_error("execution", selection.error());
  const MetricSelection& all = **selection;
  std::unordered_map<uint64_t, uint64_t> pairs;  // name and value -> series
  for (size_t i = 0; i < all.size(); ++i) {
    for (const LabelSymbols& label : all.labels(i)) ++pairs[static_cast<uint64_t>(label.name) << 32 | label.value];
  }
  Counts by_metric, by_pair;
  std::unordered_map<uint32_t, uint64_t> values_of, bytes_of;
  for (const auto& [pair, count] : pairs) {
    const auto name = static_cast<uint32_t>(pair >> 32);
    const std::string value(all.text(static_cast<uint32_t>(pair)));
    ++values_of[name];
    bytes_of[name] += value.size() * count;
    if (all.text(name) == "__name__") by_metric.emplace_back(value, count);
    by_pair.emplace_back(std::string(all.text(name)) + "=" + value, count);
  }
  Counts by_name, by_bytes;
  for (const auto& [name, count] : values_of) by_name.emplace_back(all.text(name), count);
  for (const auto& [name, bytes] : bytes_of) by_bytes.emplace_back(all.text(name), bytes);
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("headStats").begin_object();
    json.field("numSeries", static_cast<uint64_t>(all.size()))
        .field("numLabelPairs", static_cast<uint64_t>(pairs.size()))
        .field("chunkCount", 0)
        .field("minTime", options.from_ms)
        .field("maxTime", options.to_ms)
        .end_object();
    write_counts(json, "seriesCountByMetricName", std::move(by_metric), most);
    write_counts(json, "labelValueCountByLabelName", std::move(by_name), most);
    write_counts(json, "memoryInBytesByLabelName", std::move(by_bytes), most);
    write_counts(json, "seriesCountByLabelValuePair", std::move(by_pair), most);
    json.end_object();
  });
}

}  // namespace lockstep
