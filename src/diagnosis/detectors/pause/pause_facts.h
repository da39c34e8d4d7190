// What one step says of pauses: how long it took, who was late alone in it, who was quiet, which transfers took long.
//
// Thread rule: Confined (what is computed is kept in the step's frame).
#pragma once

#include <cstdint>
#include <vector>

#include "diagnosis/window.h"

namespace lockstep::pause {

// An event takes at least this long: shorter ones are noise.
inline constexpr double kEventMinNs = 20e6;

struct PauseFacts {
  double duration_ns = 0;             // median over the ranks
  std::vector<int64_t> longest_ns;    // of each rank the longest transfer that it sent; sorted
  std::vector<uint32_t> slots;        // by rank, of those whose longest may be one that stood still
  bool aside = false;                 // a rank told of a checkpoint or an evaluation
  Latest quietest;                    // whose process made no call for longest, where that tells anything
  Latest latest;                      // of the ranks' lateness
  const StepFrame* before = nullptr;  // the step before, with so many rows, and
  size_t before_rows = 0;
  int64_t hole_ns = 0;  // the longest time between it and this one on a rank
};
const PauseFacts& facts_in(const JobWindow& window, const StepFrame& frame);

// The median of the longest transfers of all ranks in all of these steps.
double median_longest_ns(const std::vector<const PauseFacts*>& all);

}  // namespace lockstep::pause
