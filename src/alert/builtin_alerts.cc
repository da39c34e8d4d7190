#include "alert/builtin_alerts.h"

#include <cstdlib>

#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

using namespace alert_names;
constexpr int64_t kMinuteNs = 60'000'000'000;

// clang-format off
constexpr BuiltinAlert kTable[] = {
    {kStraggler, AlertSeverity::kWarning, "a verdict that a rank, host or link makes a job slow is confirmed", "10 s and the steps that confirm it",
     "Open the link: it shows the rank, its host and what differs from its peers. Cordon the host if the cause is its hardware."},
    {kHang, AlertSeverity::kCritical, "a verdict that a job stands still is confirmed", "10 s and the time without progress that confirms it",
     "lockstep hang JOB shows who waits for whom and the stacks. Restart the job without the host that is named."},
    {kJobFailed, AlertSeverity::kCritical, "a verdict that ranks of a job died is confirmed", "10 s",
     "lockstep postmortem JOB: which rank ended first, and how."},
    {kLoss, AlertSeverity::kCritical, "a verdict that the loss or gradient norm that a job reports is not finite, or jumps", "10 s",
     "Stop the job and go back to the last checkpoint before the step that is named."},
    {kInefficient, AlertSeverity::kInfo, "a verdict that time is wasted though nothing is broken is confirmed", "10 s and the steps that confirm it",
     "Nothing is broken: look at the link when you have time."},
    {kMfu, AlertSeverity::kWarning, "model FLOP/s of a job below 85 % of the median of its last 50 steps, for 5 steps in a row; not sent where another alert of the job says why",
     "5 steps and 30 s", "lockstep mfu JOB shows which part of the step grew."},
    {kGpuFault, AlertSeverity::kCritical, "an XID that is the hardware's fault (warn or critical in docs/guide/xid.md), or a GPU that no longer answers; also without a job", "5 s",
     "The alert says what this XID asks for; docs/guide/xid.md has all of them. A GPU that is lost: drain the node and cold reboot it."},
    {kEcc, AlertSeverity::kCritical, "uncorrected memory errors: by an XID, a counter that rises, or rows that could not be replaced; also without a job", "5 s after its sample",
     "Drain the node, reset the GPU; replace it if it comes back."},
    {kNvlink, AlertSeverity::kCritical, "fewer NVLinks up than the GPU has or had, or an XID or SXID of NVLink; also without a job", "5 s after its sample",
     "Drain the node; reset GPU and NVSwitch together; replace what comes back."},
    {kThrottle, AlertSeverity::kWarning, "slowed by heat or by the power brake for half of the time or more, two samples in a row; also without a job. A GPU at its power limit is no alert: it is healthy",
     "two samples", "Look at inlet temperature, fans and the power supply of the node."},
    {kLink, AlertSeverity::kWarning, "a port of a network adapter went down and is not back", "5 s",
     "Look at cable, transceiver and the switch's port."},
    {kTelemetry, AlertSeverity::kWarning, "an agent that was heard of is silent for 90 s; one alert for all where a third of them is", "100 s",
     "Is the node up, and does lockstep-agent run there? Without it the node's ranks cannot be judged."},
    {kPredicted, AlertSeverity::kInfo, "an early warning: a trend of a node that will hurt if it goes on", "15 s",
     "Plan the node's maintenance; the warning says how long there is."},
    {kInference, AlertSeverity::kWarning, "time to first token (p90 of 5 minutes) above twice the median of the last hour, two minutes in a row, where spans or metrics of a service report it",
     "3 min", "lockstep service NAME shows queue, prefill and the slowest requests."},
};
// clang-format on

// The hardware's own alert for a cause, whichever job it hurts; nullptr: the verdict's kind says which.
const char* hardware_alert(Cause cause) {
  switch (cause) {
    case Cause::kXid:
      return kGpuFault;
    case Cause::kEcc:
      return kEcc;
    case Cause::kNvlinkDegraded:
      return kNvlink;
    case Cause::kThrottleThermal:
      return kThrottle;
    case Cause::kLinkFlap:
      return kLink;
    default:
      return nullptr;
  }
}

const char* kind_alert(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::kHang:
      return kHang;
    case VerdictKind::kFail:
      return kJobFailed;
    case VerdictKind::kIncorrect:
      return kLoss;
    case VerdictKind::kInefficient:
      return kInefficient;
    case VerdictKind::kSlow:
      break;
  }
  return kStraggler;
}

std::string gpu_component(std::string_view host, std::string_view gpu_uuid) {
  return "gpu " + std::string(gpu_uuid) + " of " + std::string(host);
}

