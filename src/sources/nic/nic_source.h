// The network as this node sees it: RDMA ports, interfaces, their switch neighbours, the PCIe path to each GPU, and the
// RDMA connections. Rows: nic_metrics.h.
//
// Events: link.down, link.up (each change, also several between two readings, with their number), link.degraded and
// link.restored (rate, PCIe lanes), nic.lost, nic.appeared. An event names the job whose GPU is next to the adapter,
// and the switch port, where they are known; what an RDMA port tells after its interface has told it is secondary.
//
// Ports and interfaces are looked for on slow ticks. Sockets are opened by open_nic_source(), so that privileges may be
// dropped after it. No LLDP daemon, no vendor tool and no library is needed.
// Thread rule: Confined.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sources/nic/ethtool.h"
#include "sources/nic/infiniband.h"
#include "sources/nic/lldp.h"
#include "sources/nic/netdev.h"
#include "sources/nic/nic_context.h"
#include "sources/nic/pci_path.h"
#include "sources/nic/rdma_netlink.h"
#include "sources/node_source.h"

namespace lockstep {

struct NicSourceOptions {
  std::string root;                 // "" is this machine; else a recorded tree, and nothing is asked of the kernel
  bool virtual_interfaces = false;  // also veth, bridges, bonds that no RDMA device uses
  bool queue_pairs = true;          // list RDMA queue pairs (the driver asks its adapter about each one)
};

class NicSource final : public NodeSource {
 public:
  explicit NicSource(const NicSourceOptions& options);
  NicSource(const NicSource&) = delete;  // its parts refer to each other
  NicSource& operator=(const NicSource&) = delete;

  const char* name() const override { return "nic"; }
  void read(const Tick& tick, NodeReadings& out) override;
  std::vector<SourceCheck> check() override;

  // As of the last slow tick.
  std::vector<RdmaPort> ports() const { return ports_.list(); }
  const LldpNeighbour* neighbour(const std::string& netdev) const { return lldp_.neighbour(netdev); }
  // For tracing the path of a connection. Empty where the kernel does not list them.
  const std::vector<QueuePair>& queue_pairs() const;

 private:
  struct Nic {
    std::string device;  // "mlx5_0", or the interface where there is no RDMA
    std::string port;    // empty then
    std::string netdev;
    std::string link_layer;
    std::string firmware;
    PciDevice pci;
  };
  struct Info {
    Labels labels;
    LabelSet shared;
    std::string address;
    int64_t address_due_ns = INT64_MIN;
  };
  static constexpr int64_t kAddressNs = 60'000'000'000;

  std::vector<Nic> list_nics(const std::vector<Netdevs::Netdev>& netdevs) const;
  void publish_map(const Tick& tick, const std::vector<Netdevs::Netdev>& netdevs, NodeReadings& out);
  const std::string& address_of(const Tick& tick, const Nic& nic);
  void publish_info(const Tick& tick, const Nic& nic, NodeReadings& out);
  void explain(const Tick& tick, NodeEvent& event) const;

  NicSourceOptions options_;
  NicContext context_;
  RdmaPorts ports_;
  Netdevs netdevs_;
  EthtoolMetrics ethtool_;
  LldpListener lldp_;
  PciDevices pci_devices_;
  std::optional<RdmaResources> resources_;
  std::vector<Nic> nics_;
  PciMap pci_map_;
  std::map<std::string, Info> infos_;                // by device and port
  std::map<std::string, LabelSet> distance_labels_;  // by GPU and device
  bool read_before_ = false;
};

std::unique_ptr<NicSource> open_nic_source(const NicSourceOptions& options);

}  // namespace lockstep
