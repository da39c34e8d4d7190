#include "fabric/job_places.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::fabric {

const JobPlaces::Attempt* JobPlaces::attempt_at(const Job& job, int64_t at_unix_ns) {
  const Attempt* found = nullptr;
  for (const Attempt& attempt : job.attempts)
    if (found == nullptr || attempt.since_unix_ns <= at_unix_ns) found = &attempt;
  return found;
}

const JobPlaces::Job* JobPlaces::find_job(std::string_view job) const {
  const auto found = jobs_.find(std::string(job));
  return found == jobs_.end() ? nullptr : found->second.get();
}

void JobPlaces::count_out(const Attempt& attempt) {
  ranks_ -= attempt.ranks.size();
  forgotten_ranks_ += attempt.ranks.size();
}

void JobPlaces::forget_one() {
  const auto oldest = std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second->heard_unix_ns < b.second->heard_unix_ns;
  });
  if (oldest == jobs_.end()) return;
  for (const Attempt& attempt : oldest->second->attempts) count_out(attempt);
  jobs_.erase(oldest);
}

bool JobPlaces::has_room_for_texts() {
  if (texts_.memory_bytes() <= text_bytes_max_) return true;
  // Not again before it is worth a walk over all ranks.
  if (texts_.memory_bytes() < compact_bytes_ + text_bytes_max_ / 8 && forgotten_ranks_ <= ranks_ / 8) return false;
  TextTable needed;
  for (auto& [name, job] : jobs_)
    for (Attempt& attempt : job->attempts)
      for (Place& place : attempt.ranks)
        place = {needed.intern(texts_[place.host]), needed.intern(texts_[place.gpu]), place.local_rank};
  texts_ = std::move(needed);
  compact_bytes_ = texts_.memory_bytes();
  forgotten_ranks_ = 0;
  shared_texts_.reset();
  return compact_bytes_ <= text_bytes_max_;
}

void JobPlaces::note(const Identity& identity, int64_t received_unix_ns) {
  const Rank rank = identity.rank;
  if (rank < 0_rank || identity.job_id.empty() || identity.host.empty()) return;
  MutexLock lock(mutex_);
  auto found = jobs_.find(identity.job_id);
  if (found == jobs_.end()) {
    if (jobs_.size() >= kJobsMax) forget_one();
    found = jobs_.emplace(identity.job_id, std::make_unique<Job>()).first;
  }
  Job& job = *found->second;
  job.heard_unix_ns = received_unix_ns;
  if (job.attempts.empty() || job.attempts.back().number < identity.attempt) {
    job.attempts.push_back({identity.attempt, received_unix_ns, {}});
    if (job.attempts.size() > kAttemptsMax) {
      count_out(job.attempts.front());
      job.attempts.pop_front();
    }
  }
  Attempt& attempt = job.attempts.back();
  if (attempt.number != identity.attempt) return;  // of one that is over
  const size_t index = index_of(rank);
  if (attempt.ranks.size() <= index) {
    // A rank is a number that a sender claims: the world's size bounds it.
    if ((identity.world_size > 0 && rank.value() >= identity.world_size) ||
        ranks_ + index + 1 - attempt.ranks.size() > kRanksMax)
      return;
    ranks_ += index + 1 - attempt.ranks.size();
    attempt.ranks.resize(index + 1);
  }
  Place& place = attempt.ranks[index];
  if (place.host != kNoText && texts_[place.host] == identity.host && texts_[place.gpu] == identity.gpu_uuid &&
      place.local_rank == identity.local_rank)
    return;
  if (!has_room_for_texts()) return;
  shared_texts_.reset();
  place = {texts_.intern(identity.host), texts_.intern(identity.gpu_uuid), identity.local_rank};
}

void JobPlaces::on_attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return;
  std::deque<Attempt>& attempts = found->second->attempts;
  while (!attempts.empty() && attempts.back().number > attempt) {
    count_out(attempts.back());
    attempts.pop_back();
  }
}

bool JobPlaces::has_job(std::string_view job) const {
  MutexLock lock(mutex_);
  return find_job(job) != nullptr;
}

std::vector<std::string> JobPlaces::jobs() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, job] : jobs_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

int32_t JobPlaces::rank_count(std::string_view job, int64_t at_unix_ns) const {
  MutexLock lock(mutex_);
  const Job* const known = find_job(job);
  const Attempt* const attempt = known == nullptr ? nullptr : attempt_at(*known, at_unix_ns);
  return attempt == nullptr ? 0 : static_cast<int32_t>(attempt->ranks.size());
}

std::optional<RankPlace> JobPlaces::find(std::string_view job, Rank rank, int64_t at_unix_ns) const {
  MutexLock lock(mutex_);
  const Job* const known = find_job(job);
  const Attempt* const attempt = known == nullptr ? nullptr : attempt_at(*known, at_unix_ns);
  if (attempt == nullptr || rank < 0_rank || index_of(rank) >= attempt->ranks.size()) return std::nullopt;
  const Place& place = attempt->ranks[index_of(rank)];
  if (place.host == kNoText) return std::nullopt;
  return RankPlace{rank, attempt->number, place.local_rank, std::string(texts_[place.host]),
                   std::string(texts_[place.gpu])};
}

void JobPlaces::visit(std::string_view job, int64_t at_unix_ns, const std::function<void(const View&)>& visit) const {
  std::vector<std::pair<std::string, std::vector<Place>>> places;
  std::shared_ptr<const TextTable> texts;
  {
    MutexLock lock(mutex_);
    for (const auto& [name, one] : jobs_) {
      if (!job.empty() && job != name) continue;
      if (const Attempt* const attempt = attempt_at(*one, at_unix_ns)) places.emplace_back(name, attempt->ranks);
    }
    if (!shared_texts_) shared_texts_ = std::make_shared<const TextTable>(texts_);
    texts = shared_texts_;
  }
  for (const auto& [name, ranks] : places) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      const Place& place = ranks[i];
      if (place.host == kNoText) continue;
      visit({name, rank_at(i), place.local_rank, (*texts)[place.host], (*texts)[place.gpu]});
    }
  }
}

}  // namespace lockstep::fabric
