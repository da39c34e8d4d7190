#include "incident/incident_registry.h"

#include <algorithm>

#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"

namespace lockstep::incident {
namespace {

constexpr size_t kAlsoMax = 32;

Finding shortened(Finding finding) {
  finding.sentence = short_line(finding.sentence);
  finding.action = short_line(finding.action);
  if (finding.path.size() > kTextBytesMax) finding.path.clear();
  GpusByModel gpus;
  for (const auto& [model, count] : finding.gpus) gpus[gpus.size() < kModelsMax ? short_line(model) : ""] += count;
  finding.gpus = std::move(gpus);
  return finding;
}

bool are_near(const Incident& incident, const Finding& finding) {
  return finding.begin_unix_ns <= incident.until_unix_ns + IncidentRegistry::kReopenNs &&
         incident.begin_unix_ns <= finding.until_unix_ns() + IncidentRegistry::kReopenNs;
}

bool is_older(const Incident& a, const Incident& b) {
  return std::tie(a.begin_unix_ns, a.id) < std::tie(b.begin_unix_ns, b.id);
}

size_t kept_max(FindingKind kind) {
  return kind == FindingKind::kVerdict ? kVerdictsMax : kEventsMax;
}

State joined(State a, State b) {
  if (a == b) return a;
  return a == State::kAcknowledged || b == State::kAcknowledged ? State::kAcknowledged : State::kOpen;
}

// Where all were known once, they stay: the job may begin again on others under its name.
GpusByModel kept_gpus(const Finding& known, const Finding& now) {
  const bool were_all_known = !known.gpus.empty() && !known.gpus.contains("");
  return were_all_known || now.gpus.empty() ? known.gpus : now.gpus;
}

// Numbers that change with every look, apart.
Finding without_numbers(Finding finding) {
  finding.seen_unix_ns = 0;
  finding.lost_gpu_seconds = finding.lost_share = 0;
  finding.victims = 0;
  finding.sentence.clear();  // has them in it
  finding.path.clear();
  return finding;
}

// What a person does.
void apply(Incident& incident, const Entry& entry, std::optional<State> to) {
  if (to) {
    incident.state = *to;
    incident.resolved_unix_ns = *to == State::kResolved ? entry.at_unix_ns : 0;
    incident.held_open = *to == State::kOpen || (incident.held_open && *to != State::kResolved);
  }
  add_entry(incident, entry);
}

Error unknown(std::string_view id) {
  return Error{format("no incident \"%s\" is known; /api/incidents?state=all lists them",
                      as_one_line(id.substr(0, 100)).c_str()),
               ErrorCode::kNotFound};
}

}  // namespace

IncidentRegistry::IncidentRegistry(StateStore& state, const Clock& clock, const ClockWitness& witness,
                                   Counters& counters)
    : state_(state), clock_(clock), witness_(witness), counters_(counters) {
  read_back();
}

void IncidentRegistry::read_back() {
  MutexLock lock(mutex_);
  const Result<std::vector<StoredIncident>> rows = state_.incidents();
  if (!rows.ok()) return LOCKSTEP_LOG_ERROR("incidents", "%s; those of before are not known", rows.error().c_str());
  take_rows(
      *rows, [](const Incident&) { return true; }, true);
}

void IncidentRegistry::take_rows(std::span<const StoredIncident> rows, const Wanted& is_wanted, bool saved) {
  size_t unreadable = 0;
  for (const StoredIncident& row : rows) {
    Result<Incident> incident = incident_from_json(row.json);
    if (!incident.ok() || incident->id != row.id) {
      ++unreadable;
      continue;
    }
    const auto is_known = [&](const Finding& one) LOCKSTEP_REQUIRES(mutex_) { return by_finding_.contains(one.id); };
    if (by_id_.contains(row.id) || renamed_.contains(row.id) || by_id_.size() >= kIncidentsMax ||
        std::any_of(incident->findings.begin(), incident->findings.end(), is_known) || !is_wanted(*incident))
      continue;
    for (const Finding& one : incident->findings) by_finding_[one.id] = incident->id;
    for (const std::string& id : incident->also) renamed_[id] = incident->id;
    by_key_[incident->place.key()].insert(incident->id);
    by_id_[row.id] = {.incident = std::move(*incident),
                      .dirty = !saved,
                      .is_shown = true,
                      .is_incident = true,
                      .wants_radius = false,
                      .saved_ns = clock_.monotonic_ns()};
  }
  if (unreadable > 0) LOCKSTEP_LOG_ERROR("incidents", "%zu kept incidents cannot be read", unreadable);
}

void IncidentRegistry::hand_over(const Wanted& is_others) {
  MutexLock lock(mutex_);
  for (auto one = by_id_.begin(); one != by_id_.end();) {
    const auto here = one++;
    if (is_others(here->second.incident)) forget(here, true);
  }
}

void IncidentRegistry::take_over(std::span<const StoredIncident> rows, const Wanted& is_ours) {
  MutexLock lock(mutex_);
  take_rows(rows, is_ours, false);
}

// The incident that a finding belongs to: of those it touches, joined, the oldest; else a new one.
IncidentRegistry::ById::iterator IncidentRegistry::home_of(const Finding& finding) {
  const std::string key = finding.place.key();
  std::vector<ById::iterator> near;
  if (const auto ids = by_key_.find(key); ids != by_key_.end()) {
    for (const std::string& id : ids->second) {
      if (const auto one = by_id_.find(id); are_near(one->second.incident, finding)) near.push_back(one);
    }
  }
  if (!near.empty()) {
    std::sort(near.begin(), near.end(),
              [](const auto& a, const auto& b) { return is_older(a->second.incident, b->second.incident); });
    for (size_t i = 1; i < near.size(); ++i) merge(near[0]->second, near[i]);
    return near[0];
  }
  make_room();
  std::string id;
  for (int64_t again = 0; id.empty() || by_id_.contains(id); ++again)
    id = "i-" +
         lockstep::to_text(sha256(key + "\n" + finding.id + (again > 0 ? std::to_string(again) : ""))).substr(0, 12);
  by_key_[key].insert(id);
  return by_id_
      .emplace(id, Kept{.incident = {.id = id,
                                     .place = finding.place,
                                     .begin_unix_ns = finding.begin_unix_ns,
                                     .until_unix_ns = finding.until_unix_ns()}})
      .first;
}

// It may reach as far as another one now.
void IncidentRegistry::join_neighbours(ById::iterator one) {
  const Incident& incident = one->second.incident;
  home_of({.place = incident.place, .begin_unix_ns = incident.begin_unix_ns, .seen_unix_ns = incident.until_unix_ns});
}

void IncidentRegistry::merge(Kept& into, ById::iterator from) {
  Incident& kept = into.incident;
  const Incident gone = from->second.incident;
  const bool was_shown = from->second.is_shown;
  kept.state = joined(kept.state, gone.state);
  kept.resolved_unix_ns = kept.state == State::kResolved ? std::max(kept.resolved_unix_ns, gone.resolved_unix_ns) : 0;
  kept.held_open = kept.held_open || gone.held_open;
  kept.has_more = kept.has_more || gone.has_more;
  kept.until_unix_ns = std::max(kept.until_unix_ns, gone.until_unix_ns);
  for (const Entry& entry : gone.entries) add_entry(kept, entry);
  forget(from);
  if (was_shown) {
    add_entry(kept, {clock_.unix_ns(), "merged", "", "with " + gone.id + ": one fault, as is known now"});
    for (const std::vector<std::string>& ids : {std::vector{gone.id}, gone.also}) {
      for (const std::string& id : ids) {
        if (kept.also.size() >= kAlsoMax) break;
        kept.also.push_back(id);
        renamed_[id] = kept.id;
      }
    }
  }
  for (const Finding& one : gone.findings) put(into, one);
  into.dirty = true;  // also where there was no room for any
  refresh(into);
}

// Something that was not in it before.
void IncidentRegistry::take(Kept& kept, const Finding& finding) {
  // What there is no room for is not known when it comes again: it is news where it began after somebody resolved this.
  const bool is_news = put(kept, finding) || finding.begin_unix_ns > kept.incident.resolved_unix_ns;
  refresh(kept);
  if (is_news) reopen_for(kept, finding);
}

bool IncidentRegistry::put(Kept& kept, const Finding& finding) {
  Incident& incident = kept.incident;
  const auto alike = std::count_if(incident.findings.begin(), incident.findings.end(),
                                   [&](const Finding& one) { return kept_max(one.kind) == kept_max(finding.kind); });
  if (static_cast<size_t>(alike) >= kept_max(finding.kind)) {
    kept.dirty = kept.dirty || !incident.has_more;
    incident.has_more = true;
    kept.has_grown = kept.has_grown || finding.until_unix_ns() > incident.until_unix_ns;
    incident.until_unix_ns = std::max(incident.until_unix_ns, finding.until_unix_ns());
    return false;
  }
  incident.findings.push_back(finding);
  by_finding_[finding.id] = incident.id;
  kept.dirty = kept.wants_radius = true;
  return true;
}

void IncidentRegistry::update(Kept& kept, Finding& known, const Finding& finding) {
  // An event is what it was when it was first heard of.
  const bool is_news = finding.seen_unix_ns >= known.seen_unix_ns;
  Finding now = (finding.kind == FindingKind::kEvent) != is_news ? finding : known;
  now.begin_unix_ns = std::min(known.begin_unix_ns, finding.begin_unix_ns);
  now.lost_gpu_seconds = std::max(known.lost_gpu_seconds, finding.lost_gpu_seconds);
  now.count = std::max(known.count, finding.count);
  now.gpus = kept_gpus(known, now);
  if (now == known) return;
  const bool is_back = known.end_unix_ns != 0 && now.end_unix_ns == 0;
  kept.has_grown = true;
  if (without_numbers(now) != without_numbers(known)) kept.dirty = true;
  if (is_back) kept.wants_radius = true;
  known = std::move(now);
  if (is_back) reopen_for(kept, finding);
}

void IncidentRegistry::refresh(Kept& kept) {
  Incident& incident = kept.incident;
  std::sort(incident.findings.begin(), incident.findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.begin_unix_ns, a.id) < std::tie(b.begin_unix_ns, b.id);
  });
  int64_t until = incident.has_more ? incident.until_unix_ns : 0;
  for (const Finding& one : incident.findings) until = std::max(until, one.until_unix_ns());
  if (!incident.findings.empty()) incident.begin_unix_ns = incident.findings.front().begin_unix_ns;
  incident.until_unix_ns = until;
  const bool was_incident = kept.is_incident;
  kept.is_incident =
      std::any_of(incident.findings.begin(), incident.findings.end(), [](const Finding& one) { return one.opens; });
  if (kept.is_incident && !was_incident && incident.entries.empty()) {
    add_entry(incident, {clock_.unix_ns(), "opened", "", ""});
    counters_.add("lockstep_incidents_total");
  }
}

