// The diagnosis engine: reads what the store has made durable, keeps a window per job, runs the detectors, explains what
// they find by what nodes report, and has it followed over time (verdicts/verdict_tracker.h).
//
// Limits: kJobsMax jobs; beyond, the one that was heard of longest ago is forgotten (the stores keep what they keep).
// Thread rule: Thread-safe (one lock; detectors run under it).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apply/subscriber.h"
#include "base/mutex.h"
#include "diagnosis/detectors/hang/evidence.h"
#include "diagnosis/detectors/hang/hang.h"
#include "diagnosis/finding.h"
#include "diagnosis/signals/cause_priors.h"
#include "diagnosis/signals/early_warning.h"
#include "diagnosis/signals/signal_store.h"
#include "diagnosis/verdict_source.h"
#include "diagnosis/verdicts/verdict_tracker.h"
#include "diagnosis/window.h"
#include "model/verdict.h"

namespace lockstep {

class DiagnosisEngine final : public StoreSubscriber, public VerdictSource {
 public:
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kEvidenceMax = 4096;  // ranks of a job whose stacks, and whose dumps, are kept

  void on_attempt_back(const std::string& job_id, int64_t attempt) override;
  void on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;
  void on_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override;
  void on_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) override;
  void on_rank_started(const Identity& identity, int64_t received_unix_ns) override;
  void on_rank_ended(const Identity& identity, const RankEnd& end, int64_t received_unix_ns) override;
  bool hears_metric(std::string_view name) const override { return signals_.hears_metric(name); }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;
  void on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) override;

  void on_stack(const Identity& identity, const RankStack& stack, int64_t received_unix_ns) override;
  void on_dump(const Identity& identity, const FlightDump& dump, int64_t received_unix_ns) override;

  // Verdicts that were kept before a restart. The same trouble, found again in the same steps, gets its old id; a new
  // one gets an id that none of these has.
  void restore(std::vector<KnownVerdict> known);

  // Looks at every job that has changed. Called a few times a second. When the newest report came of those jobs that
  // had a new complete step; 0: none had.
  int64_t tick(int64_t now_unix_ns);

  // What nodes say, and how often each cause was right here; both are thread-safe by themselves.
  const SignalStore& signals() const { return signals_; }
  CausePriors& priors() { return priors_; }

  std::vector<Verdict> verdicts(std::string_view job_id) const override;
  std::string summary(std::string_view job_id) const override;
  std::vector<EarlyWarning> warnings() const override;
  int64_t warnings_raised() const;
  uint64_t warnings_left_out() const;  // early_warning.h
  // Verdicts that changed since the last call, for the state store.
  std::vector<Verdict> take_changed();

 private:
  struct Job {
    int64_t attempt = 0;
    JobWindow window;
    std::map<Rank, RankStatus> status;
    RankStacks stacks;
    FlightDumps dumps;
    std::map<Rank, RankEnd> ended;
    std::vector<StepNumber> looked_at;  // complete steps, and ended ranks, when detectors looked last
    size_t ended_looked_at = 0;
    int64_t typical_step_ns = 0;  // of so many rows
    uint64_t typical_rows = 0;
    bool dirty = false;
    int64_t reported_unix_ns = 0;  // its newest step summary came
    uint64_t heard = 0;            // a count that grows with every record: who was heard of last
  };

  Job& job_of(const Identity& identity) LOCKSTEP_REQUIRES(mutex_);
  Job& begin_attempt(const std::string& job_id, int64_t attempt, bool same_size) LOCKSTEP_REQUIRES(mutex_);
  Job& heard(Job& job) LOCKSTEP_REQUIRES(mutex_);
  void look_ahead(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  bool look_at_steps(const std::string& job_id, Job& job, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  bool explain(const std::string& job_id, const Job& job, Finding& finding,
               int64_t now_unix_ns) const LOCKSTEP_REQUIRES(mutex_);  // true: by signals
  void add_failure(const std::string& job_id, const Job& job, std::vector<Finding>& hangs, int64_t now_unix_ns) const
      LOCKSTEP_REQUIRES(mutex_);
  bool evaluate(const std::string& job_id, Job& job, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  static VerdictTracker::JobState state_of(const std::string& job_id, const Job& job);

  SignalStore signals_;
  CausePriors priors_;
  mutable Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  VerdictTracker tracker_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t records_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  EarlyWarnings early_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t looked_ahead_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
