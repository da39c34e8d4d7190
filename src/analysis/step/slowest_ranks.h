// Which ranks were slow over a window of steps, from the summaries that every rank sends for every step: by own time
// against the median of the ranks in the same step, and by how often the others waited for them.
//
// A rank is the last to arrive in a step at a communicator where it spent the least time in it, by more than noise.
// Ranks whose GPU times are not known in a step count neither way there.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/step_store.h"

namespace lockstep {

struct SlowRank {
  Rank rank;
  std::string host;
  int64_t steps = 0;                // that it was judged in
  int64_t unknown = 0;              // steps it has told without GPU times
  double own_ns = 0;                // mean
  double excess_ns = 0;             // mean of own time beyond the median of all ranks
  double worst_excess_ns = 0;       // and the largest,
  StepNumber worst_step = kNoStep;  // in this step
  int64_t last = 0;                 // how often it came last: communicators and steps
  int64_t meetings = 0;             // of so many that it took part in
  double made_wait_ns = 0;          // mean per step over the steps: what the median member waited when it came last
  CommId last_comm_id;              // where it came last most often
};

struct SlowestRanks {
  StepNumber from_step;  // that there was something of
  StepNumber to_step = kNoStep;
  int64_t steps = 0;
  double step_ns = 0;           // median duration over ranks and steps
  std::vector<SlowRank> ranks;  // by excess
};

SlowestRanks slowest_ranks(const StepStore& steps, std::string_view job_id, StepNumber from_step, StepNumber to_step);

}  // namespace lockstep
