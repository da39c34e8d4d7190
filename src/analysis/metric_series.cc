#include "analysis/metric_series.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

const std::string* NamedSeries::label(std::string_view wanted) const {
  auto found = std::find_if(labels.begin(), labels.end(), [&](const auto& one) { return one.first == wanted; });
  return found == labels.end() ? nullptr : &found->second;
}

std::vector<std::string> stored_names(const std::vector<MetricMetadata>& known, std::string_view name) {
  std::vector<std::string> names{std::string(name)};
  const std::string mark = "(OTLP " + std::string(name) + ")";
  for (const MetricMetadata& one : known) {
    if (one.help.ends_with(mark) && one.name != name) names.push_back(one.name);
  }
  return names;
}

std::vector<NamedSeries> series_named(const MetricReader& metrics, std::string_view name, int64_t from_unix_ns,
                                      int64_t to_unix_ns, size_t series_max, size_t* total) {
  if (total != nullptr) *total = 0;
  // A time between two milliseconds was rounded down when it was stored.
  const int64_t from_ms = from_unix_ns / kNsPerMs, to_ms = to_unix_ns / kNsPerMs;
  const LabelMatcher matcher = label_is("__name__", std::string(name));
  Result<std::unique_ptr<MetricSelection>> selected =
      metrics.select({&matcher, 1}, {.from_ms = from_ms, .to_ms = to_ms});
  if (!selected.ok()) return {};
  const MetricSelection& selection = **selected;
  std::vector<NamedSeries> all;
  std::vector<std::pair<Labels, size_t>> order;
  for (size_t i = 0; i < selection.size(); ++i) {
    Labels labels;
    for (const LabelSymbols& label : selection.labels(i)) {
      if (selection.text(label.name) != "__name__")
        labels.emplace_back(selection.text(label.name), selection.text(label.value));
    }
    order.emplace_back(std::move(labels), i);
  }
  std::sort(order.begin(), order.end());
  SampleColumns columns;
  size_t with_samples = 0;
  for (auto& [labels, index] : order) {
    if (!selection.samples(index, from_ms, to_ms, columns).ok() || columns.times_ms.empty()) continue;
    if (++with_samples > series_max) continue;
    NamedSeries series{std::string(name), std::move(labels), {}};
    for (size_t i = 0; i < columns.times_ms.size(); ++i) {
      if (!columns.histograms.empty() && columns.histograms[i] != nullptr) continue;
      series.samples.push_back({columns.times_ms[i] * kNsPerMs, columns.values[i]});
    }
    all.push_back(std::move(series));
  }
  if (total != nullptr) *total = with_samples;
  return all;
}

}  // namespace lockstep
