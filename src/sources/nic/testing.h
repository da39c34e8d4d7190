// For tests of the network source: trees of files as sysfs has them, and readings found again.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "sources/node_source.h"
#include "testing/temporary_folder.h"

namespace lockstep::nic_testing {

class Tree {
 public:
  const std::string& root() const { return root_.path(); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path, std::ios::binary | std::ios::trunc) << text;
  }
  void folder(const std::string& path) { std::filesystem::create_directories(root_.path() + path); }
  // to: below the root as well; the link is relative, as those of sysfs are.
  void link(const std::string& path, const std::string& to) {
    std::filesystem::path from = root_.path() + path;
    std::filesystem::create_directories(from.parent_path());
    std::filesystem::create_symlink(std::filesystem::relative(root_.path() + to, from.parent_path()), from);
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root_.path() + path); }

  // A PCI device at /sys/devices/CHAIN, with its link in /sys/bus/pci/devices. Returns its folder.
  std::string pci(const std::string& chain, int numa_node) {
    const std::string path = "/sys/devices/" + chain;
    write(path + "/numa_node", std::to_string(numa_node) + "\n");
    link("/sys/bus/pci/devices/" + chain.substr(chain.rfind('/') + 1), path);
    return path;
  }
  // An RDMA device with one port that is up; `pci_folder` as pci() returned it, or empty.
  void rdma(const std::string& device, const std::string& pci_folder, const std::string& netdev) {
    const std::string folder = "/sys/class/infiniband/" + device;
    if (!pci_folder.empty()) link(folder + "/device", pci_folder);
    write(folder + "/fw_ver", "28.39.1002\n");
    write(folder + "/ports/1/state", "4: ACTIVE\n");
    write(folder + "/ports/1/phys_state", "5: LinkUp\n");
    write(folder + "/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    write(folder + "/ports/1/link_layer", "Ethernet\n");
    if (!netdev.empty()) write(folder + "/ports/1/gid_attrs/ndevs/0", netdev + "\n");
  }
  void netdev(const std::string& name, int ifindex, const std::string& pci_folder) {
    const std::string folder = "/sys/class/net/" + name;
    if (!pci_folder.empty()) link(folder + "/device", pci_folder);
    write(folder + "/ifindex", std::to_string(ifindex) + "\n");
    write(folder + "/carrier", "1\n");
    write(folder + "/carrier_up_count", "1\n");
    write(folder + "/carrier_down_count", "0\n");
    write(folder + "/speed", "400000\n");
    write(folder + "/mtu", "9000\n");
    for (const char* file :
         {"rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"}) {
      write(folder + "/statistics/" + file, "0\n");
    }
  }

 private:
  testing::TemporaryFolder root_;
};

// The value of the one reading of that name whose labels include these.
inline std::optional<double> value_of(const NodeReadings& readings, const std::string& name,
                                      const Labels& labels = {}) {
  std::optional<double> value;
  for (const Reading& reading : readings.readings) {
    if (name != reading.metric->name) continue;
    bool all = true;
    for (const auto& label : labels) {
      all &= std::find(reading.labels->begin(), reading.labels->end(), label) != reading.labels->end();
    }
    if (!all) continue;
    EXPECT_FALSE(value) << name << " is there more than once";
    value = reading.value;
  }
  return value;
}

// Every reading has the labels that its row says, in that order, and no series is there twice.
inline void expect_well_formed(const NodeReadings& readings) {
  std::map<std::string, int> seen;
  for (const Reading& reading : readings.readings) {
    std::string names;
    std::string key = reading.metric->name;
    for (const auto& [name, value] : *reading.labels) {
      names += (names.empty() ? "" : ", ") + name;
      key += " " + name + "=" + value;
    }
    EXPECT_EQ(names, reading.metric->labels) << reading.metric->name;
    EXPECT_EQ(++seen[key], 1) << key;
  }
}

inline Tick tick_at(double seconds, bool slow = false, const OwnerTable* owners = nullptr) {
  Tick tick;
  tick.monotonic_ns = static_cast<int64_t>(seconds * 1e9);
  tick.unix_ns = 1'700'000'000'000'000'000 + tick.monotonic_ns;
  tick.slow = slow;
  tick.owners = owners;
  return tick;
}

}  // namespace lockstep::nic_testing