void IncidentRegistry::reopen_for(Kept& kept, const Finding& finding) {
  Incident& incident = kept.incident;
  if (incident.state != State::kResolved || !finding.opens || finding.until_unix_ns() < incident.resolved_unix_ns)
    return;
  incident.state = State::kOpen;
  incident.resolved_unix_ns = 0;
  add_entry(incident, {clock_.unix_ns(), "reopened", "", finding.sentence});
  counters_.add("lockstep_incidents_reopened_total");
  kept.dirty = true;
}

void IncidentRegistry::add(Finding asked) {
  const Finding finding = shortened(std::move(asked));
  MutexLock lock(mutex_);
  const auto known = by_finding_.find(finding.id);
  if (known == by_finding_.end()) return take(home_of(finding)->second, finding);
  const auto here = by_id_.find(known->second);
  std::vector<Finding>& findings = here->second.incident.findings;
  const auto old =
      std::find_if(findings.begin(), findings.end(), [&](const Finding& one) { return one.id == finding.id; });
  if (old->place.key() == finding.place.key() || finding.seen_unix_ns < old->seen_unix_ns) {
    update(here->second, *old, finding);
    refresh(here->second);
    return join_neighbours(here);
  }
  move(here, *old, finding);
}

// Where the fault is has become known better.
void IncidentRegistry::move(ById::iterator from, const Finding& known, const Finding& finding) {
  Finding moved = finding;
  moved.begin_unix_ns = std::min(known.begin_unix_ns, finding.begin_unix_ns);
  moved.lost_gpu_seconds = std::max(known.lost_gpu_seconds, finding.lost_gpu_seconds);
  moved.gpus = kept_gpus(known, moved);
  const bool is_back = known.end_unix_ns != 0 && finding.end_unix_ns == 0;
  Incident& incident = from->second.incident;
  by_finding_.erase(finding.id);
  std::erase_if(incident.findings, [&](const Finding& one) { return one.id == moved.id; });
  from->second.dirty = true;
  const bool is_empty =
      std::none_of(incident.findings.begin(), incident.findings.end(), [](const Finding& one) { return one.opens; });
  if (is_empty) {
    // Nothing else is in it: it moves as a whole, and keeps the id that people know.
    forget_key(incident);
    incident.place = moved.place;
    by_key_[moved.place.key()].insert(incident.id);
    put(from->second, moved);
    refresh(from->second);
    join_neighbours(from);
  } else {
    refresh(from->second);
    take(home_of(moved)->second, moved);
  }
  const auto home = by_finding_.find(moved.id);
  if (is_back && home != by_finding_.end()) reopen_for(by_id_.find(home->second)->second, moved);
}

