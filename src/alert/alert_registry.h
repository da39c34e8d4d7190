// The alerts of a tenant: which fire, which are over, what is still to be sent to whom, and what is silenced. The state
// machine between whoever finds something (verdicts, node events, rules) and whoever sends it.
//
//   raise() -> firing --(no source says so any more, and the hold is over)--> resolved --raise()--> firing: a new episode
//
// One page per cause: the fingerprint is of cause and component, so that a fault that is seen by an event, a metric and a
// verdict is one alert; a receiver is told once of an episode, and once that it is over. Flapping: what comes back within
// kFlapWithinNs of its end is held twice as long as the last time before it counts as over, up to kHoldMaxNs. An alert
// that another one of the same job explains (MFU that falls because a rank is slow) is not sent while that one fires.
//
// On disk: an alert and its notifications are saved in one transaction before a sender may see them, and a notification
//   goes once it is delivered. A kill in between sends it after the restart; one between a receiver's answer and our
//   saving it sends it twice, with the same id. Where the disk fails it is sent all the same: a page matters more.
// Clock:   a wall clock that is set moves every deadline with it; what goes by age goes by what the clock witness believes.
// Limits:  kAlertsMax alerts (the one that was over for longest goes; new ones are refused where all fire),
//   kDeliveriesMax notifications (the oldest goes, counted as data loss), kSilencesMax silences (the one that was over for
//   longest goes). A notification that could not be delivered for kGiveUpNs is given up, at least kTriedNs after a start.
//   What a metric said that nobody sends any more holds for kMetricNs.
// Thread rule: Thread-safe. Only tick() and the changes of silences touch the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alert/alert.h"
#include "alert/silence.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "store/state_store.h"

namespace lockstep {

// What a source found. Labels: without alertname and severity, which are added.
struct RaisedAlert {
  AlertSource source = AlertSource::kVerdict;
  std::string fingerprint;
  std::string name;
  AlertSeverity severity = AlertSeverity::kWarning;
  Labels labels = {};
  Labels annotations = {};
  std::string job_id = {};
  std::string verdict_id = {};
  std::string path = {};
  double lost_gpu_seconds = 0;
  int64_t since_unix_ns = 0;  // 0: now
  int64_t seen_unix_ns = 0;   // 0: now
  int64_t lasts_ns = 0;       // kEvent: it holds for so long after it was seen
  bool from_log = false;      // kEvent: read back after a start, so it may have been counted before
};

// A receiver of notifications, as far as the registry has to know it.
struct ReceiverTerms {
  std::string name;
  AlertSeverity least = AlertSeverity::kInfo;
  bool send_resolved = true;
  bool in_pairs = false;  // "resolved" means nothing to it without "firing" before it
};

// One notification of one alert to one receiver.
struct Delivery {
  std::string id;  // the same in every attempt: "RECEIVER/FINGERPRINT/EPISODE/firing"
  std::string receiver;
  Alert alert;  // firing: as it stands when it is sent
  int64_t created_unix_ns = 0;
  int64_t attempts = 0;
};

class AlertRegistry {
 public:
  static constexpr size_t kAlertsMax = 10'000;
  static constexpr size_t kDeliveriesMax = 10'000;
  static constexpr size_t kSilencesMax = 1'000;
  static constexpr int64_t kSecondNs = 1'000'000'000;
  static constexpr int64_t kHoldNs = 30 * kSecondNs;
  static constexpr int64_t kHoldMaxNs = 3'600 * kSecondNs;
  static constexpr int64_t kFlapWithinNs = 1'800 * kSecondNs;
  static constexpr int64_t kExplainedWithinNs = 30 * kSecondNs;  // so long what another alert may explain waits for it
  static constexpr int64_t kGiveUpNs = 3 * 86'400 * kSecondNs;
  static constexpr int64_t kTriedNs = 3'600 * kSecondNs;
  static constexpr int64_t kMetricNs = 86'400 * kSecondNs;
  static constexpr int64_t kKeepNs = 30 * 86'400 * kSecondNs;  // what is over
  static constexpr int64_t kRetryMinNs = kSecondNs;
  static constexpr int64_t kRetryMaxNs = 60 * kSecondNs;

