// Where PCI devices hang, from the folders of sysfs: how far a GPU is from a network adapter, and how its link stands.
//
// A device's folder is the path of bridges above it:
//   /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0
//                host bridge  root port   switch: upstream, downstream   device
// Two devices under the same lowest switch are PIX; with several switches between them but no host bridge, PXB; under
// the same host bridge, PHB; under other host bridges of one NUMA node, NODE; otherwise SYS. A virtual machine often
// shows a flat tree: then only NUMA nodes can tell devices apart.
//
// Thread rule: Confined (PciDevices), Thread-safe (functions).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sources/nic/nic_context.h"

namespace lockstep {

enum class PciDistance : uint8_t { kPix, kPxb, kPhb, kNode, kSys };  // rows of kPciePaths
const char* to_text(PciDistance distance);                           // "PIX", …
// NCCL's number of such a path.
int nccl_path_number(PciDistance distance);  // 4, 5, 8, 8, 9

struct PciDevice {
  std::string address;             // "0000:18:00.0", lower case
  std::vector<std::string> chain;  // from the host bridge down to the device itself
  int numa_node = -1;              // -1: not known
  bool operator==(const PciDevice&) const = default;
};

// "0000:18:00.0" with four or more digits of domain.
bool is_pci_address(std::string_view text);
// The resolved folder of a device, or of something below it (".../0000:00:03.0/virtio2"). Empty chain: no PCI device.
PciDevice pci_device_from_path(std::string_view resolved_path);
// Follows `link` ("…/class/infiniband/mlx5_0/device"); reads the NUMA node.
PciDevice pci_device_at(const std::string& link);
PciDistance pci_distance(const PciDevice& a, const PciDevice& b);

// "32.0 GT/s PCIe" is 32e9; "Unknown" and the like: nullopt.
std::optional<double> parse_link_speed(std::string_view text);
// The last line "TOTAL_ERR_COR 12" of an AER file; older kernels have no such line: the sum of all lines.
std::optional<uint64_t> parse_aer_total(std::string_view text);

// Which network adapters are near which GPUs. Both sides in the order of their PCI addresses.
struct NearDevices {
  PciDistance distance = PciDistance::kSys;
  std::vector<std::string> names;  // all at that distance; empty where every one is SYS
};
struct PciMap {
  struct Distance {
    std::string gpu_uuid;
    std::string device;
    PciDistance distance;
  };
  std::vector<Distance> distances;
  std::map<std::string, NearDevices> gpus_of_nic;  // by device
  std::map<std::string, NearDevices> nics_of_gpu;  // by uuid
  // The one GPU to name for an adapter: where as many GPUs as adapters hang on a switch, each has its own. By device.
  std::map<std::string, std::string> gpu_of_nic;
};
struct NamedPciDevice {
  std::string name;  // GPU uuid, or the adapter's device
  PciDevice pci;
};
PciMap map_pci(std::vector<NamedPciDevice> gpus, std::vector<NamedPciDevice> nics);

// Link and error counters of some devices, read on slow ticks.
class PciDevices {
 public:
  explicit PciDevices(NicContext& context) : context_(context) {}
  // Publishes the links; an event when a link has fewer lanes than before.
  void read(const Tick& tick, const std::vector<PciDevice>& devices, NodeReadings& out);

 private:
  struct Known {
    LabelSet labels;
    LabelSet aer[3];
    int64_t width = 0;
  };

  Known& known_of(const PciDevice& device);
  void read_link(const Tick& tick, const PciDevice& device, const std::string& folder, Known& known, NodeReadings& out);

  NicContext& context_;
  std::map<std::string, Known> known_;
};

}  // namespace lockstep
