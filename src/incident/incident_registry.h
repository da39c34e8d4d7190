// The incidents of a tenant: which findings belong together, and where people stand with them.
//
//   add() -> open --acknowledge()--> acknowledged --resolve(), or nothing seen for kQuietNs--> resolved
//             ^--------------------------- seen again, or reopen() ---------------------------------|
//
// Grouping. Findings of one place (fault_place.h) that overlap, or are not more than kReopenNs apart, are one incident:
// a chain in time. So it does not matter in which order they come; one that comes late may join two incidents, and then
// the older one has the other's findings, and answers to its id. A finding is known by its id: the same again is no news,
// so that a log that is read back, or a sender that repeats itself, changes nothing. A finding whose place becomes known
// better moves, and takes its incident along where nothing else is in it.
// A finding that opens nothing (a port that is up again) is held for kReopenNs in case its incident comes later.
//
// Lifecycle. What a person resolved stays so while the same findings last; something new, or something that was over and
// is back, opens it again. What a person opened again stays so until a person resolves it.
// Clock: times are those that the findings carry; only quiet is counted by ours, and what goes by age goes by what the
//   clock witness believes.
// On disk: an incident is shown once it is saved (or could not be: a responder matters more than the disk; one line says
//   so); what a person does is saved before it is so. Numbers that only grow are saved once a minute.
// Limits: kIncidentsMax (the one resolved longest ago goes, else the oldest), findings and entries as in incident.h,
//   resolved ones for kKeepNs.
// Thread rule: Thread-safe. tick() and what people do touch the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "incident/incident.h"
#include "store/state_store.h"

namespace lockstep::incident {

class IncidentRegistry {
 public:
  static constexpr int64_t kSecondNs = 1'000'000'000;
  static constexpr int64_t kDayNs = 86'400 * kSecondNs;
  static constexpr size_t kIncidentsMax = 2'000;
  static constexpr int64_t kReopenNs = 1'800 * kSecondNs;  // as alerts: what is back within it flaps
  static constexpr int64_t kQuietNs = 600 * kSecondNs;
  static constexpr int64_t kKeepNs = 90 * kDayNs;
  static constexpr int64_t kOffendersNs = 30 * kDayNs;
  static constexpr int64_t kSaveEveryNs = 60 * kSecondNs;

  // Reads back what was kept; what cannot be read is left out with one log line.
  IncidentRegistry(StateStore& state, const Clock& clock, const ClockWitness& witness, Counters& counters);

  using Wanted = std::function<bool(const Incident&)>;  // called under the lock: it must not ask the registry

  void add(Finding finding);
  // Every verdict that lasts is among these; one that is not has ended when it was last seen.
  void sync_verdicts(const std::set<std::string>& lasting);
  void sync_alerts(const std::set<std::string>& lasting);
  // These are another server's from now on, and gone here without a word.
  void hand_over(const Wanted& is_others);
  // Those of another server's rows that are this one's from now on, as they stood there. What is known here stays as it is.
  void take_over(std::span<const StoredIncident> rows, const Wanted& is_ours);
  // Whether a finding of that id is known, and lasts.
  std::optional<bool> is_lasting(std::string_view finding_id) const;

  // Incidents whose findings have changed since their radius was set, at most so many.
  std::vector<Incident> without_radius(size_t most) const;
  void set_radius(std::string_view id, BlastRadius radius);

  // A few times a second: what is quiet is resolved, what is old goes, and all of it is saved.
  void tick();

  // Not resolved, lasting, gravest, newest first. wanted: which of them, empty for all.
  std::vector<Incident> incidents(const Wanted& wanted = {}) const;
  Result<Incident> find(std::string_view id) const;                               // kNotFound
  std::string newest_at(const FaultPlace& place) const;                           // id; empty: none is there
  std::string id_of_finding(std::string_view finding_id) const;                   // empty: none has it
  std::optional<GpusByModel> gpus_of_finding(std::string_view finding_id) const;  // nullopt: likewise
  // How often a component was guilty in the last kOffendersNs, this time included.
  struct Offender {
    std::string component;
    std::string host;
    std::vector<std::string> ids;  // newest first
  };
  std::vector<Offender> offenders() const;  // hardware that was guilty more than once, most often first