  // Reads back what was kept; what cannot be read is left out with one log line.
  AlertRegistry(StateStore& state, const Clock& clock, const ClockWitness& witness, Counters& counters);

  // Who is told. Notifications to receivers that are gone are dropped. Before the first tick().
  void set_receivers(std::vector<ReceiverTerms> receivers);

  // The page of the incident that an alert belongs to, for its annotation "incident"; empty: none yet. Called by tick(),
  // under the lock: it must not ask the registry. Before the first tick().
  using IncidentPath = std::function<std::string(const Alert&)>;
  void set_incident_path(IncidentPath incident_path);

  // Other servers with other jobs. Called by raise(); both answer at once and do not ask the registry. Before the first raise().
  struct Neighbours {
    std::function<bool(const std::string& job_id)> is_theirs = {};           // what is said of such a job is not heard
    std::function<std::string(const std::string& fingerprint)> row_of = {};  // as one of them saved it; empty: none did
  };
  void set_neighbours(Neighbours neighbours) { neighbours_ = std::move(neighbours); }

  // Again and again while it lasts, or once (kEvent). What fires at a neighbour, and is not known here, goes on as it stands
  // there: who was told is not told again.
  void raise(RaisedAlert raised);
  // That source says so no longer.
  void clear(AlertSource source, std::string_view fingerprint);
  // Everything that the source says: what is not among these it says no longer. of_name: only of alerts of that name.
  void sync(AlertSource source, const std::set<std::string>& fingerprints, std::string_view of_name = {});
  // These are another server's from now on: gone without a word, and what was to be sent of them too.
  void hand_over(const std::function<bool(const Alert&)>& is_others);
  // Those of another server's rows that are this one's from now on, as they stood there: who was told of them is not told
  // again, what was still to be sent is sent. What is known here stays as it is here. Silences are everybody's.
  void take_over(std::span<const StoredAlertRow> rows, const std::function<bool(const Alert&)>& is_ours);
  // A few times a second: what is over ends, what is new is queued for the receivers, and all of it is saved.
  void tick();

  bool is_firing(AlertSource source, std::string_view fingerprint) const;
  bool is_silenced(std::string_view fingerprint) const;  // as of the last tick()
  std::vector<Alert> alerts() const;                     // firing ones first, then by start, newest first
  // As of the last tick().
  struct View {
    Alert alert;
    bool silenced = false;
    std::string explained_by;  // fingerprint of another alert; empty: none
  };
  std::vector<View> views(bool also_over) const;  // in the same order
  // Those that a real Alertmanager should hold, as of the last tick(): firing, or over since then; neither silenced nor
  // explained by another.
  std::vector<Alert> to_hold(int64_t over_since_unix_ns) const;
  uint64_t version() const;  // another one whenever one of these begins, ends or is held back

  // For senders. The notifications to a receiver that are due, oldest first; those of one alertname only.
  std::vector<Delivery> due(std::string_view receiver, int64_t older_than_ns, size_t most) const;
  void delivered(std::span<const Delivery> deliveries,
                 const std::string& line = {});  // line: what was wrong all the same
  // again: tried again after a while; else given up.
  void failed(std::span<const Delivery> deliveries, const std::string& line, bool again);
  // How long after so many failures in a row.
  static int64_t retry_wait_ns(int64_t failures);
  size_t waiting(std::string_view receiver) const;

  Result<Silence> add_silence(Silence silence);
  Result<void> end_silence(std::string_view id);  // kNotFound
  std::vector<Silence> silences() const;          // the one that ends last first

