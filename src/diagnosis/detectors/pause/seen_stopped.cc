#include "diagnosis/detectors/pause/seen_stopped.h"

#include <algorithm>
#include <map>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"

namespace lockstep {
namespace {

constexpr size_t kWindow = 96;
// Once may be somebody who looks at the process with a debugger.
constexpr size_t kHitsSuspect = 2;
constexpr size_t kHitsSure = 3;
constexpr int64_t kRecentSteps = 16;
constexpr double kLostShareMin = 0.01;  // of the job
constexpr size_t kBeforeMin = 5;        // steps before the first one, to compare with
constexpr size_t kFindingsMax = 4;

struct Stopped {
  Rank rank = kNoRank;
  std::vector<StepNumber> hit;
  double ns = 0;
};

// Who was found stopped in a step: kept with it, since steps are looked at again and again and hardly ever have one.
struct StoppedSlots {
  std::vector<size_t> slots;
};

const std::vector<size_t>& stopped_in(const StepFrame& frame) {
  const auto make = [&] {
    StoppedSlots found;
    for (size_t slot = 0; slot < frame.rows.size(); ++slot)
      if (frame.state[slot] != 0 && frame.rows[slot].summary.stopped_ns > 0) found.slots.push_back(slot);
    return found;
  };
  return frame.derived<StoppedSlots>(make).slots;
}

std::vector<Stopped> measure_stopped(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::map<size_t, Stopped> of_slot;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    for (size_t slot : stopped_in(frame)) {
      Stopped& one = of_slot[slot];
      one.rank = window.rank_of(slot);
      one.hit.push_back(number);
      one.ns += static_cast<double>(frame.rows[slot].summary.stopped_ns);
    }
  }
  std::vector<Stopped> found;
  for (auto& [slot, one] : of_slot)
    if (one.hit.size() >= kHitsSuspect && one.hit.back() + kRecentSteps >= steps.back())
      found.push_back(std::move(one));
  std::stable_sort(found.begin(), found.end(), [](const Stopped& a, const Stopped& b) { return a.ns > b.ns; });
  if (found.size() > kFindingsMax) found.resize(kFindingsMax);
  return found;
}

// What a step takes since it began, and what it would: as before, where there is a before, else without the time in
// which the process was stopped.
struct Price {
  double now_ns = 0, without_ns = 0;
};

Price price_of(const JobWindow& window, const std::vector<StepNumber>& steps, const Stopped& stopped) {
  const auto first = std::lower_bound(steps.begin(), steps.end(), stopped.hit.front());
  const std::vector<StepNumber> before(steps.begin(), first), since(first, steps.end());
  Price price{.now_ns = median(step_durations(window, since))};
  price.without_ns = std::max(0.0, price.now_ns - stopped.ns / static_cast<double>(since.size()));
  if (before.size() >= kBeforeMin)
    price.without_ns = std::min(price.without_ns, median(step_durations(window, before)));
  return price;
}

Finding word(const JobWindow& window, const std::vector<StepNumber>& steps, const Stopped& stopped,
             const Price& price) {
  const std::string subject = format("rank %d", stopped.rank.value());
  const StepNumber from = stopped.hit.front(), to = stopped.hit.back();
  const std::vector<StepNumber> since(std::lower_bound(steps.begin(), steps.end(), from), steps.end());
  Finding finding;
  finding.kind = emits<Emitter::kPause, VerdictKind::kSlow>;
  finding.layer = emits<Emitter::kPause, Layer::kHost>;
  finding.cause = emits<Emitter::kPause, Cause::kProcessPaused>;
  finding.component = "process of " + subject;
  finding.ranks = {stopped.rank};
  finding.sure = stopped.hit.size() >= kHitsSure;
  finding.since_step = from;
  finding.through_step = to;
  finding.clear_after_steps = 40;
  finding.step_ns = static_cast<int64_t>(price.now_ns);
  finding.step_without_ns = static_cast<int64_t>(price.without_ns);
  finding.lost_ns_per_step = finding.step_ns - finding.step_without_ns;
  finding.victims = victims_of(window, finding.ranks);
  finding.coverage = coverage_of(window, window.step(steps.back())->size());
  finding.confidence = std::min(0.95, 0.6 + 0.05 * static_cast<double>(stopped.hit.size()));
  finding.chain.push_back(
      claim(ClaimKind::kSelfTime, subject,
            format("Its process was found stopped (state T) in %zu steps, for %s in all, as far as looks a quarter of "
                   "a second apart tell.",
                   stopped.hit.size(), human_duration(stopped.ns).c_str()),
            {.value = static_cast<double>(stopped.hit.size()), .unit = "steps"}, from, to,
            Measure{.of = "steps", .ranks = finding.ranks, .steps = stopped.hit}.query()));
  finding.chain.push_back(claim(ClaimKind::kExclusion, subject,
                                "Not its GPU, its input or its link: a process that is stopped uses none of them.", {},
                                from, to, Measure{.of = "step_ms", .steps = since}.query()));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, subject,
                                format("A step takes %s since it is stopped, %s without that.",
                                       human_duration(price.now_ns).c_str(), human_duration(price.without_ns).c_str()),
                                {.value = price.without_ns / 1e6, .unit = "ms", .baseline = price.now_ns / 1e6}, from,
                                to, Measure{.of = "step_ms", .steps = since}.query()));
  finding.next.push_back({"look for what stops the process: SIGSTOP, a debugger, the freezer, a checkpointing tool",
                          "grep -E 'State|TracerPid' /proc/PID/status"});
  finding.sentence =
      format("%s {is|was} stopped again and again, and everybody {waits|waited} %s {when}: %s of the job.",
             name_of(window, stopped.rank).c_str(), per_step(static_cast<double>(finding.lost_ns_per_step)).c_str(),
             percent(static_cast<double>(finding.lost_ns_per_step) / std::max(1.0, price.now_ns)).c_str());
  return finding;
}

}  // namespace

std::vector<Finding> find_seen_stopped(const JobWindow& window) {
  std::vector<StepNumber> steps = window.complete_steps();
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.empty()) return {};
  std::vector<Finding> findings;
  for (const Stopped& stopped : measure_stopped(window, steps)) {
    const Price price = price_of(window, steps, stopped);
    if (price.now_ns - price.without_ns < kLostShareMin * price.now_ns) continue;
    findings.push_back(word(window, steps, stopped, price));
  }
  return findings;
}

}  // namespace lockstep
