#include "diagnosis/detectors/checkpoint/checkpoint.h"

#include <algorithm>

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

}  // namespace

std::vector<Finding> find_long_checkpoints(const JobWindow& window, const std::vector<AttributedRange>&) {
  std::vector<const StepFacts*> all;
  std::vector<double> plain_steps;
  for (const StepFacts& step : window.facts()) {
    if (step.checkpoint_ns >= std::max(kMinNs, kShareMin * step.duration_ns)) {
      all.push_back(&step);
    } else {
      plain_steps.push_back(step.duration_ns);
    }
  }
  if (all.size() <= kBeforeMin || plain_steps.empty()) return {};
  const double step_ns = median(plain_steps);
  // So many of the first ones are the measure that the run of long ones, up to the newest, is longest.
  size_t long_ones = 0;
  double usual = 0;
  for (size_t before = std::min(kBefore, all.size() - 1); before >= kBeforeMin; --before) {
    std::vector<double> first;
    for (size_t i = 0; i < before; ++i) first.push_back(all[i]->checkpoint_ns);
    const double middle = median(first);
    const double limit =
        middle + std::max({kLongerMin * middle, kSigmas * spread_of(first, middle), kStepShareMin * step_ns});
    size_t run = 0;
    while (run < all.size() - before && all[all.size() - 1 - run]->checkpoint_ns >= limit) ++run;
    if (run <= long_ones) continue;
    long_ones = run;
    usual = middle;
  }
  if (long_ones == 0) return {};
  const std::vector<const StepFacts*> slow(all.end() - static_cast<std::ptrdiff_t>(long_ones), all.end());
  std::vector<double> lengths, medians;
  for (const StepFacts* step : slow) {
    lengths.push_back(step->checkpoint_ns);
    medians.push_back(step->checkpoint_median_ns);
  }
  const double length = median(lengths), excess = length - usual;
  const StepFacts& newest = *slow.back();
  const bool same_rank = std::all_of(
      slow.begin(), slow.end(), [&](const StepFacts* step) { return step->checkpoint_rank == newest.checkpoint_rank; });
  const bool alone = same_rank && length - median(medians) >= kAlonePart * excess;
  const auto every =
      static_cast<double>(all.back()->number - all.front()->number) / static_cast<double>(all.size() - 1);

  Finding finding;
  finding.kind = emits<Emitter::kCheckpoint, VerdictKind::kSlow>;
  finding.cause = emits<Emitter::kCheckpoint, Cause::kCheckpoint>;
  if (alone) {
    finding.ranks = {newest.checkpoint_rank};
    finding.layer = emits<Emitter::kCheckpoint, Layer::kHost>;
    finding.component = format("checkpoints of rank %d", newest.checkpoint_rank.value());
  } else {
    finding.layer = emits<Emitter::kCheckpoint, Layer::kInput>;
    finding.component = "storage that checkpoints are written to";
  }
  finding.subject = "checkpoints";
  finding.sure = long_ones >= kSure;
  finding.since_step = slow.front()->number;
  finding.through_step = newest.number;
  finding.clear_after_steps = static_cast<int64_t>(2 * every) + 1;
  finding.steps_hit = std::clamp(1 / std::max(1.0, every), 0.001, 0.99);
  finding.step_ns = static_cast<int64_t>(step_ns + length);
  finding.step_without_ns = static_cast<int64_t>(step_ns + usual);
  finding.lost_ns_per_step = static_cast<int64_t>(excess * finding.steps_hit);
  finding.victims = alone ? victims_of(window, finding.ranks) : std::vector<Rank>{};
  finding.coverage =
      window.step(newest.number) == nullptr ? 1 : coverage_of(window, window.step(newest.number)->size());
  finding.confidence = std::min(0.9, 0.5 + 0.1 * static_cast<double>(long_ones));
  const StepNumber from = finding.since_step, to = finding.through_step;
  const auto query = [&](const char* of) {
    Measure measure{.of = of};
    for (const StepFacts* step : slow) measure.steps.push_back(step->number);
    return measure.query();
  };
  std::vector<double> durations;
  for (const StepFacts* step : slow) durations.push_back(step->duration_ns);
  const double with_it = median(std::move(durations));
  finding.chain.push_back(claim(
      ClaimKind::kSelfTime, finding.component,
      format("%s of the last %zu took %s; those before %s.", long_ones == 1 ? "One" : format("%zu", long_ones).c_str(),
             all.size(), human_duration(length).c_str(), human_duration(usual).c_str()),
      {.value = length / 1e6, .unit = "ms", .baseline = usual / 1e6}, from, to, query("checkpoint_ms")));
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, alone ? "other ranks" : "ranks",
            alone ? format("Not the storage of all: the others' took %s.", human_duration(median(medians)).c_str())
                  : format("Not one rank: the median of the ranks took %s.", human_duration(median(medians)).c_str()),
            {.value = median(medians) / 1e6, .unit = "ms"}, from, to, query("checkpoint_of_most_ms")));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("As before, a step with a checkpoint would take %s instead of %s.",
                                       human_duration(with_it - excess).c_str(), human_duration(with_it).c_str()),
                                {.value = (with_it - excess) / 1e6, .unit = "ms", .baseline = with_it / 1e6}, from, to,
                                query("step_ms")));
  finding.next.push_back({"look at what checkpoints are written to: free space, bandwidth, other writers", ""});
  finding.sentence =
      format("Checkpoints {take|took} %s instead of %s%s {when}: %s of the job.", human_duration(length).c_str(),
             human_duration(usual).c_str(), alone ? format(" on rank %d", newest.checkpoint_rank.value()).c_str() : "",
             percent(excess * finding.steps_hit / (step_ns + length * finding.steps_hit)).c_str());
  return {finding};
}

}  // namespace lockstep
