#include "server/verdict_keeper.h"

#include <simdjson.h>

#include "base/log.h"
#include "base/text.h"

namespace lockstep {

std::vector<KnownVerdict> known_verdicts(const StateStore& state) {
  std::vector<KnownVerdict> known;
  size_t unreadable = 0;
  simdjson::dom::parser parser;
  for (const StoredVerdict& stored : state.verdicts("")) {
    simdjson::dom::element verdict;
    int64_t since_step = 0, through_step = 0;
    KnownVerdict one{.id = stored.id, .job_id = stored.job_id};
    if (parser.parse(stored.json).get(verdict) != simdjson::SUCCESS ||
        verdict["since_step"].get(since_step) != simdjson::SUCCESS ||
        verdict["through_step"].get(through_step) != simdjson::SUCCESS) {
      ++unreadable;
      continue;
    }
    one.since_step = StepNumber{since_step};
    one.through_step = StepNumber{through_step};
    known.push_back(std::move(one));
  }
  if (unreadable > 0)
    LOCKSTEP_LOG_ERROR("state", "%zu kept verdicts cannot be read; found again, they get new ids", unreadable);
  return known;
}

VerdictKeeper::VerdictKeeper(StateStore& state, Counters& counters) : state_(state), counters_(counters) {
  for (const StoredVerdict& verdict : state.verdicts("")) kept_ids_.insert(verdict.id);
}

void VerdictKeeper::keep(std::vector<Verdict> changed) {
  for (Verdict& verdict : changed) {
    std::optional<VerdictState>& known = state_of_[verdict.id];
    if (known != verdict.state) {
      counters_.add("lockstep_verdicts_total",
                    format("kind=\"%s\",state=\"%s\"", to_text(verdict.kind), to_text(verdict.state)));
    }
    known = verdict.state;
    if (verdict.state == VerdictState::kCleared) state_of_.erase(verdict.id);
    bool was_confirmed =
        verdict.state == VerdictState::kConfirmed || kept_ids_.contains(verdict.id) || waiting_.contains(verdict.id);
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
