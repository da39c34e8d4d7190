// Who owns what on this node, as last seen: processes, their jobs and ranks, and the GPUs that they hold. Made by
// sources/ownership, read by whoever attributes a number or an event.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/gpu.h"
#include "model/ids.h"

namespace lockstep {

struct Owner {
  std::string job_id;  // as design section 4 orders it: LOCKSTEP_JOB_ID, Slurm, TorchElastic, Kubernetes
  int64_t attempt = 0;
  Rank rank = kNoRank;
  std::string user;
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::string source;  // where the job id comes from: "recorder", "slurm", "torchelastic", "kubernetes", "environment";
                       // empty: no job
  bool operator==(const Owner&) const = default;
};

struct OwnerTable {
  std::vector<GpuInfo> gpus;
  std::vector<GpuProcess> gpu_processes;
  std::map<int32_t, Owner> processes;   // by pid: those on a GPU, and those with a flight recorder
  std::map<std::string, Owner> by_gpu;  // by GPU uuid: who holds it (by its processes, else by what the scheduler gave)

  const Owner* of_process(int32_t pid) const {
    auto found = processes.find(pid);
    return found == processes.end() ? nullptr : &found->second;
  }
  const Owner* of_gpu(const std::string& uuid) const {
    auto found = by_gpu.find(uuid);
    return found == by_gpu.end() ? nullptr : &found->second;
  }
  // pci: as GpuInfo::pci; nullptr where no GPU has it.
  const GpuInfo* gpu_at(const std::string& pci) const {
    for (const GpuInfo& gpu : gpus) {
      if (gpu.pci == pci && gpu.parent_uuid.empty()) return &gpu;
    }
    return nullptr;
  }
};

}  // namespace lockstep
