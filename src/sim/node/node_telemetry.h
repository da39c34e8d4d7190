// What the agents of a simulated fleet read of their nodes: metrics of GPUs, adapters, PCIe, hosts and processes under
// the names of docs/guide/node-metrics.md, as an agent sends them, and node events (XIDs, links) as
// docs/formats/events.md has them. Healthy nodes differ a little from each other and from minute to minute; a fault
// moves what it moves on a real node, and what follows from it (a GPU that waits draws less power, a stuck job sends no
// bytes).
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/step.h"
#include "model/telemetry.h"
#include "sim/scenario/scenario.h"

namespace lockstep::sim {

// A fault as it acts on one host in this moment.
struct ActingFault {
  const ScenarioFault* fault = nullptr;
  double amount = 0;  // the severity as it is now: 0 between two pulses
  int32_t gpu = -1;   // local index of the GPU or adapter it acts on; -1: the whole host
  int64_t since_unix_ns = 0;
  double sign = 0;  // before it comes (amount is 0 then): how far its signs have risen, 0 to 1
};

// What the job did on a GPU since the last reading.
struct GpuActivity {
  Identity identity;         // who holds it; empty job: nobody
  double busy = 0;           // share of the time with kernels of the rank itself
  double communicating = 0;  // share of the time in collectives, waiting included
  double input = 0;          // share of the time in which the rank waited for its input
  int64_t sent_bytes = 0;    // through its adapter
  int64_t received_bytes = 0;
  int64_t nvlink_bytes = 0;
};

class NodeTelemetry {
 public:
  // seed: the scenario's, the same for all hosts. daily_heat: by how much clocks are lower in the hottest hour of the
  // day (0.015); temperatures go with it. all_series: everything that an agent reads of such a node (about 220 series
  // for each GPU, 80 for each adapter); false: what tells causes apart (about 70 and 30), for very large fleets.
  NodeTelemetry(std::string host, int32_t host_index, const Topology& topology, uint64_t seed, double daily_heat,
                bool all_series = true);
  ~NodeTelemetry();
  NodeTelemetry(NodeTelemetry&&) noexcept;

  // One reading, every 5 s by default (an agent reads more often and sends what changed): a metrics batch, ready to
  // send. Counters go on from the reading before. Like an agent's it has what changed since it was last told, and
  // everything once in two minutes; what an agent reads every tenth second only, it has as late as that.
  Batch read(int64_t at_unix_ns, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting);
  // How hot the day is, 0 to 1, for a scenario whose days are shorter than ours; without it the time of the reading
  // counts (04:00 UTC is coolest).
  void set_day(double share);
  // Node events since the last call (an XID, a link down, an OOM kill): a logs batch, empty where nothing happened.
  Batch events(int64_t at_unix_ns, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::sim
