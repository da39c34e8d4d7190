// A window of steps, step by step: per rank its numbers and its excess over its peers, per step where the time went.
//
// How a rank's step is split, where the agent could tell (docs/guide/where-the-time-goes.md): as it was told. Where
// not:
//   input, checkpoint   those phases, as the job told them
//   compute        self time minus both
//   communication  all of it, hidden behind own work or not
//   other          the rest
// Over the ranks of a step, communication is split once more:
//   communication  the least of any rank: what the exchange itself takes
//   waiting        the rank's communication beyond that: it was there before the others
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/answer.h"
#include "base/median.h"
#include "store/step_store.h"

namespace lockstep {

struct RankParts {        // of one rank in one step; they add up to its duration where its own numbers do
  bool reported = false;  // by the agent; else host and idle are not known and count as compute
  double compute_ms = 0;
  double communication_ms = 0;  // exposed, waiting included
  double input_ms = 0;
  double host_ms = 0;
  double checkpoint_ms = 0;
  double idle_ms = 0;
  double other_ms = 0;
};

struct StepCell {
  size_t rank_index = 0;  // into JobInfo::ranks
  // GPU times are all there. Where records were lost, what is left would read as own time: it is unknown.
  bool gpu_time_known = true;
  int64_t end_unix_ns = 0;
  double duration_ms = 0;
  double self_ms = 0;
  double comm_ms = 0;
  double input_ms = 0;   // the phase, as the job told it
  double excess_ms = 0;  // self minus the median self of the ranks in this step; NaN: unknown
  RankParts parts;
};

struct StepParts {  // means over the ranks whose GPU times are known (of all, where nobody's are), but step_ms: median
  StepNumber step;
  double step_ms = 0;
  double compute_ms = 0;
  double waiting_ms = 0;
  double communication_ms = 0;
  double input_ms = 0;
  double host_ms = 0;
  double checkpoint_ms = 0;
  double idle_ms = 0;
  double other_ms = 0;
};

// How many of `wanted` steps an answer looks at: as many as hold this many rows, but a few at least. What is said of a
// hundred thousand ranks needs few steps to be steady, and is to be said within a second.
int64_t steps_within(const JobInfo& job, int64_t wanted, size_t rows_max);
inline constexpr size_t kWordRowsMax = 300'000;     // for a number or a sentence
inline constexpr size_t kPictureRowsMax = 800'000;  // for a table or a map

// Steps that had something of this time in them, the newest `most` of them.
StepRange steps_between(const StepStore& steps, const JobInfo& job, int64_t from_unix_ns, int64_t to_unix_ns,
                        int64_t most);

// Calls back for every step from `from_step` to `to_step` of which at least one rank has told, in order; cells by rank.
// Ranks that joined after `job` was read are left out. The callback must not call the store.
void visit_window(const StepStore& steps, const JobInfo& job, StepNumber from_step, StepNumber to_step,
                  const std::function<void(const StepParts&, std::span<const StepCell>)>& visit);

}  // namespace lockstep
