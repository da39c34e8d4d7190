#include "diagnosis/signals/testing/made_up_fleet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace lockstep::testing {

MadeUpFleet::MadeUpFleet(int hosts, uint32_t seed, int gpus) : gpus_(gpus), random_(seed) {
  for (int host = 0; host < hosts; ++host) {
    for (int gpu = 0; gpu < gpus; ++gpu) {
      add(host, gpu, kGpuQuantities, "gpu_uuid", gpu_name(host, gpu), true);
      add(host, gpu, kNicQuantities, "device", format("mlx5_%d", gpu), false);
      add(host, gpu, kNetdevQuantities, "device", format("eth%d", gpu), false);
    }
    add(host, -1, kHostQuantities, "", "", false);
  }
  hosts_ = hosts;
}

std::vector<Identity> MadeUpFleet::all_but(const std::vector<Rank>& ranks) const {
  std::vector<Identity> others;
  for (Rank rank : all_ranks(hosts_ * gpus_)) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) others.push_back(identity(rank));
  }
  return others;
}

void MadeUpFleet::set(int host, int gpu, const std::string& spec, double value) {
  bool found = false;
  for (Series& series : series_) {
    if (series.host != host || series.gpu != gpu || spec != series.quantity->spec) continue;
    series.value = value;
    found = true;
  }
  if (!found) throw std::runtime_error("no such quantity: " + spec);
}

void MadeUpFleet::set_all(const std::string& spec, double value) {
  for (Series& series : series_) {
    if (spec == series.quantity->spec) series.value = value;
  }
}

void MadeUpFleet::event(int host, NodeEvent event) {
  if (event.time_unix_ns == 0) event.time_unix_ns = now_;
  book.on_node_event(host_name(host), event, now_);
}

void MadeUpFleet::run(int seconds) {
  for (int64_t end = now_ + seconds * kSecond; now_ < end;) {
    now_ += 5 * kSecond;
    report();
  }
}

Question MadeUpFleet::question(std::vector<Rank> ranks, uint32_t sign, int64_t since) const {
  Question question;
  for (Rank rank : ranks) question.culprits.push_back(identity(rank));
  question.peers = all_but(ranks);
  question.sign = sign;
  question.layer = Layer::kWorkload;
  question.cause = Cause::kLessWork;
  question.component = "component";
  question.job_from_unix_ns = kBegin;
  question.since_unix_ns = since;
  question.through_unix_ns = now_;
  return question;
}

void MadeUpFleet::add(int host, int gpu, std::span<const Quantity> quantities, const char* label,
                      const std::string& name, bool own) {
  for (const Quantity& quantity : quantities) {
    Series series{host, gpu, &quantity, own, {}, quantity.healthy};
    std::string spec = quantity.spec;
    size_t brace = spec.find('{');
    series.point.name = spec.substr(0, brace);
    series.point.kind = quantity.counter ? MetricKind::kSum : MetricKind::kGauge;
    series.point.monotonic = quantity.counter;
    series.point.temporality = quantity.counter ? Temporality::kCumulative : Temporality::kUnspecified;
    if (label[0] != '\0') series.point.attributes.push_back({label, name});
    if (brace != std::string::npos) {
      std::string inside = spec.substr(brace + 1, spec.size() - brace - 2);
      for (std::string_view part : split(inside, ',')) {
        size_t equals = part.find('=');
        series.point.attributes.push_back({std::string(part.substr(0, equals)), std::string(part.substr(equals + 1))});
      }
    }
    series_.push_back(std::move(series));
  }
}

void MadeUpFleet::report() {
  std::map<std::pair<int, int>, std::vector<Series*>> groups;
  std::normal_distribution<double> spread(0, 1);
  for (Series& series : series_) {
    const Quantity& quantity = *series.quantity;
    double value = series.value * (1 + quantity.noise * spread(random_));
    if (quantity.counter) {
      series.sum += std::max(0.0, value) * 5;
      value = series.value >= 1 ? std::floor(series.sum) : series.sum;
    }
    if (quantity.quantum > 0) value = std::round(value / quantity.quantum) * quantity.quantum;
    if (silent_hosts.contains(series.host) || left_out.contains(std::string_view(quantity.spec))) continue;
    if (only_changed && value == series.reported && now_ - series.reported_at < 120 * kSecond) continue;
    series.reported = value;
    series.reported_at = now_;
    series.point.value = value;
    series.point.time_unix_ns = now_;
    groups[{series.host, series.own_group ? series.gpu : -1}].push_back(&series);
  }
  for (const auto& [where, due] : groups) send(where.first, where.second, due);
}

void MadeUpFleet::send(int host, int gpu, const std::vector<Series*>& due) {
  std::vector<MetricPoint> points;  // lent by the series: they are many, and they stay the same
  points.reserve(due.size() + static_cast<size_t>(gpus_));
  for (Series* series : due) points.push_back(std::move(series->point));
  if (gpu < 0 && (now_ - kBegin) / kSecond % 120 == 5) {
    for (int of = 0; of < gpus_; ++of) points.push_back(nic_info(host, of));
  }
  Attributes resource{{"service.name", "lockstep-agent"}, {"host.name", host_name(host)}};
  if (gpu >= 0) resource.push_back({"lockstep.gpu_uuid", gpu_name(host, gpu)});
  book.on_metrics(resource, points, now_);
  if (also) also(resource, points);
  for (size_t i = 0; i < due.size(); ++i) due[i]->point = std::move(points[i]);
}

MetricPoint MadeUpFleet::nic_info(int host, int gpu) const {
  MetricPoint info;
  info.name = "lockstep_nic_info";
  info.value = 1;
  info.time_unix_ns = now_;
  info.attributes = {{"device", format("mlx5_%d", gpu)},
                     {"netdev", format("eth%d", gpu)},
                     {"pci", format("0000:%02x:00.0", 16 + gpu)},
                     {"gpu_uuid", gpu_name(host, gpu)}};
  return info;
}

}  // namespace lockstep::testing
