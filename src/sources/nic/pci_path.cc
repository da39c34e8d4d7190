#include "sources/nic/pci_path.h"

#include <limits.h>
#include <stdlib.h>

#include <algorithm>
#include <set>

#include "base/characters.h"
#include "base/text.h"
#include "model/pcie_path.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep {

namespace {

bool is_hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

// "pci0000:15"
bool is_host_bridge(std::string_view text) {
  if (!text.starts_with("pci")) return false;
  text.remove_prefix(3);
  size_t colon = text.find(':');
  return colon != std::string_view::npos && colon >= 4 && is_hex(text.substr(0, colon)) &&
         is_hex(text.substr(colon + 1));
}

NearDevices nearest(const std::vector<NamedPciDevice>& candidates, const PciDevice& from) {
  NearDevices near;
  for (const NamedPciDevice& candidate : candidates) {
    PciDistance distance = pci_distance(candidate.pci, from);
    if (distance == PciDistance::kSys || distance > near.distance) continue;
    if (distance < near.distance) near.names.clear();
    near.distance = distance;
    near.names.push_back(candidate.name);
  }
  return near;
}

}  // namespace

const char* to_text(PciDistance distance) {
  return kPciePaths[static_cast<size_t>(distance)].name;
}

int nccl_path_number(PciDistance distance) {
  return kPciePaths[static_cast<size_t>(distance)].nccl_number;
}

bool is_pci_address(std::string_view text) {
  size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon < 4 || text.size() != colon + 8) return false;
  return is_hex(text.substr(0, colon)) && is_hex(text.substr(colon + 1, 2)) && text[colon + 3] == ':' &&
         is_hex(text.substr(colon + 4, 2)) && text[colon + 6] == '.' && is_hex(text.substr(colon + 7, 1));
}

PciDevice pci_device_from_path(std::string_view resolved_path) {
  PciDevice device;
  for (std::string_view part : split(resolved_path, '/')) {
    if (device.chain.empty()) {
      if (is_host_bridge(part)) device.chain.emplace_back(part);
    } else if (is_pci_address(part)) {
      device.chain.emplace_back(part);
    } else {
      break;
    }
  }
  if (device.chain.size() < 2) return {};
  device.address = lower_case(device.chain.back());
  return device;
}

PciDevice pci_device_at(const std::string& link) {
  char resolved[PATH_MAX];
  if (!realpath(link.c_str(), resolved)) return {};
  PciDevice device = pci_device_from_path(resolved);
  if (device.chain.empty()) return device;
  std::string_view path = resolved;
  std::string_view folder = path.substr(0, path.find(device.chain.back()) + device.chain.back().size());
  FileText text = read_small_file(std::string(folder) + "/numa_node");
  if (text.ok()) device.numa_node = static_cast<int>(parse_int(text.text).value_or(-1));
  return device;
}

PciDistance pci_distance(const PciDevice& a, const PciDevice& b) {
  size_t common = 0;
  while (common < a.chain.size() && common < b.chain.size() && a.chain[common] == b.chain[common]) ++common;
  if (common == 0) {
    return a.numa_node >= 0 && a.numa_node == b.numa_node ? PciDistance::kNode : PciDistance::kSys;
  }
  if (common == 1) return PciDistance::kPhb;
  // Below a shared switch a device is its downstream port and itself; more means that another switch is between.
  const size_t below = std::max(a.chain.size(), b.chain.size()) - common;
  return below <= 2 ? PciDistance::kPix : PciDistance::kPxb;
}

std::optional<double> parse_link_speed(std::string_view text) {
  size_t unit = text.find(" GT/s");
  if (unit == std::string_view::npos) return std::nullopt;
  std::optional<double> gigatransfers = parse_double(text.substr(0, unit));
  if (!gigatransfers || !(*gigatransfers > 0)) return std::nullopt;
  return *gigatransfers * 1e9;
}

std::optional<uint64_t> parse_aer_total(std::string_view text) {
  uint64_t sum = 0;
  bool any = false;
  for (std::string_view line : split(text, '\n')) {
    size_t space = line.rfind(' ');
    if (space == std::string_view::npos) continue;
    std::optional<uint64_t> count = parse_uint(trim(line.substr(space)));
    if (!count) continue;
    if (line.starts_with("TOTAL_")) return count;
    sum += *count;
    any = true;
  }
  if (!any) return std::nullopt;
  return sum;
}

