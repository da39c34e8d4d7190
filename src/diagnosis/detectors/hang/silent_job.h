// A hang that no communicator shows: a job over gloo or MPI, or one whose plugin is off. Its ranks share a pace all the
// same: they begin a step together and end it together. Where every rank has been silent for longer than any step of
// this job took, inside a step, it stands still; who holds it up is told by the processes (one is gone or stopped) or
// by who has not come as far as the others.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <optional>

#include "diagnosis/detectors/hang/hang.h"

namespace lockstep {

// Nothing as well where a rank is in a communicator: then find_hang() knows more.
std::optional<Finding> find_silent_job(const JobWindow& window, const HangInput& input);

}  // namespace lockstep