  // Whatever it is now, it is that afterwards. who: for its history. kNotFound; else the disk failed and nothing changed.
  Result<Incident> acknowledge(std::string_view id, const std::string& who, const std::string& note);
  Result<Incident> resolve(std::string_view id, const std::string& who, const std::string& note);
  Result<Incident> reopen(std::string_view id, const std::string& who, const std::string& note);
  Result<Incident> say(std::string_view id, const std::string& who, const std::string& note);  // feedback

 private:
  struct Kept {
    Incident incident;
    bool dirty = true;         // what a reader would miss is not saved
    bool has_grown = false;    // numbers are not saved
    bool is_shown = false;     // saved once, or could not be
    bool is_incident = false;  // some finding opens it
    bool wants_radius = true;
    int64_t saved_ns = 0;  // monotonic
  };
  using ById = std::map<std::string, Kept, std::less<>>;

  void read_back();
  // saved: they are in the state.
  void take_rows(std::span<const StoredIncident> rows, const Wanted& is_wanted, bool saved) LOCKSTEP_REQUIRES(mutex_);
  Result<Incident> change(std::string_view id, const Entry& entry, std::optional<State> to)
      LOCKSTEP_EXCLUDES(save_mutex_, mutex_);
  void sync(FindingKind kind, const std::set<std::string>& lasting);
  ById::iterator home_of(const Finding& finding) LOCKSTEP_REQUIRES(mutex_);
  void join_neighbours(ById::iterator one) LOCKSTEP_REQUIRES(mutex_);
  void move(ById::iterator from, const Finding& known, const Finding& finding) LOCKSTEP_REQUIRES(mutex_);
  void merge(Kept& into, ById::iterator from) LOCKSTEP_REQUIRES(mutex_);
  void take(Kept& kept, const Finding& finding) LOCKSTEP_REQUIRES(mutex_);
  bool put(Kept& kept, const Finding& finding) LOCKSTEP_REQUIRES(mutex_);  // false: there is no room for it
  void update(Kept& kept, Finding& known, const Finding& finding) LOCKSTEP_REQUIRES(mutex_);
  void refresh(Kept& kept) LOCKSTEP_REQUIRES(mutex_);
  void reopen_for(Kept& kept, const Finding& finding) LOCKSTEP_REQUIRES(mutex_);
  void forget_key(const Incident& incident) LOCKSTEP_REQUIRES(mutex_);
  void forget(ById::iterator one, bool is_others = false) LOCKSTEP_REQUIRES(mutex_);
  void make_room() LOCKSTEP_REQUIRES(mutex_);
  std::string_view name_now(std::string_view id) const LOCKSTEP_REQUIRES(mutex_);
  ById::const_iterator by_any_id(std::string_view id) const LOCKSTEP_REQUIRES(mutex_);
  void save() LOCKSTEP_EXCLUDES(save_mutex_, mutex_);

  StateStore& state_;
  const Clock& clock_;
  const ClockWitness& witness_;
  Counters& counters_;
  Mutex save_mutex_;  // before mutex_: what is collected first is on disk first
  mutable Mutex mutex_;
  ById by_id_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::set<std::string>, std::less<>> by_key_ LOCKSTEP_GUARDED_BY(mutex_);  // ids
  std::map<std::string, std::string, std::less<>> by_finding_ LOCKSTEP_GUARDED_BY(mutex_);        // its incident's id
  std::map<std::string, std::string, std::less<>> renamed_ LOCKSTEP_GUARDED_BY(mutex_);           // by an id of `also`
  std::vector<StoredIncident> gone_ LOCKSTEP_GUARDED_BY(mutex_);
  bool failing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::incident
