#include "control/stack_requester.h"

#include <algorithm>

namespace lockstep {

std::vector<Rank> StackRequester::ranks_for(const Verdict& verdict) {
  std::vector<Rank> ranks = verdict.culprit.ranks;
  if (ranks.size() > kRanksMax - 1) ranks.resize(kRanksMax - 1);
  const size_t victims = ranks.empty() ? kRanksMax / 2 : 1;
  size_t added = 0;
  for (Rank victim : verdict.victim_ranks) {
    if (added == victims) break;
    if (std::find(ranks.begin(), ranks.end(), victim) != ranks.end()) continue;
    ranks.push_back(victim);
    ++added;
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void StackRequester::note(const std::vector<Verdict>& changed, int64_t now_unix_ns) {
  for (const Verdict& verdict : changed) {
    if (verdict.kind != VerdictKind::kHang) continue;
    if (verdict.state == VerdictState::kCleared) {
      asked_.erase(verdict.id);
      continue;
    }
    if (!live_) continue;
    if (asked_.size() >= kVerdictsMax && !asked_.contains(verdict.id)) asked_.erase(asked_.begin());
    Asked& asked = asked_[verdict.id];
    const bool again = asked.culprits != verdict.culprit.ranks || now_unix_ns - asked.at_unix_ns >= kAgainNs;
    if (asked.times >= kAsksMax || (asked.times > 0 && !again)) continue;
    const std::vector<Rank> ranks = ranks_for(verdict);
    const std::optional<JobInfo> job = steps_.job(verdict.job_id);
    if (ranks.empty() || !job || job->attempt != verdict.attempt) continue;
    asked.culprits = verdict.culprit.ranks;
    asked.at_unix_ns = now_unix_ns;
    ++asked.times;
    const DetailAsked done =
        ask_hosts(*job, StackRequest{.job_id = verdict.job_id, .attempt = verdict.attempt, .ranks = ranks}, asker_);
    if (done.ranks > 0) counters_.add("lockstep_stack_asks_total", "reason=\"verdict\"", done.ranks);
  }
}

}  // namespace lockstep
