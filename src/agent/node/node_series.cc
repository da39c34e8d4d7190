#include "agent/node/node_series.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "model/events.h"

namespace lockstep {
namespace {

constexpr std::string_view kGpuLabel = "gpu_uuid";

// Unlike in any two different series: the metric's address, then the labels with separators no label has.
void write_key(const Reading& reading, std::string& key) {
  key.assign(reinterpret_cast<const char*>(&reading.metric), sizeof reading.metric);
  for (const auto& [name, value] : *reading.labels) {
    key += name;
    key += '\x01';
    key += value;
    key += '\x02';
  }
}

double rounded(double value, double quantum) {
  return quantum > 0 ? std::round(value / quantum) * quantum : value;
}

}  // namespace

void NodeSeries::update(const std::vector<Reading>& readings, const Tick& tick) {
  MutexLock lock(mutex_);
  std::string key;
  for (const Reading& reading : readings) {
    ++counts_.readings;
    if (!std::isfinite(reading.value)) {
      ++counts_.refused;
      continue;
    }
    write_key(reading, key);
    auto found = series_.find(key);
    if (found == series_.end()) {
      if (series_.size() >= options_.series_max) {
        ++counts_.refused;
        continue;
      }
      found = series_.emplace(key, Series{reading.metric, reading.labels}).first;
      found->second.since_unix_ns = tick.unix_ns;
    }
    Series& series = found->second;
    // A sum that falls was reset at its source: it counts from now, so that nobody takes the fall for a negative rate.
    if (reading.metric->kind == MetricKind::kSum && reading.value < series.last) series.since_unix_ns = tick.unix_ns;
    series.last = reading.value;
    series.sum += reading.value;
    ++series.readings;
    series.read_ns = tick.monotonic_ns;
    series.ended = false;
  }
}

void NodeSeries::end_info_not_read_since(int64_t monotonic_ns, std::string_view name) {
  MutexLock lock(mutex_);
  for (auto& [key, series] : series_) {
    const std::string_view own_name = series.metric->name;
    const bool meant = name.empty() ? own_name.ends_with("_info") : own_name == name;
    if (meant && series.read_ns < monotonic_ns) series.ended = true;
  }
}

MetricPoint NodeSeries::point_of(const Series& series, double value, int64_t unix_ns) const {
  MetricPoint point;
  point.name = series.metric->name;
  point.unit = series.metric->unit;
  point.kind = series.metric->kind;
  if (point.kind == MetricKind::kSum) {
    point.temporality = Temporality::kCumulative;
    point.monotonic = true;
    point.start_unix_ns = series.since_unix_ns;
  }
  for (const auto& [name, text] : *series.labels) {
    if (name != kGpuLabel) point.attributes.push_back({name, text});
  }
  point.time_unix_ns = unix_ns;
  point.value = value;
  return point;
}

std::vector<ResourceGroup> NodeSeries::take(const Tick& tick) {
  MutexLock lock(mutex_);
  struct Due {
    const MetricDescriptor* metric;
    MetricPoint point;
  };
  std::map<std::string, std::vector<Due>> by_gpu;  // "" is the node itself
  auto report = [&](const Series& series, MetricPoint point) LOCKSTEP_REQUIRES(mutex_) {
    std::string gpu;
    for (const auto& [name, text] : *series.labels) {
      if (name == kGpuLabel) gpu = text;
    }
    by_gpu[gpu].push_back({series.metric, std::move(point)});
    ++counts_.reported;
  };
  for (auto each = series_.begin(); each != series_.end();) {
    Series& series = each->second;
    if (series.ended || tick.monotonic_ns - series.read_ns > options_.ended_after_ns) {
      if (series.reported_ns >= 0) {
        MetricPoint ended = point_of(series, 0, tick.unix_ns);
        ended.flags = MetricPoint::kNoRecordedValue;
        report(series, std::move(ended));
      }
      each = series_.erase(each);
      continue;
    }
    ++each;
    if (series.readings == 0) continue;  // not read in this window: nothing new to say
    const bool averaged = series.metric->kind == MetricKind::kGauge && series.metric->quantum > 0;
    const double value =
        rounded(averaged ? series.sum / static_cast<double>(series.readings) : series.last, series.metric->quantum);
    series.sum = 0;
    series.readings = 0;
    if (series.reported_ns >= 0 && value == series.reported &&
        tick.monotonic_ns - series.reported_ns < options_.refresh_ns) {
      ++counts_.unchanged;
      continue;
    }
    series.reported = value;
    series.reported_ns = tick.monotonic_ns;
    report(series, point_of(series, value, tick.unix_ns));
  }
  std::vector<ResourceGroup> groups;
  for (auto& [gpu, due] : by_gpu) {
    // Points of one metric stand together, as the wire likes them.
    std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) { return a.metric < b.metric; });
    ResourceGroup group;
    group.resource = {{"service.name", "lockstep-agent"}, {"host.name", options_.host}};
    if (!gpu.empty()) group.resource.push_back({"lockstep.gpu_uuid", gpu});
    group.scope_name = "lockstep.agent";
    for (Due& each : due) group.points.push_back(std::move(each.point));
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<const NodeSeries::Series*> NodeSeries::in_order() const {
  std::vector<const Series*> list;
  list.reserve(series_.size());
  for (const auto& [key, series] : series_) {
    if (!series.ended) list.push_back(&series);
  }
  std::sort(list.begin(), list.end(), [](const Series* a, const Series* b) {
    if (a->metric != b->metric) return a->metric < b->metric;
    return *a->labels < *b->labels;
  });
  return list;
}

void NodeSeries::visit(const Visitor& visitor) const {
  MutexLock lock(mutex_);
  for (const Series* series : in_order()) visitor(*series->metric, *series->labels, series->last);
}

NodeSeries::Counts NodeSeries::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

size_t NodeSeries::size() const {
  MutexLock lock(mutex_);
  return series_.size();
}

}  // namespace lockstep
