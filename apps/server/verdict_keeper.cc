#include "apps/server/verdict_keeper.h"

#include "base/log.h"
#include "base/text.h"

namespace lockstep {

VerdictKeeper::VerdictKeeper(StateStore& state, Counters& counters) : state_(state), counters_(counters) {
  for (const StoredVerdict& verdict : state.verdicts("")) kept_ids_.insert(verdict.id);
}

void VerdictKeeper::keep(std::vector<Verdict> changed) {
  for (Verdict& verdict : changed) {
    std::string& known = state_of_[verdict.id];
    if (known != verdict.state) {
      counters_.add("lockstep_verdicts_total",
                    format("kind=\"%s\",state=\"%s\"", verdict.kind.c_str(), verdict.state.c_str()));
    }
    known = verdict.state;
    if (verdict.state == "cleared") state_of_.erase(verdict.id);
    bool was_confirmed =
        verdict.state == "confirmed" || kept_ids_.contains(verdict.id) || waiting_.contains(verdict.id);
    if (was_confirmed) waiting_.insert_or_assign(verdict.id, std::move(verdict));
  }
  while (!waiting_.empty()) {
    Result<void> saved = state_.save_verdict(waiting_.begin()->second);
    if (!saved.ok()) {
      if (!failing_) LOCKSTEP_LOG_ERROR("state", "%s; trying again", saved.error().c_str());
      failing_ = true;
      return;
    }
    failing_ = false;
    kept_ids_.insert(waiting_.begin()->first);
    waiting_.erase(waiting_.begin());
  }
}

}  // namespace lockstep
