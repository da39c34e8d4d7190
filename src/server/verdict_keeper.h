// Keeps verdicts in the state store: what was confirmed, and that it was cleared. A suspicion is not kept until it is
// confirmed, so one that is withdrawn leaves no trace.
//
// On error: the verdict is tried again with the next round; one log line per failure streak.
// Thread rule: Confined.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/counters.h"
#include "diagnosis/engine.h"
#include "store/state_store.h"

namespace lockstep {

// The verdicts that were kept, as the engine wants them back. What cannot be read is left out with one log line.
std::vector<KnownVerdict> known_verdicts(const StateStore& state);

class VerdictKeeper {
 public:
  VerdictKeeper(StateStore& state, Counters& counters);
  void keep(std::vector<Verdict> changed);

 private:
  StateStore& state_;
  Counters& counters_;
  std::map<std::string, std::optional<VerdictState>> state_of_;  // by id, for counting changes of state
  std::set<std::string> kept_ids_;
  std::map<std::string, Verdict> waiting_;  // not saved yet, newest version of each
  bool failing_ = false;
};

}  // namespace lockstep