// What is to blame, in words that stay the same while it lasts.
std::string component_of(const Verdict& verdict, std::string_view name) {
  const Culprit& culprit = verdict.culprit;
  const bool is_of_job = name == kLoss || name == kInefficient || name == kJobFailed || culprit.host.empty();
  if (is_of_job || culprit.layer == Layer::kSoftware || culprit.layer == Layer::kWorkload)
    return "job " + verdict.job_id;
  if (!culprit.gpu_uuid.empty() && culprit.layer == Layer::kGpu) return gpu_component(culprit.host, culprit.gpu_uuid);
  if (culprit.layer == Layer::kNvlink && !culprit.gpu_uuid.empty())
    return gpu_component(culprit.host, culprit.gpu_uuid);
  // A rank's number says nothing without its job.
  if (culprit.layer == Layer::kLink || culprit.layer == Layer::kSwitch)
    return culprit.component + " of " + verdict.job_id;
  return "host " + culprit.host;
}

void identify(RaisedAlert& alert, std::string_view cause, std::string_view component) {
  set_label(alert.labels, "cause", cause);
  set_label(alert.labels, "component", component);
  alert.fingerprint =
      fingerprint_of({{"name", alert.name}, {"cause", std::string(cause)}, {"component", std::string(component)}});
}

// A row that was replaced, and corrected errors: the driver asks for nothing now, and nobody is called. Where it does, the
// event is critical (docs/guide/xid.md).
bool is_only_noted(const NodeEvent& xid) {
  return (xid.code == 63 || xid.code == 92) && xid.severity < EventSeverity::kCritical;
}

RaisedAlert begin_alert(const char* name, AlertSource source) {
  const BuiltinAlert& row = builtin_alert(name);
  RaisedAlert alert{.source = source, .name = name, .severity = row.severity};
  set_label(alert.annotations, "runbook", row.runbook);
  return alert;
}

}  // namespace

std::span<const BuiltinAlert> builtin_alerts() {
  return kTable;
}

const BuiltinAlert& builtin_alert(std::string_view name) {
  for (const BuiltinAlert& row : kTable) {
    if (name == row.name) return row;
  }
  std::abort();
}

bool is_explained_by_others(std::string_view name) {
  return name == kMfu || name == kInefficient;
}

bool explains_others(std::string_view name) {
  return name.starts_with("Lockstep") && !is_explained_by_others(name) && name != kPredicted && name != kTelemetry;
}

std::string cost_text(const GpuCost& lost, double lost_share) {
  if (!(lost.gpu_seconds > 0)) return {};
  std::string text = gpu_time_text(lost.gpu_seconds) + " lost";
  if (lost_share > 0) text += format(", %.0f %% of the job's time", 100 * lost_share);
  const std::string money = money_text(lost);
  return money.empty() ? text : text + ", " + money;
}

// A name with a dot would be a file without the slash.
std::string job_path(std::string_view job_id) {
  return "/jobs/" + url_part(job_id) + (job_id.find('.') != std::string_view::npos ? "/" : "");
}

RaisedAlert gpu_alert(const char* name, Cause cause, AlertSource source, std::string_view host,
                      std::string_view gpu_uuid) {
  RaisedAlert alert = begin_alert(name, source);
  identify(alert, to_text(cause), gpu_component(host, gpu_uuid));
  set_label(alert.labels, "host", host);
  set_label(alert.labels, "gpu", gpu_uuid);
  alert.path = "/alerts?id=" + alert.fingerprint;
  return alert;
}

RaisedAlert alert_of(const Verdict& verdict) {
  return alert_of(verdict, {.gpu_seconds = verdict.lost_gpu_seconds, .unpriced = {}});
}

RaisedAlert alert_of(const Verdict& verdict, const GpuCost& lost) {
  const Culprit& culprit = verdict.culprit;
  const char* hardware = culprit.host.empty() ? nullptr : hardware_alert(culprit.cause);
  RaisedAlert alert = begin_alert(hardware != nullptr ? hardware : kind_alert(verdict.kind), AlertSource::kVerdict);
  identify(alert, to_text(culprit.cause), component_of(verdict, alert.name));
  set_label(alert.labels, "host", culprit.host);
  set_label(alert.labels, "gpu", culprit.gpu_uuid);
  set_label(alert.labels, "job", verdict.job_id);
  set_label(alert.labels, "layer", to_text(culprit.layer));
  set_label(alert.annotations, "summary", verdict.sentence);
  set_label(alert.annotations, "cost", cost_text(lost, verdict.lost_share));
  set_label(alert.annotations, "ranks", human_ranks(culprit.ranks, 8));
  if (!verdict.next.empty()) set_label(alert.annotations, "action", verdict.next.front().action);
  alert.job_id = verdict.job_id;
  alert.verdict_id = verdict.id;
  alert.lost_gpu_seconds = verdict.lost_gpu_seconds;
  alert.since_unix_ns = verdict.since_unix_ns > 0 ? verdict.since_unix_ns : verdict.found_unix_ns;
  // The page as the responder should see it: the step where it shows, the rank that is to blame.
  alert.path = job_path(verdict.job_id);
  std::string query;
  if (verdict.through_step != kNoStep && !is_standstill(verdict.kind))
    query += format("?step=%lld", static_cast<long long>(verdict.through_step.value()));
  if (!culprit.ranks.empty()) query += format("%crank=%d", query.empty() ? '?' : '&', culprit.ranks.front().value());
  alert.path += query;
  return alert;
}

