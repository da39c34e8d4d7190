#include "alert/alert_watch.h"

#include <algorithm>
#include <set>

#include "alert/builtin_alerts.h"
#include "analysis/inference.h"
#include "base/median.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kServiceLooks = 60, kServiceLooksLeast = 10, kRequestsLeast = 20;
constexpr int64_t kServiceWindowNs = 300'000'000'000;
constexpr size_t kManyAgents = 3;
constexpr double kManyShare = 1.0 / 3;

RaisedAlert plain_alert(const char* name, AlertSource source, const char* thing, const std::string& which,
                        const std::string& sentence) {
  const BuiltinAlert& row = builtin_alert(name);
  RaisedAlert alert{.source = source, .name = name, .severity = row.severity};
  alert.fingerprint = fingerprint_of({{"name", name}, {thing, which}});
  set_label(alert.labels, thing, which);
  set_label(alert.annotations, "summary", sentence);
  set_label(alert.annotations, "runbook", row.runbook);
  alert.path = "/alerts?id=" + alert.fingerprint;
  return alert;
}

}  // namespace

AlertWatch::AlertWatch(AlertRegistry& alerts, ActionRunner& actions, Reads reads, const Clock& clock,
                       const ClockWitness& witness)
    : alerts_(alerts), actions_(actions), reads_(reads), clock_(clock), witness_(witness), gpus_(alerts) {}

void AlertWatch::on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  mfu_.add(identity, summary, received_unix_ns);
}

void AlertWatch::on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) {
  gpus_.on_metrics(resource, points, received_unix_ns, !live_);
}

void AlertWatch::on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) {
  bool over = false;
  std::optional<RaisedAlert> alert = alert_of(host, event, &over);
  if (!alert) return;
  if (over) return alerts_.clear(AlertSource::kEvent, alert->fingerprint);
  // By our own clock: a node's may be off.
  alert->seen_unix_ns = received_unix_ns;
  alert->since_unix_ns = std::min(alert->since_unix_ns, received_unix_ns);
  alert->from_log = !live_;
  alerts_.raise(std::move(*alert));
}

void AlertWatch::note(std::span<const Verdict> changed) {
  verdicts_changed_ = verdicts_changed_ || !changed.empty();
}

void AlertWatch::go_live() {
  live_since_ns_ = clock_.monotonic_ns();
  live_ = true;
}

void AlertWatch::tick(bool is_behind) {
  if (!live_) return;
  const int64_t monotonic_ns = clock_.monotonic_ns(), unix_ns = witness_.now().earliest_unix_ns;
  const bool due = looked_ns_ == 0 || monotonic_ns - looked_ns_ >= kLookEveryNs;
  const bool changed = std::exchange(verdicts_changed_, false);
  if (due || changed) poll_verdicts(unix_ns, is_behind);
  if (!due) return;
  looked_ns_ = monotonic_ns;
  if (is_behind) {
    live_since_ns_ = monotonic_ns;  // they are given their time once more
  } else {
    poll_jobs(unix_ns);
    poll_agents(unix_ns, monotonic_ns);
  }
  poll_warnings();
  gpus_.forget(monotonic_ns);
}

void AlertWatch::poll_verdicts(int64_t now_unix_ns, bool is_behind) {
  std::set<std::string> open;
  for (const Verdict& verdict : reads_.diagnosis.verdicts("")) {
    if (verdict.state != VerdictState::kConfirmed) continue;
    // What died stays dead: that is news for a while.
    if (verdict.kind == VerdictKind::kFail && now_unix_ns - verdict.found_unix_ns > kFailedNs) continue;
    RaisedAlert alert = reads_.cost_of ? alert_of(verdict, reads_.cost_of(verdict)) : alert_of(verdict);
    open.insert(alert.fingerprint);
    actions_.note(verdict, alert.fingerprint, alert.path, now_unix_ns);
    alerts_.raise(std::move(alert));
  }
  if (!is_behind) alerts_.sync(AlertSource::kVerdict, open);
}

void AlertWatch::poll_jobs(int64_t now_unix_ns) {
  std::set<std::string> dropped;
  for (const MfuWatch::Drop& drop : mfu_.drops(now_unix_ns)) {
    // Somebody is suspected already: that verdict says why, or is withdrawn.
    const std::vector<Verdict> verdicts = reads_.diagnosis.verdicts(drop.job_id);
    if (std::any_of(verdicts.begin(), verdicts.end(),
                    [](const Verdict& verdict) { return verdict.state != VerdictState::kCleared; }))
      continue;
    RaisedAlert alert = plain_alert(
        alert_names::kMfu, AlertSource::kMfu, "job", drop.job_id,
        format("Job %s does %.0f %% of the model FLOP/s that it did before step %lld (%.0f TFLOP/s a GPU, was %.0f).",
               drop.job_id.c_str(), 100 * drop.now / drop.before, static_cast<long long>(drop.since_step.value()),
               drop.now / 1e12, drop.before / 1e12));
    alert.job_id = drop.job_id;
    alert.since_unix_ns = drop.since_unix_ns;
    alert.path = job_path(drop.job_id) + format("?step=%lld", static_cast<long long>(drop.since_step.value()));
    dropped.insert(alert.fingerprint);
    alerts_.raise(std::move(alert));
  }
  alerts_.sync(AlertSource::kMfu, dropped);
}

