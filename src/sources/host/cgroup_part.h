// What the cgroup of a training process did to it: stalls, CPU quota, memory and its limit. Under Kubernetes or Slurm a
// rank may be throttled on a host that is idle.
//
// The numbers carry the GPU of the process. Sums are of what the counters grew by while a process of that GPU was in
// that cgroup, so that the next job does not inherit, and the sums never fall.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "sources/host/host_files.h"
#include "sources/host/sums.h"

namespace lockstep::host {

class CgroupPart {
 public:
  explicit CgroupPart(HostFiles& files);
  // gpu_of: training processes and their GPUs; those without one ("") are left out.
  void read_slow(const std::map<int32_t, std::string>& gpu_of, NodeReadings& out);

 private:
  static constexpr size_t kPressures = 5;
  enum Counter : size_t { kFirstPressure = 0, kThrottledUs = kPressures, kThrottledPeriods, kOomKills, kCounters };
  struct Numbers {
    std::array<std::optional<uint64_t>, kCounters> counters;
    std::optional<uint64_t> memory, memory_limit;
  };
  struct Gpu {
    std::string folder;  // of its cgroup, as of the last reading
    std::array<Growth, kCounters> growth;
    std::array<uint64_t, kCounters> sums{};
    std::array<LabelSet, kPressures> pressure_labels;
    LabelSet gpu;
    bool used = false;
  };
  struct Folders {
    std::string v2, cpu, memory;
  };
  Folders folders_of(int32_t pid);
  Numbers read_numbers(const Folders& folders);
  void read_v1(const Folders& folders, Numbers& numbers);
  void publish(Gpu& gpu, const Numbers& numbers, NodeReadings& out);

  HostFiles& files_;
  std::string v2_mount_;
  std::map<std::string, Gpu> gpus_;
};

}  // namespace lockstep::host
