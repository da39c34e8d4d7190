#include "fabric/wait_store.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lockstep::fabric {
namespace {

bool is_longer(const RankWait& a, const RankWait& b) {
  if (a.seconds != b.seconds) return a.seconds > b.seconds;
  return a.waiter != b.waiter ? a.waiter < b.waiter : a.awaited < b.awaited;
}

}  // namespace

WaitStore::Job& WaitStore::job_of(std::string_view job, int64_t unix_ns) {
  auto found = jobs_.find(job);
  if (found == jobs_.end()) {
    if (jobs_.size() >= kJobsMax) {
      const auto silent = std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
        return a.second.heard_unix_ns < b.second.heard_unix_ns;
      });
      while (!silent->second.minutes.empty()) forget(silent->second, silent->second.minutes.begin());
      jobs_.erase(silent);
    }
    found = jobs_.try_emplace(std::string(job)).first;
  }
  found->second.heard_unix_ns = unix_ns;
  return found->second;
}

void WaitStore::forget(Job& job, std::map<int64_t, Minute>::iterator minute) {
  rows_ -= minute->second.rows.size();
  kept_ -= minute->second.worst.size();
  job.minutes.erase(minute);
}

void WaitStore::add_to(Minute& minute, const RankWait& wait) {
  auto row = minute.rows.find(wait.waiter);
  if (row == minute.rows.end()) {
    if (rows_ >= rows_max_) {
      ++left_out_;
      return;
    }
    row = minute.rows.try_emplace(wait.waiter).first;
    ++rows_;
  }
  RankWait* shortest = &row->second.front();
  for (RankWait& one : row->second) {
    if (one.awaited == wait.awaited) {
      one.seconds += wait.seconds;
      return;
    }
    if (one.seconds < shortest->seconds) shortest = &one;
  }
  if (wait.seconds > shortest->seconds) *shortest = wait;
}

// What is over keeps its worst.
void WaitStore::close(Minute& minute) {
  if (minute.rows.empty()) return;
  kept_ -= minute.worst.size();  // a clock that was set back opened it again
  for (const auto& [rank, row] : minute.rows)
    for (const RankWait& one : row)
      if (one.awaited != kNoRank) minute.worst.push_back(one);
  const size_t kept = std::min(kWorstPerJob, minute.worst.size());
  std::partial_sort(minute.worst.begin(), minute.worst.begin() + static_cast<ptrdiff_t>(kept), minute.worst.end(),
                    is_longer);
  minute.worst.resize(kept);
  minute.worst.shrink_to_fit();
  kept_ += kept;
  rows_ -= minute.rows.size();
  minute.rows = {};
}

void WaitStore::make_room() {
  while (kept_ > kept_max_) {
    Job* oldest = nullptr;
    for (auto& [name, job] : jobs_) {
      if (job.minutes.empty() || job.minutes.begin()->second.worst.empty()) continue;
      if (oldest == nullptr || job.minutes.begin()->first < oldest->minutes.begin()->first) oldest = &job;
    }
    if (oldest == nullptr) return;
    forget(*oldest, oldest->minutes.begin());
  }
}

void WaitStore::add(std::string_view name, std::span<const RankWait> waits, int64_t unix_ns) {
  if (waits.empty() || unix_ns < 0) return;
  const int64_t number = unix_ns / kMinuteNs;
  MutexLock lock(mutex_);
  Job& job = job_of(name, unix_ns);
  while (!job.minutes.empty() && job.minutes.rbegin()->first > number + 1) forget(job, std::prev(job.minutes.end()));
  Minute& minute = job.minutes[number];
  const int64_t newest = job.minutes.rbegin()->first;
  for (auto& [before, other] : job.minutes)
    if (before + 1 < newest) close(other);
  while (job.minutes.begin()->first + static_cast<int64_t>(kMinutes) <= newest) forget(job, job.minutes.begin());
  for (const RankWait& wait : waits)
    if (wait.waiter != wait.awaited && wait.seconds > 0 && std::isfinite(wait.seconds)) add_to(minute, wait);
  make_room();
}

std::vector<RankWait> WaitStore::worst(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns) const {
  std::vector<RankWait> rows;
  {
    MutexLock lock(mutex_);
    const auto job = jobs_.find(name);
    if (job == jobs_.end()) return {};
    const auto& minutes = job->second.minutes;
    const int64_t last = to_unix_ns / kMinuteNs;
    for (auto minute = minutes.lower_bound(from_unix_ns / kMinuteNs); minute != minutes.end() && minute->first <= last;
         ++minute) {
      rows.insert(rows.end(), minute->second.worst.begin(), minute->second.worst.end());
      for (const auto& [rank, row] : minute->second.rows)
        std::copy_if(row.begin(), row.end(), std::back_inserter(rows),
                     [](const RankWait& one) { return one.awaited != kNoRank; });
    }
  }
  // Added up without the lock: diagnosis waits for it.
  std::sort(rows.begin(), rows.end(), [](const RankWait& a, const RankWait& b) {
    return a.waiter != b.waiter ? a.waiter < b.waiter : a.awaited < b.awaited;
  });
  std::vector<RankWait> all;
  for (const RankWait& one : rows) {
    if (!all.empty() && all.back().waiter == one.waiter && all.back().awaited == one.awaited)
      all.back().seconds += one.seconds;
    else
      all.push_back(one);
  }
  std::sort(all.begin(), all.end(), is_longer);
  return all;
}

uint64_t WaitStore::left_out() const {
  MutexLock lock(mutex_);
  return left_out_;
}

}  // namespace lockstep::fabric
