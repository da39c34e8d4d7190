// Checkpoint: the job's checkpoints take longer than they used to.
//
// The idea: a checkpoint is no fault, so detectors set its time aside; but it has a usual length of its own. What the
// job's first checkpoints took is the measure (StepFacts keeps the longest of each step and whose it was). Where one
// rank's is much longer than the others', it is that rank's; else it is the storage that all write to.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_long_checkpoints(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
