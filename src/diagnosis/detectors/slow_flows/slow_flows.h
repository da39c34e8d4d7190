// Slow flows: of the many flows of a large job, those that move data slower than their like, and what they have in common.
//
// The idea: flows that carry about as much are comparable, and where there are many the spread of their rates tells
// what is unusual, so that a fifth less shows. The slow ones vote: all flows of one rank blame its adapter or link,
// those of one host its host, those of many hosts the switches between them. Where no flow is slow, and one rank takes far
// longer than all others to hand on what has arrived, it is that rank's CPU: who sends to it waits, and no wire is slow. Jobs with few flows are slow_link's: there
// chance makes differences that no statistics tells from a fault.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

// So many ranks make a job large enough for this detector, and too large for slow_link's.
inline constexpr size_t kSlowFlowsRanksMin = 32;

std::vector<Finding> find_slow_flows_of_large_jobs(const JobWindow& window,
                                                   const std::vector<AttributedRange>& explained);
// These, and the slow groups of jobs of any size (slow_groups.h).
std::vector<Finding> find_slow_flows_and_groups(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
