// All ranks of a profile as one Perfetto trace on the common time axis: a process per rank, a track per stream and per
// host thread, and arrows between the parts of a collective.
//
// Written piece by piece: what a rank has is in its columns already, and only a megabyte of the file is held.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/result.h"
#include "profile/analysis.h"

namespace lockstep::profile {

struct PerfettoCounts {
  uint64_t bytes = 0;
  uint64_t slices = 0;
  uint64_t arrows = 0;
};

// sink: takes the file in pieces; its failure ends the writing. A .pftrace file.
Result<PerfettoCounts> write_perfetto(const ProfileAnalysis& analysis,
                                      const std::function<Result<void>(std::string_view)>& sink);

}  // namespace lockstep::profile
