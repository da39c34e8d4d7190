#include "alert/alert_registry.h"

#include <algorithm>
#include <tuple>

#include "alert/builtin_alerts.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kClockStepNs = 5'000'000'000;  // less is drift, or a busy machine
constexpr uint32_t bit(AlertSource source) {
  return 1u << static_cast<uint32_t>(source);
}

std::string episode_text(const Alert& alert) {
  return format("%s/%lld", alert.fingerprint.c_str(), static_cast<long long>(alert.starts_unix_ns));
}

std::string delivery_json(const Delivery& delivery) {
  JsonWriter json;
  json.begin_object()
      .field("id", delivery.id)
      .field("receiver", delivery.receiver)
      .field("created_unix_ns", delivery.created_unix_ns)
      .field("attempts", delivery.attempts)
      .key("alert")
      .raw(to_json(delivery.alert))
      .end_object();
  return json.take();
}

Result<Delivery> delivery_from_json(const JsonValue& json) {
  Delivery delivery{.id = json["id"].string().value_or(""),
                    .receiver = json["receiver"].string().value_or(""),
                    .created_unix_ns = json["created_unix_ns"].integer().value_or(0),
                    .attempts = json["attempts"].integer().value_or(0)};
  delivery.alert = LOCKSTEP_TRY(alert_from_json(json["alert"]));
  if (delivery.id.empty() || delivery.receiver.empty()) return Error{"a notification without id or receiver"};
  return delivery;
}

std::string receiver_label(std::string_view receiver, const char* name, const char* value) {
  return format("receiver=\"%.*s\",%s=\"%s\"", static_cast<int>(receiver.size()), receiver.data(), name, value);
}

}  // namespace

AlertRegistry::AlertRegistry(StateStore& state, const Clock& clock, const ClockWitness& witness, Counters& counters)
    : state_(state), clock_(clock), witness_(witness), counters_(counters) {
  read_back();
}

void AlertRegistry::read_back() {
  MutexLock lock(mutex_);
  const Result<std::vector<StoredAlertRow>> rows = state_.alert_rows();
  if (!rows.ok()) return LOCKSTEP_LOG_ERROR("alerts", "%s; what fired before is not known", rows.error().c_str());
  take(
      *rows, [](const Alert&) { return true; }, true);
}

void AlertRegistry::take(std::span<const StoredAlertRow> rows, const std::function<bool(const Alert&)>& is_wanted,
                         bool saved) {
  size_t unreadable = 0;
  std::vector<Delivery> deliveries;
  for (const StoredAlertRow& row : rows) {
    const Result<JsonDocument> document = JsonDocument::parse(row.json);
    if (!document.ok()) {
      ++unreadable;
      continue;
    }
    if (row.kind == AlertRowKind::kAlert) {
      Result<Alert> alert = alert_from_json(document->root());
      unreadable += !alert.ok();
      if (!alert.ok() || alerts_.contains(row.id) || !is_wanted(*alert) || !make_room()) continue;
      alerts_[row.id] = {.alert = std::move(*alert), .dirty = !saved};
    } else if (row.kind == AlertRowKind::kDelivery) {
      Result<Delivery> delivery = delivery_from_json(document->root());
      unreadable += !delivery.ok();
      if (delivery.ok() && !waiting_.contains(delivery->id) && is_wanted(delivery->alert))
        deliveries.push_back(std::move(*delivery));
    } else if (row.kind == AlertRowKind::kSilence) {
      Result<Silence> silence = silence_from_json(document->root());
      unreadable += !silence.ok();
      if (silence.ok()) silences_.try_emplace(row.id, std::move(*silence));
    }
  }
  std::sort(deliveries.begin(), deliveries.end(),
            [](const Delivery& a, const Delivery& b) { return a.created_unix_ns < b.created_unix_ns; });
  for (Delivery& delivery : deliveries) add_waiting(std::move(delivery), saved);
  if (unreadable > 0)
    LOCKSTEP_LOG_ERROR("alerts", "%zu kept alerts, notifications or silences cannot be read", unreadable);
}

