#include "ingest/alias_feed.h"

#include <algorithm>
#include <cmath>

#include "model/series_labels.h"
#include "model/step.h"
#include "store/metric_reader.h"

namespace lockstep {
namespace {

constexpr const char* kLeftOut = "lockstep_alias_series_left_out_total";

std::string_view host_of(const Labels& labels) {
  for (const char* name : {"Hostname", "hostname", "node", "host"}) {
    if (const std::string_view host = label_value(labels, name); !host.empty()) return host;
  }
  const std::string_view instance = label_value(labels, "instance");
  return instance.substr(0, instance.rfind(':'));
}

// DCGM says so where it has no value: these doubles, and the largest integers.
bool is_blank(double value) {
  constexpr double kBlank = 140'737'488'355'328;
  return !std::isfinite(value) || (value >= kBlank && value < kBlank + 16) || value >= 9.2233720368547e18;
}

uint64_t hash_of(std::string_view bytes) {
  return std::hash<std::string_view>()(bytes);
}

}  // namespace

uint32_t AliasFeed::gpu_of(std::string_view host, std::string_view uuid) {
  const auto found = gpus_.find(std::string(uuid));
  if (found != gpus_.end()) return found->second;
  if (gpu_.size() >= kGpusMax) return UINT32_MAX;
  gpus_.emplace(uuid, static_cast<uint32_t>(gpu_.size()));
  gpu_.push_back({std::string(host), std::string(uuid)});
  return static_cast<uint32_t>(gpu_.size() - 1);
}

void AliasFeed::note(std::string_view stream, std::string_view raw_labels, const Labels& labels) {
  const std::string_view name = label_value(labels, kMetricNameLabel);
  if (const auto ours = aliases_of_ours(name); !ours.empty()) {
    const std::string_view uuid = label_value(labels, "gpu_uuid");
    if (uuid.empty()) return;
    MutexLock lock(mutex_);
    if (const uint32_t gpu = gpu_of(label_value(labels, "host"), uuid); gpu != UINT32_MAX) gpu_[gpu].has_agent = true;
    return;
  }
  const MetricAlias* alias = alias_of_other(name);
  if (alias == nullptr || alias->tool != MetricTool::kDcgm || !is_heard_(*alias)) return;
  const std::string_view uuid = label_value(labels, "UUID");
  const std::string_view host = host_of(labels);
  if (uuid.empty() || host.empty() || uuid.size() > kIdentityTextMax || host.size() > kIdentityTextMax) {
    counters_.add(kLeftOut, "reason=\"no_identity\"");
    return;
  }
  MutexLock lock(mutex_);
  const uint32_t gpu = gpu_of(host, uuid);
  if (gpu == UINT32_MAX || series_.size() >= kSeriesMax) {
    counters_.add(kLeftOut, "reason=\"limit\"");
    return;
  }
  gpu_[gpu].host = host;  // a GPU that moved
  series_[hash_of(raw_labels)] = {alias, gpu};
  streams_.emplace(stream);
  any_ = true;
}

void AliasFeed::taken(std::string_view stream, std::span<const PushedSeries> series, int64_t received_unix_ns) {
  struct Group {
    std::string host;
    std::vector<MetricPoint> points;
  };
  std::vector<Group> groups;
  if (!any_) return;
  {
    MutexLock lock(mutex_);
    if (!streams_.contains(std::string(stream))) return;
    for (const PushedSeries& one : series) {
      if (one.values.empty()) continue;
      const auto heard = series_.find(hash_of(one.raw_labels));
      if (heard == series_.end()) continue;
      const MetricAlias& alias = *heard->second.alias;
      const Gpu& gpu = gpu_[heard->second.gpu];
      const double value = one.values.back();
      if (gpu.has_agent || is_stale(value) || is_blank(value)) continue;
      MetricPoint point;
      point.name = alias.sent();
      const bool counts = point.name.ends_with("_total") || std::string_view(alias.ours).ends_with("_total");
      point.kind = counts ? MetricKind::kSum : MetricKind::kGauge;
      point.monotonic = counts;
      if (counts) point.temporality = Temporality::kCumulative;
      point.attributes.push_back({"gpu_uuid", Value(gpu.uuid)});
      if (alias.label[0] != '\0') point.attributes.push_back({alias.label_sent(), Value(std::string(alias.value))});
      point.time_unix_ns = one.times_ms.back() * 1'000'000;
      point.value = value / alias.scale;
      if (groups.empty() || groups.back().host != gpu.host) groups.push_back({gpu.host, {}});
      groups.back().points.push_back(std::move(point));
    }
  }
  for (const Group& group : groups) {
    const Attributes resource = {{"host.name", Value(group.host)}};
    report_(resource, group.points, received_unix_ns);
    counters_.add("lockstep_alias_points_total", "", static_cast<int64_t>(group.points.size()));
  }
}

}  // namespace lockstep
