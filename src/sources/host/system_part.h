// The rest of a host, at slow ticks: stuck tasks, the network stack's own losses, memory errors, heat and energy of the
// CPUs.
//
// Of hwmon only the CPUs' own sensors are read: others (NVMe, BMC) ask a device, which may hang.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sources/host/host_files.h"
#include "sources/host/process_walk.h"
#include "sources/host/sums.h"
#include "sources/host/thread_watch.h"

namespace lockstep::host {

class SystemPart {
 public:
  explicit SystemPart(HostFiles& files);
  void read_slow(NodeReadings& out);
  // Once a walk over all processes is over.
  void publish_stuck(const std::vector<WalkedProcess>& all, const ThreadWatch& threads, NodeReadings& out);

 private:
  struct Rapl {
    std::string folder;
    LabelSet package;
    uint64_t range_uj = 0;
    uint64_t last_uj = 0;
    double joules = 0;
  };
  struct Sensor {
    std::string file;
    LabelSet package;
  };
  // What of the hardware is there, found once.
  void find_hardware();
  void read_network(NodeReadings& out);
  void read_hardware(NodeReadings& out);

  HostFiles& files_;
  bool found_ = false;
  std::string net_folder_;
  std::vector<Rapl> rapls_;
  std::vector<Sensor> sensors_;
  std::vector<std::string> memory_controllers_;
  Growth dropped_growth_, squeezed_growth_;
  uint64_t dropped_ = 0, squeezed_ = 0;
  LabelSet none_, dropped_labels_, squeezed_labels_, corrected_, uncorrected_, training_, kernel_, other_;
  std::map<std::string, LabelSet> tcp_labels_;
  std::array<LabelSet, kWaitKinds> wait_labels_;
  std::array<bool, kWaitKinds> wait_seen_{};
};

}  // namespace lockstep::host