void AlertRegistry::take_over(std::span<const StoredAlertRow> rows, const std::function<bool(const Alert&)>& is_ours) {
  MutexLock lock(mutex_);
  take(rows, is_ours, false);
  ++version_;
}

void AlertRegistry::set_receivers(std::vector<ReceiverTerms> receivers) {
  MutexLock lock(mutex_);
  receivers_ = std::move(receivers);
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    const auto here = waiting++;
    const std::string& name = here->second.delivery.receiver;
    const bool known =
        std::any_of(receivers_.begin(), receivers_.end(), [&](const auto& one) { return one.name == name; });
    if (known) continue;
    LOCKSTEP_LOG_WARN("alerts", "there is no receiver %s any more: a notification of %s is dropped", name.c_str(),
                      here->second.delivery.alert.name.c_str());
    counters_.add("lockstep_alert_notifications_lost_total", "receiver=\"gone\",reason=\"receiver_gone\"");
    drop(here, "failed", "the receiver is not configured any more");
  }
}

void AlertRegistry::set_incident_path(IncidentPath incident_path) {
  MutexLock lock(mutex_);
  incident_path_ = std::move(incident_path);
}

void AlertRegistry::link_incidents() {
  for (auto& [fingerprint, kept] : alerts_) {
    if (!kept.alert.firing || !kept.alert.annotation("incident").empty()) continue;
    const std::string path = incident_path_(kept.alert);
    if (path.empty()) continue;
    set_label(kept.alert.annotations, "incident", path);
    kept.dirty = true;
  }
}

// A wall clock that was set: what was to happen in ten minutes still does.
void AlertRegistry::move_deadlines() {
  const int64_t unix_ns = clock_.unix_ns(), monotonic_ns = clock_.monotonic_ns();
  const int64_t jump = (unix_ns - unix_ns_) - (monotonic_ns - monotonic_ns_);
  const bool first = unix_ns_ == 0;
  unix_ns_ = unix_ns;
  monotonic_ns_ = monotonic_ns;
  if (first || (jump < kClockStepNs && jump > -kClockStepNs)) return;
  for (auto& [fingerprint, kept] : alerts_) {
    if (!kept.alert.firing) continue;
    if (kept.clear_at_unix_ns != 0) kept.clear_at_unix_ns += jump;
    if (kept.alert.until_unix_ns != 0) kept.alert.until_unix_ns += jump;
  }
  for (auto& [id, waiting] : waiting_) {
    waiting.delivery.created_unix_ns += jump;
    waiting.saved = false;
  }
}

void AlertRegistry::update(Alert& alert, const RaisedAlert& raised) {
  // A verdict says more than the event before it; an event that comes again does not take its sentence away.
  const bool knows_less = alert.has(AlertSource::kVerdict) && raised.source != AlertSource::kVerdict;
  if (!knows_less) {
    for (const auto& [name, value] : raised.annotations) set_label(alert.annotations, name, value);
    if (!raised.path.empty()) alert.path = raised.path;
  }
  if (!raised.job_id.empty()) alert.job_id = raised.job_id;
  if (!raised.verdict_id.empty()) alert.verdict_id = raised.verdict_id;
  alert.lost_gpu_seconds = std::max(alert.lost_gpu_seconds, raised.lost_gpu_seconds);
}

void AlertRegistry::begin(Kept& kept, const RaisedAlert& raised, int64_t now_unix_ns) {
  Alert& alert = kept.alert;
  const int64_t ended = alert.ends_unix_ns;
  const int64_t episodes = alert.episodes;
  const bool soon = ended != 0 && now_unix_ns - ended < kFlapWithinNs;
  const int64_t flaps = soon ? alert.flaps + 1 : 0;
  alert = Alert{.fingerprint = raised.fingerprint,
                .name = raised.name,
                .severity = raised.severity,
                .firing = true,
                .from_rule = raised.source == AlertSource::kRule,
                .labels = raised.labels,
                .episodes = episodes + 1,
                .flaps = flaps};
  set_label(alert.labels, "alertname", raised.name);
  if (!alert.from_rule) set_label(alert.labels, "severity", to_text(raised.severity));
  kept.begun_monotonic_ns = clock_.monotonic_ns();
  kept.silences_version = 0;
  kept.may_be_sent = false;
  // Episodes are told apart by it.
  alert.starts_unix_ns = std::max(raised.since_unix_ns > 0 ? raised.since_unix_ns : now_unix_ns, ended + 1);
  counters_.add("lockstep_alerts_total", format("alertname=\"%s\"", alert.from_rule ? "rule" : raised.name.c_str()));
}

