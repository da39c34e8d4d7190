// Asks the agents where ranks spend their time: when a person wants it, and by itself for a confirmed verdict that blames
// a rank's host, input or software, where the operator has switched that on. Of such a verdict: at most kCulpritsMax of
// the ranks it blames, and kPeersMax of the others that are nearest to them, to compare with.
//
// By itself once for each verdict, and again where it names other ranks, kAsksMax times in all. What is read back from
// the log after a restart asks nobody until go_live().
// Limits: kPerJobMinute orders a minute for a job and kPerMinute in all, over both reasons; the agents keep their own
// pace besides. kVerdictsMax open verdicts are remembered.
// Counts: lockstep_sample_asks_total by reason (verdict, person), by rank; lockstep_sample_asks_refused_total by reason.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "control/detail_requester.h"
#include "model/verdict.h"
#include "store/step_store.h"

namespace lockstep {

class SampleRequester {
 public:
  static constexpr size_t kCulpritsMax = 3;
  static constexpr size_t kPeersMax = 2;
  static constexpr int kAsksMax = 3;
  static constexpr size_t kPerJobMinute = 6;
  static constexpr size_t kPerMinute = 60;
  static constexpr size_t kVerdictsMax = 10'000;

  SampleRequester(const StepStore& steps, SampleRequestSender& asker, Counters& counters, bool automatic)
      : steps_(steps), asker_(asker), counters_(counters), automatic_(automatic) {}

  // nullopt: too much was asked within the last minute.
  std::optional<DetailAsked> ask(const JobInfo& job, const SampleRequest& request, int64_t now_unix_ns);
  // Verdicts as they changed.
  void note(const std::vector<Verdict>& changed, int64_t now_unix_ns);
  void go_live();

  // Whose samples tell which line it is, the blamed first; empty: none would.
  static std::vector<Rank> ranks_for(const Verdict& verdict, const JobInfo& job);

 private:
  struct Asked {
    std::vector<Rank> culprits;
    int times = 0;
  };
  bool take_turn(const std::string& job_id, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);

  const StepStore& steps_;
  SampleRequestSender& asker_;
  Counters& counters_;
  const bool automatic_;
  Mutex mutex_;
  std::deque<std::pair<int64_t, std::string>> orders_ LOCKSTEP_GUARDED_BY(mutex_);  // of the last minute
  std::map<std::string, Asked> asked_ LOCKSTEP_GUARDED_BY(mutex_);                  // by verdict
  bool live_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
