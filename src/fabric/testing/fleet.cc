#include "fabric/testing/fleet.h"

#include "base/text.h"

namespace lockstep::fabric {

std::string fleet_host(int32_t host) {
  return format("node-%04d", host);
}

std::string fleet_gpu(int32_t host, int32_t gpu) {
  return format("GPU-%08x-0000-4000-8000-%012x", static_cast<unsigned>(host), static_cast<unsigned>(gpu));
}

int32_t fleet_leaf(const FleetShape& shape, int32_t host, int32_t rail) {
  return host / shape.hosts_per_pod * shape.gpus_per_host + rail;
}

std::vector<MetricPoint> fleet_points(const FleetShape& shape, int32_t host) {
  std::vector<MetricPoint> points;
  auto add = [&](const char* name, Attributes attributes, double value) {
    MetricPoint& point = points.emplace_back();
    point.name = name;
    point.attributes = std::move(attributes);
    point.value = value;
  };
  for (int32_t gpu = 0; gpu < shape.gpus_per_host; ++gpu)
    add("lockstep_gpu_info",
        {{"gpu_uuid", fleet_gpu(host, gpu)}, {"index", std::to_string(gpu)}, {"model", "NVIDIA H200"}}, 1);
  for (int32_t gpu = 0; gpu < shape.gpus_per_host; ++gpu)
    add("lockstep_gpu_links_up", {{"gpu_uuid", fleet_gpu(host, gpu)}}, 18);
  for (int32_t rail = 0; rail < shape.gpus_per_host; ++rail)
    add("lockstep_nic_info",
        {{"device", format("mlx5_%d", rail)},
         {"port", "1"},
         {"netdev", format("ens%dnp0", 10 + rail)},
         {"pci", format("0000:%02x:00.0", static_cast<unsigned>(0x17 + rail))},
         {"gpu_uuid", fleet_gpu(host, rail)},
         {"distance", "PIX"},
         {"leaf", format("leaf-%d", fleet_leaf(shape, host, rail))},
         {"leaf_port", format("Ethernet1/%d", host % shape.hosts_per_pod + 1)}},
        1);
  return points;
}

Declared fleet_switches(const FleetShape& shape) {
  Declared declared;
  for (int32_t leaf = 0; leaf < shape.leaves(); ++leaf)
    declared.nodes.push_back({.name = format("leaf-%d", leaf), .kind = NodeKind::kLeaf});
  for (int32_t spine = 0; spine < shape.spines; ++spine)
    declared.nodes.push_back({.name = format("spine-%d", spine), .kind = NodeKind::kSpine});
  for (int32_t leaf = 0; leaf < shape.leaves(); ++leaf)
    for (int32_t spine = leaf % shape.planes; spine < shape.spines; spine += shape.planes)
      for (int32_t link = 0; link < shape.links_per_spine; ++link)
        declared.links.push_back({{format("leaf-%d", leaf), format("up%d", spine * shape.links_per_spine + link)},
                                  {format("spine-%d", spine), format("down%d", leaf * shape.links_per_spine + link)},
                                  400});
  return declared;
}

}  // namespace lockstep::fabric
