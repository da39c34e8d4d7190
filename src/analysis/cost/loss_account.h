// Where the time that a job loses goes: one account over a window of steps whose shares add up to 100 %.
//
// Every slow verdict says by itself what a step would take without its cause. Those prices do not add up: two late
// ranks hide each other, a cause acts in some steps only, and something may cost time that no verdict names. The
// account starts from what was measured instead:
//
//     lost = step time - what a healthy step of this job takes
//
// A healthy step is the median of the kBaselineSteps steps before the window, or before the first cause that acts in
// it, whichever is earlier. Where no step is free of causes (slow from the start), it is the earliest steps less what
// the causes that act in them cost; and so it is of the steps with causes where these are quicker than that, since the job
// has become another then. Steps are then dealt with by the set of causes that act in them. What a set
// explains is what was measured, but no more than its prices together; it is split between them by price. What is left
// over is *unexplained*. So overlapping causes are never counted twice, and a cause that costs less than its verdict
// says is corrected by the measurement.
//
// Phases in which the job said that it writes a checkpoint or evaluates are a part of their own: time well known, and
// no verdict's. A hang costs the time for which it stood still, in the step that it held up or, while it lasts, beyond
// the newest one.
//
// Where it errs: causes that hide each other have prices that sum to more than they cost together, so what else costs
// time in the same steps is taken for theirs; there *unexplained* is a lower bound. bench/results/mfu.md has the error
// against simulated jobs whose truth is known.
// Thread rule: Thread-safe (pure functions; the store is asked once or twice).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/verdict.h"
#include "store/step_store.h"

namespace lockstep {

inline constexpr size_t kBaselineSteps = 24;
inline constexpr size_t kBaselineStepsMin = 6;
// Steps of a job that settle: never a baseline, where the job's first step is in sight.
inline constexpr size_t kSettlingSteps = 4;

struct StepTime {
  StepNumber step;
  double ms = 0;           // median over the ranks
  double reported_ms = 0;  // of that: checkpoint and evaluation, as every rank told them
};

struct LossCause {
  StepNumber since_step;
  StepNumber through_step;
  double price_ms = 0;    // a step, on average over the steps in which it acts, were it the only cause
  bool parallel = false;  // a late rank: it costs nothing beside one that is later
  double stopped_ms = 0;  // a hang: what it cost in all; price_ms is not looked at
};

enum class LossKind : uint8_t { kVerdict, kReported, kStart, kUnexplained };

struct LossPart {
  LossKind kind = LossKind::kUnexplained;
  size_t cause = 0;    // kVerdict: index into the causes
  double lost_ms = 0;  // in the whole window
  double share = 0;    // of what is lost
  int64_t steps = 0;   // of the window in which it acts
};

struct LossAccount {
  StepNumber from_step = 0_step, to_step = kNoStep;
  int64_t steps = 0;     // of the window of which something was heard
  double window_ms = 0;  // their time, and that of a hang that lasts
  double step_ms = 0;    // mean
  bool baseline_known = false;
  double baseline_ms = 0;  // a healthy step
  StepNumber baseline_from, baseline_to;
  int64_t baseline_steps = 0;
  bool baseline_priced = false;  // causes act in the baseline's steps too: it is measured time less their prices
  double lost_ms = 0;            // in the window; the parts add up to it
  std::vector<LossPart> parts;   // largest first, unexplained last; shares add up to 1, or are all 0
};

// `before`: steps ahead of the window, nearest last. `window`: its steps. Both in order. settling: so many of the
// window's first steps are the job's first (compilation, connections): what they take longer is a part of its own.
LossAccount split_losses(std::span<const StepTime> before, std::span<const StepTime> window,
                         std::span<const LossCause> causes, size_t settling = 0);

// A part of a job's account, with what a reader needs of its verdict.
struct JobLoss {
  LossPart part;
  Verdict verdict;  // kVerdict
};
struct JobLosses {
  LossAccount account;
  std::vector<JobLoss> parts;
  int32_t gpus = 0;
  double gpu_seconds(double ms) const { return ms / 1e3 * gpus; }
};
// The window's steps from `from_step` to `to_step`; verdicts of other attempts, and those that cost no time
// (incorrect), are passed over.
JobLosses job_losses(const StepStore& steps, const JobInfo& job, std::span<const Verdict> verdicts,
                     StepNumber from_step, StepNumber to_step);
// "23 % of the last 200 steps is lost: 412 ms a step where 318 ms would do. Most of it (81 %): ..."
std::string sentence_of(const JobLosses& losses);
// "rank 5 (throttle-thermal)"; "checkpoints and evaluation"; "unexplained"
std::string name_of(const JobLoss& loss);

}  // namespace lockstep