void IncidentRegistry::sync(FindingKind kind, const std::set<std::string>& lasting) {
  MutexLock lock(mutex_);
  for (auto& [id, kept] : by_id_) {
    for (Finding& one : kept.incident.findings) {
      if (one.kind != kind || one.end_unix_ns != 0 || lasting.contains(one.id)) continue;
      one.end_unix_ns = std::max(one.begin_unix_ns, one.seen_unix_ns);
      kept.dirty = true;
    }
  }
}

void IncidentRegistry::sync_verdicts(const std::set<std::string>& lasting) {
  sync(FindingKind::kVerdict, lasting);
}

void IncidentRegistry::sync_alerts(const std::set<std::string>& lasting) {
  sync(FindingKind::kAlert, lasting);
}

std::optional<bool> IncidentRegistry::is_lasting(std::string_view finding_id) const {
  MutexLock lock(mutex_);
  const auto known = by_finding_.find(finding_id);
  if (known == by_finding_.end()) return std::nullopt;
  for (const Finding& one : by_id_.find(known->second)->second.incident.findings) {
    if (one.id == finding_id) return one.end_unix_ns == 0;
  }
  return std::nullopt;
}

std::vector<Incident> IncidentRegistry::without_radius(size_t most) const {
  MutexLock lock(mutex_);
  std::vector<Incident> list;
  for (const auto& [id, kept] : by_id_) {
    if (list.size() == most) break;
    if (kept.is_incident && kept.wants_radius) list.push_back(kept.incident);
  }
  return list;
}

