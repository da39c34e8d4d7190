#include "apply/job_attempts.h"

#include <algorithm>

#include "store/memory_bytes.h"

namespace lockstep {

size_t JobAttempts::votes_of(const Job& job, int64_t attempt) {
  auto found = job.votes.find(attempt);
  return found == job.votes.end() ? 0 : found->second;
}

void JobAttempts::leave(Job& job, RankAttempt& rank) {
  if (!rank.in) return;
  auto found = job.votes.find(*rank.in);
  if (--found->second == 0) job.votes.erase(found);
  rank.in.reset();
}

void JobAttempts::forget_silent(Job& job, int64_t now_unix_ns) {
  for (auto& [number, rank] : job.ranks) {
    if (now_unix_ns - rank.heard_unix_ns > kSilentNs) leave(job, rank);
  }
}

void JobAttempts::let_go_front(Job& job) {
  job.held_bytes -= job.held.front().bytes;
  held_bytes_ -= job.held.front().bytes;
  --held_count_;
  ++let_go_;
  job.held.pop_front();
}

JobAttempts::Job& JobAttempts::job_of(const Identity& identity) {
  if (latest_ == nullptr || latest_->first != identity.job_id) {
    auto found = jobs_.find(identity.job_id);
    if (found == jobs_.end()) {
      if (jobs_.size() >= kJobsMax) {
        auto oldest = std::min_element(jobs_.begin(), jobs_.end(),
                                       [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; });
        while (!oldest->second.held.empty()) let_go_front(oldest->second);
        ranks_ -= oldest->second.ranks.size();
        jobs_.erase(oldest);
      }
      found = jobs_.try_emplace(identity.job_id).first;
      const std::optional<Known> known = known_(identity.job_id);
      found->second.attempt = known ? known->attempt : identity.attempt;
      found->second.newest_unix_ns = known ? known->last_seen_unix_ns : 0;
    }
    latest_ = &*found;
  }
  latest_->second.heard = ++heard_;
  return latest_->second;
}

JobAttempts::Decision JobAttempts::decide(const Identity& identity, int64_t time_unix_ns, int64_t received_unix_ns,
                                          bool is_end) {
  Job& job = job_of(identity);
  // A clock that is ahead says nothing of later than now.
  const int64_t word_unix_ns = time_unix_ns > 0 ? std::min(time_unix_ns, received_unix_ns) : received_unix_ns;
  const bool runs = identity.attempt == job.attempt;
  if (!runs && identity.attempt < job.attempt && word_unix_ns <= job.newest_unix_ns) return Decision::kOld;
  if (runs) job.newest_unix_ns = std::max(job.newest_unix_ns, word_unix_ns);
  while (!job.held.empty() && received_unix_ns - job.held.front().received_unix_ns > kSilentNs) let_go_front(job);

  auto found = job.ranks.find(identity.rank);
  if (found == job.ranks.end()) {
    if (ranks_ >= kRanksMax) return runs ? Decision::kApply : Decision::kHold;
    found = job.ranks.try_emplace(identity.rank).first;
    ++ranks_;
  }
  RankAttempt& rank = found->second;
  const bool again = rank.said_once && rank.said == identity.attempt;
  rank.said = identity.attempt;
  rank.said_once = true;
  rank.heard_unix_ns = std::max(rank.heard_unix_ns, received_unix_ns);
  if (is_end) {
    if (rank.in == identity.attempt) leave(job, rank);
    rank.said_once = false;
  } else if (rank.in != identity.attempt && (again || (runs && !rank.in))) {
    leave(job, rank);
    rank.in = identity.attempt;
    ++job.votes[identity.attempt];
  }
  if (runs) return Decision::kApply;
  if (votes_of(job, identity.attempt) <= votes_of(job, job.attempt)) {
    constexpr int64_t kCountEveryNs = 1'000'000'000;  // by going through all ranks
    if (received_unix_ns - job.counted_unix_ns < kCountEveryNs) return Decision::kHold;
    job.counted_unix_ns = received_unix_ns;
    forget_silent(job, received_unix_ns);
    if (votes_of(job, identity.attempt) <= votes_of(job, job.attempt)) return Decision::kHold;
  }
  job.attempt = identity.attempt;
  job.newest_unix_ns = word_unix_ns;
  return Decision::kSwitch;
}

void JobAttempts::hold(const Identity& identity, std::shared_ptr<const Attributes> resource, const LogRecord& record,
                       int64_t received_unix_ns) {
  Job& job = job_of(identity);
  const size_t bytes = bytes_of(record);
  while (!job.held.empty() && (job.held_bytes + bytes > kHeldBytesPerJobMax || held_bytes_ + bytes > kHeldBytesMax))
    let_go_front(job);
  if (job.held_bytes + bytes > kHeldBytesPerJobMax || held_bytes_ + bytes > kHeldBytesMax) {
    ++let_go_;
    return;
  }
  job.held.push_back({std::move(resource), record, identity.attempt, received_unix_ns, bytes});
  job.held_bytes += bytes;
  held_bytes_ += bytes;
  ++held_count_;
}

std::vector<JobAttempts::Held> JobAttempts::take_held(const std::string& job_id) {
  std::vector<Held> taken;
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return taken;
  Job& job = found->second;
  for (Held& held : job.held) {
    if (held.attempt == job.attempt) {
      taken.push_back(std::move(held));
    } else {
      ++let_go_;
    }
  }
  held_count_ -= job.held.size();
  held_bytes_ -= job.held_bytes;
  job.held_bytes = 0;
  job.held.clear();
  return taken;
}

}  // namespace lockstep
