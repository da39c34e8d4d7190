#include "diagnosis/detectors/rotating_stall/rotating_stall.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

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
constexpr double kRanksShare = 0.6;  // of the hits, or of the ranks where these are fewer: different ranks
constexpr double kOneRankMost = 0.5;  // of the hits: more, and it is that rank's trouble
// A stall takes this part of a step, stands out by so many standard deviations, and is one rank's alone.
constexpr double kStallShare = 0.06;
constexpr double kSigmas = 5;
constexpr double kNextMost = 0.5;
constexpr double kCostMin = 0.05;
// Of fewer ranks each has its turn by chance, and of no more than a few so often, on a busy machine, that only most of
// the window makes it sure.
constexpr size_t kRanksMin = 4;
constexpr size_t kRanksMany = 8;
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

// The newest steps, and who stalled in each of them.
struct LastStalls {
  std::vector<StepNumber> steps;
  std::vector<double> duration_ns;
  std::vector<Stall> stalls;
  size_t ranks = 0;  // of the job
};

LastStalls stalls_in(const JobWindow& window, std::vector<StepNumber> steps) {
  LastStalls last{.steps = std::move(steps), .ranks = window.slots()};
  std::vector<double> noise;
  std::vector<Latest> latest;
  for (StepNumber number : last.steps) {
    const StepLateness& step = lateness(window, *window.frame(number));
    last.duration_ns.push_back(step.duration_ns);
    latest.push_back(step.latest);
    for (size_t slot = 0; slot < step.late_ns.size(); ++slot)
      if (slot != latest.back().slot && !std::isnan(step.late_ns[slot]))
        noise.push_back(static_cast<double>(step.late_ns[slot]));
  }
  const double limit = std::max(kStallShare * median(last.duration_ns), kSigmas * spread_of(std::move(noise), 0));
  for (size_t i = 0; i < last.steps.size(); ++i)
    last.stalls.push_back(stall_in(*window.frame(last.steps[i]), latest[i], limit));
  return last;
}

// What some of the newest steps say together.
struct Turns {
  size_t steps = 0, hits = 0, job_ranks = 0;
  std::map<int64_t, size_t> ranks;  // how often each
  double cost_ns = 0, total_ns = 0;
  double cost() const { return total_ns > 0 ? cost_ns / total_ns : 0; }
  // It goes on: so many hits, and of different ranks.
  bool go_on(size_t hits_min, double cost_min) const {
    const double least = static_cast<double>(std::min(kNewest, steps));
    const double share = kRanksShare * static_cast<double>(std::min(hits, job_ranks));
    if (hits < hits_min || static_cast<double>(ranks.size()) < std::max(least, share) || cost() < cost_min)
      return false;
    return std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
      return static_cast<double>(rank.second) <= std::max(1.0, kOneRankMost * static_cast<double>(hits));
    });
  }
};

Turns turns_of(const LastStalls& last, size_t count) {
  Turns turns{.job_ranks = last.ranks};
  for (size_t i = last.steps.size() - std::min(count, last.steps.size()); i < last.steps.size(); ++i) {
    ++turns.steps;
    turns.total_ns += last.duration_ns[i];
    if (last.stalls[i].slot < 0) continue;
    ++turns.hits;
    ++turns.ranks[last.stalls[i].slot];
    turns.cost_ns += last.stalls[i].cost_ns;
  }
  return turns;
}

struct Judged {
  Turns turns;  // those that tell it
  bool sure = false;
};

// The most steps that go on like that: what few of them say is said only where it is plain, or is not sure.
std::optional<Judged> judge(const LastStalls& last) {
  const Turns all = turns_of(last, kWindow);
  const auto most = static_cast<size_t>(std::ceil(kHitsShare * static_cast<double>(kWindow)));
  if (all.go_on(most, kCostMin)) return Judged{all, true};
  const bool few = last.ranks < kRanksMany;
  if (const Turns four = turns_of(last, kNewestSurePlain); four.go_on(kNewestSurePlain, 4 * kCostMin))
    return Judged{four, !few};
  if (few) return std::nullopt;
  if (const Turns some = turns_of(last, kNewestSure); some.go_on(kNewestSure, 2 * kCostMin)) return Judged{some, true};
  if (const Turns newest = turns_of(last, kNewest); newest.go_on(kNewest, kCostMin)) return Judged{newest, false};
  const Turns fresh = turns_of(last, kNewestPlain);
  if (fresh.go_on(kNewestPlain, 2 * kCostMin) && all.hits <= fresh.hits + kHitsBeforeMax) return Judged{fresh, false};
  return std::nullopt;
}

