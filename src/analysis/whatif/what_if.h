// What a loss is made of: the graph played again with parts of it set to their ideal.
//
//   T        mean step of a replay with every operation as it was (no unrecorded gaps)
//   T_ideal  mean step with every operation at the ideal of its equals (replay.h)
//   S        T / T_ideal, the slowdown
//   S of X   T with only X as it was and everything else ideal, over T_ideal: what X costs where nothing else is wrong
//   share of X  (T - T with X ideal) / (T - T_ideal): what fixing X alone would win. Can be above 1: the ideal is a
//               mean, and a stage that is slow by itself pulls it up
//
// Shares of causes are made to add up: all causes fixed together win `joint`; it is split over them as what each wins
// alone, and what is then left of the loss is called unexplained. The loss is counted from the recorded step, so that
// gaps nobody recorded end up there as well.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/whatif/op_graph.h"

namespace lockstep {

struct WhatIfOptions {
  // Workers are replayed one by one up to this many; beyond, only the ones that their data-parallel rank and stage make
  // suspicious, so that the time stays linear in the trace.
  size_t exact_workers_max = 1'024;
};

struct Part {
  std::string name;
  double slowdown = 1;     // S of it
  double recovered_s = 0;  // per step, fixing it alone
  double share = 0;        // of the loss; all parts of a list and its unexplained add to 1
};

struct WorkerCost {
  Worker worker;
  double slowdown = 1;  // S; NaN: not replayed
  double estimate = 1;  // the smaller of its data-parallel rank's and its stage's: dp + pp replays instead of dp x pp
};

struct WhatIf {
  size_t operations = 0;
  size_t steps = 0;
  int64_t gpus = 0;
  int32_t dp_ranks = 0;  // 0: the trace does not say
  int32_t stages = 0;

  double recorded_s = 0;          // mean step
  double replayed_s = 0;          // T
  double ideal_s = 0;             // T_ideal
  double slowdown = 1;            // S
  double replay_error = 0;        // |T - recorded| / recorded, of the means
  double replay_error_worst = 0;  // of any one step
  double slowest_step = 1;        // S of the worst step

  std::vector<Part> types;  // most expensive first
  double types_unexplained = 0;
  std::vector<Part> causes;  // bad workers, the last stage, uneven micro-batches, communication; largest share first
  double causes_unexplained = 0;

  std::vector<WorkerCost> workers;     // most expensive first
  std::vector<double> dp_slowdown;     // by data-parallel rank
  std::vector<double> stage_slowdown;  // by stage
  // Shares as above; NaN where the loss is too small to divide by, or the trace does not say.
  double worst_workers_share = 0;  // M_W: of the worst 3 % of workers, at least one
  std::vector<Rank> worst_ranks;   // these
  double last_stage_share = 0;     // M_S
  // Of forward and backward time of the same micro-batch, each worker's mean taken away. Near 1 where the work itself
  // differs (sequence lengths); NaN where micro-batches are not told.
  double forward_backward_correlation = 0;

  double lost_gpu_s_per_step() const { return static_cast<double>(gpus) * std::max(0.0, recorded_s - ideal_s); }
  double lost_gpu_s() const { return lost_gpu_s_per_step() * static_cast<double>(steps); }
};

inline constexpr double kWorstWorkers = 0.03;

WhatIf what_if(const OpGraph& graph, const WhatIfOptions& options = {});

// What it comes to, in a sentence or two.
std::string sentence_of(const WhatIf& result);

}  // namespace lockstep
