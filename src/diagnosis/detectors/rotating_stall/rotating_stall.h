// Turns: in most steps one rank stalls on its host and everybody waits for it, but it is another one each time.
//
// The idea: a pause now and then is part of any job. Where every rank has its own at its own time, as with Python's
// garbage collection, a large job waits for somebody in nearly every step, and no rank is to blame. So the finding
// names nobody; it says what the turns cost together, and that collecting on all ranks in the same step would cost it
// once. A stall that keeps the GPU at work, or waits for input, is not of this kind.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_rotating_stall(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
