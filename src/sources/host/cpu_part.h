// Where the time of the host's CPUs goes, for the host and per NUMA node, and how fast they run.
//
// There is no series per CPU: a host has hundreds, and the questions are about sockets. The sums of a node are of what
// its CPUs grew by, so that a CPU that is taken out does not make them fall.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sources/host/host_files.h"
#include "sources/host/proc_text.h"
#include "sources/host/sums.h"

namespace lockstep::host {

class CpuPart {
 public:
  explicit CpuPart(HostFiles& files);
  // busy_cpus: where the threads run whose speed matters; may be empty.
  void read_slow(const std::vector<int32_t>& busy_cpus, NodeReadings& out);

 private:
  static constexpr size_t kNodeModes = 4;  // user, system, idle, iowait
  struct Node {
    int32_t first_cpu = -1;
    std::array<uint64_t, kNodeModes> ticks{};
    std::array<LabelSet, kNodeModes> labels;
  };

  void read_nodes();
  void read_times(NodeReadings& out);
  void read_load(NodeReadings& out);
  void read_frequency(const std::vector<int32_t>& busy_cpus, NodeReadings& out);
  void read_throttling(NodeReadings& out);

  HostFiles& files_;
  double ticks_per_second_;
  KeptFile stat_file_{"/proc/stat", {}};
  ProcStat stat_;
  std::array<Unfalling, kCpuModes> modes_;
  std::array<LabelSet, kCpuModes> mode_labels_;
  std::map<int32_t, Node> nodes_;
  std::vector<int16_t> node_of_cpu_;                        // -1: none
  std::vector<std::array<Growth, kNodeModes>> cpu_growth_;  // by CPU number
  std::map<uint64_t, LabelSet> package_labels_;
  size_t sample_at_ = 0;
  LabelSet none_, mean_, slowest_;
};

}  // namespace lockstep::host
