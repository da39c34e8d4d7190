// Every flow between hosts over some steps, beside what it did before: which of them are slow. What a job's flows have
// in common is asked of all of them, fast ones too: those are what clears a switch that every path crosses.
//
// A flow's measure is its own rate before the trouble began; where that is not known, what the faster quarter of flows
// of its size reach. It is slow where it lost at least half as much (in the logarithm) as the slowest one. What two ranks
// exchange over several communicators is one flow: it goes from one adapter to another.
// Thread rule: as the window's.
#pragma once

#include <vector>

#include "diagnosis/window.h"
#include "model/ids.h"

namespace lockstep {

struct SeenFlow {
  Rank from, to;
  double rate = 0;   // bytes a nanosecond: GB/s
  double usual = 0;  // likewise
  bool slow = false;
};

// Whose flows are looked at: those of `ranks`, and of others so many, evenly chosen; of fewer where each has many.
struct FlowSenders {
  const std::vector<Rank>& ranks;
  size_t others_max = 0;
  size_t flows_max = 0;  // half of them for slow ones; what is left out is evenly chosen
};

// steps: in which the trouble is seen; since: the step in which it began. Empty where nothing is slow.
std::vector<SeenFlow> see_flows(const JobWindow& window, const std::vector<StepNumber>& steps, StepNumber since,
                                const FlowSenders& senders);

}  // namespace lockstep
