#include "query/step_trace.h"

#include <algorithm>

namespace lockstep {

std::shared_ptr<const StepTrace> StepTraceCache::get(const std::string& job_id, int64_t attempt, int64_t step) {
  {
    std::lock_guard lock(mutex_);
    for (const Kept& kept : kept_) {
      const StepTrace& trace = *kept.trace;
      if (trace.step == step && trace.attempt == attempt && trace.job_id == job_id &&
          clock_.monotonic_ns() - kept.read_ns < kFreshNs)
        return kept.trace;
    }
  }
  auto trace = std::make_shared<StepTrace>();
  trace->job_id = job_id;
  trace->attempt = attempt;
  trace->step = step;
  trace->ranks = spans_.step(job_id, attempt, step, {});
  trace->clocks = align_step(steps_, trace->ranks, job_id, step);

  std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const Kept& kept) {
    return kept.trace->step == step && kept.trace->attempt == attempt && kept.trace->job_id == job_id;
  });
  kept_.push_front({clock_.monotonic_ns(), trace});
  size_t ranks = 0;
  size_t count = 0;
  while (count < kept_.size() && count < kKept &&
         (count == 0 || ranks + kept_[count].trace->ranks.size() <= kRanksTogether))
    ranks += kept_[count++].trace->ranks.size();
  kept_.resize(count);
  return trace;
}

}  // namespace lockstep
