// Who waited for whom in a step, from what its ranks report of their collectives.
//
// In a barrier-like collective the last to arrive spends the least time, and what the others spend beyond it they waited
// for it: of each communicator its member with the least time is who the others waited for, as in
// analysis/step/step_analysis.h where there is no detail. No rank waits longer than it was in communication at all. What
// is shorter than kWaitShare of the step is noise. Sends and receives have no such rule: a stage that waits for another
// one shows in the groups that its ranks share with others.
// Thread rule: Confined (the window is).
#pragma once

#include <vector>

#include "diagnosis/window.h"
#include "fabric/wait_store.h"

namespace lockstep {

inline constexpr double kWaitShare = 0.02;

// At most one for each rank and communicator.
std::vector<fabric::RankWait> waits_in(const JobWindow& window, const StepFrame& frame);

}  // namespace lockstep
