// Pauses: a rank that is healthy in most steps but now and then stops for a while and stops everybody with it.
//
// The idea: collect single events, each a sizeable part of a step: a rank that was late alone, or a transfer that stood
// still far longer than transfers of this job ever do. A paused process neither sends nor receives, so transfers on
// both sides of it stand; a flapping link stops one pair only. One rank that keeps having a part in the events is the
// culprit; events with changing actors (packing, garbage collection, noise) accuse nobody. A long unbroken stretch of
// lateness is one event, not many: steady slowness is the straggler detector's business, and warm-up is nobody's.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_pauses(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
