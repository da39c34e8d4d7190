// Slow groups: groups whose members share a host, and whose transfers take longer than those of groups alike, though
// nobody in them arrives late: that blames the NVLinks of the host.
//
// The idea: the last to arrive in a collective waits for nobody, so that the least time that any member spends there is
// the transfer's. In each step groups that move about as much are compared with each other; how these differ tells what
// is unusual, and steps add up to evidence (sequential/new_level.h).
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_slow_groups(const JobWindow& window, const std::vector<AttributedRange>& explained);

// Amounts of one class differ by a factor of 1.4 at most, and are compared.
int bytes_class(double bytes);

}  // namespace lockstep