 private:
  struct Kept {
    Alert alert;
    int64_t begun_monotonic_ns = 0;   // when it was first raised here; not kept
    int64_t noted_monotonic_ns = 0;   // that it still lasts
    int64_t metric_monotonic_ns = 0;  // that kMetric said so; 0: before the start
    int64_t clear_at_unix_ns = 0;     // no source says so; over at that time. 0: one does
    bool dirty = false;
    // As of the last judge().
    uint64_t silences_version = 0;
    bool silenced = false;
    std::string explained_by;
    bool may_be_sent = false;
  };
  struct Waiting {
    Delivery delivery;
    uint64_t order = 0;  // in which they came
    int64_t since_monotonic_ns = 0;
    int64_t next_monotonic_ns = 0;
    bool saved = false;
    bool visible = false;  // to senders: once it is saved, or could not be
  };

  void read_back();
  // What these rows say, as far as it is wanted and not known yet. saved: they are in the state.
  void take(std::span<const StoredAlertRow> rows, const std::function<bool(const Alert&)>& is_wanted, bool saved)
      LOCKSTEP_REQUIRES(mutex_);
  void move_deadlines() LOCKSTEP_REQUIRES(mutex_);
  void begin(Kept& kept, const RaisedAlert& raised, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  static void update(Alert& alert, const RaisedAlert& raised);
  bool make_room() LOCKSTEP_REQUIRES(mutex_);
  void let_go(Kept& kept, uint32_t sources) LOCKSTEP_REQUIRES(mutex_);
  void end_what_is_over(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void link_incidents() LOCKSTEP_REQUIRES(mutex_);
  void notify(Kept& kept, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void enqueue(Kept& kept, const ReceiverTerms& receiver, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  using WaitingMap = std::map<std::string, Waiting, std::less<>>;
  void add_waiting(Delivery delivery, bool saved) LOCKSTEP_REQUIRES(mutex_);
  void erase_waiting(WaitingMap::iterator waiting, bool is_others = false) LOCKSTEP_REQUIRES(mutex_);
  void drop(WaitingMap::iterator waiting, const char* state, const std::string& line) LOCKSTEP_REQUIRES(mutex_);
  void note_state(const Delivery& delivery, const char* state, const std::string& line) LOCKSTEP_REQUIRES(mutex_);
  void forget_old(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void save() LOCKSTEP_EXCLUDES(save_mutex_, mutex_);
  Result<void> save_silence(const Silence& silence) LOCKSTEP_REQUIRES(save_mutex_);
  void show() LOCKSTEP_REQUIRES(mutex_);
  // What is silenced, what another alert explains, and so what may be sent.
  void judge(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  std::vector<const Kept*> in_order(bool also_over) const LOCKSTEP_REQUIRES(mutex_);

  StateStore& state_;
  Neighbours neighbours_;  // set once
  const Clock& clock_;
  const ClockWitness& witness_;
  Counters& counters_;
  Mutex save_mutex_;  // before mutex_: what is collected first is on disk first
  mutable Mutex mutex_;
  std::map<std::string, Kept, std::less<>> alerts_ LOCKSTEP_GUARDED_BY(mutex_);  // by fingerprint
  WaitingMap waiting_ LOCKSTEP_GUARDED_BY(mutex_);                               // by id, so by receiver first
  std::map<uint64_t, std::string> waiting_order_ LOCKSTEP_GUARDED_BY(mutex_);    // ids
  std::map<std::string, Silence, std::less<>> silences_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<ReceiverTerms> receivers_ LOCKSTEP_GUARDED_BY(mutex_);
  IncidentPath incident_path_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<StoredAlertRow> gone_ LOCKSTEP_GUARDED_BY(mutex_);  // rows to be deleted
  int64_t unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0, monotonic_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of the last tick
  bool failing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t version_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> active_silences_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t silences_version_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t full_until_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // monotonic: until then room is not looked for again
};

}  // namespace lockstep