bool AlertRegistry::make_room() {
  if (alerts_.size() < kAlertsMax) return true;
  // Whoever floods us must not have all of them looked through each time.
  if (clock_.monotonic_ns() < full_until_ns_) {
    counters_.add("lockstep_alerts_refused_total");
    return false;
  }
  auto oldest = alerts_.end();
  for (auto one = alerts_.begin(); one != alerts_.end(); ++one) {
    if (one->second.alert.firing) continue;
    if (oldest == alerts_.end() || one->second.alert.ends_unix_ns < oldest->second.alert.ends_unix_ns) oldest = one;
  }
  if (oldest == alerts_.end()) {
    full_until_ns_ = clock_.monotonic_ns() + kSecondNs;
    counters_.add("lockstep_alerts_refused_total");
    return false;
  }
  gone_.push_back({AlertRowKind::kAlert, oldest->first, ""});
  alerts_.erase(oldest);
  return true;
}

void AlertRegistry::hand_over(const std::function<bool(const Alert&)>& is_others) {
  MutexLock lock(mutex_);
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    const auto here = one++;
    if (is_others(here->second.delivery.alert)) erase_waiting(here, true);
  }
  for (auto one = alerts_.begin(); one != alerts_.end();) {
    if (is_others(one->second.alert)) {
      gone_.push_back({AlertRowKind::kAlert, one->first, "", true});
      one = alerts_.erase(one);
    } else {
      ++one;
    }
  }
}

void AlertRegistry::raise(RaisedAlert raised) {
  const int64_t now = clock_.unix_ns();
  const int64_t seen = raised.seen_unix_ns > 0 ? std::min(raised.seen_unix_ns, now) : now;
  const bool is_event = raised.source == AlertSource::kEvent;
  if (is_event && seen + raised.lasts_ns <= now) return;  // of long ago
  if (!raised.job_id.empty() && neighbours_.is_theirs && neighbours_.is_theirs(raised.job_id)) return;
  std::sort(raised.labels.begin(), raised.labels.end());
  MutexLock lock(mutex_);
  if (neighbours_.row_of && !alerts_.contains(raised.fingerprint)) {
    const StoredAlertRow row{AlertRowKind::kAlert, raised.fingerprint, neighbours_.row_of(raised.fingerprint)};
    if (!row.json.empty())
      take(
          {&row, 1}, [](const Alert&) { return true; }, false);
  }
  auto found = alerts_.find(raised.fingerprint);
  if (found == alerts_.end()) {
    if (!make_room()) return;
    found = alerts_.try_emplace(raised.fingerprint).first;
  }
  Kept& kept = found->second;
  Alert& alert = kept.alert;
  // It was counted before the restart.
  if (raised.from_log && !alert.firing && alert.ends_unix_ns != 0 && seen <= alert.updated_unix_ns) return;
  const Alert before = alert;
  if (!alert.firing) begin(kept, raised, now);
  update(alert, raised);
  alert.sources |= bit(raised.source);
  if (is_event) alert.until_unix_ns = std::max(alert.until_unix_ns, seen + raised.lasts_ns);
  const int64_t monotonic_ns = clock_.monotonic_ns();
  if (raised.source == AlertSource::kMetric) kept.metric_monotonic_ns = monotonic_ns;
  kept.clear_at_unix_ns = 0;
  // What changes with every look is not worth a write of the disk each time.
  const bool same = before.firing && before.sources == alert.sources;
  const int64_t since_ns = monotonic_ns - kept.noted_monotonic_ns;
  if (same && since_ns < (before.annotations == alert.annotations ? 60 : 10) * kSecondNs) return;
  kept.noted_monotonic_ns = monotonic_ns;
  alert.updated_unix_ns = std::max(alert.updated_unix_ns, seen);
  kept.dirty = true;
}

