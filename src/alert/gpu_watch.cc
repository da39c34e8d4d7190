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
  for (auto& [known, gpu] : *host) {
    if (known == uuid) return &gpu;
  }
  if (gpus_ >= kGpusMax || host->size() >= kGpusOfHostMax) return nullptr;
  ++gpus_;
  return &host->emplace_back(std::string(uuid), Gpu{}).second;
}

void GpuWatch::on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) {
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
    if (point.name == kThrottle) take_throttle(*gpu, name, uuid, point, value);
    if (point.name == kErrors) take_errors(*gpu, name, uuid, point, value);
    if (point.name == kLinks) gpu->links = value;
    if (point.name == kLinksUp) take_links(*gpu, name, uuid, value);
  }
}

void GpuWatch::take_throttle(Gpu& gpu, std::string_view host, std::string_view uuid, const MetricPoint& point,
                             double value) {
  const std::string_view reason = find_string(point.attributes, "reason");
  const bool heat = is_heat(reason);
  if (!heat && reason != "hw_power_brake") return;
  Counter& counter = gpu.throttle.try_emplace(std::string(reason)).first->second;
  const double seconds = static_cast<double>(point.time_unix_ns - counter.time_unix_ns) / 1e9;
  const double share = (value - counter.value) / seconds;
  const bool comparable = counter.time_unix_ns != 0 && seconds >= 0.5 && value >= counter.value;
  if (counter.time_unix_ns != 0 && seconds < 0.5) return;
  counter.value = value;
  counter.time_unix_ns = point.time_unix_ns;
  if (!comparable) return;
  const Cause cause = heat ? Cause::kThrottleThermal : Cause::kThrottlePower;
  RaisedAlert alert = gpu_alert(alert_names::kThrottle, cause, AlertSource::kMetric, host, uuid);
  if (share >= kThrottledShare) {
    if (++counter.streak < 2) return;
    say(alert, format("GPU %.*s of %.*s is slowed %s for %.0f %% of the time.", static_cast<int>(uuid.size()),
                      uuid.data(), static_cast<int>(host.size()), host.data(), heat ? "by heat" : "by the power brake",
                      std::min(100.0, 100 * share)));
    alerts_.raise(std::move(alert));
  } else if (share < kFreeShare) {
    counter.streak = 0;
    // Heat shows under several names: it is over once none of them rises.
    for (const auto& [other, known] : gpu.throttle) {
      if (is_heat(other) == heat && known.streak >= 2) return;
    }
    alerts_.clear(AlertSource::kMetric, alert.fingerprint);
  }
}

void GpuWatch::take_errors(Gpu& gpu, std::string_view host, std::string_view uuid, const MetricPoint& point,
                           double value) {
  if (find_string(point.attributes, "error.type") != "uncorrected") return;
  const bool rose = gpu.uncorrected.time_unix_ns != 0 && value > gpu.uncorrected.value;
  const double more = value - gpu.uncorrected.value;
  gpu.uncorrected = {value, point.time_unix_ns, 0};
  if (!rose) return;
  RaisedAlert alert = gpu_alert(alert_names::kEcc, Cause::kEcc, AlertSource::kEvent, host, uuid);
  say(alert, format("GPU %.*s of %.*s had %.0f uncorrected memory errors.", static_cast<int>(uuid.size()), uuid.data(),
                    static_cast<int>(host.size()), host.data(), more));
  alert.lasts_ns = kErrorsLastNs;
  alert.seen_unix_ns = point.time_unix_ns;
  alerts_.raise(std::move(alert));
}

void GpuWatch::take_links(Gpu& gpu, std::string_view host, std::string_view uuid, double value) {
  const bool first = gpu.links_best < 0;
  if (!first && value == gpu.links_up && value >= gpu.links_best) return;
  RaisedAlert alert = gpu_alert(alert_names::kNvlink, Cause::kNvlinkDegraded, AlertSource::kMetric, host, uuid);
  // What fired before a restart of ours is still so, unless all of them are up.
  const bool was_down = first && value < gpu.links && alerts_.is_firing(AlertSource::kMetric, alert.fingerprint);
  gpu.links_up = value;
  gpu.links_best = std::max(gpu.links_best, was_down ? gpu.links : value);
  if (value >= gpu.links_best) return alerts_.clear(AlertSource::kMetric, alert.fingerprint);
  say(alert, format("GPU %.*s of %.*s has %.0f NVLinks up and had %.0f.", static_cast<int>(uuid.size()), uuid.data(),
                    static_cast<int>(host.size()), host.data(), value, gpu.links_best));
  alerts_.raise(std::move(alert));
}

}  // namespace lockstep
