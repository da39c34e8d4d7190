#include "diagnosis/detectors/checkpoint/checkpoint.h"

#include <algorithm>
#include <optional>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

// What is shorter than this is a mark without weight.
constexpr double kShareMin = 0.05;
constexpr double kMinNs = 20e6;
constexpr size_t kBeforeMin = 2;
constexpr size_t kBefore = 8;
// Longer by so much of what is usual, by so many standard deviations, and by so much of a step.
constexpr double kLongerMin = 0.25;
constexpr double kSigmas = 6;
constexpr double kStepShareMin = 0.08;
constexpr size_t kSure = 2;
// One rank's is longer than the others' by this part of the excess.
constexpr double kAlonePart = 0.7;

// The steps with a checkpoint, and what a step takes without one.
struct Checkpoints {
  std::vector<const StepFacts*> steps;
  double plain_step_ns = 0;
};

// Nothing where there are too few to compare, or no step without one.
std::optional<Checkpoints> checkpoints_in(const JobWindow& window) {
  Checkpoints all;
  std::vector<double> plain_steps;
  for (const StepFacts& step : window.facts()) {
    if (step.checkpoint_ns >= std::max(kMinNs, kShareMin * step.duration_ns)) {
      all.steps.push_back(&step);
    } else {
      plain_steps.push_back(step.duration_ns);
    }
  }
  if (all.steps.size() <= kBeforeMin || plain_steps.empty()) return std::nullopt;
  all.plain_step_ns = median(std::move(plain_steps));
  return all;
}

double median_over(const std::vector<const StepFacts*>& steps, double StepFacts::*of) {
  std::vector<double> values;
  for (const StepFacts* step : steps) values.push_back(step->*of);
  return median(std::move(values));
}

// Checkpoints that take longer than those before them.
struct LongOnes {
  std::vector<const StepFacts*> steps;
  double usual_ns = 0;   // one before
  double length_ns = 0;  // one of these
  double most_ns = 0;    // of the median rank
  bool alone = false;    // one rank's, not all ranks'
  double excess_ns() const { return length_ns - usual_ns; }
  Rank rank() const { return steps.back()->checkpoint_rank; }
};

std::optional<LongOnes> long_ones_of(const Checkpoints& all) {
  const std::vector<const StepFacts*>& steps = all.steps;
  // So many of the first ones are the measure that the run of long ones, up to the newest, is longest.
  size_t longest = 0;
  LongOnes slow;
  for (size_t before = std::min(kBefore, steps.size() - 1); before >= kBeforeMin; --before) {
    std::vector<double> first;
    for (size_t i = 0; i < before; ++i) first.push_back(steps[i]->checkpoint_ns);
    const double middle = median(first);
    const double limit =
        middle + std::max({kLongerMin * middle, kSigmas * spread_of(first, middle), kStepShareMin * all.plain_step_ns});
    size_t run = 0;
    while (run < steps.size() - before && steps[steps.size() - 1 - run]->checkpoint_ns >= limit) ++run;
    if (run <= longest) continue;
    longest = run;
    slow.usual_ns = middle;
  }
  if (longest == 0) return std::nullopt;
  slow.steps.assign(steps.end() - static_cast<std::ptrdiff_t>(longest), steps.end());
  slow.length_ns = median_over(slow.steps, &StepFacts::checkpoint_ns);
  slow.most_ns = median_over(slow.steps, &StepFacts::checkpoint_median_ns);
  const bool same_rank = std::all_of(slow.steps.begin(), slow.steps.end(),
                                     [&](const StepFacts* step) { return step->checkpoint_rank == slow.rank(); });
  slow.alone = same_rank && slow.length_ns - slow.most_ns >= kAlonePart * slow.excess_ns();
  return slow;
}

