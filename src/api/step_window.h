// A window of steps, step by step: per rank its numbers and its excess over its peers, per step where the time went.
//
// How a rank's step is split (parts of one row add up to its duration where the job's own numbers do):
//   input          phase input, as the job told it
//   compute        self time minus input and checkpoint
//   communication  the shortest communication time of any rank in that step: what the exchange itself takes
//   waiting        the rank's communication time beyond that: it was there before the others
//   other          the rest, checkpoints included
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "store/step_store.h"

namespace lockstep {

struct StepCell {
  size_t rank_index = 0;  // into JobInfo::ranks
  double duration_ms = 0;
  double self_ms = 0;
  double comm_ms = 0;
  double input_ms = 0;
  double checkpoint_ms = 0;
  double excess_ms = 0;  // self minus the median self of the ranks in this step
};

struct StepParts {  // means over the ranks heard of, but step_ms: median
  int64_t step = 0;
  double step_ms = 0;
  double compute_ms = 0;
  double waiting_ms = 0;
  double communication_ms = 0;
  double input_ms = 0;
  double other_ms = 0;
};

// Calls back for every step from `from_step` to `to_step` of which at least one rank has told, in order; cells by rank.
// Ranks that joined after `job` was read are left out. The callback must not call the store.
void visit_window(const StepStore& steps, const JobInfo& job, int64_t from_step, int64_t to_step,
                  const std::function<void(const StepParts&, std::span<const StepCell>)>& visit);

double median_of(std::vector<double> values);  // NaN where there are none

}  // namespace lockstep
