// The kubelet's answer, made by hand, for tests.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "base/protobuf_wire.h"

namespace lockstep::testing {

struct TestPod {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::vector<std::string> devices;
};

inline std::string pod_answer(const std::vector<TestPod>& pods) {
  std::string bytes;
  protobuf::WireWriter writer(bytes);
  for (const TestPod& pod : pods) {
    const size_t pod_at = writer.begin(1);
    writer.bytes(1, pod.pod);
    writer.bytes(2, pod.pod_namespace);
    const size_t container_at = writer.begin(3);
    writer.bytes(1, pod.container);
    const size_t devices_at = writer.begin(2);
    writer.bytes(1, "nvidia.com/gpu");
    for (const std::string& device : pod.devices) writer.bytes(2, device);
    writer.end(devices_at);
    writer.end(container_at);
    writer.end(pod_at);
  }
  return bytes;
}

}  // namespace lockstep::testing
