#include "server/sle_faults.h"

#include <optional>

#include "alert/builtin_alerts.h"

namespace lockstep {
namespace {

std::optional<sle::Sle> sle_of_alert(std::string_view name) {
  using namespace alert_names;
  if (name == kGpuFault || name == kEcc || name == kThrottle) return sle::Sle::kGpu;
  if (name == kNvlink) return sle::Sle::kNvlink;
  if (name == kLink) return sle::Sle::kNic;
  return std::nullopt;
}

}  // namespace

std::vector<sle::HardwareFault> hardware_faults(const AlertRegistry& alerts, int64_t over_since_unix_ns) {
  std::vector<sle::HardwareFault> faults;
  for (const Alert& alert : alerts.alerts()) {
    const std::optional<sle::Sle> sle = alert.from_rule ? std::nullopt : sle_of_alert(alert.name);
    const std::string_view host = alert.label("host");
    if (!sle || host.empty() || (!alert.firing && alert.ends_unix_ns < over_since_unix_ns)) continue;
    faults.push_back({.sle = *sle,
                      .host = std::string(host),
                      .gpu_uuid = std::string(alert.label("gpu")),
                      .what = std::string(alert.label("cause")),
                      .from_unix_ns = alert.starts_unix_ns,
                      .to_unix_ns = alert.firing ? INT64_MAX : alert.ends_unix_ns});
  }
  return faults;
}

std::vector<sle::PlannedWindow> planned_windows(std::vector<Silence> silences) {
  std::vector<sle::PlannedWindow> windows;
  for (Silence& one : silences) {
    if (!one.is_planned) continue;
    sle::PlannedWindow window{.from_unix_ns = one.starts_unix_ns,
                              .to_unix_ns = one.ends_unix_ns,
                              .by_host = one.asks_for("host"),
                              .by_gpu = one.asks_for("gpu"),
                              .covers = {}};
    window.covers = [silence = std::move(one)](std::string_view job, std::string_view host, std::string_view gpu) {
      Labels labels;
      set_label(labels, "gpu", gpu);
      set_label(labels, "host", host);
      set_label(labels, "job", job);
      return silence.matches(labels);
    };
    windows.push_back(std::move(window));
  }
  return windows;
}

}  // namespace lockstep
