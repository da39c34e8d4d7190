// A GPU of this node, who uses it, and what its driver reported: what sources/gpu reads and other sources attribute to.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct GpuInfo {
  std::string uuid;  // "GPU-…"; of a MIG instance "MIG-…"
  int32_t index = -1;
  std::string vendor;  // "nvidia", "amd"
  std::string model;
  std::string pci;  // "0000:1b:00.0", lower case, with the function
  std::string serial;
  std::string driver;
  int32_t minor = -1;       // /dev/nvidiaN
  std::string parent_uuid;  // of a MIG instance: its GPU; else empty
  bool operator==(const GpuInfo&) const = default;
};

struct GpuProcess {
  int32_t pid = 0;  // as this pid namespace numbers it
  std::string gpu_uuid;
  uint64_t memory_bytes = 0;
  bool operator==(const GpuProcess&) const = default;
};

// What the driver itself told: an XID, a GPU that went away, a recovery action that changed.
struct GpuEvent {
  std::string gpu_uuid;
  std::string kind;  // "xid", "lost", "appeared", "recovery_action", "mig_changed"
  int64_t code = 0;  // XID number, recovery action
  int64_t unix_ns = 0;
  bool operator==(const GpuEvent&) const = default;
};

}  // namespace lockstep
