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
    if (verdict.state == VerdictState::kConfirmed && !asked.all) ask_all(verdict, asked);
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

// Agents take a process's stacks once a minute: those who were asked before are left out there.
void StackRequester::ask_all(const Verdict& verdict, Asked& asked) {
  const std::optional<JobInfo> job = steps_.job(verdict.job_id);
  if (!job || job->attempt != verdict.attempt) return;
  asked.all = true;
  const std::vector<Rank> already = ranks_for(verdict);
  std::map<std::string, std::vector<Rank>> by_host;
  size_t left = kAllRanksMax;
  for (const RankInfo& info : job->ranks) {
    const Rank rank = info.identity.rank;
    if (left == 0) break;
    if (info.identity.host.empty() || std::binary_search(already.begin(), already.end(), rank)) continue;
    std::vector<Rank>& ranks = by_host[info.identity.host];
    if (ranks.size() == kStackRanksMax) continue;
    ranks.push_back(rank);
    --left;
  }
  for (auto& [host, ranks] : by_host) {
    const auto count = static_cast<int64_t>(ranks.size());
    if (asker_.ask(host, StackRequest{.job_id = verdict.job_id, .attempt = verdict.attempt, .ranks = std::move(ranks)}))
      counters_.add("lockstep_stack_asks_total", "reason=\"verdict\"", count);
  }
}

}  // namespace lockstep
