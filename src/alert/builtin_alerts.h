// The alerts that are there without any configuration: one row each, with what raises it, within which time, and what to
// do. docs/guide/alerts.md is made of this table. And how a verdict, a node event or an early warning becomes one.
//
// The fingerprint is of the cause and the component, whoever saw it: an XID in the kernel's log and the verdict that
// blames that GPU for it are one alert.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "alert/alert_registry.h"
#include "analysis/cost/gpu_prices.h"
#include "model/node_event.h"
#include "model/verdict.h"
#include "model/warning.h"

namespace lockstep {

struct BuiltinAlert {
  const char* name;
  AlertSeverity severity;
  const char* raised_by;
  const char* within;   // of the fault, where data comes in time
  const char* runbook;  // one line: what to do first
};
std::span<const BuiltinAlert> builtin_alerts();
const BuiltinAlert& builtin_alert(std::string_view name);  // of the table; another name ends the process

namespace alert_names {
inline constexpr const char* kStraggler = "LockstepStraggler";
inline constexpr const char* kHang = "LockstepHang";
inline constexpr const char* kJobFailed = "LockstepJobFailed";
inline constexpr const char* kLoss = "LockstepLossNotFinite";
inline constexpr const char* kInefficient = "LockstepInefficient";
inline constexpr const char* kMfu = "LockstepMfuDrop";
inline constexpr const char* kGpuFault = "LockstepGpuFault";
inline constexpr const char* kEcc = "LockstepGpuEcc";
inline constexpr const char* kNvlink = "LockstepNvlinkDown";
inline constexpr const char* kThrottle = "LockstepGpuThrottled";
inline constexpr const char* kLink = "LockstepNetworkLinkDown";
inline constexpr const char* kTelemetry = "LockstepTelemetryLost";
inline constexpr const char* kPredicted = "LockstepPredictedFailure";
inline constexpr const char* kInference = "LockstepInferenceSlow";
}  // namespace alert_names

// Not sent while another alert of the same job fires that says why (MFU falls because a rank is slow).
bool is_explained_by_others(std::string_view name);
bool explains_others(std::string_view name);

// What people pay: "3.2 GPU-hours lost, 12 % of the job's time, 6.40 at 2.00 a GPU-hour".
std::string cost_text(const GpuCost& lost, double lost_share);

// The job's page.
std::string job_path(std::string_view job_id);

// Of a verdict that is confirmed, and what its lost time is worth; without that: no money.
RaisedAlert alert_of(const Verdict& verdict, const GpuCost& lost);
RaisedAlert alert_of(const Verdict& verdict);
// nullopt: nothing that somebody has to act on. *over: it says that what had been raised is over.
std::optional<RaisedAlert> alert_of(std::string_view host, const NodeEvent& event, bool* over);
RaisedAlert alert_of(const EarlyWarning& warning);

// A GPU, as alerts of hardware name it. The annotations have no summary yet.
RaisedAlert gpu_alert(const char* name, Cause cause, AlertSource source, std::string_view host,
                      std::string_view gpu_uuid);

}  // namespace lockstep
