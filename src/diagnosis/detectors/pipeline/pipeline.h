// Pipeline: the rank whose data all its neighbours wait for, while it waits for none of theirs.
//
// The idea: where each stage of a pipeline is one rank, nobody has an equal to be compared with. Stages differ by their
// work, and what a stage waits for the one behind it is not always seen as communication. But every transfer says how
// long its receiver was ready and had nothing. In a healthy pipeline everybody waits a little for both neighbours. If
// one rank is slow, all before it wait for what comes back, and all behind it for what comes on, and it alone waits for
// nobody. That holds from the first step on, without any history.
// What it was before tells what it costs and whether its GPU, its input or its host has become slow. A rank that was so
// from the first step on has more work, or a slower GPU: the steps cannot tell these two apart.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_slow_stages(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