void AlertRegistry::let_go(Kept& kept, uint32_t sources) {
  Alert& alert = kept.alert;
  if (!alert.firing || (alert.sources & sources) == 0) return;
  alert.sources &= ~sources;
  kept.dirty = true;
}

void AlertRegistry::clear(AlertSource source, std::string_view fingerprint) {
  MutexLock lock(mutex_);
  if (const auto found = alerts_.find(fingerprint); found != alerts_.end()) let_go(found->second, bit(source));
}

void AlertRegistry::sync(AlertSource source, const std::set<std::string>& fingerprints, std::string_view of_name) {
  MutexLock lock(mutex_);
  for (auto& [fingerprint, kept] : alerts_) {
    if (!of_name.empty() && kept.alert.name != of_name) continue;
    if (!fingerprints.contains(fingerprint)) let_go(kept, bit(source));
  }
}

void AlertRegistry::end_what_is_over(int64_t now_unix_ns) {
  const int64_t monotonic_ns = clock_.monotonic_ns();
  for (auto& [fingerprint, kept] : alerts_) {
    Alert& alert = kept.alert;
    if (!alert.firing) continue;
    if (alert.has(AlertSource::kEvent) && alert.until_unix_ns <= now_unix_ns) let_go(kept, bit(AlertSource::kEvent));
    // Of a node that is gone for good.
    if (kept.metric_monotonic_ns == 0) kept.metric_monotonic_ns = monotonic_ns;
    if (alert.has(AlertSource::kMetric) && monotonic_ns - kept.metric_monotonic_ns > kMetricNs)
      let_go(kept, bit(AlertSource::kMetric));
    if (alert.sources != 0) {
      kept.clear_at_unix_ns = 0;
      continue;
    }
    if (kept.clear_at_unix_ns == 0) {
      // A user's rule says itself how long it waits.
      const int64_t doubled = kHoldNs << std::min<int64_t>(alert.flaps, 10);
      kept.clear_at_unix_ns = now_unix_ns + (alert.from_rule ? 0 : std::min(doubled, kHoldMaxNs));
    }
    if (now_unix_ns < kept.clear_at_unix_ns) continue;
    alert.firing = false;
    ++version_;
    alert.ends_unix_ns = now_unix_ns;
    kept.clear_at_unix_ns = 0;
    kept.dirty = true;
  }
}

void AlertRegistry::judge(int64_t now_unix_ns) {
  std::vector<std::string> active;
  for (const auto& [id, silence] : silences_) {
    if (silence.is_active(now_unix_ns)) active.push_back(id);
  }
  if (active != active_silences_ || silences_version_ == 0) ++silences_version_;
  active_silences_ = std::move(active);
  std::map<std::string_view, std::string_view> explainers;  // by job
  for (const auto& [fingerprint, kept] : alerts_) {
    if (kept.alert.firing && !kept.alert.job_id.empty() && explains_others(kept.alert.name))
      explainers.try_emplace(kept.alert.job_id, fingerprint);
  }
  for (auto& [fingerprint, kept] : alerts_) {
    if (!kept.alert.firing) continue;
    // Labels stay as they are, so once for each change of the silences is enough.
    if (std::exchange(kept.silences_version, silences_version_) != silences_version_) {
      kept.silenced = false;
      for (const std::string& id : active_silences_)
        kept.silenced = kept.silenced || silences_.at(id).matches(kept.alert.labels);
    }
    const bool explainable = is_explained_by_others(kept.alert.name);
    const auto explainer = explainable ? explainers.find(kept.alert.job_id) : explainers.end();
    kept.explained_by = explainer == explainers.end() ? "" : std::string(explainer->second);
    // For a moment another alert may still come that says why.
    const bool may_be = explainable && clock_.monotonic_ns() - kept.begun_monotonic_ns < kExplainedWithinNs;
    const bool may_be_sent = !kept.silenced && kept.explained_by.empty() && !may_be;
    if (std::exchange(kept.may_be_sent, may_be_sent) != may_be_sent) ++version_;
  }
}

