// The nodes under a job that is played live (fleet/player.h): what their agents would read of them while it runs, and
// what a fault of the job shows there. A slow GPU is held back for heat, a late input is a loader that is short of CPU,
// a slow link is a bad adapter; a rank that stays away shows nothing but who works and who waits.
//
// Every node is read once a second, as an agent does, the nodes one after the other.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/telemetry.h"
#include "sim/fleet/fault.h"
#include "sim/fleet/fleet.h"
#include "sim/node/node_telemetry.h"

namespace lockstep::sim {

class JobNodes {
 public:
  static constexpr int64_t kReadEveryNs = 1'000'000'000;

  explicit JobNodes(const JobShape& shape);

  // What the agents send by this time of the job; empty batches are left out. The fleet is that of the shape, or of its
  // next attempt: counters go on.
  std::vector<Batch> due(const Fleet& fleet, std::span<const Fault> active, int64_t at_unix_ns);

 private:
  struct Node {
    int32_t local = 0;  // which host of the job
    NodeTelemetry telemetry;
    int64_t due_ns = 0;
    int64_t read_ns = 0;
  };
  struct Acting {
    Fault from;
    ScenarioFault fault;
    double amount = 0;
    int64_t since_ns = 0;
  };

  void follow(std::span<const Fault> active, int64_t at_unix_ns);
  void read(Node& node, const Fleet& fleet, int64_t at_unix_ns, std::vector<Batch>& out);

  const JobShape shape_;
  std::vector<Node> nodes_;
  std::vector<Acting> acting_;
};

// What a fault of a live job is on its node; kNone where a node shows nothing of it.
Cause cause_on_node(FaultKind kind);

}  // namespace lockstep::sim
