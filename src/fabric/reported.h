// What agents report of their nodes, as far as the topology needs it: GPUs, adapters, which adapter hangs on which
// switch port (LLDP), how far GPUs and adapters are from each other, at which storage servers they read and write.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/symbol.h"

namespace lockstep::fabric {

struct ReportedGpu {
  Symbol uuid = kNoText;
  Symbol model = kNoText;
  int16_t index = -1;
  int16_t links_up = -1;  // NVLink, XGMI; -1: not reported
  bool operator==(const ReportedGpu&) const = default;
};

// "mlx5_0"; of a second port "mlx5_0/2".
inline std::string adapter_name(std::string_view device, std::string_view port) {
  std::string name(device);
  if (!port.empty() && port != "1") name.append("/").append(port);
  return name;
}

struct ReportedNic {
  Symbol device = kNoText;  // adapter_name()
  Symbol netdev = kNoText;
  Symbol pci = kNoText;
  Symbol gpu = kNoText;  // UUID of the GPU it is for
  Symbol leaf = kNoText, leaf_port = kNoText;
  Symbol address = kNoText;
  uint8_t distance = 0;  // to that GPU, as NCCL numbers it
  bool operator==(const ReportedNic&) const = default;
};

struct ReportedDistance {
  Symbol gpu = kNoText;
  Symbol device = kNoText;
  uint8_t path = 0;
};

// "nfs-1:/data" is the export /data of nfs-1; a file system of Lustre is its name alone.
struct ReportedMount {
  Symbol server = kNoText;
  Symbol exported = kNoText;
  bool operator==(const ReportedMount&) const = default;
};

struct ReportedHost {
  Symbol name = kNoText;  // kNoText: nobody's place
  int64_t first_seen_unix_ns = 0;
  int64_t last_seen_unix_ns = 0;
  std::vector<ReportedGpu> gpus;
  std::vector<ReportedNic> nics;
  std::vector<ReportedDistance> distances;
  std::vector<ReportedMount> mounts;
};

struct ReportedHosts {
  TextTable texts;
  std::vector<ReportedHost> hosts;
};

}  // namespace lockstep::fabric