void add_claims(const LongOnes& slow, size_t all, Finding& finding) {
  const StepNumber from = finding.since_step, to = finding.through_step;
  const auto query = [&](const char* of) {
    Measure measure{.of = of};
    for (const StepFacts* step : slow.steps) measure.steps.push_back(step->number);
    return measure.query();
  };
  const size_t count = slow.steps.size();
  const std::string most = human_duration(slow.most_ns);
  finding.chain.push_back(
      claim(ClaimKind::kSelfTime, finding.component,
            format("%s of the last %zu took %s; those before %s.", count == 1 ? "One" : format("%zu", count).c_str(),
                   all, human_duration(slow.length_ns).c_str(), human_duration(slow.usual_ns).c_str()),
            {.value = slow.length_ns / 1e6, .unit = "ms", .baseline = slow.usual_ns / 1e6}, from, to,
            query("checkpoint_ms")));
  finding.chain.push_back(claim(ClaimKind::kExclusion, slow.alone ? "other ranks" : "ranks",
                                slow.alone ? format("Not the storage of all: the others' took %s.", most.c_str())
                                           : format("Not one rank: the median of the ranks took %s.", most.c_str()),
                                {.value = slow.most_ns / 1e6, .unit = "ms"}, from, to, query("checkpoint_of_most_ms")));
  const double with_it = median_over(slow.steps, &StepFacts::duration_ns), without = with_it - slow.excess_ns();
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("As before, a step with a checkpoint would take %s instead of %s.",
                                       human_duration(without).c_str(), human_duration(with_it).c_str()),
                                {.value = without / 1e6, .unit = "ms", .baseline = with_it / 1e6}, from, to,
                                query("step_ms")));
}

Finding finding_of(const JobWindow& window, const Checkpoints& all, const LongOnes& slow) {
  const StepFacts& newest = *slow.steps.back();
  Finding finding;
  finding.kind = emits<Emitter::kCheckpoint, VerdictKind::kSlow>;
  finding.cause = emits<Emitter::kCheckpoint, Cause::kCheckpoint>;
  if (slow.alone) {
    finding.ranks = {slow.rank()};
    finding.layer = emits<Emitter::kCheckpoint, Layer::kHost>;
    finding.component = format("checkpoints of rank %d", slow.rank().value());
    finding.victims = victims_of(window, finding.ranks);
  } else {
    finding.layer = emits<Emitter::kCheckpoint, Layer::kInput>;
    finding.component = "storage that checkpoints are written to";
  }
  finding.subject = "checkpoints";
  finding.sure = slow.steps.size() >= kSure;
  finding.since_step = slow.steps.front()->number;
  finding.through_step = newest.number;
  const auto every = static_cast<double>(all.steps.back()->number - all.steps.front()->number) /
                     static_cast<double>(all.steps.size() - 1);
  finding.clear_after_steps = static_cast<int64_t>(2 * every) + 1;
  finding.steps_hit = std::clamp(1 / std::max(1.0, every), 0.001, 0.99);
  finding.step_ns = static_cast<int64_t>(all.plain_step_ns + slow.length_ns);
  finding.step_without_ns = static_cast<int64_t>(all.plain_step_ns + slow.usual_ns);
  finding.lost_ns_per_step = static_cast<int64_t>(slow.excess_ns() * finding.steps_hit);
  finding.coverage =
      window.step(newest.number) == nullptr ? 1 : coverage_of(window, window.step(newest.number)->size());
  finding.confidence = std::min(0.9, 0.5 + 0.1 * static_cast<double>(slow.steps.size()));
  add_claims(slow, all.steps.size(), finding);
  finding.next.push_back({"look at what checkpoints are written to: free space, bandwidth, other writers", ""});
  finding.sentence = format(
      "Checkpoints {take|took} %s instead of %s%s {when}: %s of the job.", human_duration(slow.length_ns).c_str(),
      human_duration(slow.usual_ns).c_str(), slow.alone ? format(" on rank %d", slow.rank().value()).c_str() : "",
      percent(slow.excess_ns() * finding.steps_hit / (all.plain_step_ns + slow.length_ns * finding.steps_hit)).c_str());
  return finding;
}

}  // namespace

std::vector<Finding> find_long_checkpoints(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::optional<Checkpoints> all = checkpoints_in(window);
  if (!all) return {};
  const std::optional<LongOnes> slow = long_ones_of(*all);
  if (!slow) return {};
  return {finding_of(window, *all, *slow)};
}

}  // namespace lockstep