void AlertRegistry::note_state(const Delivery& delivery, const char* state, const std::string& line) {
  const auto found = alerts_.find(delivery.alert.fingerprint);
  if (found == alerts_.end() || found->second.alert.starts_unix_ns != delivery.alert.starts_unix_ns) return;
  Kept& kept = found->second;
  const char* status = delivery.alert.firing ? "firing" : "resolved";
  auto& all = kept.alert.deliveries;
  auto one = std::find_if(all.begin(), all.end(), [&](const DeliveryState& known) {
    return known.receiver == delivery.receiver && known.status == status;
  });
  if (one == all.end()) one = all.insert(all.end(), {.receiver = delivery.receiver, .status = status});
  one->state = state;
  one->at_unix_ns = clock_.unix_ns();
  one->attempts = delivery.attempts;
  one->error = utf8_prefix(line, 300);
  kept.dirty = true;
}

void AlertRegistry::add_waiting(Delivery delivery, bool saved) {
  const std::string id = delivery.id;
  if (const auto known = waiting_.find(id); known != waiting_.end()) erase_waiting(known);
  const uint64_t order = waiting_order_.empty() ? 1 : waiting_order_.rbegin()->first + 1;
  waiting_order_[order] = id;
  waiting_[id] = {std::move(delivery), order, clock_.monotonic_ns(), 0, saved, saved};
}

void AlertRegistry::erase_waiting(WaitingMap::iterator waiting, bool is_others) {
  gone_.push_back({AlertRowKind::kDelivery, waiting->first, "", is_others});
  waiting_order_.erase(waiting->second.order);
  waiting_.erase(waiting);
}

void AlertRegistry::drop(WaitingMap::iterator waiting, const char* state, const std::string& line) {
  note_state(waiting->second.delivery, state, line);
  erase_waiting(waiting);
}

void AlertRegistry::enqueue(Kept& kept, const ReceiverTerms& receiver, int64_t now_unix_ns) {
  const Alert& alert = kept.alert;
  if (alert.severity < receiver.least) return;
  const std::string begins = receiver.name + "/" + episode_text(alert);
  if (!alert.firing) {
    if (!receiver.send_resolved) return;
    // Nobody was told that it began: that it was, and is over, is one message. (Where "resolved" needs the other, both go.)
    const auto first = waiting_.find(begins + "/firing");
    if (first != waiting_.end() && !receiver.in_pairs) {
      counters_.add("lockstep_alert_notifications_total", receiver_label(receiver.name, "result", "queued"), -1);
      erase_waiting(first);
    }
  }
  if (waiting_.size() >= kDeliveriesMax) {
    const auto oldest = waiting_.find(waiting_order_.begin()->second);
    counters_.add("lockstep_alert_notifications_lost_total",
                  receiver_label(oldest->second.delivery.receiver, "reason", "queue_full"));
    drop(oldest, "failed", "too many notifications wait");
  }
  Delivery delivery{.id = begins + (alert.firing ? "/firing" : "/resolved"),
                    .receiver = receiver.name,
                    .alert = alert,
                    .created_unix_ns = now_unix_ns};
  delivery.alert.deliveries.clear();
  note_state(delivery, "waiting", "");
  counters_.add("lockstep_alert_notifications_total", receiver_label(receiver.name, "result", "queued"));
  add_waiting(std::move(delivery), false);
}

void AlertRegistry::notify(Kept& kept, int64_t now_unix_ns) {
  Alert& alert = kept.alert;
  const bool wants_firing = alert.firing && alert.notified_unix_ns == 0;
  const bool wants_resolved = !alert.firing && alert.notified_unix_ns > 0;
  if (!wants_firing && !wants_resolved) return;
  if (wants_firing && !kept.may_be_sent) return;
  for (const ReceiverTerms& receiver : receivers_) enqueue(kept, receiver, now_unix_ns);
  // Negative: also told that it is over.
  alert.notified_unix_ns = wants_firing ? now_unix_ns : -alert.notified_unix_ns;
  kept.dirty = true;
}