void AlertWatch::poll_agents(int64_t now_unix_ns, int64_t monotonic_ns) {
  const auto [known, silent] = agents_.poll(reads_.agents.agents(), now_unix_ns, monotonic_ns);
  // Agents connect again in their own time.
  if (monotonic_ns - live_since_ns_ <= AgentWatch::kSilentNs) return;
  std::set<std::string> missing;
  const auto raise = [&](const char* thing, const std::string& which, const std::string& sentence, int64_t since_ns) {
    RaisedAlert alert = plain_alert(alert_names::kTelemetry, AlertSource::kTelemetry, thing, which, sentence);
    alert.since_unix_ns = since_ns;
    missing.insert(alert.fingerprint);
    alerts_.raise(std::move(alert));
  };
  const bool many =
      silent.size() >= kManyAgents && static_cast<double>(silent.size()) >= kManyShare * static_cast<double>(known);
  if (many) {
    // Not so many nodes at once: the network between, or this server.
    raise("scope", "fleet",
          format("%zu of %zu agents are silent, first %s: the network to them, or whatever they share.", silent.size(),
                 known, silent.front().host.c_str()),
          now_unix_ns);
  } else {
    for (const AgentInfo& agent : silent)
      raise("host", agent.host,
            format("The agent of %s is silent since %s ago: its ranks and GPUs cannot be judged.", agent.host.c_str(),
                   human_duration(static_cast<double>(now_unix_ns - agent.last_seen_unix_ns)).c_str()),
            agent.last_seen_unix_ns);
  }
  alerts_.sync(AlertSource::kTelemetry, missing);
}

void AlertWatch::poll_warnings() {
  std::set<std::string> raised;
  for (const EarlyWarning& warning : reads_.diagnosis.warnings()) {
    if (warning.is_gone()) continue;
    RaisedAlert alert = alert_of(warning);
    raised.insert(alert.fingerprint);
    alerts_.raise(std::move(alert));
  }
  alerts_.sync(AlertSource::kWarning, raised);
}

bool AlertWatch::is_slow(Service& service, double ttft_s) const {
  const bool known = service.ttft_s.size() >= kServiceLooksLeast;
  const double usual = upper_median_of(std::vector<double>(service.ttft_s.begin(), service.ttft_s.end()));
  const bool above = known && ttft_s > 2 * usual && ttft_s > usual + 0.05;
  service.bad = above ? service.bad + 1 : 0;
  // What is bad does not become what is usual within the hour.
  if (!above) service.ttft_s.push_back(ttft_s);
  if (service.ttft_s.size() > kServiceLooks) service.ttft_s.pop_front();
  return service.bad >= 2;
}

void AlertWatch::poll_services() {
  const int64_t monotonic_ns = clock_.monotonic_ns(), unix_ns = clock_.unix_ns();
  if (services_looked_ns_ != 0 && monotonic_ns - services_looked_ns_ < kServicesEveryNs) return;
  services_looked_ns_ = monotonic_ns;
  const int64_t from = unix_ns - kServiceWindowNs;
  std::vector<std::string> names = services_of(reads_.spans, reads_.metrics, from, unix_ns);
  if (names.size() > kServicesMax) names.resize(kServicesMax);
  std::set<std::string> slow;
  for (const std::string& name : names) {
    const InferenceReport report = inference_report(reads_.spans, reads_.metrics, name, from, unix_ns);
    if (report.ttft_s.count < kRequestsLeast) continue;
    Service& service = services_[name];
    service.looked_unix_ns = unix_ns;
    if (!is_slow(service, report.ttft_s.p90)) continue;
    RaisedAlert alert =
        plain_alert(alert_names::kInference, AlertSource::kInference, "service", name,
                    format("Service %s: nine of ten first tokens come within %s, twice as long as usual. %s",
                           name.c_str(), human_duration(1e9 * report.ttft_s.p90).c_str(), report.sentence.c_str()));
    alert.path = "/services/" + url_part(name);
    slow.insert(alert.fingerprint);
    alerts_.raise(std::move(alert));
  }
  alerts_.sync(AlertSource::kInference, slow);
  std::erase_if(services_, [&](const auto& one) { return unix_ns - one.second.looked_unix_ns > 3'600 * kSecondNs; });
}

}  // namespace lockstep
