// Which pod was given which device: the answer of the kubelet's pod-resources service (v1, List).
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sources/gpu/gpu_reader.h"

namespace lockstep {

inline constexpr const char* kPodResourcesMethod = "/v1.PodResourcesLister/List";
inline constexpr size_t kPodResourcesBytesMax = 16u << 20;  // what the kubelet itself sends at most
inline constexpr size_t kPodDevicesMax = 8192;
inline constexpr size_t kPodTextMax = 256;

struct PodDevice {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::string device;  // as the device plugin names it
  bool operator==(const PodDevice&) const = default;
};

struct PodDevices {
  std::vector<PodDevice> devices;  // those that may be GPUs, by the look of their names
  int64_t left_out = 0;            // more than kPodDevicesMax
  int64_t claims = 0;  // devices given through resource claims (DRA): which ones only the API server could tell
};

// From bytes that we did not write. A pod without a name is left out.
Result<PodDevices> parse_pod_resources(std::string_view bytes);

// The GPU of a device id, or "": "GPU-…", "MIG-…", "<uuid>::3" (time slices, MPS), "nvidia0", "nvidia0/gi1",
// "nvidia0/vgpu1" (GKE), a PCI address (AMD). A uuid need not be among `gpus`.
std::string gpu_of_device(std::string_view device, const std::vector<GpuInfo>& gpus);

}  // namespace lockstep
