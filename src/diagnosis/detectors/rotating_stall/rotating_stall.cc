#include "diagnosis/detectors/rotating_stall/rotating_stall.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"

namespace lockstep {
namespace {

constexpr size_t kWindow = 12;
// So many of the newest steps in a row are enough to suspect it; to be sure, most of the window.
constexpr size_t kNewest = 3;
constexpr size_t kNewestPlain = 2;  // where hardly anybody stalled before, and these cost much
constexpr size_t kHitsBeforeMax = 1;
constexpr size_t kNewestSure = 6;
constexpr size_t kNewestSurePlain = 4;
constexpr double kHitsShare = 0.7;
constexpr double kRanksShare = 0.6;  // of the hits: different ranks
// A stall takes this part of a step, stands out by so many standard deviations, and is one rank's alone.
constexpr double kStallShare = 0.06;
constexpr double kSigmas = 5;
constexpr double kNextMost = 0.5;
constexpr double kCostMin = 0.05;
// Of a few ranks each has its turn by chance.
constexpr size_t kRanksMin = 8;
constexpr int64_t kSettleSteps = 12;

// The stall of one step; slot -1: nobody stalled alone.
struct Stall {
  int64_t slot = -1;
  double cost_ns = 0;
};

double median_of_known(const StepFrame& frame, int64_t (*of)(const StepSummary&)) {
  std::vector<double> values;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot)
    if (frame.knows(slot)) values.push_back(static_cast<double>(of(frame.rows[slot].summary)));
  return median(std::move(values));
}

int64_t queue_of(const StepSummary& row) {
  return row.queue_ns;
}

int64_t input_of(const StepSummary& row) {
  return row.phase_ns[static_cast<size_t>(Phase::kInput)];
}

Stall stall_in(const StepFrame& frame, const Latest& latest, double limit) {
  if (latest.ns < limit || latest.next_ns > kNextMost * latest.ns) return {};
  const StepSummary& row = frame.rows[latest.slot].summary;
  const bool gpu = static_cast<double>(row.queue_ns) - median_of_known(frame, queue_of) > 0.4 * latest.ns;
  const bool input = static_cast<double>(input_of(row)) - median_of_known(frame, input_of) > 0.5 * latest.ns;
  if (gpu || input) return {};
  return {static_cast<int64_t>(latest.slot), latest.ns - std::max(0.0, latest.next_ns)};
}

}  // namespace

