// Does what the operator has switched on once a verdict is confirmed: runs a command file or calls a webhook, once for a
// verdict and an action. Whatever is decided, also that nothing is done, is kept, shown and in the audit log.
//
// At most once: that it is run is on disk, and in the audit log, before it is; where either cannot be written it is not
//   run. A kill in between leaves it interrupted, and it is not run again. What was wrong with it is for a person. Nothing
//   is done before what was done is read back, and what cannot be read of it counts as done.
// Not run: causes in dry-run; what is beyond the action's limit; what a silence matches (somebody works there); a host
//   whose name is not made of letters, digits, ".", "-", "_" and ":"; verdicts that were found more than kFreshNs ago; and
//   what is switched off, or over, by the time that its turn comes.
// Limits: kRunsMax are kept, the oldest goes; kPendingMax wait. One runs at a time. A verdict that there is no room for is
//   left out, counted once (as far as kRunsMax of them are remembered), and taken later if it still lasts.
// Thread rule: Thread-safe; stop() before what it uses goes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alert/actions/action_config.h"
#include "alert/alert_registry.h"
#include "alert/notification_sender.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "model/verdict.h"
#include "store/state_store.h"

namespace lockstep {

enum class ActionState : uint8_t {
  kWaiting,
  kDryRun,
  kRunning,
  kDone,
  kFailed,
  kInterrupted,
  kLimited,
  kSilenced,
  kRefused
};
const char* to_text(ActionState state);

struct ActionRun {
  std::string id;  // "ACTION/VERDICT"
  std::string action, verdict_id, job_id, cause, host, sentence;
  ActionState state = ActionState::kWaiting;
  std::string line;  // what it would do, what came out of it, or why it was not done
  int64_t at_unix_ns = 0;
  bool operator==(const ActionRun&) const = default;
};

class ActionRunner final : public SenderThread {
 public:
  static constexpr int64_t kFreshNs = 6ll * 3'600 * 1'000'000'000;
  static constexpr size_t kRunsMax = 1'000, kPendingMax = 100;
  static constexpr int64_t kReadAgainNs = 5'000'000'000;

  // Reads back what was done before; where that fails, round() tries again.
  ActionRunner(std::vector<ActionConfig> actions, std::string external_url, StateStore& state,
               const AlertRegistry& alerts, const Clock& clock, Counters& counters);
  ~ActionRunner() override { stop(); }

  void reload(std::vector<ActionConfig> actions);
  // A verdict that is confirmed, again and again; fingerprint: of its alert. Nothing is done before release(), which is
  // called once the registry knows what is silenced.
  void note(const Verdict& verdict, const std::string& fingerprint, const std::string& path, int64_t now_unix_ns);
  void release();
  // What another server has done, whose jobs may be this one's from now on: it is not done again.
  void take_over(std::span<const StoredAlertRow> rows);
  void round() override;

  std::vector<ActionConfig> actions() const;
  std::vector<ActionRun> runs() const;  // newest first

 private:
  using Fields = std::vector<std::pair<std::string, std::string>>;  // of the verdict, by name
  struct Pending {
    ActionRun run;
    Cause cause = Cause::kNone;
    std::string fingerprint;
    Fields fields;
  };

  void read_back();
  Fields fields_of(const Verdict& verdict, const std::string& action, const std::string& path) const;
  bool make_room(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void leave_out(const std::string& action, const std::string& id) LOCKSTEP_REQUIRES(mutex_);
  void drop_rows();
  // Whether it is switched on now.
  std::optional<ActionConfig> action_for(const Pending& pending) const;
  void decide(Pending pending);
  // Whether another run is within the action's limit; notes it where it is.
  bool within_limit(const ActionConfig& action);
  void perform(Pending& pending, const ActionConfig& action);
  void call_webhook(const Pending& pending, const ActionConfig& action, ActionRun& run);
  Result<void> keep(const ActionRun& run);
  void record(ActionRun run);  // something that is not run, or was

  const std::string external_url_;
  StateStore& state_;
  const AlertRegistry& alerts_;
  const Clock& clock_;
  Counters& counters_;
  mutable Mutex mutex_;
  std::vector<ActionConfig> actions_ LOCKSTEP_GUARDED_BY(mutex_);
  bool knows_ LOCKSTEP_GUARDED_BY(mutex_) = false;                                  // what was done before
  int64_t tried_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;                                // monotonic: to read it back
  std::set<std::string> left_out_ LOCKSTEP_GUARDED_BY(mutex_);                      // ids of runs
  std::vector<std::string> gone_ LOCKSTEP_GUARDED_BY(mutex_);                       // ids whose rows go
  std::map<std::string, ActionRun, std::less<>> runs_ LOCKSTEP_GUARDED_BY(mutex_);  // by id
  std::vector<Pending> noted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<Pending> pending_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::deque<int64_t>> began_ns_ LOCKSTEP_GUARDED_BY(mutex_);  // monotonic, by action
};

}  // namespace lockstep
