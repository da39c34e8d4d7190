#include "control/sample_requester.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;

// A kernel trace shows nothing of these.
bool is_of_the_program(Layer layer) {
  return layer == Layer::kHost || layer == Layer::kInput || layer == Layer::kSoftware;
}

}  // namespace

bool SampleRequester::take_turn(const std::string& job_id, int64_t now_unix_ns) {
  while (!orders_.empty() && now_unix_ns - orders_.front().first >= kMinuteNs) orders_.pop_front();
  const auto of_job =
      std::count_if(orders_.begin(), orders_.end(), [&](const auto& one) { return one.second == job_id; });
  if (orders_.size() >= kPerMinute || static_cast<size_t>(of_job) >= kPerJobMinute) {
    counters_.add("lockstep_sample_asks_refused_total",
                  orders_.size() >= kPerMinute ? "reason=\"too_many\"" : "reason=\"job\"");
    return false;
  }
  orders_.emplace_back(now_unix_ns, job_id);
  return true;
}

std::optional<DetailAsked> SampleRequester::ask(const JobInfo& job, const SampleRequest& request, int64_t now_unix_ns) {
  {
    MutexLock lock(mutex_);
    if (!take_turn(request.job_id, now_unix_ns)) return std::nullopt;
  }
  const DetailAsked done = ask_hosts(job, request, asker_);
  counters_.add("lockstep_sample_asks_total", "reason=\"person\"", done.ranks);
  return done;
}

std::vector<Rank> SampleRequester::ranks_for(const Verdict& verdict, const JobInfo& job) {
  const std::vector<Rank>& blamed = verdict.culprit.ranks;
  if (blamed.empty()) return {};
  std::vector<Rank> ranks(blamed.begin(),
                          blamed.begin() + static_cast<ptrdiff_t>(std::min(blamed.size(), kCulpritsMax)));
  // Neighbours are most likely to have the same part in the job.
  std::vector<Rank> others;
  for (const RankInfo& info : job.ranks) {
    if (std::find(blamed.begin(), blamed.end(), info.identity.rank) == blamed.end())
      others.push_back(info.identity.rank);
  }
  const int32_t middle = blamed.front().value();
  std::stable_sort(others.begin(), others.end(),
                   [&](Rank a, Rank b) { return std::abs(a.value() - middle) < std::abs(b.value() - middle); });
  if (others.size() > kPeersMax) others.resize(kPeersMax);
  if (others.empty()) return {};
  ranks.insert(ranks.end(), others.begin(), others.end());
  return ranks;
}

void SampleRequester::note(const std::vector<Verdict>& changed, int64_t now_unix_ns) {
  if (!automatic_) return;
  MutexLock lock(mutex_);
  for (const Verdict& verdict : changed) {
    if (verdict.kind == VerdictKind::kHang) continue;
    if (verdict.state == VerdictState::kCleared) {
      asked_.erase(verdict.id);
      continue;
    }
    if (!live_ || verdict.state != VerdictState::kConfirmed || !is_of_the_program(verdict.culprit.layer)) continue;
    if (asked_.size() >= kVerdictsMax && !asked_.contains(verdict.id)) asked_.erase(asked_.begin());
    Asked& asked = asked_[verdict.id];
    if (asked.times >= kAsksMax || (asked.times > 0 && asked.culprits == verdict.culprit.ranks)) continue;
    const std::optional<JobInfo> job = steps_.job(verdict.job_id);
    if (!job || job->attempt != verdict.attempt) continue;
    std::vector<Rank> ranks = ranks_for(verdict, *job);
    if (ranks.empty() || !take_turn(verdict.job_id, now_unix_ns)) continue;
    asked.culprits = verdict.culprit.ranks;
    ++asked.times;
    std::sort(ranks.begin(), ranks.end());
    const DetailAsked done = ask_hosts(
        *job, SampleRequest{.job_id = verdict.job_id, .attempt = verdict.attempt, .ranks = std::move(ranks)}, asker_);
    if (done.ranks > 0) counters_.add("lockstep_sample_asks_total", "reason=\"verdict\"", done.ranks);
  }
}

void SampleRequester::go_live() {
  MutexLock lock(mutex_);
  live_ = true;
}

}  // namespace lockstep