std::vector<Finding> find_rotating_stall(const JobWindow& window, const std::vector<AttributedRange>&) {
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kNewestSure || window.slots() < kRanksMin) return {};
  std::vector<double> durations, noise;
  std::vector<Latest> latest;
  for (StepNumber number : steps) {
    const StepLateness& step = lateness(window, *window.frame(number));
    durations.push_back(step.duration_ns);
    latest.push_back(step.latest);
    for (size_t slot = 0; slot < step.late_ns.size(); ++slot)
      if (slot != latest.back().slot && !std::isnan(step.late_ns[slot]))
        noise.push_back(static_cast<double>(step.late_ns[slot]));
  }
  const double step_ns = median(durations);
  const double limit = std::max(kStallShare * step_ns, kSigmas * spread_of(std::move(noise), 0));
  std::vector<Stall> stalls;
  for (size_t i = 0; i < steps.size(); ++i) stalls.push_back(stall_in(*window.frame(steps[i]), latest[i], limit));

  // The newest steps alone, then all of them.
  struct Turns {
    size_t steps = 0, hits = 0;
    std::set<int64_t> ranks;
    double cost_ns = 0, total_ns = 0;
    double cost() const { return total_ns > 0 ? cost_ns / total_ns : 0; }
    bool different() const {
      const auto least = static_cast<double>(std::min(kNewest, steps));
      return static_cast<double>(ranks.size()) >= std::max(least, kRanksShare * static_cast<double>(hits));
    }
  };
  auto turns_of = [&](size_t count) {
    Turns turns;
    for (size_t i = steps.size() - std::min(count, steps.size()); i < steps.size(); ++i) {
      ++turns.steps;
      turns.total_ns += durations[i];
      if (stalls[i].slot < 0) continue;
      ++turns.hits;
      turns.ranks.insert(stalls[i].slot);
      turns.cost_ns += stalls[i].cost_ns;
    }
    return turns;
  };
  const Turns newest = turns_of(kNewest), some = turns_of(kNewestSure), all = turns_of(kWindow);
  const Turns fresh = turns_of(kNewestPlain);
  auto go_on = [](const Turns& turns, size_t least) { return turns.hits >= least && turns.different(); };
  const bool lasting =
      go_on(all, static_cast<size_t>(std::ceil(kHitsShare * static_cast<double>(kWindow)))) && all.cost() >= kCostMin;
  const Turns four = turns_of(kNewestSurePlain);
  const bool very_plain = go_on(four, kNewestSurePlain) && four.cost() >= 4 * kCostMin;
  const bool plain = very_plain || (go_on(some, kNewestSure) && some.cost() >= 2 * kCostMin);
  const bool begins = go_on(newest, kNewest) && newest.cost() >= kCostMin;
  const bool begins_plainly =
      go_on(fresh, kNewestPlain) && fresh.cost() >= 2 * kCostMin && all.hits <= fresh.hits + kHitsBeforeMax;
  if (!lasting && !plain && !begins && !begins_plainly) return {};
  const Turns& seen = lasting ? all : very_plain ? four : plain ? some : begins ? newest : fresh;

  Finding finding;
  finding.kind = emits<Emitter::kRotatingStall, VerdictKind::kSlow>;
  finding.subject = "turns";
  finding.layer = emits<Emitter::kRotatingStall, Layer::kSoftware>;
  finding.cause = emits<Emitter::kRotatingStall, Cause::kGc>;
  finding.component = "garbage collection of the ranks";
  finding.sure = lasting || plain;
  finding.since_step = steps[steps.size() - seen.steps];
  finding.through_step = steps.back();
  const double saved = seen.cost_ns / static_cast<double>(seen.steps);
  finding.step_ns = static_cast<int64_t>(seen.total_ns / static_cast<double>(seen.steps));
  finding.step_without_ns = finding.step_ns - static_cast<int64_t>(saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.coverage = coverage_of(window, window.step(steps.back())->size());
  finding.confidence = std::min(0.85, 0.4 + 0.04 * static_cast<double>(seen.hits));
  const StepNumber from = finding.since_step, to = finding.through_step;
  std::vector<StepNumber> looked_at, stalled;
  for (size_t i = steps.size() - seen.steps; i < steps.size(); ++i) {
    looked_at.push_back(steps[i]);
    if (stalls[i].slot >= 0) stalled.push_back(steps[i]);
  }
  const double per_hit = seen.cost_ns / static_cast<double>(std::max<size_t>(1, seen.hits));
  finding.chain.push_back(
      claim(ClaimKind::kWaitsFor, "all ranks",
            format("In %zu of %zu steps everybody waits for one rank, %zu different ones.", seen.hits, seen.steps,
                   seen.ranks.size()),
            {.value = static_cast<double>(seen.hits), .unit = "steps", .peers = static_cast<double>(seen.steps)}, from,
            to, Measure{.of = "steps", .steps = stalled}.query()));
  finding.chain.push_back(claim(ClaimKind::kSelfTime, "whoever stalls",
                                format("It is %s behind its peers, with neither its GPU busy nor input missing.",
                                       human_duration(per_hit).c_str()),
                                {.value = per_hit / 1e6, .unit = "ms"}, from, to,
                                Measure{.of = "apart_ms", .steps = stalled}.query()));
  finding.chain.push_back(claim(ClaimKind::kExclusion, "ranks", "Not one rank or host: it is another one each time.",
                                {.value = static_cast<double>(seen.ranks.size()), .unit = "ranks"}, from, to,
                                Measure{.of = "latest_ranks", .steps = stalled}.query()));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, "all ranks",
                                format("Without the stalls a step would take %s instead of %s.",
                                       human_duration(static_cast<double>(finding.step_without_ns)).c_str(),
                                       human_duration(static_cast<double>(finding.step_ns)).c_str()),
                                {.value = static_cast<double>(finding.step_without_ns) / 1e6,
                                 .unit = "ms",
                                 .baseline = static_cast<double>(finding.step_ns) / 1e6},
                                from, to, Measure{.of = "step_mean_ms", .steps = looked_at}.query()));
  finding.alternatives.push_back({"something else on the hosts that comes and goes (a cron job, a daemon)", 0.3,
                                  "it would follow hosts, not ranks", "a stack of a rank while it stalls"});
  finding.next.push_back(
      {"collect on all ranks in the same step: gc.disable(), and gc.collect() every so many steps", ""});
  finding.sentence = format(
      "Ranks {stall|stalled} by turns, another one in nearly every step: everybody {waits|waited} %s {when}: %s of "
      "the job.",
      per_step(saved).c_str(), percent(seen.cost()).c_str());
  return {finding};
}

}  // namespace lockstep
