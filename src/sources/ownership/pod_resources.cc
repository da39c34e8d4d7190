#include "sources/ownership/pod_resources.h"

#include "base/characters.h"
#include "base/protobuf_wire.h"
#include "base/text.h"
#include "sources/ownership/process_text.h"

namespace lockstep {
namespace {

using protobuf::kBytes;
using protobuf::tag_of;
using protobuf::WireReader;

bool is_uuid(std::string_view id) {
  return id.starts_with("GPU-") || id.starts_with("MIG-");
}

bool is_pci(std::string_view id) {  // "0000:1b:00.0"
  return id.size() == 12 && id[4] == ':' && id[7] == ':' && id[10] == '.';
}

bool may_be_gpu(std::string_view id) {
  return is_uuid(id) || id.starts_with("nvidia") || is_pci(id);
}

void read_devices(WireReader message, PodDevices& found) {
  while (message.next()) {
    if (message.tag() != tag_of(2, kBytes)) {  // 1 is the resource's name, which is the administrator's choice
      message.skip();
      continue;
    }
    const std::string_view id = message.bytes();
    if (!may_be_gpu(id)) continue;
    if (found.devices.size() >= kPodDevicesMax) {
      ++found.left_out;
      continue;
    }
    found.devices.emplace_back().device = clean_text(id, kPodTextMax);
  }
}

// Fields may come in any order: what a message shares with the devices in it is filled in at its end.
void read_container(WireReader message, PodDevices& found) {
  const size_t first = found.devices.size();
  std::string name;
  while (message.next()) {
    switch (message.tag()) {
      case tag_of(1, kBytes):
        name = clean_text(message.bytes(), kPodTextMax);
        break;
      case tag_of(2, kBytes):
        read_devices(message.message(), found);
        break;
      case tag_of(5, kBytes):
        ++found.claims;
        message.skip();
        break;
      default:
        message.skip();
    }
  }
  for (size_t i = first; i < found.devices.size(); ++i) found.devices[i].container = name;
}

void read_pod(WireReader message, PodDevices& found) {
  const size_t first = found.devices.size();
  std::string name, name_space;
  while (message.next()) {
    switch (message.tag()) {
      case tag_of(1, kBytes):
        name = clean_text(message.bytes(), kPodTextMax);
        break;
      case tag_of(2, kBytes):
        name_space = clean_text(message.bytes(), kPodTextMax);
        break;
      case tag_of(3, kBytes):
        read_container(message.message(), found);
        break;
      default:
        message.skip();
    }
  }
  if (name.empty()) found.devices.resize(first);
  for (size_t i = first; i < found.devices.size(); ++i) {
    found.devices[i].pod = name;
    found.devices[i].pod_namespace = name_space;
  }
}

}  // namespace

Result<PodDevices> parse_pod_resources(std::string_view bytes) {
  if (bytes.size() > kPodResourcesBytesMax)
    return Error{format("pod resources: an answer of %zu bytes (limit %zu)", bytes.size(), kPodResourcesBytesMax)};
  PodDevices found;
  protobuf::WireError error;
  WireReader message(bytes, error);
  while (message.next()) {
    if (message.tag() == tag_of(1, kBytes)) {
      read_pod(message.message(), found);
    } else {
      message.skip();
    }
  }
  if (error.what != nullptr) return Error{format("pod resources: %s", error.what)};
  return found;
}

std::string gpu_of_device(std::string_view device, const std::vector<GpuInfo>& gpus) {
  if (const size_t share = device.find("::"); share != std::string_view::npos) device = device.substr(0, share);
  if (is_uuid(device)) return std::string(device);
  if (is_pci(device)) {
    const std::string pci = lower_case(device);
    for (const GpuInfo& gpu : gpus) {
      if (gpu.parent_uuid.empty() && gpu.pci == pci) return gpu.uuid;
    }
    return "";
  }
  if (!device.starts_with("nvidia")) return "";
  device.remove_prefix(6);
  const auto minor = parse_int(device.substr(0, device.find('/')));
  if (!minor || *minor < 0) return "";
  for (const GpuInfo& gpu : gpus) {  // what follows ("gi1", "vgpu0") names a part of that GPU
    if (gpu.parent_uuid.empty() && (gpu.minor >= 0 ? gpu.minor : gpu.index) == *minor) return gpu.uuid;
  }
  return "";
}

}  // namespace lockstep
