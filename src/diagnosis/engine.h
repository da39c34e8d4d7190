// The diagnosis engine: reads what the store has made durable, keeps a window per job, runs the detectors, explains what
// they find by what nodes report, and has it followed over time (verdicts/verdict_tracker.h).
//
// Limits: kJobsMax jobs; beyond, the one that was heard of longest ago is forgotten (the stores keep what they keep).
// Thread rule: Thread-safe. Records are only put down where a look finds them, so that whoever stores them never waits
//   for detectors. A look at a job takes that job's lock, and nobody else's: of other jobs, and of what was found
//   before, the answers are there meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "analysis/lines/line_difference.h"
#include "apply/subscriber.h"
#include "base/mutex.h"
#include "diagnosis/detectors/hang/evidence.h"
#include "diagnosis/detectors/hang/hang.h"
#include "diagnosis/finding.h"
#include "diagnosis/network/network_locator.h"
#include "diagnosis/profile/profile_claims.h"
#include "diagnosis/signals/cause_priors.h"
#include "diagnosis/signals/early_warning.h"
#include "diagnosis/signals/signal_store.h"
#include "diagnosis/verdict_source.h"
#include "diagnosis/verdicts/verdict_tracker.h"
#include "diagnosis/window.h"
#include "fabric/wait_store.h"
#include "model/command_kind.h"
#include "model/verdict.h"

namespace lockstep {

class DiagnosisEngine final : public StoreSubscriber, public VerdictSource {
 public:
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kSampledMax = 64;     // ranks of a job whose samples, and whose profiles, are kept
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
  void on_samples(const Identity& identity, const RankSamples& samples, int64_t received_unix_ns) override;
  void on_dump(const Identity& identity, const FlightDump& dump, int64_t received_unix_ns) override;
  void on_profile_finding(const Identity& identity, const ProfileFinding& finding, int64_t received_unix_ns) override;

  // What is known of the network between the nodes. Before the first record.
  void look_at_network(NetworkView view) {
    locator_.look_at(view);
    fabric_ = view.fabric;
  }
  // Before anything is evaluated. Without it all are taken to answer. Thread-safe.
  void ask_who_answers(WhoAnswers who) { who_answers_ = std::move(who); }
  // Where what each step says of who waited for whom is kept; it outlives this. Before the first record.
  void keep_waits(fabric::WaitStore& waits) { waits_ = &waits; }

  // Verdicts that were kept before a restart. The same trouble, found again in the same steps, gets its old id; a new
  // one gets an id that none of these has.
  void restore(std::vector<KnownVerdict> known);

  // Looks at every job that has changed. Called a few times a second, by one thread. When the newest report came of
  // those jobs that had a new complete step; 0: none had.
  int64_t tick(int64_t now_unix_ns);

  // What nodes say, and how often each cause was right here; both are thread-safe by themselves.
  const SignalStore& signals() const { return signals_; }
  CausePriors& priors() { return priors_; }

  std::vector<Verdict> verdicts(std::string_view job_id) const override;
  std::string summary(std::string_view job_id) const override;
  std::vector<EarlyWarning> warnings() const override;
  int64_t warnings_raised() const;
  uint64_t warnings_left_out() const;  // early_warning.h
  // Records of a job that were put down and not looked at yet: fewer than kWaitingMax, whoever puts down the last of them
  // has the job take them all.
  static constexpr size_t kWaitingMax = 1 << 17;
  size_t waiting(std::string_view job_id) const;
  // Verdicts that changed since the last call, for the state store.
  std::vector<Verdict> take_changed();

