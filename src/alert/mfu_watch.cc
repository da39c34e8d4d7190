#include "alert/mfu_watch.h"

#include <algorithm>

#include "analysis/cost/step_flops.h"
#include "base/median.h"

namespace lockstep {

void MfuWatch::add(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  const double flops = step_flops(summary).flops;
  if (!(flops > 0) || summary.duration_ns <= 0) return;
  MutexLock lock(mutex_);
  auto found = jobs_.find(identity.job_id);
  if (found == jobs_.end()) {
    if (jobs_.size() >= kJobsMax) {
      jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
        return a.second.heard_unix_ns < b.second.heard_unix_ns;
      }));
    }
    found = jobs_.try_emplace(identity.job_id).first;
  }
  Job& job = found->second;
  if (job.attempt != identity.attempt || job.world_size != identity.world_size) {
    if (identity.attempt < job.attempt) return;
    // More or fewer GPUs do other work each; what they did before says nothing.
    const bool same_size = job.world_size == identity.world_size;
    std::deque<double> history = same_size ? std::move(job.history) : std::deque<double>();
    job = Job{.attempt = identity.attempt, .world_size = identity.world_size, .history = std::move(history)};
  }
  job.heard_unix_ns = received_unix_ns;
  // One wrong number must not end what is known of the job.
  const StepFollower::Taken taken = job.follower.take(summary.step);
  if (taken == StepFollower::Taken::kFar) return;
  if (taken == StepFollower::Taken::kJumped) {
    job.open.clear();
    job.folded = kNoStep;
  }
  if (job.folded != kNoStep && summary.step <= job.folded) {
    // Back to a checkpoint: what it did before is what it should do again.
    if (job.folded.value() - summary.step.value() <= kBadSteps) return;
    job.open.clear();
    job.folded = kNoStep;
  }
  OpenStep& step = job.open[summary.step];
  if (step.ranks == 0) step.heard_unix_ns = received_unix_ns;
  ++step.ranks;
  step.flops += flops;
  step.seconds += static_cast<double>(summary.duration_ns) / 1e9;
  step.start_unix_ns = summary.start_unix_ns;
  fold_ready(job);
}

void MfuWatch::fold_ready(Job& job) {
  while (!job.open.empty()) {
    const auto first = job.open.begin();
    const bool whole = first->second.ranks >= job.world_size;
    const auto next = std::next(first);
    const bool silent = job.open.rbegin()->first - first->first >= StepFollower::kSilentSteps &&
                        job.heard_unix_ns - next->second.heard_unix_ns >= StepFollower::kSilentNs;
    if (!whole && !silent && job.open.size() <= kOpenSteps) return;
    fold(job, first->first, first->second);
    job.folded = first->first;
    job.open.erase(first);
  }
}

void MfuWatch::fold(Job& job, StepNumber number, const OpenStep& step) {
  const double value = step.flops / step.seconds;
  job.newest = value;
  if (job.baseline == 0 && job.history.size() >= kHistoryLeast) {
    const double usual = upper_median_of(std::vector<double>(job.history.begin(), job.history.end()));
    if (value < kBelow * usual) {
      job.baseline = usual;
      job.bad = job.good = job.lasts = 0;
      job.since_step = number;
      job.since_unix_ns = step.start_unix_ns;
    }
  }
  if (job.baseline > 0) {
    ++job.lasts;
    job.bad = value < kBelow * job.baseline ? job.bad + 1 : 0;
    job.good = value > kAbove * job.baseline ? job.good + 1 : 0;
    if (job.bad >= kBadSteps) job.dropped = true;
    const bool never_was = !job.dropped && job.good > 0;
    if (never_was || job.good >= kBadSteps || job.lasts >= kNewNormalSteps) {
      if (job.lasts >= kNewNormalSteps) job.history.clear();
      job.baseline = 0;
      job.dropped = false;
    }
    if (job.baseline > 0) return;
  }
  job.history.push_back(value);
  if (job.history.size() > kHistorySteps) job.history.pop_front();
}

std::vector<MfuWatch::Drop> MfuWatch::drops(int64_t now_unix_ns) const {
  MutexLock lock(mutex_);
  std::vector<Drop> list;
  for (const auto& [job_id, job] : jobs_) {
    if (job.dropped && now_unix_ns - job.heard_unix_ns < kSilentNs)
      list.push_back({job_id, job.since_step, job.since_unix_ns, job.newest, job.baseline});
  }
  return list;
}

}  // namespace lockstep
