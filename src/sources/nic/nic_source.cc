#include "sources/nic/nic_source.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "sources/nic/nic_address.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep {

NicSource::NicSource(const NicSourceOptions& options)
    : options_(options),
      context_(options.root),
      ports_(context_),
      netdevs_(context_, options.virtual_interfaces),
      ethtool_(context_, options.root.empty() ? kernel_ethtool() : recorded_ethtool(options.root),
               options.root.empty() ? std::make_unique<EthtoolNetlink>() : nullptr),
      lldp_(context_),
      pci_devices_(context_) {
  if (options.root.empty() && options.queue_pairs) resources_.emplace();
}

const std::vector<QueuePair>& NicSource::queue_pairs() const {
  static const std::vector<QueuePair> kNone;
  return resources_ ? resources_->queue_pairs() : kNone;
}

void NicSource::read(const Tick& tick, NodeReadings& out) {
  Tick now = tick;
  now.slow |= !read_before_;  // the first one finds what there is
  read_before_ = true;
  const size_t events_before = out.events.size();

  if (now.slow) {
    ports_.rescan(now, out);
    std::vector<std::string> used_by_rdma;
    for (const RdmaPort& port : ports_.list()) {
      if (!port.netdev.empty()) used_by_rdma.push_back(port.netdev);
    }
    netdevs_.rescan(now, used_by_rdma, out);
  }
  // Interfaces first: a port's own event then knows that its interface has told the same.
  netdevs_.read(now, out);
  ports_.read(now, netdevs_, out);
  const std::vector<Netdevs::Netdev> netdevs = netdevs_.list();
  ethtool_.read(now, netdevs, out);
  if (now.slow) lldp_.join(netdevs);
  lldp_.read(now, netdevs, out);
  if (resources_) resources_->read(now, out);
  if (now.slow) publish_map(now, netdevs, out);

  for (size_t i = events_before; i < out.events.size(); ++i) explain(now, out.events[i]);
}

std::vector<NicSource::Nic> NicSource::list_nics(const std::vector<Netdevs::Netdev>& netdevs) const {
  std::vector<Nic> nics;
  std::set<std::string> of_rdma;
  for (const RdmaPort& port : ports_.list()) {
    of_rdma.insert(port.netdev);
    nics.push_back({port.device, std::to_string(port.port), port.netdev, port.link_layer, port.firmware, port.pci});
  }
  for (const Netdevs::Netdev& netdev : netdevs) {
    if (of_rdma.contains(netdev.name) || netdev.pci.chain.empty()) continue;
    nics.push_back({netdev.name, "", netdev.name, "Ethernet", "", netdev.pci});
  }
  return nics;
}

// Read seldom: it is some 16 files of a port, and changes when somebody configures the network.
const std::string& NicSource::address_of(const Tick& tick, const Nic& nic) {
  Info& info = infos_[nic.device + "/" + nic.port];
  if (tick.monotonic_ns < info.address_due_ns) return info.address;
  info.address_due_ns = tick.monotonic_ns + kAddressNs;
  info.address = nic.port.empty() ? "" : rdma_port_address(context_.root, nic.device, nic.port);
  if (info.address.empty() && context_.root.empty() && nic.link_layer != "InfiniBand")
    info.address = interface_address(nic.netdev);
  return info.address;
}

void NicSource::publish_info(const Tick& tick, const Nic& nic, NodeReadings& out) {
  auto gpu = pci_map_.gpu_of_nic.find(nic.device);
  auto near = pci_map_.gpus_of_nic.find(nic.device);
  const LldpNeighbour* neighbour = lldp_.neighbour(nic.netdev);
  const bool has_gpu = gpu != pci_map_.gpu_of_nic.end() && near != pci_map_.gpus_of_nic.end();
  Labels labels{{"device", nic.device},
                {"port", nic.port},
                {"netdev", nic.netdev},
                {"pci", nic.pci.address},
                {"link_layer", nic.link_layer},
                {"firmware", nic.firmware},
                {"numa_node", nic.pci.numa_node < 0 ? "" : std::to_string(nic.pci.numa_node)},
                {"gpu_uuid", has_gpu ? gpu->second : ""},
                {"distance", has_gpu ? to_text(near->second.distance) : ""},
                {"leaf", neighbour ? neighbour->leaf() : ""},
                {"leaf_port", neighbour ? neighbour->leaf_port() : ""},
                {"address", address_of(tick, nic)}};
  Info& info = infos_[nic.device + "/" + nic.port];
  if (!info.shared || info.labels != labels) {
    info.shared = std::make_shared<const Labels>(labels);
    info.labels = std::move(labels);
  }
  out.add(nic_metric("lockstep_nic_info"), info.shared, 1);
}

