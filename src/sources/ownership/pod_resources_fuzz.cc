// Whatever is accepted keeps to the limits that the header promises.
#include <cstdlib>

#include "base/text.h"
#include "sources/ownership/pod_resources.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const Result<PodDevices> found = parse_pod_resources({reinterpret_cast<const char*>(data), size});
  if (!found.ok()) {
    check(!found.error().empty() && !has_control_characters(found.error()));
    return 0;
  }
  std::vector<GpuInfo> gpus(1);
  gpus[0] = {.uuid = "GPU-a", .index = 0, .pci = "0000:1b:00.0", .minor = 0};
  check(found->devices.size() <= kPodDevicesMax && found->left_out >= 0 && found->claims >= 0);
  for (const PodDevice& device : found->devices) {
    check(!device.pod.empty());
    for (const std::string* text : {&device.pod, &device.pod_namespace, &device.container, &device.device})
      check(text->size() <= kPodTextMax && !has_control_characters(*text));
    check(gpu_of_device(device.device, gpus).size() <= kPodTextMax);
  }
  return 0;
}