void IncidentRegistry::set_radius(std::string_view id, BlastRadius radius) {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  Kept& kept = found->second;
  kept.wants_radius = false;
  // A topology that has forgotten the component does not undo what was known.
  if (!radius.is_known && kept.incident.radius.is_known) return;
  kept.incident.radius = std::move(radius);
  kept.dirty = true;
}

void IncidentRegistry::forget_key(const Incident& incident) {
  const auto ids = by_key_.find(incident.place.key());
  ids->second.erase(incident.id);
  if (ids->second.empty()) by_key_.erase(ids);
}

void IncidentRegistry::forget(ById::iterator one, bool is_others) {
  const Incident& incident = one->second.incident;
  for (const Finding& finding : incident.findings) by_finding_.erase(finding.id);
  for (const std::string& id : incident.also) renamed_.erase(id);
  forget_key(incident);
  if (one->second.is_shown) gone_.push_back({incident.id, "", is_others});
  by_id_.erase(one);
}

void IncidentRegistry::make_room() {
  if (by_id_.size() < kIncidentsMax) return;
  // What is none first, then what was resolved longest ago, then what was seen longest ago.
  const auto worth = [](const Kept& kept) {
    const Incident& incident = kept.incident;
    const int state = !kept.is_incident ? 0 : incident.state == State::kResolved ? 1 : 2;
    return std::pair(state, state == 1 ? incident.resolved_unix_ns : incident.until_unix_ns);
  };
  const auto least = std::min_element(by_id_.begin(), by_id_.end(),
                                      [&](const auto& a, const auto& b) { return worth(a.second) < worth(b.second); });
  if (least->second.is_incident) counters_.add("lockstep_incidents_dropped_total");
  forget(least);
}