void NicSource::publish_map(const Tick& tick, const std::vector<Netdevs::Netdev>& netdevs, NodeReadings& out) {
  nics_ = list_nics(netdevs);
  std::vector<NamedPciDevice> gpus;
  if (tick.owners) {
    for (const GpuInfo& gpu : tick.owners->gpus) {
      if (!gpu.parent_uuid.empty()) continue;  // a part of a GPU hangs where the GPU does
      gpus.push_back({gpu.uuid, pci_device_at(context_.root + "/sys/bus/pci/devices/" + gpu.pci)});
    }
  }
  std::vector<NamedPciDevice> adapters;
  std::vector<PciDevice> devices;
  std::set<std::string> seen;
  for (const Nic& nic : nics_) {
    if (!seen.insert(nic.device).second) continue;  // two ports, one adapter
    adapters.push_back({nic.device, nic.pci});
    if (!nic.pci.chain.empty()) devices.push_back(nic.pci);
  }
  for (const NamedPciDevice& gpu : gpus) {
    if (!gpu.pci.chain.empty()) devices.push_back(gpu.pci);
  }
  pci_map_ = map_pci(std::move(gpus), std::move(adapters));

  std::set<std::string> keys;
  for (const PciMap::Distance& distance : pci_map_.distances) {
    const std::string key = distance.gpu_uuid + " " + distance.device;
    keys.insert(key);
    LabelSet& labels = distance_labels_[key];
    if (!labels) {
      labels = std::make_shared<const Labels>(Labels{{"gpu_uuid", distance.gpu_uuid}, {"device", distance.device}});
    }
    out.add(nic_metric("lockstep_gpu_nic_distance"), labels, nccl_path_number(distance.distance));
  }
  std::erase_if(distance_labels_, [&](const auto& entry) { return !keys.contains(entry.first); });
  std::erase_if(infos_, [&](const auto& entry) {
    return std::none_of(nics_.begin(), nics_.end(),
                        [&](const Nic& nic) { return nic.device + "/" + nic.port == entry.first; });
  });
  for (const Nic& nic : nics_) publish_info(tick, nic, out);
  pci_devices_.read(tick, devices, out);
}

void NicSource::explain(const Tick& tick, NodeEvent& event) const {
  for (const Nic& nic : nics_) {
    if (event.device != nic.device + "/" + nic.port && event.device != nic.netdev && event.device != nic.pci.address) {
      continue;
    }
    if (const LldpNeighbour* neighbour = lldp_.neighbour(nic.netdev); neighbour && event.device != nic.pci.address) {
      event.text += " (connected to " + neighbour->leaf() + " port " + neighbour->leaf_port() + ")";
    }
    auto near = pci_map_.gpus_of_nic.find(nic.device);
    auto gpu = pci_map_.gpu_of_nic.find(nic.device);
    // Further away, the adapter serves any GPU: it says nothing of whose traffic it carries.
    if (!tick.owners || near == pci_map_.gpus_of_nic.end() || gpu == pci_map_.gpu_of_nic.end()) return;
    if (near->second.distance > PciDistance::kPxb) return;
    if (const Owner* owner = tick.owners->of_gpu(gpu->second)) {
      event.job_id = owner->job_id;
      event.rank = owner->rank;
    }
    return;
  }
}

std::vector<SourceCheck> NicSource::check() {
  std::vector<SourceCheck> checks;
  auto add = [&](const char* what, bool works, std::string found, std::string todo) {
    checks.push_back({what, works, std::move(found), works ? std::string() : std::move(todo)});
  };

  // Parts of its own, so that a look does not count as a reading.
  NicContext context(options_.root);
  NodeReadings scratch;
  RdmaPorts ports(context);
  ports.rescan({}, scratch);
  std::vector<std::string> used_by_rdma;
  for (const RdmaPort& port : ports.list()) used_by_rdma.push_back(port.netdev);
  Netdevs netdevs(context, options_.virtual_interfaces);
  netdevs.rescan({}, used_by_rdma, scratch);
  const std::vector<Netdevs::Netdev> interfaces = netdevs.list();

  const std::string rdma_folder = options_.root + "/sys/class/infiniband";
  add("RDMA ports", !ports.list().empty(),
      ports.list().empty() ? rdma_folder + ": no devices" : format("%zu ports", ports.list().size()),
      "if this node has RDMA adapters: load their driver (mlx5_ib, bnxt_re, irdma, efa); in a container, run in the "
      "host's network namespace with the host's /sys");
  add("network interfaces", !interfaces.empty(),
      interfaces.empty() ? options_.root + "/sys/class/net: none of a device"
                         : format("%zu interfaces", interfaces.size()),
      "run the agent in the host's network namespace (hostNetwork: true)");

  const std::unique_ptr<EthtoolStatistics> statistics =
      options_.root.empty() ? kernel_ethtool() : recorded_ethtool(options_.root);
  size_t with_statistics = 0;
  std::string why = "no interface offers statistics";
  for (const Netdevs::Netdev& netdev : interfaces) {
    Result<std::vector<std::string>> names = statistics->names(netdev.name);
    if (!names) why = names.error();
    with_statistics += names && !names->empty();
  }
  add("ethtool statistics", with_statistics > 0 || interfaces.empty(),
      with_statistics > 0 ? format("%zu of %zu interfaces", with_statistics, interfaces.size()) : why,
      "pauses, drops and error correction of these interfaces are not reported by their driver");

  if (options_.root.empty()) {
    add("LLDP neighbours", lldp_.why_not().empty(),
        lldp_.why_not().empty() ? format("listening; %zu neighbours so far", lldp_.neighbours()) : lldp_.why_not(),
        "run the agent with CAP_NET_RAW; without it the switch ports of this node are not known");
    const std::string why_not = resources_ ? resources_->why_not() : "switched off";
    add("RDMA queue pairs", why_not.empty(), why_not.empty() ? "netlink answers" : why_not,
        ports.list().empty() ? "needs an RDMA adapter and its driver"
                             : "needs a kernel with RDMA netlink (4.17 or newer)");
  }
  bool has_pci = std::any_of(interfaces.begin(), interfaces.end(),
                             [](const Netdevs::Netdev& netdev) { return !netdev.pci.chain.empty(); });
  for (const RdmaPort& port : ports.list()) has_pci |= !port.pci.chain.empty();
  add("PCIe paths", has_pci, has_pci ? "adapters have PCI addresses" : "no adapter has a PCI address",
      "distances between GPUs and adapters are not known; in a container, mount the host's /sys");
  return checks;
}

std::unique_ptr<NicSource> open_nic_source(const NicSourceOptions& options) {
  return std::make_unique<NicSource>(options);
}

}  // namespace lockstep
