// A straggler that comes and goes: late alone in some steps and in others not.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep::straggler {

// A rank, or a host, that is late by more than the limit again and again, while nobody else is.
std::vector<Finding> find_recurring(const JobWindow& window, double limit,
                                    const std::vector<AttributedRange>& explained);

}  // namespace lockstep::straggler
