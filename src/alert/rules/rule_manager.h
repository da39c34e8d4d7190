// The user's rules of a tenant: evaluates each group at its times, stores what it records, and tells the registry of what
// fires.
//
// Times: a group is evaluated at multiples of its interval. One that takes longer than its interval leaves out what it
//   could not do, which is counted. All groups take turns on one thread.
// Reload: reload() keeps the state of groups that are still there; series of those that are gone end with a stale marker.
// Restart: what fired is known to the registry, how long something was pending to ALERTS_FOR_STATE.
// Thread rule: evaluate_due() is for one thread; the rest is Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "alert/alert_registry.h"
#include "alert/rules/rule_file.h"
#include "alert/rules/rule_state.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "store/metric_writer.h"

namespace lockstep {

class RuleManager {
 public:
  // Where recorded samples go: series with one sample each, and their labels.
  using Push = std::function<Result<PushOutcome>(std::span<const PushedSeries> series,
                                                 const std::function<Result<Labels>(size_t k)>& canonical)>;
  // A group as the API shows it.
  struct GroupView {
    RuleGroup group;
    std::vector<RuleState> states;
    int64_t interval_ms = 0, evaluated_ms = 0;
    double seconds = 0;
  };

  RuleManager(AlertRegistry& alerts, const MetricReader& reader, Push push, std::string external_url,
              const Clock& clock, Counters& counters);

  void reload(std::vector<RuleGroup> groups);
  // Whatever is due, unless give_up() says that nobody wants it any more.
  void evaluate_due(const std::function<bool()>& give_up);
  std::vector<GroupView> groups() const;

 private:
  struct Running {
    RuleGroupState state;
    int64_t next_ms = 0;
    bool restored = false;
  };
  bool take_new_groups();  // false: there are none
  void evaluate(Running& running, int64_t time_ms, const std::function<bool()>& give_up);
  void store(int64_t time_ms, const std::vector<RuleSample>& samples);
  void report(const RuleGroupState& state);
  void publish();

  AlertRegistry& alerts_;
  const MetricReader& reader_;
  const Push push_;
  const std::string external_url_;
  const Clock& clock_;
  Counters& counters_;
  RateLimitedLog log_;
  std::vector<Running> running_;  // of the thread that evaluates
  mutable Mutex mutex_;
  bool has_new_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<RuleGroup> new_groups_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<GroupView> shown_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