void AlertRegistry::forget_old(int64_t now_unix_ns) {
  const int64_t believed_unix_ns = witness_.now().earliest_unix_ns;
  for (auto one = alerts_.begin(); one != alerts_.end();) {
    const Alert& alert = one->second.alert;
    const bool old = !alert.firing && believed_unix_ns - alert.ends_unix_ns > kKeepNs;
    if (old) gone_.push_back({AlertRowKind::kAlert, one->first, ""});
    one = old ? alerts_.erase(one) : std::next(one);
  }
  for (auto one = silences_.begin(); one != silences_.end();) {
    const bool old = believed_unix_ns - one->second.ends_unix_ns > kKeepNs;
    if (old) gone_.push_back({AlertRowKind::kSilence, one->first, ""});
    one = old ? silences_.erase(one) : std::next(one);
  }
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    const auto here = one++;
    const Waiting& waiting = here->second;
    if (now_unix_ns - waiting.delivery.created_unix_ns <= kGiveUpNs) continue;
    // The clock may have been set while the server was down.
    if (clock_.monotonic_ns() - waiting.since_monotonic_ns < kTriedNs) continue;
    counters_.add("lockstep_alert_notifications_lost_total",
                  receiver_label(waiting.delivery.receiver, "reason", "expired"));
    drop(here, "failed", "could not be delivered for three days");
  }
}

void AlertRegistry::tick() {
  {
    MutexLock lock(mutex_);
    move_deadlines();
    const int64_t now = clock_.unix_ns();
    end_what_is_over(now);
    judge(now);
    if (incident_path_) link_incidents();
    if (!receivers_.empty()) {
      for (auto& [fingerprint, kept] : alerts_) notify(kept, now);
    }
    forget_old(now);
    show();
  }
  save();
}

void AlertRegistry::save() {
  MutexLock saving(save_mutex_);
  std::vector<StoredAlertRow> rows;
  {
    MutexLock lock(mutex_);
    rows.swap(gone_);
    for (auto& [fingerprint, kept] : alerts_) {
      if (std::exchange(kept.dirty, false)) rows.push_back({AlertRowKind::kAlert, fingerprint, to_json(kept.alert)});
    }
    for (auto& [id, waiting] : waiting_) {
      if (!waiting.saved) rows.push_back({AlertRowKind::kDelivery, id, delivery_json(waiting.delivery)});
    }
  }
  if (rows.empty()) return;
  const Result<void> saved = state_.save_alert_rows(rows);
  MutexLock lock(mutex_);
  if (!saved.ok() && !failing_)
    LOCKSTEP_LOG_ERROR("alerts", "%s; notifications are sent all the same", saved.error().c_str());
  failing_ = !saved.ok();
  for (StoredAlertRow& row : rows) {
    if (row.kind == AlertRowKind::kDelivery && !row.json.empty()) {
      const auto found = waiting_.find(row.id);
      if (found == waiting_.end()) continue;
      found->second.saved = saved.ok();
      found->second.visible = true;
    } else if (!saved.ok() && row.json.empty()) {
      gone_.push_back(std::move(row));
    } else if (!saved.ok()) {
      if (const auto found = alerts_.find(row.id); found != alerts_.end()) found->second.dirty = true;
    }
  }
}

void AlertRegistry::show() {
  int64_t firing[3] = {};
  for (const auto& [fingerprint, kept] : alerts_) {
    if (kept.alert.firing) ++firing[static_cast<size_t>(kept.alert.severity)];
  }
  for (const AlertSeverity severity : {AlertSeverity::kInfo, AlertSeverity::kWarning, AlertSeverity::kCritical})
    counters_.set("lockstep_alerts_firing", format("severity=\"%s\"", to_text(severity)),
                  firing[static_cast<size_t>(severity)]);
  counters_.set("lockstep_alert_notifications_waiting", "", static_cast<int64_t>(waiting_.size()));
  const int64_t now = clock_.unix_ns();
  counters_.set("lockstep_alert_silences", "", std::count_if(silences_.begin(), silences_.end(), [&](const auto& one) {
                  return one.second.is_active(now);
                }));
}

bool AlertRegistry::is_firing(AlertSource source, std::string_view fingerprint) const {
  MutexLock lock(mutex_);
  const auto found = alerts_.find(fingerprint);
  return found != alerts_.end() && found->second.alert.firing && found->second.alert.has(source);
}