void IncidentRegistry::tick() {
  {
    MutexLock lock(mutex_);
    const int64_t now = clock_.unix_ns(), believed_unix_ns = witness_.now().earliest_unix_ns;
    int64_t states[3] = {};
    for (auto one = by_id_.begin(); one != by_id_.end();) {
      const auto here = one++;
      Kept& kept = here->second;
      Incident& incident = kept.incident;
      const bool may_end = kept.is_incident && incident.state != State::kResolved && !incident.held_open;
      if (may_end && !is_active(incident, now) && now - over_since_unix_ns(incident, now) >= kQuietNs) {
        incident.state = State::kResolved;
        incident.resolved_unix_ns = now;
        add_entry(incident,
                  {now, "resolved", "", "nothing was seen of it for " + human_duration(static_cast<double>(kQuietNs))});
        kept.dirty = true;
      }
      const bool is_old = kept.is_incident ? incident.state == State::kResolved &&
                                                 believed_unix_ns - incident.resolved_unix_ns > kKeepNs
                                           : believed_unix_ns - incident.until_unix_ns > kReopenNs;
      if (is_old) {
        forget(here);
      } else if (kept.is_incident) {
        ++states[static_cast<size_t>(incident.state)];
      }
    }
    for (const State state : {State::kOpen, State::kAcknowledged, State::kResolved})
      counters_.set("lockstep_incidents", format("state=\"%s\"", to_text(state)), states[static_cast<size_t>(state)]);
  }
  save();
}

void IncidentRegistry::save() {
  MutexLock saving(save_mutex_);
  std::vector<StoredIncident> rows;
  const int64_t now_ns = clock_.monotonic_ns();
  {
    MutexLock lock(mutex_);
    rows.swap(gone_);
    for (auto& [id, kept] : by_id_) {
      const bool is_due = kept.dirty || (kept.has_grown && now_ns - kept.saved_ns >= kSaveEveryNs);
      if (!kept.is_incident || !is_due) continue;
      kept.dirty = kept.has_grown = false;
      kept.saved_ns = now_ns;
      rows.push_back({id, to_json(kept.incident)});
    }
  }
  if (rows.empty()) return;
  const Result<void> saved = state_.save_incidents(rows);
  MutexLock lock(mutex_);
  if (!saved.ok() && !failing_)
    LOCKSTEP_LOG_ERROR("incidents", "%s; they are shown all the same, and tried again", saved.error().c_str());
  failing_ = !saved.ok();
  for (StoredIncident& row : rows) {
    const auto found = by_id_.find(row.id);
    if (found != by_id_.end() && !row.json.empty()) {
      found->second.is_shown = true;
      found->second.dirty = found->second.dirty || !saved.ok();
    } else if (found == by_id_.end() && !(saved.ok() && row.json.empty())) {
      // It still has to go, or went into another one or to another server meanwhile.
      gone_.push_back({std::move(row.id), "", row.is_others});
    }
  }
}

std::vector<Incident> IncidentRegistry::incidents(const Wanted& wanted) const {
  const int64_t now = clock_.unix_ns();
  std::vector<std::pair<bool, Incident>> list;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, kept] : by_id_) {
      if (kept.is_incident && kept.is_shown && (!wanted || wanted(kept.incident)))
        list.emplace_back(is_active(kept.incident, now), kept.incident);
    }
  }
  const auto rank = [](const std::pair<bool, Incident>& one) {
    return std::tuple(one.second.state == State::kResolved, !one.first, -static_cast<int>(severity_of(one.second)),
                      -one.second.begin_unix_ns, std::string_view(one.second.id));
  };
  std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::vector<Incident> incidents;
  for (auto& [active, incident] : list) incidents.push_back(std::move(incident));
  return incidents;
}

// Of the one that has its findings now.
std::string_view IncidentRegistry::name_now(std::string_view id) const {
  const auto renamed = renamed_.find(id);
  return renamed == renamed_.end() ? id : std::string_view(renamed->second);
}

IncidentRegistry::ById::const_iterator IncidentRegistry::by_any_id(std::string_view id) const {
  const auto found = by_id_.find(name_now(id));
  return found != by_id_.end() && found->second.is_incident && found->second.is_shown ? found : by_id_.end();
}

