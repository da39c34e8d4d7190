#include "analysis/step/step_trace.h"

#include <algorithm>

namespace lockstep {

std::shared_ptr<const StepTrace> StepTraceCache::read(const std::string& job_id, int64_t attempt,
                                                      StepNumber step) const {
  auto trace = std::make_shared<StepTrace>();
  trace->job_id = job_id;
  trace->attempt = attempt;
  trace->step = step;
  trace->ranks = spans_.step(job_id, attempt, step, {});
  trace->clocks = align_step(steps_, trace->ranks, job_id, step);
  return trace;
}

std::shared_ptr<const StepTrace> StepTraceCache::get(const std::string& job_id, int64_t attempt, StepNumber step) {
  auto is_same = [&](const Kept& kept) {
    return kept.step == step && kept.attempt == attempt && kept.job_id == job_id;
  };
  std::promise<std::shared_ptr<const StepTrace>> promise;
  {
    ReleasableMutexLock lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), is_same);
    if (found != kept_.end() && clock_.monotonic_ns() - found->asked_ns < kFreshNs) {
      const Future trace = found->trace;
      lock.unlock();
      return trace.get();
    }
    if (found != kept_.end()) kept_.erase(found);
    kept_.push_front({job_id, attempt, step, clock_.monotonic_ns(), 0, promise.get_future().share()});
    if (kept_.size() > kKept) kept_.resize(kKept);
  }
  std::shared_ptr<const StepTrace> trace = read(job_id, attempt, step);
  promise.set_value(trace);

  MutexLock lock(mutex_);
  if (const auto own = std::find_if(kept_.begin(), kept_.end(), is_same); own != kept_.end())
    own->ranks = trace->ranks.size();
  size_t ranks = 0;
  size_t count = 0;
  while (count < kept_.size() && (count == 0 || ranks + kept_[count].ranks <= kRanksTogether))
    ranks += kept_[count++].ranks;
  kept_.resize(count);
  return trace;
}

}  // namespace lockstep
