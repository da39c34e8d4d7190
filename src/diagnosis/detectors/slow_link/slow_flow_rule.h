// Which flows are slow, and whom they accuse.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <vector>

#include "diagnosis/detectors/slow_link/flow_rates.h"
#include "diagnosis/detectors/slow_link/starved_proxy.h"
#include "diagnosis/window.h"

namespace lockstep::slow_link {

struct SlowFlow {
  Flow flow;
  double peers_rate = 0;
  bool hidden =
      false;  // little of it shows on the wire: the rest is in the system's buffers, or short waits in a chain
};
std::vector<SlowFlow> slow_flows_in(const JobWindow& window, const ComparedSteps& compared,
                                    const std::vector<Flow>& flows);

// Slow flows that have an end in common.
struct BlamedEnd {
  Rank rank = kNoRank;
  Rank partner = kNoRank;  // these two are slow to each other and to nobody else: one of them, which cannot be told
  bool receiving = false;  // the flows go into the rank
  std::vector<SlowFlow> flows;
};
std::vector<BlamedEnd> blamed_ends(const std::vector<SlowFlow>& slow, const Handlings& handlings);

// What the flows of one end say together.
struct SlowEnd {
  BlamedEnd end;
  SlowFlow worst;  // that is on the wire for longest
  StepNumber since;
  double saved_ns = 0;  // of a step, were they like their peers
  double nats = 0;      // how sure that is
  size_t steps_seen = 0;
};
// Those that are slow beyond chance and cost something. `measured`: all flows over all the steps that are remembered.
std::vector<SlowEnd> slow_ends(const JobWindow& window, const ComparedSteps& compared,
                               const std::vector<SlowFlow>& slow, std::vector<BlamedEnd> ends,
                               const std::vector<Flow>& measured);

}  // namespace lockstep::slow_link
