#include "diagnosis/price.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/median.h"

namespace lockstep {
namespace {

constexpr size_t kStepsMin = 3;   // on either side
constexpr size_t kStepsMax = 32;  // the last before it began, and the newest since
constexpr double kErrors = 2;

// The median of these, and its standard error.
struct Level {
  double ns = 0, error = 0;
  explicit Level(const std::vector<double>& durations) : ns(median(durations)) {
    constexpr double kOfAMedian = 1.25;  // times that of a mean
    error = kOfAMedian * spread_of(durations, ns) / std::sqrt(static_cast<double>(durations.size()));
  }
};

}  // namespace

double cost_of_a_step(const JobWindow& window, StepNumber since, double added_up_ns, double most_ns) {
  // What is as old as the window may have begun before it: then steps before are no healthy ones.
  const std::vector<StepNumber>& compared = window.steps_to_compare();
  if (compared.empty() || since <= compared.front()) return added_up_ns;
  std::vector<double> before, now;
  const std::deque<StepFacts>& facts = window.facts();
  for (auto fact = facts.rbegin(); fact != facts.rend() && before.size() < kStepsMax; ++fact) {
    if (window.is_warm_up(fact->number)) break;  // or of an attempt before
    if (fact->number >= since) {
      now.push_back(fact->duration_ns);
    } else {
      before.push_back(fact->duration_ns);
    }
  }
  if (before.size() < kStepsMin || now.size() < kStepsMin) return added_up_ns;
  if (now.size() > kStepsMax) now.resize(kStepsMax);  // the newest
  const Level was(before), is(now);
  const double measured = is.ns - was.ns;
  if (std::abs(measured - added_up_ns) <= kErrors * std::hypot(was.error, is.error)) return added_up_ns;
  return std::clamp(measured, 0.0, most_ns);
}

}  // namespace lockstep