std::optional<RaisedAlert> alert_of(std::string_view host, const NodeEvent& event, bool* over) {
  *over = false;
  const bool is_bad = event.severity >= EventSeverity::kWarn && !event.secondary;
  const char* name = nullptr;
  Cause cause = Cause::kNone;
  int64_t lasts_ns = (event.severity == EventSeverity::kCritical ? 60 : 15) * kMinuteNs;
  if (event.name == "gpu.xid" && is_bad && !is_only_noted(event)) {
    name = kGpuFault, cause = Cause::kXid;
    for (const int64_t code : {48, 63, 64, 92, 94, 95, 140, 156, 157, 160, 161, 171, 172}) {
      if (event.code == code) name = kEcc, cause = Cause::kEcc;
    }
    if (event.code == 74 || event.code == 136 || event.code == 155 || (event.code >= 144 && event.code <= 150))
      name = kNvlink, cause = Cause::kNvlinkDegraded;
  } else if (event.name == "gpu.lost" || event.name == "gpu.hung" || event.name == "gpu.appeared") {
    name = kGpuFault, cause = Cause::kXid, lasts_ns = 24 * 60 * kMinuteNs;
    *over = event.name == "gpu.appeared";
  } else if (event.name == "nvswitch.sxid" && is_bad) {
    name = kNvlink, cause = Cause::kNvlinkDegraded;
  } else if (event.name == "link.down" || event.name == "link.up" || (event.name == "nic.lost" && is_bad)) {
    name = kLink, cause = Cause::kLinkFlap, lasts_ns = 24 * 60 * kMinuteNs;
    *over = event.name == "link.up";
    // One that came back at once, or was switched off by somebody, is a warning in the log and no more.
    if (!*over && event.severity != EventSeverity::kCritical) return std::nullopt;
  }
  if (name == nullptr) return std::nullopt;
  RaisedAlert alert = begin_alert(name, AlertSource::kEvent);
  if (!event.gpu_uuid.empty()) {
    alert = gpu_alert(name, cause, AlertSource::kEvent, host, event.gpu_uuid);
  } else {
    identify(alert, to_text(cause), as_one_line(event.device) + " of " + std::string(host));
    set_label(alert.labels, "host", host);
    set_label(alert.labels, "device", as_one_line(event.device));
    alert.path = "/alerts?id=" + alert.fingerprint;
  }
  if (name == kGpuFault && event.severity == EventSeverity::kWarn) alert.severity = AlertSeverity::kWarning;
  const std::string what = event.code >= 0 ? format("%s %lld", event.name == "gpu.xid" ? "XID" : event.name.c_str(),
                                                    static_cast<long long>(event.code))
                                           : event.name;
  const std::string& said = event.meaning.empty() ? event.text : event.meaning;
  const std::string& thing = event.gpu_uuid.empty() ? event.device : event.gpu_uuid;
  std::string sentence = format("%s on %s of %.*s: %s", what.c_str(), thing.empty() ? "the host" : thing.c_str(),
                                static_cast<int>(host.size()), host.data(), said.c_str());
  sentence +=
      event.job_id.empty() ? ". No job is known to run on it." : format(". Job %s runs on it.", event.job_id.c_str());
  set_label(alert.annotations, "summary", as_one_line(sentence));
  set_label(alert.annotations, "action", as_one_line(event.action));
  alert.job_id = event.job_id;
  alert.since_unix_ns = event.time_unix_ns;
  alert.lasts_ns = lasts_ns;
  return alert;
}

RaisedAlert alert_of(const EarlyWarning& warning) {
  RaisedAlert alert = begin_alert(kPredicted, AlertSource::kWarning);
  const std::string& thing = warning.gpu_uuid.empty() ? warning.device : warning.gpu_uuid;
  identify(alert, warning.signal, (thing.empty() ? "" : thing + " of ") + warning.host);
  set_label(alert.labels, "host", warning.host);
  set_label(alert.labels, "gpu", warning.gpu_uuid);
  set_label(alert.labels, "device", warning.device);
  set_label(alert.annotations, "summary", warning.sentence);
  set_label(alert.annotations, "action", warning.next.action);
  alert.since_unix_ns = warning.raised_unix_ns;
  alert.path = "/alerts?id=" + alert.fingerprint;
  return alert;
}

}  // namespace lockstep
