// Where the threads of a simulated rank are, as its agent would have read them: a made-up train.py over PyTorch's own
// files. Ranks that wait for the same collective stand at the same line; the one that they wait for does not.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>

#include "model/rank_evidence.h"
#include "sim/fleet/fleet.h"

namespace lockstep::sim {

RankStack stack_of(const Fleet& fleet, Rank rank, int64_t at_unix_ns);

}  // namespace lockstep::sim
