// Processes that the agent found stopped again and again: by SIGSTOP, a debugger, the freezer.
//
// Where ranks are close to each other (tensor parallel, a short pipeline), everybody stands still within milliseconds of
// the one that is stopped, and nothing that is measured inside the ranks tells who began. From outside it is plain: a
// training process that is well is never in that state, so that no model of noise is needed.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_seen_stopped(const JobWindow& window);

}  // namespace lockstep
