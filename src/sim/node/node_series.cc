#include "sim/node/node_series.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/node/noise.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kMomentNs = 10'000'000;
// As NodeSeriesOptions has them, in moments.
constexpr int32_t kRefresh = 120 * 100;
constexpr int32_t kEndedAfter = 35 * 100;

bool is_info(const MetricDescriptor& metric) {
  return std::string_view(metric.name).ends_with("_info");
}

MetricPoint point_of(const MetricDescriptor& metric, const Attributes& attributes, int64_t at_unix_ns, int64_t since_ns,
                     double value) {
  MetricPoint point;
  point.name = metric.name;
  point.unit = metric.unit;
  point.kind = metric.kind;
  if (metric.kind == MetricKind::kSum) {
    point.temporality = Temporality::kCumulative;
    point.monotonic = true;
    point.start_unix_ns = since_ns;
  }
  point.attributes = attributes;
  point.time_unix_ns = at_unix_ns;
  point.value = value;
  return point;
}

}  // namespace

void NodeReadout::note(const MetricDescriptor& metric, PutLabels labels, Pace pace, Own own) {
  SeriesShape shape{&metric, gpu_, {}, pace, own};
  for (const auto& [name, value] : labels) shape.attributes.push_back({name, std::string(value)});
  layout_->series.push_back(std::move(shape));
}

void sort_for_sending(NodeLayout& layout) {
  layout.order.resize(layout.series.size());
  for (size_t i = 0; i < layout.order.size(); ++i) layout.order[i] = static_cast<uint32_t>(i);
  // By name rather than by the row's address: rows of one name stand together in any build.
  std::stable_sort(layout.order.begin(), layout.order.end(), [&](uint32_t a, uint32_t b) {
    const SeriesShape& first = layout.series[a];
    const SeriesShape& second = layout.series[b];
    if (first.gpu != second.gpu) return first.gpu < second.gpu;
    return strcmp(first.metric->name, second.metric->name) < 0;
  });
}

NodeSeriesTable::NodeSeriesTable(std::shared_ptr<const NodeLayout> layout)
    : layout_(std::move(layout)), reported_(layout_->series.size()) {}

std::vector<double>& NodeSeriesTable::values() {
  thread_local std::vector<double> lent;
  lent.assign(layout_->series.size(), kNotRead);
  return lent;
}

int64_t NodeSeriesTable::unix_ns(Moment moment) const {
  return first_ns_ + moment * kMomentNs;
}

void NodeSeriesTable::set_further(const MetricDescriptor& metric, int32_t gpu, Attributes attributes, double value) {
  for (Further& each : further_) {
    if (each.shape.metric == &metric && each.shape.gpu == gpu && each.shape.attributes == attributes) {
      each.value = value;
      return;
    }
  }
  further_.push_back({SeriesShape{&metric, gpu, std::move(attributes)}, value, {}});
}

void NodeSeriesTable::forget(int32_t gpu) {
  for (size_t i = 0; i < reported_.size(); ++i) {
    if (layout_->series[i].gpu == gpu) reported_[i] = Reported{};
  }
  for (Further& each : further_) {
    if (each.shape.gpu == gpu) each.reported = Reported{};
  }
}

void NodeSeriesTable::end(Own own, int32_t gpu, Attributes old_attributes) {
  for (size_t i = 0; i < reported_.size(); ++i) {
    const SeriesShape& shape = layout_->series[i];
    if (shape.own != own || shape.gpu != gpu || reported_[i].at == kNever) continue;
    Attributes attributes = shape.attributes;
    attributes.insert(attributes.end(), old_attributes.begin(), old_attributes.end());
    ended_.push_back({&shape, std::move(attributes), reported_[i].since});
    reported_[i] = Reported{};
  }
}

bool NodeSeriesTable::due(const MetricDescriptor& metric, double& value, Moment now, Reported& reported) const {
  reported.read = now;
  if (metric.quantum > 0) value = std::round(value / metric.quantum) * metric.quantum;
  const bool first = reported.at == kNever;
  if (!first && value == reported.value && now - reported.at < kRefresh) return false;
  if (first) reported.since = now;
  reported.value = value;
  // Agents were not started in the same moment: the two minutes of what never changes end at different times.
  reported.at = first ? now - stagger_ : now;
  return true;
}

void NodeSeriesTable::take(std::span<const double> values, int64_t at_unix_ns, bool slow, const NodeLabels& labels,
                           Batch& out) {
  if (first_ns_ == 0) {
    first_ns_ = at_unix_ns;
    stagger_ = static_cast<Moment>(mixed(1, labels.host()) % kRefresh);
  }
  const Moment now = static_cast<Moment>((at_unix_ns - first_ns_) / kMomentNs);
  ResourceGroup* group = nullptr;
  int32_t group_gpu = -2;
  auto add = [&](int32_t gpu, MetricPoint point) {
    if (group == nullptr || group_gpu != gpu) {
      group = &out.groups.emplace_back();
      group_gpu = gpu;
      group->resource = {{"service.name", "lockstep-agent"}, {"host.name", labels.host()}};
      if (gpu >= 0) group->resource.push_back({"lockstep.gpu_uuid", labels.gpu_uuid(gpu)});
      group->scope_name = "lockstep.agent";
      group->points.reserve(layout_->series.size() / 16 + 8);
    }
    group->points.push_back(std::move(point));
  };
  auto end_point = [&](const SeriesShape& shape, const Attributes& attributes, Moment since) {
    MetricPoint point = point_of(*shape.metric, attributes, at_unix_ns, unix_ns(since), 0);
    point.flags = 1;  // no recorded value
    add(shape.gpu, std::move(point));
  };
  std::stable_sort(ended_.begin(), ended_.end(),
                   [](const Ended& a, const Ended& b) { return a.shape->gpu < b.shape->gpu; });
  for (const Ended& each : ended_) end_point(*each.shape, each.attributes, each.since);
  ended_.clear();

  for (uint32_t index : layout_->order) {
    const SeriesShape& shape = layout_->series[index];
    Reported& reported = reported_[index];
    double value = values[index];
    if (shape.pace == Pace::kSlow && !slow && reported.at != kNever) continue;
    if (std::isnan(value)) {
      if (reported.at == kNever || (!is_info(*shape.metric) && now - reported.read <= kEndedAfter)) continue;
      Attributes attributes = shape.attributes;
      labels.add_own(shape, attributes);
      end_point(shape, attributes, reported.since);
      reported = Reported{};
      continue;
    }
    if (!due(*shape.metric, value, now, reported)) continue;
    add(shape.gpu, point_of(*shape.metric, shape.attributes, at_unix_ns, unix_ns(reported.since), value));
    if (shape.own != Own::kNothing) labels.add_own(shape, group->points.back().attributes);
  }
  for (Further& each : further_) {
    double value = each.value;
    if (!due(*each.shape.metric, value, now, each.reported)) continue;
    add(each.shape.gpu,
        point_of(*each.shape.metric, each.shape.attributes, at_unix_ns, unix_ns(each.reported.since), value));
  }
}

}  // namespace lockstep::sim
