#include "alert/gpu_watch.h"

#include <algorithm>
#include <cmath>

#include "alert/builtin_alerts.h"
#include "base/text.h"
#include "model/step.h"

namespace lockstep {
namespace {

constexpr std::string_view kThrottle = "lockstep_gpu_throttle_seconds_total";
constexpr std::string_view kErrors = "hw.errors";
constexpr std::string_view kLinksUp = "lockstep_gpu_links_up";
constexpr std::string_view kLinks = "lockstep_gpu_links";

bool is_heat(std::string_view reason) {
  return reason == "thermal" || reason == "sw_thermal" || reason == "hw_thermal";
}

constexpr int64_t kSamplesApartNs = 500'000'000;

std::string gpu_text(std::string_view host, std::string_view uuid) {
  return "GPU " + std::string(uuid) + " of " + std::string(host);
}

void say(RaisedAlert& alert, const std::string& sentence) {
  set_label(alert.annotations, "summary", sentence);
}

}  // namespace

bool GpuWatch::hears_metric(std::string_view name) {
  return name == kThrottle || name == kErrors || name == kLinksUp || name == kLinks;
}

GpuWatch::Gpu* GpuWatch::find(Host*& host, std::string_view name, std::string_view uuid) {
  if (host == nullptr) {
    auto found = hosts_.find(name);
    if (found == hosts_.end()) {
      if (gpus_ >= kGpusMax) return nullptr;
      found = hosts_.try_emplace(std::string(name)).first;
    }
    host = &found->second;
  }
  host->heard = true;
  for (auto& [known, gpu] : host->gpus) {
    if (known == uuid) return &gpu;
  }
  if (gpus_ >= kGpusMax || host->gpus.size() >= kGpusOfHostMax) return nullptr;
  ++gpus_;
  return &host->gpus.emplace_back(std::string(uuid), Gpu{}).second;
}

void GpuWatch::forget(int64_t monotonic_ns) {
  MutexLock lock(mutex_);
  for (auto one = hosts_.begin(); one != hosts_.end();) {
    Host& host = one->second;
    if (std::exchange(host.heard, false)) host.heard_ns = monotonic_ns;
    const bool is_gone = monotonic_ns - host.heard_ns > kForgetNs;
    if (is_gone) gpus_ -= host.gpus.size();
    one = is_gone ? hosts_.erase(one) : std::next(one);
  }
}

void GpuWatch::on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns,
                          bool from_log) {
  const auto ours =
      std::find_if(points.begin(), points.end(), [](const auto& point) { return hears_metric(point.name); });
  const std::string_view name = find_string(resource, "host.name");
  if (ours == points.end() || name.empty() || name.size() > kIdentityTextMax || received_unix_ns <= 0) return;
  MutexLock lock(mutex_);
  Host* host = nullptr;
  for (const MetricPoint& point : points.subspan(static_cast<size_t>(ours - points.begin()))) {
    if (!hears_metric(point.name)) continue;
    const std::string_view uuid = find_string(point.attributes, "gpu_uuid", find_string(resource, "lockstep.gpu_uuid"));
    const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
    if (uuid.empty() || uuid.size() > kIdentityTextMax || !std::isfinite(value)) continue;
    Gpu* gpu = find(host, name, uuid);
    if (gpu == nullptr) continue;
    const Taken taken{name, uuid, point, value, received_unix_ns, from_log};
    if (point.name == kThrottle) take_throttle(*gpu, taken);
    if (point.name == kErrors) take_errors(*gpu, taken);
    if (point.name == kLinks) gpu->links = value;
    if (point.name == kLinksUp) take_links(*gpu, taken);
  }
}

void GpuWatch::take_throttle(Gpu& gpu, const Taken& taken) {
  const std::string_view reason = find_string(taken.point.attributes, "reason");
  const bool heat = is_heat(reason);
  if (!heat && reason != "hw_power_brake") return;
  auto found = gpu.throttle.find(reason);
  if (found == gpu.throttle.end()) found = gpu.throttle.try_emplace(std::string(reason)).first;
  Counter& counter = found->second;
  const int64_t passed_ns = taken.point.time_unix_ns - counter.time_unix_ns;
  const bool first = counter.time_unix_ns == 0 || passed_ns < 0;  // or the node's clock was set back
  if (!first && passed_ns < kSamplesApartNs) return;
  const double more = taken.value - counter.value;
  counter.value = taken.value;
  counter.time_unix_ns = taken.point.time_unix_ns;
  if (first || more < 0) return;
  const double share = more / (static_cast<double>(passed_ns) / 1e9);
  const auto alert = [&] {
    return gpu_alert(alert_names::kThrottle, heat ? Cause::kThrottleThermal : Cause::kThrottlePower,
                     AlertSource::kMetric, taken.host, taken.uuid);
  };
  if (share >= kThrottledShare) {
    counter.is_free = false;
    if (++counter.streak < 2) return;
    RaisedAlert raised = alert();
    say(raised, format("%s is slowed %s for %.0f %% of the time.", gpu_text(taken.host, taken.uuid).c_str(),
                       heat ? "by heat" : "by the power brake", std::min(100.0, 100 * share)));
    alerts_.raise(std::move(raised));
  } else if (share < kFreeShare && !counter.is_free) {
    counter.streak = 0;
    // Heat shows under several names: it is over once none of them rises.
    for (const auto& [other, known] : gpu.throttle) {
      if (is_heat(other) == heat && known.streak >= 2) return;
    }
    counter.is_free = true;
    alerts_.clear(AlertSource::kMetric, alert().fingerprint);
  }
}

void GpuWatch::take_errors(Gpu& gpu, const Taken& taken) {
  if (find_string(taken.point.attributes, "error.type") != "uncorrected") return;
  const double more = taken.value - gpu.uncorrected.value;
  const bool rose = gpu.uncorrected.time_unix_ns != 0 && more > 0;
  gpu.uncorrected.value = taken.value;
  gpu.uncorrected.time_unix_ns = taken.point.time_unix_ns;
  if (!rose) return;
  RaisedAlert alert = gpu_alert(alert_names::kEcc, Cause::kEcc, AlertSource::kEvent, taken.host, taken.uuid);
  say(alert, format("%s had %.0f uncorrected memory errors.", gpu_text(taken.host, taken.uuid).c_str(), more));
  alert.lasts_ns = kErrorsLastNs;
  alert.seen_unix_ns = taken.received_unix_ns;
  alert.from_log = taken.from_log;
  alerts_.raise(std::move(alert));
}

void GpuWatch::take_links(Gpu& gpu, const Taken& taken) {
  const double value = taken.value;
  const bool first = gpu.links_best < 0;
  if (!first && value == gpu.links_up && value >= gpu.links_best) return;
  RaisedAlert alert =
      gpu_alert(alert_names::kNvlink, Cause::kNvlinkDegraded, AlertSource::kMetric, taken.host, taken.uuid);
  // What fired before a restart of ours is still so, unless all of them are up.
  const bool was_down = first && value < gpu.links && alerts_.is_firing(AlertSource::kMetric, alert.fingerprint);
  gpu.links_up = value;
  gpu.links_best = std::max(gpu.links_best, was_down ? gpu.links : value);
  if (value >= gpu.links_best) return alerts_.clear(AlertSource::kMetric, alert.fingerprint);
  say(alert,
      format("%s has %.0f NVLinks up and had %.0f.", gpu_text(taken.host, taken.uuid).c_str(), value, gpu.links_best));
  alerts_.raise(std::move(alert));
}

}  // namespace lockstep
