// A fleet as its agents report it and a file declares it: hosts with eight GPUs, an adapter each on its own rail, leaves
// of a pod by rail, spines above all of them. Host i is "node-i" (four digits), leaf l "leaf-l", spine s "spine-s".
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/topology_file.h"
#include "model/telemetry.h"

namespace lockstep::fabric {

struct FleetShape {
  int32_t hosts = 4;
  int32_t gpus_per_host = 8;
  int32_t hosts_per_pod = 2;
  int32_t spines = 4;
  int32_t links_per_spine = 1;  // of each leaf
  int32_t planes = 1;  // a leaf meets the spines of its plane alone: leaf l and spine s where both leave the same rest
  int32_t leaves() const { return (hosts + hosts_per_pod - 1) / hosts_per_pod * gpus_per_host; }
};

std::string fleet_host(int32_t host);
std::string fleet_gpu(int32_t host, int32_t gpu);
int32_t fleet_leaf(const FleetShape& shape, int32_t host, int32_t rail);
// What the agent of a host sends of it.
std::vector<MetricPoint> fleet_points(const FleetShape& shape, int32_t host);
// The links between switches alone: that of adapters is what LLDP says.
Declared fleet_switches(const FleetShape& shape);

}  // namespace lockstep::fabric
