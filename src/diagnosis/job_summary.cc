#include "diagnosis/job_summary.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "diagnosis/expectation.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr size_t kStepsMin = 4;
constexpr size_t kWindow = 10;

// Which ranks of the job are not known in that step, and why.
std::string who_is_missing(const JobWindow& window, StepNumber step) {
  std::vector<Rank> missing, unknown;
  for (Rank rank : all_ranks(window.world_size())) {
    if (missing.size() + unknown.size() >= 1000) break;
    if (window.unknown(step)->contains(rank)) {
      unknown.push_back(rank);
    } else if (!window.step(step)->contains(rank)) {
      missing.push_back(rank);
    }
  }
  return format(missing.empty() ? "Cannot tell for all: the GPU times of rank %s are not known for step %s."
                                : "Cannot tell for all: rank %s sent nothing for step %s.",
                human_ranks(missing.empty() ? unknown : missing, 4).c_str(), with_thousands(step.value()).c_str());
}

double median_step_ns(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::vector<double> durations;
  for (StepNumber number : steps) {
    std::vector<double> of_ranks;
    for (const auto& [rank, row] : *window.step(number))
      of_ranks.push_back(static_cast<double>(row.summary.duration_ns));
    durations.push_back(median(std::move(of_ranks)));
  }
  return median(std::move(durations));
}

// How late the rank is that is typically the latest.
double slowest_rank_ns(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::vector<const StepLateness*> late;
  for (StepNumber number : steps)
    if (window.step(number)->size() >= 2) late.push_back(&lateness(window, *window.frame(number)));
  double worst = 0;
  std::vector<double> values;
  for (size_t slot = 0; slot < window.slots(); ++slot) {
    values.clear();
    for (const StepLateness* step : late) {
      if (slot < step->late_ns.size() && !std::isnan(step->late_ns[slot]))
        values.push_back(static_cast<double>(step->late_ns[slot]));
    }
    worst = std::max(worst, median(values));
  }
  return worst;
}

}  // namespace

std::string health_of(const JobWindow& window, const SignalStore& signals, int64_t reported_unix_ns) {
  std::vector<StepNumber> steps = window.complete_steps();
  if (window.newest_step() < 0_step) {
    return format(
        "Cannot tell yet: %zu of %d ranks are known, but no step has been marked (lockstep_step_begin/end, or the "
        "Python hook).",
        window.ranks().size(), window.world_size());
  }
  const int64_t dark = window.unknown_steps(steps.empty() ? kNoStep : steps.back());
  if (dark >= static_cast<int64_t>(kStepsMin))
    return format("Cannot tell: in the last %lld steps no rank's GPU times are known.", static_cast<long long>(dark));
  if (steps.size() < kStepsMin)
    return format("Cannot tell yet: %zu complete steps after warm-up, %zu are needed.", steps.size(), kStepsMin);
  const size_t heard_of = window.step(steps.back())->size();
  if (window.world_size() > 0 && static_cast<int32_t>(heard_of) < window.world_size())
    return who_is_missing(window, steps.back());
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  const double worst = slowest_rank_ns(window, steps), step_ns = median_step_ns(window, steps);
  return format("Healthy: %zu ranks, step %s, slowest rank +%s%s.", heard_of, human_duration(step_ns).c_str(),
                percent(step_ns > 0 ? worst / step_ns : 0).c_str(),
                compared_with(window, signals, steps, reported_unix_ns).c_str());
}

}  // namespace lockstep