bool AlertRegistry::is_silenced(std::string_view fingerprint) const {
  MutexLock lock(mutex_);
  const auto found = alerts_.find(fingerprint);
  return found != alerts_.end() && found->second.alert.firing && found->second.silenced;
}

std::vector<const AlertRegistry::Kept*> AlertRegistry::in_order(bool also_over) const {
  std::vector<const Kept*> list;
  for (const auto& [fingerprint, kept] : alerts_) {
    if (also_over || kept.alert.firing) list.push_back(&kept);
  }
  std::sort(list.begin(), list.end(), [](const Kept* left, const Kept* right) {
    const Alert &a = left->alert, &b = right->alert;
    if (a.firing != b.firing) return a.firing;
    if (a.firing && a.severity != b.severity) return a.severity > b.severity;
    return std::tie(b.starts_unix_ns, a.fingerprint) < std::tie(a.starts_unix_ns, b.fingerprint);
  });
  return list;
}

std::vector<Alert> AlertRegistry::alerts() const {
  MutexLock lock(mutex_);
  std::vector<Alert> list;
  for (const Kept* kept : in_order(true)) list.push_back(kept->alert);
  return list;
}

std::vector<AlertRegistry::View> AlertRegistry::views(bool also_over) const {
  MutexLock lock(mutex_);
  std::vector<View> list;
  for (const Kept* kept : in_order(also_over)) {
    const bool firing = kept->alert.firing;
    list.push_back({kept->alert, firing && kept->silenced, firing ? kept->explained_by : ""});
  }
  return list;
}

std::vector<Alert> AlertRegistry::to_hold(int64_t over_since_unix_ns) const {
  MutexLock lock(mutex_);
  std::vector<Alert> list;
  for (const auto& [fingerprint, kept] : alerts_) {
    const Alert& alert = kept.alert;
    if (alert.firing ? kept.may_be_sent : alert.ends_unix_ns >= over_since_unix_ns) list.push_back(alert);
  }
  return list;
}

uint64_t AlertRegistry::version() const {
  MutexLock lock(mutex_);
  return version_;
}

std::vector<Delivery> AlertRegistry::due(std::string_view receiver, int64_t older_than_ns, size_t most) const {
  MutexLock lock(mutex_);
  const int64_t monotonic_ns = clock_.monotonic_ns();
  const std::string of_receiver = std::string(receiver) + "/";
  std::vector<const Waiting*> found;
  for (auto one = waiting_.lower_bound(of_receiver); one != waiting_.end() && one->first.starts_with(of_receiver);
       ++one) {
    const Waiting& waiting = one->second;
    if (!waiting.visible || waiting.next_monotonic_ns > monotonic_ns) continue;
    // First that it fires, however often that has to be tried.
    const Alert& alert = waiting.delivery.alert;
    if (!alert.firing && waiting_.contains(of_receiver + episode_text(alert) + "/firing")) continue;
    found.push_back(&waiting);
  }
  std::sort(found.begin(), found.end(), [](const Waiting* a, const Waiting* b) { return a->order < b->order; });
  std::vector<Delivery> list;
  // What has waited long enough takes along what came after it, of its kind.
  if (found.empty() || monotonic_ns - found.front()->since_monotonic_ns < older_than_ns) return list;
  const Alert& first = found.front()->delivery.alert;
  for (const Waiting* waiting : found) {
    const Alert& alert = waiting->delivery.alert;
    if (list.size() == most) break;
    if (alert.name != first.name || alert.firing != first.firing) continue;
    list.push_back(waiting->delivery);
    const auto newest = alerts_.find(alert.fingerprint);
    const bool same = newest != alerts_.end() && newest->second.alert.starts_unix_ns == alert.starts_unix_ns;
    if (same && alert.firing && newest->second.alert.firing) list.back().alert = newest->second.alert;
  }
  return list;
}

int64_t AlertRegistry::retry_wait_ns(int64_t failures) {
  return std::min(kRetryMinNs << std::min<int64_t>(failures, 10), kRetryMaxNs);
}

