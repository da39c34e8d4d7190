// Regression: the whole job has become slower, and no rank in particular.
//
// The idea: a step's median times are compared with those of the same job before (its own baseline, of an earlier
// attempt too). Where they rise and stay, the part that rose tells: the wait for input on all ranks is storage; the own
// work on all ranks alike is other code, or fewer clocks for all; communication without anybody late is the fabric. A
// step that was only long once, a checkpoint, or a job that speeds up says nothing.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_regressions(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
