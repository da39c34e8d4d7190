// Who is whose peer: ranks that do the same operations in a step, so that their own times may be compared.
//
// Ranks of one role are in communicators of the same sizes with the same number of operations and (within about 20 %)
// bytes of collectives; and at the same place of groups that send point to point, which is the pipeline stage, where
// that leaves enough of them. Bytes of sends do not count: they follow the routing and the length of sequences.
// Where peers tell different tokens, or exchange different bytes, and their own times follow, that part of a rank's
// time is its work and not its lateness: packed sequences and routed experts are no fault of a GPU.
//
// Thread rule: Confined (what is computed is kept in the frame).
#pragma once

#include <map>

#include "diagnosis/window.h"

namespace lockstep {

const StepLateness& lateness(const JobWindow& window, const StepFrame& frame);
// The same for few ranks: by rank. Empty where the step says nothing.
std::map<int32_t, double> lateness(const JobWindow& window, const RankRows& rows);

}  // namespace lockstep
