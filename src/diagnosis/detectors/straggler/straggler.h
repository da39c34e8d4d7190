// Straggler: a rank whose own work takes longer than its peers', so that everybody waits for it in the next collective.
//
// The idea: in a barrier-like collective the last to arrive spends the least time. So a rank's own time in a step (the
// step minus the union of its communication on the GPU) is long exactly where the delay is made, and nowhere else,
// across any mix of tensor, pipeline and data parallel groups and without any clock. Waiting is not guilt: waiting is
// communication time and cancels out.
// Peers are ranks of the same role (diagnosis/roles.h). Where a third of a role is slow together it is the shape of the
// work (stage imbalance), not a culprit.
//
// Measured in late_ranks.h, decided in culprits.h, worded in straggler_phrasing.h and, why it is late, in own_time.h; who
// comes and goes in recurring.h.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

// Persistent: late in most of the last steps.
std::vector<Finding> find_stragglers(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
