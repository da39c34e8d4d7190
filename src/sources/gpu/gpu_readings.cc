#include "sources/gpu/gpu_readings.h"

#include <utility>

#include "base/text.h"
#include "sources/gpu/gpu_own_metrics.h"

namespace lockstep {
namespace {

LabelSet info_labels(const GpuInfo& info) {
  Labels labels = {{"gpu_uuid", info.uuid}};
  const std::pair<const char*, std::string> rest[] = {
      {"vendor", info.vendor},     {"model", info.model},
      {"pci", info.pci},           {"index", info.index < 0 ? "" : std::to_string(info.index)},
      {"serial", info.serial},     {"driver", info.driver},
      {"parent", info.parent_uuid}};
  for (const auto& [name, value] : rest) {
    if (!value.empty()) labels.emplace_back(name, value);
  }
  return std::make_shared<const Labels>(std::move(labels));
}

}  // namespace

std::string_view second_label(std::string_view labels) {
  const size_t comma = labels.find(", ");
  return comma == std::string_view::npos ? std::string_view() : labels.substr(comma + 2);
}

const LabelSet& GpuReadings::labels_of(Known& known, const GpuValue& value) {
  if (value.label.empty()) return known.plain;
  std::map<std::string, LabelSet, std::less<>>& sets = known.labelled[value.metric->labels];
  auto found = sets.find(value.label);
  if (found == sets.end()) {
    Labels labels = {{"gpu_uuid", known.info.uuid}, {std::string(second_label(value.metric->labels)), value.label}};
    found = sets.emplace(value.label, std::make_shared<const Labels>(std::move(labels))).first;
  }
  return found->second;
}

void GpuReadings::add(const GpuSnapshot& snapshot, NodeReadings& out) {
  ++snapshots_;
  for (const GpuState& gpu : snapshot.gpus) {
    Known& known = known_[gpu.info.uuid];
    known.seen = snapshots_;
    if (!known.plain || known.info != gpu.info) {
      known.info = gpu.info;
      known.info_labels = info_labels(gpu.info);
      if (!known.plain) known.plain = std::make_shared<const Labels>(Labels{{"gpu_uuid", gpu.info.uuid}});
    }
    out.add(own_metric(GpuOwnMetric::kInfo), known.info_labels, 1);
    for (const GpuValue& value : gpu.values) {
      if (value.metric != nullptr) out.add(*value.metric, labels_of(known, value), value.value);
    }
  }
  for (const std::string& note : snapshot.notes) out.notes.push_back("gpu: " + note);
  std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != snapshots_; });
}

}  // namespace lockstep
