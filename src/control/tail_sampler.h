// Decides after the fact which steps of which ranks are worth seeing in detail, and asks the agents for them before
// they forget: tail sampling, so that nothing interesting is lost to the dice.
//
// Asked for:
//  - a verdict that is new, or names other ranks than before: the steps around its beginning, of the culprits, of ranks
//    that share a communicator with them (smallest communicators first), and of a few median ranks to compare with;
//  - a step that took longer than usual: its time (median over ranks, without checkpoint and evaluation) above the
//    median of the last kBaselineSteps by kMadFactor robust deviations and by kSlowLeast: the slowest ranks by own time
//    and a few median ones. Jobs of up to kWholeJobRanks ranks are asked for whole.
// Not asked for: what was asked before; further steps of a slow stretch, unless they are slower again by kSlowLeast (a
// stretch is over after kCalmSteps usual steps); more than kAsksPerMinute steps of a job. A job that became slow for
// good is the new usual after half a baseline.
//
// After a restart: what is read back from the log builds the baselines and asks nobody; go_live() ends that. Verdicts
// that are open then count as asked for.
// Limits: kJobsMax jobs, the one heard of longest ago is forgotten; steps that are kStepsOpenMax behind the newest are
// judged as they are. A job that goes on at smaller step numbers (from a checkpoint) is followed there after a few
// steps. Counts: lockstep_detail_asks_total by reason, lockstep_detail_asks_left_out_total by reason.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apply/subscriber.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "control/detail_requester.h"
#include "model/verdict.h"
#include "store/step_store.h"

namespace lockstep {

class TailSampler final : public StoreSubscriber {
 public:
  static constexpr size_t kBaselineSteps = 64;
  static constexpr size_t kBaselineLeast = 10;
  static constexpr double kMadFactor = 6;
  static constexpr double kSlowLeast = 0.2;
  static constexpr int kCalmSteps = 3;
  static constexpr int64_t kAsksPerMinute = 12;  // a step counts as one, of however many ranks
  static constexpr int32_t kWholeJobRanks = 64;
  static constexpr size_t kSlowestRanks = 8;
  static constexpr size_t kMedianRanks = 4;
  static constexpr size_t kPeersMax = 48;
  static constexpr size_t kStepsOpenMax = 3;
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kAskedMax = 256;  // steps of a job that are remembered as asked for
  static constexpr int64_t kWarmUpSteps = 2;

  TailSampler(const StepStore& steps, DetailRequester& asker, Counters& counters)
      : steps_(steps), asker_(asker), counters_(counters) {}

  void on_attempt_back(const std::string& job_id, int64_t attempt) override;
  void on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;

  // Verdicts as they changed; what they ask for is asked with the next tick().
  void note(const std::vector<Verdict>& changed);
  // Judges the steps that are complete by now. Called a few times a second.
  void tick(int64_t now_unix_ns);
  void go_live();

 private:
  struct OpenStep {
    size_t rows = 0;
    int64_t last_unix_ns = 0;
  };
  struct Asked {
    StepNumber step;
    bool all;
    std::set<Rank> ranks;
  };
  struct Job {
    int64_t attempt = 0;
    std::set<Rank> ranks;
    std::map<StepNumber, OpenStep> open;
    StepNumber judged_through = kNoStep;
    size_t rows_behind = 0;  // in a row, of steps that were judged already
    StepNumber first_step = kNoStep;
    std::deque<double> usual_ns;
    double slow_ns = 0;  // of the slowest step asked for in this stretch; 0: no stretch
    int calm = 0;
    std::deque<Asked> asked;
    std::deque<int64_t> asked_at_unix_ns;               // for the budget
    std::map<std::string, std::vector<Rank>> verdicts;  // id -> culprit ranks
    uint64_t heard = 0;
  };
  struct DetailNeed {
    std::string job_id;
    StepNumber from_step;
    StepNumber to_step;
    std::vector<Rank> ranks;  // empty: all
    const char* reason;
    bool verdict = false;  // ranks are culprits, to be completed by peers and median ranks
  };

  void judge(const std::string& job_id, Job& job, StepNumber step, std::vector<DetailNeed>& needs)
      LOCKSTEP_REQUIRES(mutex_);
  void issue(const DetailNeed& need, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);

  const StepStore& steps_;
  DetailRequester& asker_;
  Counters& counters_;

  Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Verdict> changed_ LOCKSTEP_GUARDED_BY(mutex_);
  bool live_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t heard_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
