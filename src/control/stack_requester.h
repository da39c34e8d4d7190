// Asks the agents for the stacks of odd ranks, as soon as a hang is suspected: of at most kRanksMax, the culprits
// first, then one who waits, to compare with; of a hang without a culprit, some who wait.
//
// Of a confirmed hang the stacks of all others once as well, of at most kAllRanksMax, so that those who stand at the same
// place can be told from those who do not.
//
// Asked once for each verdict, and again where it names other ranks or after kAgainNs while it is open, kAsksMax times
// in all; the agents keep their own pace besides. What is read back from the log after a restart asks nobody until
// go_live(). Counts: lockstep_stack_asks_total by reason (verdict, person), by rank.
// Limits: kVerdictsMax open verdicts are remembered.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/counters.h"
#include "control/detail_requester.h"
#include "model/verdict.h"
#include "store/step_store.h"

namespace lockstep {

class StackRequester {
 public:
  static constexpr size_t kRanksMax = 8;
  static constexpr size_t kAllRanksMax = 1024;
  static constexpr int64_t kAgainNs = 90'000'000'000;
  static constexpr int kAsksMax = 4;
  static constexpr size_t kVerdictsMax = 10'000;

  StackRequester(const StepStore& steps, StackRequestSender& asker, Counters& counters)
      : steps_(steps), asker_(asker), counters_(counters) {}

  // Verdicts as they changed.
  void note(const std::vector<Verdict>& changed, int64_t now_unix_ns);
  void go_live() { live_ = true; }

  // Whose stacks tell most about this verdict, sorted.
  static std::vector<Rank> ranks_for(const Verdict& verdict);

 private:
  struct Asked {
    std::vector<Rank> culprits;
    int64_t at_unix_ns = 0;
    int times = 0;
    bool all = false;
  };
  void ask_all(const Verdict& verdict, Asked& asked);

  const StepStore& steps_;
  StackRequestSender& asker_;
  Counters& counters_;
  std::map<std::string, Asked> asked_;  // by verdict
  bool live_ = false;
};

}  // namespace lockstep
