#include "diagnosis/verdicts/recurrence.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "diagnosis/roles.h"

namespace lockstep {
namespace {

// A steady slowness may miss a step in four: what is near the limit is below it now and then.
constexpr double kPersistentShare = 0.75;
// Three times make a period; the times between may differ by a fifth, or a step.
constexpr size_t kTimesMin = 3;
constexpr double kPeriodSlack = 0.2;
constexpr double kRegularShare = 0.75;
// Late by half of what is usual for the finding counts.
constexpr double kHalf = 0.5;
constexpr size_t kRanksLooked = 16;

bool shows_in_own_time(const Finding& finding) {
  const bool network = finding.layer == Layer::kLink || finding.layer == Layer::kNic ||
                       finding.layer == Layer::kSwitch || finding.layer == Layer::kNvlink;
  return !finding.ranks.empty() && !network && finding.cause != Cause::kProcessPaused &&
         finding.cause != Cause::kCheckpoint && finding.kind == VerdictKind::kSlow;
}

}  // namespace

Recurrence recurrence_of(std::span<const StepNumber> late, StepNumber newest) {
  if (late.empty()) return {};
  const auto looked_at = static_cast<double>(std::max(newest, late.back()) - late.front() + 1);
  if (static_cast<double>(late.size()) >= kPersistentShare * looked_at) return {};
  std::vector<StepNumber> begins;  // of stretches without a gap
  for (size_t i = 0; i < late.size(); ++i)
    if (i == 0 || late[i] > late[i - 1] + 1) begins.push_back(late[i]);
  if (begins.size() < kTimesMin) return {Pattern::kTransient, 0};
  std::vector<int64_t> between;
  for (size_t i = 1; i < begins.size(); ++i) between.push_back(begins[i] - begins[i - 1]);
  std::vector<int64_t> sorted = between;
  std::sort(sorted.begin(), sorted.end());
  const int64_t period = sorted[sorted.size() / 2];
  const double slack = std::max(1.0, kPeriodSlack * static_cast<double>(period));
  const auto regular = std::count_if(between.begin(), between.end(), [&](int64_t steps) {
    return std::abs(static_cast<double>(steps - period)) <= slack;
  });
  // One that should have come back twice by now is over.
  const bool goes_on = newest - begins.back() <= 2 * period + 1;
  // Every other step, or nearly: whatever comes at random that often looks regular.
  if (period < 3 && static_cast<double>(regular) < static_cast<double>(between.size())) return {Pattern::kTransient, 0};
  if (!goes_on || static_cast<double>(regular) < kRegularShare * static_cast<double>(between.size()))
    return {Pattern::kTransient, 0};
  return {Pattern::kPeriodic, period};
}

bool is_late_in(const JobWindow& window, const Finding& finding, StepNumber step) {
  const StepFrame* frame = window.frame(step);
  if (frame == nullptr || frame->known.empty()) return false;
  const StepLateness& all = lateness(window, *frame);
  const auto hit_ns = static_cast<double>(finding.step_ns - finding.step_without_ns);
  if (shows_in_own_time(finding)) {
    const double usual = std::max(hit_ns, static_cast<double>(finding.lost_alone_ns));
    for (size_t i = 0; i < finding.ranks.size() && i < kRanksLooked; ++i) {
      const int32_t slot = window.slot_of(finding.ranks[i]);
      if (slot < 0 || static_cast<size_t>(slot) >= all.late_ns.size()) continue;
      const auto late_ns = static_cast<double>(all.late_ns[static_cast<size_t>(slot)]);
      if (!std::isnan(late_ns) && late_ns > 0 && late_ns >= kHalf * usual) return true;
    }
    return false;
  }
  if (hit_ns <= 0) return step >= finding.since_step && step <= finding.through_step;
  return all.duration_ns >= static_cast<double>(finding.step_without_ns) + kHalf * hit_ns;
}

}  // namespace lockstep
