#include "store/metrics/engine_metric_store.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr const char* kTable = "table=\"samples\"";

// Prometheus has one word for a histogram's three kinds of series; the name's end says which.
std::string type_of(std::string_view kind) {
  return kind.starts_with("histogram") ? "histogram" : std::string(kind);
}
std::string kind_of(std::string_view type, std::string_view name) {
  if (type != "histogram") return std::string(type);
  return name.ends_with("_sum") ? "histogram_sum" : name.ends_with("_count") ? "histogram_count" : "histogram_bucket";
}

int64_t floor_ms(int64_t ns) {
  return ns / kNsPerMs - (ns % kNsPerMs < 0 ? 1 : 0);
}

}  // namespace

EngineMetricStore::EngineMetricStore(MetricEngine& engine, Counters& counters)
    : engine_(engine),
      counters_(counters),
      received_(counters.at("lockstep_store_rows_received_total", kTable)),
      replaced_(counters.at("lockstep_store_rows_replaced_total", kTable)),
      held_(counters.at("lockstep_store_rows", kTable)) {}

AppendOutcome EngineMetricStore::append(std::string_view name, const Labels& labels, std::string_view unit,
                                        std::string_view kind, Sample sample) {
  std::string raw(name);
  for (const auto& [key, value] : labels) raw += '\0' + key + '\0' + value;
  const int64_t time_ms = floor_ms(sample.time_unix_ns);
  const PushedSeries series{raw, {&time_ms, 1}, {&sample.value, 1}, {}, {}};
  // One stream per series: samples that come one by one share no times with others.
  Result<PushOutcome> outcome = engine_.push(raw, {&series, 1}, [&](size_t) {
    Labels all = labels;
    all.emplace_back("__name__", name);
    std::sort(all.begin(), all.end());
    engine_.set_metadata(name, type_of(kind), "", unit);
    return Result<Labels>(std::move(all));
  });
  received_.fetch_add(1, std::memory_order_relaxed);
  if (!outcome.ok() || !outcome->refused.empty()) {
    const std::string reason = outcome.ok() ? outcome->refused[0].reason : "unavailable";
    counters_.add("lockstep_store_rows_refused_total", format("%s,reason=\"%s\"", kTable, reason.c_str()));
    return AppendOutcome::kRefusedSeriesLimit;
  }
  if (outcome->stored == 1) {
    held_.fetch_add(1, std::memory_order_relaxed);
    return AppendOutcome::kStored;
  }
  replaced_.fetch_add(1, std::memory_order_relaxed);
  return AppendOutcome::kReplaced;
}

std::vector<std::string> EngineMetricStore::names() const {
  Result<std::vector<std::string>> names = engine_.label_values("__name__", {}, INT64_MIN / 2, INT64_MAX / 2);
  return names.ok() ? std::move(*names) : std::vector<std::string>{};
}

std::vector<Series> EngineMetricStore::select(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns,
                                              size_t series_max, size_t* total) const {
  if (total != nullptr) *total = 0;
  // The first millisecond that begins in the range, to the last.
  const int64_t from_ms = floor_ms(from_unix_ns) + (from_unix_ns % kNsPerMs != 0 ? 1 : 0);
  const int64_t to_ms = floor_ms(to_unix_ns);
  const std::vector<LabelMatcher> matchers{{"__name__", LabelMatcher::Op::kEqual, std::string(name)}};
  Result<std::unique_ptr<MetricSelection>> selection = engine_.select(matchers, {.from_ms = from_ms, .to_ms = to_ms});
  std::vector<Series> list;
  if (!selection.ok()) {
    LOCKSTEP_LOG_WARN("metrics", "%s", selection.error().c_str());
    return list;
  }
  std::vector<std::pair<Labels, size_t>> order;
  for (size_t i = 0; i < (*selection)->size(); ++i) {
    Labels labels;
    for (const LabelSymbols& label : (*selection)->labels(i)) {
      if ((*selection)->text(label.name) != "__name__")
        labels.emplace_back((*selection)->text(label.name), (*selection)->text(label.value));
    }
    order.emplace_back(std::move(labels), i);
  }
  std::sort(order.begin(), order.end());
  std::string unit, kind;
  for (const MetricMetadata& metadata : engine_.metadata()) {
    if (metadata.name != name) continue;
    unit = metadata.unit;
    kind = kind_of(metadata.type, name);
  }
  size_t matched = 0;
  SampleColumns columns;
  for (auto& [labels, at] : order) {
    if (!(*selection)->samples(at, from_ms, to_ms, columns).ok() || columns.times_ms.empty()) continue;
    if (matched++ >= series_max) continue;
    Series series{std::string(name), std::move(labels), unit, kind, {}};
    for (size_t i = 0; i < columns.times_ms.size(); ++i)
      series.samples.push_back({columns.times_ms[i] * kNsPerMs, columns.values[i]});
    list.push_back(std::move(series));
  }
  if (total != nullptr) *total = matched;
  return list;
}

}  // namespace lockstep