 private:
  struct Job {
    int64_t attempt = 0;
    JobWindow window;
    std::map<Rank, RankStatus> status;
    RankStacks stacks;
    FlightDumps dumps;
    SampledRanks samples;
    ProfiledRanks profiles;
    std::map<Rank, RankEnd> ended;
    std::vector<StepNumber> looked_at;  // complete steps, their rows, and ended ranks, when detectors looked last
    size_t rows_looked_at = 0;
    size_t ended_looked_at = 0;
    int64_t typical_step_ns = 0;  // of so many rows
    uint64_t typical_rows = 0;
    int64_t reported_unix_ns = 0;     // its newest step summary came
    StepNumber waits_kept = kNoStep;  // through this step
    bool waits_for_word = false;      // a failure becomes sure by what comes, or by time alone
  };
  struct RankStarted {};
  struct AttemptBack {};
  // What came, until somebody looks.
  struct Record {
    Identity identity;  // of AttemptBack: job and attempt alone
    std::variant<StepSummary, RankStatus, CommInit, RankStarted, RankEnd, RankStack, FlightDump, RankSamples,
                 ProfileFinding, AttemptBack>
        what;
    int64_t received_unix_ns = 0;
  };
  struct Slot {
    Mutex mutex;  // taken before the engine's own
    std::unique_ptr<Job> job LOCKSTEP_GUARDED_BY(mutex) = std::make_unique<Job>();
  };
  struct KnownJob {
    std::shared_ptr<Slot> slot = std::make_shared<Slot>();
    std::vector<Record> inbox;
    bool dirty = false;  // something came since the last look
    uint64_t heard = 0;  // a count that grows with every record: who was heard of last
  };

  void put_down(Record record);
  // Has the job of a slot take what was put down for it; whoever asks about it first does.
  void take_records(const std::string& job_id, Slot& slot) const LOCKSTEP_REQUIRES(slot.mutex);
  void take(const std::string& job_id, Slot& slot, Record& record) const LOCKSTEP_REQUIRES(slot.mutex);
  void begin_attempt(const std::string& job_id, Slot& slot, int64_t attempt, bool same_size) const
      LOCKSTEP_REQUIRES(slot.mutex);
  void look_ahead(int64_t now_unix_ns);
  // The job's lock is held, here and below.
  bool look_at_steps(const std::string& job_id, Job& job, int64_t now_unix_ns);
  Answers sampled(const Job& job, const Finding& finding) const;
  void add_waits(const std::string& job_id, Job& job);
  bool explain(const std::string& job_id, const Job& job, Finding& finding,
               int64_t now_unix_ns) const;  // true: by signals
  int64_t since_unix_ns(const std::string& job_id, const Job& job, const Finding& finding, int64_t now_unix_ns) const;
  int64_t heard_since_unix_ns(const std::string& job_id, const Job& job, const Finding& finding,
                              int64_t now_unix_ns) const;
  void add_changes(const std::string& job_id, const Job& job, Finding& finding, int64_t now_unix_ns) const;
  void add_failure(const std::string& job_id, Job& job, std::vector<Finding>& hangs, int64_t now_unix_ns) const;
  bool evaluate(const std::string& job_id, Job& job, int64_t now_unix_ns);
  void follow(const std::string& job_id, const Job& job, VerdictTracker::Findings sort,
              const std::vector<Finding>& findings, int64_t now_unix_ns);
  std::vector<Finding> confirmed_hangs(const std::string& job_id) const;
  static VerdictTracker::JobState state_of(const std::string& job_id, const Job& job);

  SignalStore signals_;
  CausePriors priors_;
  NetworkLocator locator_;
  WhoAnswers who_answers_;
  const fabric::Fabric* fabric_ = nullptr;  // nullptr: nothing is known of it
  fabric::WaitStore* waits_ = nullptr;      // nullptr: nobody keeps them
  mutable Mutex mutex_;                     // never held while anything is looked at
  mutable std::map<std::string, KnownJob, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t records_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  mutable Mutex tracker_mutex_;  // taken last
  mutable VerdictTracker tracker_ LOCKSTEP_GUARDED_BY(tracker_mutex_);
  mutable Mutex early_mutex_;
  EarlyWarnings early_ LOCKSTEP_GUARDED_BY(early_mutex_);
  int64_t looked_ahead_unix_ns_ LOCKSTEP_GUARDED_BY(early_mutex_) = 0;
};

}  // namespace lockstep
