// Loss: the job computes nonsense, and the rank at which it began.
//
// The idea: a loss or gradient norm that is not finite is wrong from then on, on every rank, because gradients are
// reduced. Before the reduction it is wrong on one rank only: where ranks tell their own gradient norm
// ("grad_norm_local", or any scalar whose name ends in "_local"), the first that is not finite is the source. A jump to
// a multiple of what is usual is suspected, never more.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_bad_loss(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