void AlertRegistry::delivered(std::span<const Delivery> deliveries, const std::string& line) {
  std::map<std::string, int64_t> taken;
  {
    MutexLock lock(mutex_);
    for (const Delivery& delivery : deliveries) {
      const auto found = waiting_.find(delivery.id);
      if (found == waiting_.end()) continue;
      ++found->second.delivery.attempts;
      ++taken[delivery.receiver];
      drop(found, "delivered", line);
    }
  }
  save();
  // From here on a kill sends nothing again, and only now they are counted.
  for (const auto& [receiver, count] : taken)
    counters_.add("lockstep_alert_notifications_total", receiver_label(receiver, "result", "delivered"), count);
}

void AlertRegistry::failed(std::span<const Delivery> deliveries, const std::string& line, bool again) {
  MutexLock lock(mutex_);
  for (const Delivery& delivery : deliveries) {
    const auto found = waiting_.find(delivery.id);
    if (found == waiting_.end()) continue;
    Waiting& waiting = found->second;
    const int64_t wait = retry_wait_ns(waiting.delivery.attempts);
    ++waiting.delivery.attempts;
    counters_.add("lockstep_alert_notifications_total",
                  receiver_label(delivery.receiver, "result", again ? "again" : "failed"));
    if (!again) {
      counters_.add("lockstep_alert_notifications_lost_total", receiver_label(delivery.receiver, "reason", "refused"));
      drop(found, "failed", line);
      continue;
    }
    waiting.next_monotonic_ns = clock_.monotonic_ns() + wait;
    note_state(waiting.delivery, "waiting", line);
  }
}

size_t AlertRegistry::waiting(std::string_view receiver) const {
  MutexLock lock(mutex_);
  const std::string of_receiver = std::string(receiver) + "/";
  size_t count = 0;
  for (auto one = waiting_.lower_bound(of_receiver); one != waiting_.end() && one->first.starts_with(of_receiver);
       ++one)
    ++count;
  return count;
}

Result<void> AlertRegistry::save_silence(const Silence& silence) {
  JsonWriter json;
  write_silence(json, silence, clock_.unix_ns());
  const StoredAlertRow row{AlertRowKind::kSilence, silence.id, json.take()};
  return state_.save_alert_rows({&row, 1});
}

Result<Silence> AlertRegistry::add_silence(Silence silence) {
  silence.id = random_id("s");
  const int64_t now = clock_.unix_ns();
  MutexLock saving(save_mutex_);
  {
    MutexLock lock(mutex_);
    if (silences_.size() >= kSilencesMax) {
      const auto oldest = std::min_element(silences_.begin(), silences_.end(), [](const auto& a, const auto& b) {
        return a.second.ends_unix_ns < b.second.ends_unix_ns;
      });
      if (oldest->second.ends_unix_ns > now)
        return Error{format("there are %zu silences already that are not over", kSilencesMax)};
      gone_.push_back({AlertRowKind::kSilence, oldest->first, ""});
      silences_.erase(oldest);
    }
  }
  LOCKSTEP_TRY(save_silence(silence));
  MutexLock lock(mutex_);
  silences_[silence.id] = silence;
  judge(now);
  return silence;
}

Result<void> AlertRegistry::end_silence(std::string_view id) {
  MutexLock saving(save_mutex_);
  Silence silence;
  {
    MutexLock lock(mutex_);
    const auto found = silences_.find(id);
    if (found == silences_.end()) return Error{"there is no such silence", ErrorCode::kNotFound};
    silence = found->second;
  }
  const int64_t now = clock_.unix_ns();
  silence.starts_unix_ns = std::min(silence.starts_unix_ns, now - 1);
  silence.ends_unix_ns = std::min(silence.ends_unix_ns, now);
  LOCKSTEP_TRY(save_silence(silence));
  MutexLock lock(mutex_);
  silences_.insert_or_assign(silence.id, std::move(silence));
  judge(now);
  return {};
}

std::vector<Silence> AlertRegistry::silences() const {
  MutexLock lock(mutex_);
  std::vector<Silence> list;
  for (const auto& [id, silence] : silences_) list.push_back(silence);
  std::sort(list.begin(), list.end(),
            [](const Silence& a, const Silence& b) { return a.ends_unix_ns > b.ends_unix_ns; });
  return list;
}

}  // namespace lockstep
