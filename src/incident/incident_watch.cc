#include "incident/incident_watch.h"

#include <algorithm>
#include <set>

#include "alert/builtin_alerts.h"
#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep::incident {
namespace {

Cause cause_in(const Labels& labels) {
  return term_of<Cause>(label_value(labels, "cause")).value_or(Cause::kNone);
}

}  // namespace

IncidentWatch::IncidentWatch(IncidentRegistry& incidents, Reads reads, const Clock& clock)
    : incidents_(incidents), reads_(reads), clock_(clock) {}

void IncidentWatch::on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) {
  bool over = false;
  const std::optional<RaisedAlert> alert = alert_of(host, event, &over);
  if (!alert) return;
  const std::string& thing = event.gpu_uuid.empty() ? event.device : event.gpu_uuid;
  Finding finding{.id = format("event %.*s %s %s %lld %lld", static_cast<int>(host.size()), host.data(),
                               event.name.c_str(), as_one_line(thing).c_str(), static_cast<long long>(event.code),
                               static_cast<long long>(event.time_unix_ns)),
                  .kind = FindingKind::kEvent,
                  .place = place_of(alert->labels, *reads_.fabric.topology.topology()),
                  .opens = !over,
                  .family = alert->name + " " + as_one_line(thing),
                  .cause = cause_in(alert->labels),
                  .severity = over ? AlertSeverity::kInfo : alert->severity,
                  .job_id = event.job_id,
                  .sentence = std::string(label_value(alert->annotations, "summary")),
                  .action = std::string(label_value(alert->annotations, "action")),
                  .path = {},
                  // By our own clock: a node's may be off.
                  .begin_unix_ns = received_unix_ns,
                  .seen_unix_ns = received_unix_ns,
                  .end_unix_ns = received_unix_ns + (over ? 0 : alert->lasts_ns),
                  .count = std::max<int64_t>(1, event.count)};
  incidents_.add(std::move(finding));
}

void IncidentWatch::take(const Verdict& verdict, bool was_confirmed, int64_t now_unix_ns) {
  const std::optional<bool> was_lasting = incidents_.is_lasting(verdict.id);
  // A suspicion is none yet, also of what was confirmed before; one that was withdrawn leaves no trace.
  if (verdict.state == VerdictState::kSuspected) return;
  if (verdict.state == VerdictState::kCleared && !was_lasting && !was_confirmed) return;
  const bool is_news_no_more = verdict.kind == VerdictKind::kFail && now_unix_ns - verdict.found_unix_ns > kFailedNs;
  const bool is_over = verdict.state == VerdictState::kCleared || is_news_no_more;
  if (is_over && was_lasting == false) return;
  const RaisedAlert alert = alert_of(verdict);
  Finding finding{.id = verdict.id,
                  .place = place_of(verdict, *reads_.fabric.topology.topology(), reads_.fabric.places, now_unix_ns),
                  .family = {},
                  .cause = verdict.culprit.cause,
                  .severity = alert.severity,
                  .job_id = verdict.job_id,
                  .sentence = verdict.sentence,
                  .action = verdict.next.empty() ? std::string() : verdict.next.front().action,
                  .path = alert.path,
                  .begin_unix_ns = verdict.since_unix_ns > 0 ? verdict.since_unix_ns : verdict.found_unix_ns,
                  .seen_unix_ns = now_unix_ns,
                  .lost_gpu_seconds = verdict.lost_gpu_seconds,
                  .lost_share = verdict.lost_share,
                  .victims = static_cast<int64_t>(verdict.victim_ranks.size())};
  // One that is over keeps the GPUs that it had.
  if (reads_.pricing != nullptr && !(is_over && was_lasting))
    finding.gpus = reads_.pricing->gpus_of(verdict.job_id, verdict.attempt);
  if (is_over) {
    // One that nobody has seen here was over before: when it was found is all that is known.
    finding.seen_unix_ns = was_lasting ? now_unix_ns : std::max(finding.begin_unix_ns, verdict.found_unix_ns);
    finding.end_unix_ns = finding.seen_unix_ns;
  }
  incidents_.add(std::move(finding));
}

void IncidentWatch::note(std::span<const Verdict> changed) {
  const int64_t now = clock_.unix_ns();
  for (const Verdict& verdict : changed) take(verdict, false, now);
}

void IncidentWatch::go_live() {
  live_ = true;
}

void IncidentWatch::poll_verdicts(int64_t now_unix_ns, bool is_behind) {
  std::set<std::string> lasting;
  for (const Verdict& verdict : reads_.diagnosis.verdicts("")) {
    // Diagnosis holds what is cleared only where it was confirmed.
    take(verdict, true, now_unix_ns);
    if (verdict.state != VerdictState::kCleared) lasting.insert(verdict.id);
  }
  if (!is_behind) incidents_.sync_verdicts(lasting);
}

// What a node's metrics say, where no event did.
void IncidentWatch::look_at_alerts(int64_t now_unix_ns, bool is_behind) {
  std::set<std::string> lasting;
  for (const auto& [alert, silenced, explained_by] : reads_.alerts.views(false)) {
    const std::string id =
        format("alert %s %lld", alert.fingerprint.c_str(), static_cast<long long>(alert.starts_unix_ns));
    if (!alert.has(AlertSource::kMetric) && !incidents_.is_lasting(id)) continue;
    lasting.insert(id);
    incidents_.add({.id = id,
                    .kind = FindingKind::kAlert,
                    .place = place_of(alert.labels, *reads_.fabric.topology.topology()),
                    .family = {},
                    .cause = cause_in(alert.labels),
                    .severity = alert.severity,
                    .job_id = {},
                    .sentence = std::string(alert.annotation("summary")),
                    .action = std::string(alert.annotation("action")),
                    .path = "/alerts?id=" + alert.fingerprint,
                    .begin_unix_ns = alert.starts_unix_ns,
                    .seen_unix_ns = now_unix_ns});
  }
  if (!is_behind) incidents_.sync_alerts(lasting);
}

void IncidentWatch::ask_the_graph(int64_t now_unix_ns) {
  for (const Incident& incident : incidents_.without_radius(kRadiiPerTick)) {
    const int64_t at = is_active(incident, now_unix_ns) ? now_unix_ns : incident.until_unix_ns;
    incidents_.set_radius(incident.id, radius_of(incident.place, *reads_.fabric.topology.topology_at(at).topology,
                                                 reads_.fabric.places, at));
  }
}

void IncidentWatch::tick(bool is_behind) {
  if (!live_) return;
  const int64_t now = clock_.unix_ns(), monotonic_ns = clock_.monotonic_ns();
  if (looked_ns_ == 0 || monotonic_ns - looked_ns_ >= kLookEveryNs) {
    looked_ns_ = monotonic_ns;
    poll_verdicts(now, is_behind);
    look_at_alerts(now, is_behind);
  }
  ask_the_graph(now);
  incidents_.tick();
}

std::string IncidentWatch::path_of(const Alert& alert) const {
  std::string id = alert.verdict_id.empty() ? std::string() : incidents_.id_of_finding(alert.verdict_id);
  const bool is_hardware = !alert.from_rule && !alert.label("cause").empty() && !alert.label("component").empty();
  if (id.empty() && alert.verdict_id.empty() && is_hardware)
    id = incidents_.newest_at(place_of(alert.labels, *reads_.fabric.topology.topology()));
  return id.empty() ? std::string() : incident_path(id);
}

}  // namespace lockstep::incident