Result<Incident> IncidentRegistry::find(std::string_view id) const {
  MutexLock lock(mutex_);
  const auto found = by_any_id(id);
  if (found == by_id_.end()) return unknown(id);
  return found->second.incident;
}

std::string IncidentRegistry::newest_at(const FaultPlace& place) const {
  MutexLock lock(mutex_);
  const auto ids = by_key_.find(place.key());
  const Incident* newest = nullptr;
  if (ids == by_key_.end()) return {};
  for (const std::string& id : ids->second) {
    const Kept& kept = by_id_.find(id)->second;
    if (kept.is_incident && (newest == nullptr || is_older(*newest, kept.incident))) newest = &kept.incident;
  }
  return newest == nullptr ? std::string() : newest->id;
}

std::string IncidentRegistry::id_of_finding(std::string_view finding_id) const {
  MutexLock lock(mutex_);
  const auto known = by_finding_.find(finding_id);
  return known == by_finding_.end() ? std::string() : known->second;
}

std::optional<GpusByModel> IncidentRegistry::gpus_of_finding(std::string_view finding_id) const {
  MutexLock lock(mutex_);
  const auto known = by_finding_.find(finding_id);
  if (known == by_finding_.end()) return std::nullopt;
  for (const Finding& one : by_id_.find(known->second)->second.incident.findings)
    if (one.id == finding_id) return one.gpus;
  return std::nullopt;
}

std::vector<IncidentRegistry::Offender> IncidentRegistry::offenders() const {
  std::map<std::string, Offender> by_component;
  const int64_t since = clock_.unix_ns() - kOffendersNs;
  {
    MutexLock lock(mutex_);
    std::vector<const Incident*> guilty;
    for (const auto& [id, kept] : by_id_) {
      const Incident& one = kept.incident;
      if (kept.is_incident && kept.is_shown && one.place.is_hardware() && one.until_unix_ns >= since)
        guilty.push_back(&one);
    }
    std::sort(guilty.begin(), guilty.end(), [](const Incident* a, const Incident* b) { return is_older(*b, *a); });
    for (const Incident* one : guilty) {
      Offender& offender = by_component[one->place.component];
      offender.component = one->place.component;
      offender.host = one->place.host;
      offender.ids.push_back(one->id);
    }
  }
  std::vector<Offender> list;
  for (auto& [component, offender] : by_component) {
    if (offender.ids.size() > 1) list.push_back(std::move(offender));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Offender& a, const Offender& b) { return a.ids.size() > b.ids.size(); });
  return list;
}

Result<Incident> IncidentRegistry::change(std::string_view id, const Entry& entry, std::optional<State> to) {
  MutexLock saving(save_mutex_);
  Incident changed;
  {
    MutexLock lock(mutex_);
    const auto found = by_any_id(id);
    if (found == by_id_.end()) return unknown(id);
    changed = found->second.incident;
  }
  apply(changed, entry, to);
  const StoredIncident row{changed.id, to_json(changed)};
  LOCKSTEP_TRY(state_.save_incidents(std::span(&row, 1)));
  MutexLock lock(mutex_);
  const auto found = by_id_.find(name_now(changed.id));
  if (found == by_id_.end()) return unknown(id);
  Kept& kept = found->second;
  apply(kept.incident, entry, to);
  kept.dirty = kept.incident != changed;  // what was found meanwhile is not in that row
  return kept.incident;
}

Result<Incident> IncidentRegistry::acknowledge(std::string_view id, const std::string& who, const std::string& note) {
  return change(id, {clock_.unix_ns(), "acknowledged", who, note}, State::kAcknowledged);
}

Result<Incident> IncidentRegistry::resolve(std::string_view id, const std::string& who, const std::string& note) {
  return change(id, {clock_.unix_ns(), "resolved", who, note}, State::kResolved);
}

Result<Incident> IncidentRegistry::reopen(std::string_view id, const std::string& who, const std::string& note) {
  return change(id, {clock_.unix_ns(), "reopened", who, note}, State::kOpen);
}

Result<Incident> IncidentRegistry::say(std::string_view id, const std::string& who, const std::string& note) {
  return change(id, {clock_.unix_ns(), "feedback", who, note}, std::nullopt);
}

}  // namespace lockstep::incident
