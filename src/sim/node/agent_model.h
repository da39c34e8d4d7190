// What the agent of a simulated node would take of it: made up, by what a real one was measured to take (bench/results/node.md and
// node-wire.md; of ranks h200.md). So a simulated fleet says what it costs to be watched.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>

#include "sim/node/node_series.h"
#include "sim/node/noise.h"

namespace lockstep::sim {

class AgentModel {
 public:
  explicit AgentModel(uint64_t seed);

  // ranks: that it follows.
  void advance(double seconds, double ranks);
  void put(NodeReadout& out) const;

 private:
  Noise noise_;
  double cpu_seconds_, memory_bytes_, sent_bytes_;
};

}  // namespace lockstep::sim
