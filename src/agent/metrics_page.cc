#include "agent/metrics_page.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "model/metric_aliases.h"
#include "model/prometheus_name.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

void append_label(std::string& text, std::string_view name, std::string_view value) {
  if (text.back() != '{') text += ',';
  for (char letter : name) text += letter == '.' ? '_' : letter;
  text += '=' + in_label_quotes(value);
}

void append_family(std::string& text, const std::string& name, const MetricDescriptor& metric) {
  text += "# HELP " + name + " " + as_one_line(metric.help) + "\n# TYPE " + name +
          (metric.kind == MetricKind::kSum ? " counter\n" : " gauge\n");
}

// nullptr: dcgm-exporter has no such series.
const MetricAlias* dcgm_alias(const MetricDescriptor& metric, const Labels& labels) {
  for (const MetricAlias* alias : aliases_of_ours(prometheus_name(metric))) {
    if (alias->tool != MetricTool::kDcgm) continue;
    const bool fits = std::any_of(labels.begin(), labels.end(), [&](const auto& label) {
      return label.second == alias->value && prometheus_label(label.first) == alias->label;
    });
    if (alias->label[0] == '\0' || fits) return alias;
  }
  return nullptr;
}

}  // namespace

std::string prometheus_name(const MetricDescriptor& metric) {
  return prometheus_name(metric.name, metric.unit,
                         metric.kind == MetricKind::kSum ? NameKind::kCounter : NameKind::kGauge);
}

std::string node_page(const NodeSeries& series, const std::string& host) {
  std::string text;
  const MetricDescriptor* row = nullptr;
  std::string name;
  series.visit([&](const MetricDescriptor& metric, const Labels& labels, double value) {
    if (&metric != row) {  // rows of one name are neighbours, and one family
      row = &metric;
      std::string next = prometheus_name(metric);
      if (next != name) append_family(text, next, metric);
      name = std::move(next);
    }
    text += name + "{";
    append_label(text, "host", host);
    for (const auto& [key, label] : labels) append_label(text, key, label);
    text += "} " + shortest_text(value) + "\n";
  });
  return text;
}

std::string dcgm_page(const NodeSeries& series, const std::string& host, const std::vector<GpuInfo>& gpus) {
  std::map<std::string, const GpuInfo*> by_uuid;
  for (const GpuInfo& gpu : gpus) by_uuid[gpu.uuid] = &gpu;
  std::string text;
  std::string family;
  series.visit([&](const MetricDescriptor& metric, const Labels& labels, double value) {
    const MetricAlias* alias = dcgm_alias(metric, labels);
    if (alias == nullptr) return;
    const GpuInfo* gpu = nullptr;
    for (const auto& [key, label] : labels) {
      if (key != "gpu_uuid") continue;
      auto found = by_uuid.find(label);
      if (found != by_uuid.end()) gpu = found->second;
    }
    if (gpu == nullptr) return;
    const GpuInfo* card = gpu;  // of a MIG instance: the GPU that it is a part of
    if (auto parent = by_uuid.find(gpu->parent_uuid); parent != by_uuid.end()) card = parent->second;
    if (family != alias->other) {
      family = alias->other;
      append_family(text, family, metric);
    }
    text += family + "{";
    append_label(text, "gpu", std::to_string(card->index));
    append_label(text, "UUID", card->uuid);
    append_label(text, "pci_bus_id", dcgm_bus_id(card->pci));
    append_label(text, "device", format("nvidia%d", card->minor >= 0 ? card->minor : card->index));
    append_label(text, "modelName", card->model);
    append_label(text, "Hostname", host);
    append_label(text, "DCGM_FI_DRIVER_VERSION", card->driver);
    if (card != gpu) append_label(text, "GPU_I_ID", std::to_string(gpu->index));
    text += "} " + shortest_text(value * alias->scale) + "\n";
  });
  return text;
}

std::string to_openmetrics(std::string_view prometheus_text) {
  // Beside the last line and the content type, the formats differ for us in one thing: a counter's family has no
  // _total.
  constexpr std::string_view kTotal = "_total";
  std::string text;
  text.reserve(prometheus_text.size() + 8);
  for (std::string_view line : split(prometheus_text, '\n')) {
    if (line.empty()) continue;
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
      const size_t end = std::min(line.find(' ', 7), line.size());
      std::string_view name = line.substr(0, end);
      if (name.ends_with(kTotal)) name.remove_suffix(kTotal.size());
      text += name;
      text += line.substr(end);
    } else {
      text += line;
    }
    text += '\n';
  }
  return text + "# EOF\n";
}

bool wants_openmetrics(std::string_view accept_header) {
  // Prometheus offers both and prefers the first it names; whoever names OpenMetrics at all understands it.
  return accept_header.find("application/openmetrics-text") != std::string_view::npos;
}

}  // namespace lockstep