PciMap map_pci(std::vector<NamedPciDevice> gpus, std::vector<NamedPciDevice> nics) {
  auto unknown = [](const NamedPciDevice& device) { return device.pci.chain.empty(); };
  std::erase_if(gpus, unknown);
  std::erase_if(nics, unknown);
  auto by_address = [](const NamedPciDevice& a, const NamedPciDevice& b) {
    return a.pci.address != b.pci.address ? a.pci.address < b.pci.address : a.name < b.name;
  };
  std::sort(gpus.begin(), gpus.end(), by_address);
  std::sort(nics.begin(), nics.end(), by_address);

  PciMap map;
  std::map<std::vector<std::string>, std::vector<std::string>> sharers;  // nearest GPUs -> adapters that have these
  for (const NamedPciDevice& nic : nics) {
    for (const NamedPciDevice& gpu : gpus) {
      map.distances.push_back({gpu.name, nic.name, pci_distance(gpu.pci, nic.pci)});
    }
    NearDevices near = nearest(gpus, nic.pci);
    if (!near.names.empty()) sharers[near.names].push_back(nic.name);
    map.gpus_of_nic[nic.name] = std::move(near);
  }
  for (const NamedPciDevice& gpu : gpus) map.nics_of_gpu[gpu.name] = nearest(nics, gpu.pci);
  for (const auto& [near_gpus, devices] : sharers) {
    for (size_t i = 0; i < devices.size(); ++i) {
      map.gpu_of_nic[devices[i]] = near_gpus[i * near_gpus.size() / devices.size()];
    }
  }
  return map;
}

namespace {

constexpr struct {
  const char* file;
  const char* severity;
} kAer[3] = {{"/aer_dev_correctable", "correctable"}, {"/aer_dev_nonfatal", "nonfatal"}, {"/aer_dev_fatal", "fatal"}};

NodeEvent lanes_lost(const Tick& tick, const PciDevice& device, int64_t before, int64_t now) {
  NodeEvent event;
  event.name = "link.degraded";
  event.time_unix_ns = tick.unix_ns;
  event.severity = EventSeverity::kWarn;
  event.device = device.address;
  const GpuInfo* gpu = tick.owners ? tick.owners->gpu_at(device.address) : nullptr;
  if (gpu) event.gpu_uuid = gpu->uuid;
  event.text = format("PCIe link of %s: x%lld -> x%lld", device.address.c_str(), static_cast<long long>(before),
                      static_cast<long long>(now));
  event.meaning = "The PCIe link lost lanes: transfers are slower";
  event.action = "drain the node, reseat the card or riser, reboot";
  event.source = "sysfs";
  return event;
}

// A width of 0 (older kernels: 255; of one that has fallen off the bus: 63) is a device without a PCIe link, such as a
// virtual one.
std::optional<int64_t> read_width(const std::string& file) {
  FileText text = read_small_file(file);
  const std::optional<int64_t> width = text.ok() ? parse_int(text.text) : std::nullopt;
  return width && *width > 0 && *width <= 32 ? width : std::nullopt;
}

}  // namespace

PciDevices::Known& PciDevices::known_of(const PciDevice& device) {
  Known& known = known_[device.address];
  if (known.labels) return known;
  known.labels = std::make_shared<const Labels>(Labels{{"pci", device.address}});
  for (int i = 0; i < 3; ++i) {
    known.aer[i] = std::make_shared<const Labels>(Labels{{"pci", device.address}, {"severity", kAer[i].severity}});
  }
  return known;
}

void PciDevices::read_link(const Tick& tick, const PciDevice& device, const std::string& folder, Known& known,
                           NodeReadings& out) {
  if (std::optional<int64_t> width_max = read_width(folder + "/max_link_width")) {
    out.add(nic_metric("lockstep_pcie_link_width_max"), known.labels, static_cast<double>(*width_max));
  }
  if (std::optional<int64_t> width = read_width(folder + "/current_link_width")) {
    out.add(nic_metric("lockstep_pcie_link_width"), known.labels, static_cast<double>(*width));
    if (known.width > 0 && *width < known.width) out.events.push_back(lanes_lost(tick, device, known.width, *width));
    known.width = *width;
  }
  FileText speed = read_small_file(folder + "/current_link_speed");
  if (std::optional<double> value = speed.ok() ? parse_link_speed(speed.text) : std::nullopt) {
    out.add(nic_metric("lockstep_pcie_link_speed"), known.labels, *value);
  }
  FileText speed_max = read_small_file(folder + "/max_link_speed");
  if (std::optional<double> value = speed_max.ok() ? parse_link_speed(speed_max.text) : std::nullopt) {
    out.add(nic_metric("lockstep_pcie_link_speed_max"), known.labels, *value);
  }
}

void PciDevices::read(const Tick& tick, const std::vector<PciDevice>& devices, NodeReadings& out) {
  std::set<std::string> present;
  for (const PciDevice& device : devices) {
    if (!present.insert(device.address).second) continue;
    const std::string folder = context_.root + "/sys/bus/pci/devices/" + device.chain.back();
    Known& known = known_of(device);
    if (device.numa_node >= 0) out.add(nic_metric("lockstep_pcie_numa_node"), known.labels, device.numa_node);
    read_link(tick, device, folder, known, out);
    for (int i = 0; i < 3; ++i) {
      FileText text = read_small_file(folder + kAer[i].file);
      if (!text.ok()) continue;  // not every device and kernel has AER
      if (std::optional<uint64_t> total = parse_aer_total(text.text)) {
        out.add(nic_metric("lockstep_pcie_aer_total"), known.aer[i], static_cast<double>(*total));
      } else {
        ++out.failures;
      }
    }
  }
  std::erase_if(known_, [&](const auto& entry) { return !present.contains(entry.first); });
}

}  // namespace lockstep