void add_claims(const LastStalls& last, const Turns& seen, Finding& finding) {
  const StepNumber from = finding.since_step, to = finding.through_step;
  std::vector<StepNumber> looked_at, stalled;
  for (size_t i = last.steps.size() - seen.steps; i < last.steps.size(); ++i) {
    looked_at.push_back(last.steps[i]);
    if (last.stalls[i].slot >= 0) stalled.push_back(last.steps[i]);
  }
  const auto hits = static_cast<double>(seen.hits), ranks = static_cast<double>(seen.ranks.size());
  finding.chain.push_back(claim(ClaimKind::kWaitsFor, "all ranks",
                                format("In %zu of %zu steps everybody waits for one rank, %zu different ones.",
                                       seen.hits, seen.steps, seen.ranks.size()),
                                {.value = hits, .unit = "steps", .peers = static_cast<double>(seen.steps)}, from, to,
                                Measure{.of = "steps", .steps = stalled}.query()));
  const double per_hit = seen.cost_ns / std::max(1.0, hits);
  finding.chain.push_back(claim(ClaimKind::kSelfTime, "whoever stalls",
                                format("It is %s behind its peers, with neither its GPU busy nor input missing.",
                                       human_duration(per_hit).c_str()),
                                {.value = per_hit / 1e6, .unit = "ms"}, from, to,
                                Measure{.of = "apart_ms", .steps = stalled}.query()));
  finding.chain.push_back(claim(ClaimKind::kExclusion, "ranks", "Not one rank or host: it is another one each time.",
                                {.value = ranks, .unit = "ranks"}, from, to,
                                Measure{.of = "latest_ranks", .steps = stalled}.query()));
  const auto step_ns = static_cast<double>(finding.step_ns), without_ns = static_cast<double>(finding.step_without_ns);
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, "all ranks",
                                format("Without the stalls a step would take %s instead of %s.",
                                       human_duration(without_ns).c_str(), human_duration(step_ns).c_str()),
                                {.value = without_ns / 1e6, .unit = "ms", .baseline = step_ns / 1e6}, from, to,
                                Measure{.of = "step_mean_ms", .steps = looked_at}.query()));
}

Finding finding_of(const JobWindow& window, const LastStalls& last, const Judged& judged) {
  const Turns& seen = judged.turns;
  Finding finding;
  finding.kind = emits<Emitter::kRotatingStall, VerdictKind::kSlow>;
  finding.subject = "turns";
  finding.layer = emits<Emitter::kRotatingStall, Layer::kSoftware>;
  finding.cause = emits<Emitter::kRotatingStall, Cause::kGc>;
  finding.component = "garbage collection of the ranks";
  finding.sure = judged.sure;
  finding.since_step = last.steps[last.steps.size() - seen.steps];
  finding.through_step = last.steps.back();
  const double saved = seen.cost_ns / static_cast<double>(seen.steps);
  finding.step_ns = static_cast<int64_t>(seen.total_ns / static_cast<double>(seen.steps));
  finding.step_without_ns = finding.step_ns - static_cast<int64_t>(saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.coverage = coverage_of(window, window.step(last.steps.back())->size());
  finding.confidence = std::min(0.85, 0.4 + 0.04 * static_cast<double>(seen.hits));
  add_claims(last, seen, finding);
  finding.alternatives.push_back({"something else on the hosts that comes and goes (a cron job, a daemon)", 0.3,
                                  "it would follow hosts, not ranks", "a stack of a rank while it stalls"});
  finding.next.push_back(
      {"collect on all ranks in the same step: gc.disable(), and gc.collect() every so many steps", ""});
  finding.sentence = format(
      "Ranks {stall|stalled} by turns, another one in nearly every step: everybody {waits|waited} %s {when}: %s of "
      "the job.",
      per_step(saved).c_str(), percent(seen.cost()).c_str());
  return finding;
}

}  // namespace

std::vector<Finding> find_rotating_stall(const JobWindow& window, const std::vector<AttributedRange>&) {
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kNewestSure || window.slots() < kRanksMin) return {};
  const LastStalls last = stalls_in(window, std::move(steps));
  const std::optional<Judged> judged = judge(last);
  if (!judged) return {};
  return {finding_of(window, last, *judged)};
}

}  // namespace lockstep
