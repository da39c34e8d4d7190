// Who holds each GPU, from the processes on it and from what the schedulers gave out.
//
// The problem: a process is often on more GPUs than its own (every rank that touches CUDA before it chooses a device
// leaves a small context on GPU 0), and a GPU often has more processes than its rank (helpers, MPS clients, strangers).
// The method: a process's own GPU is the one that it was told, else the one on which it has most memory. It holds that
// one, and beside it only GPUs that are nobody else's own (one process that drives several GPUs). Of those who hold a
// GPU, one stands for it: a rank with a recorder before others, then whom a scheduler gave it to, then who has a job;
// then the newest attempt, the lowest rank, the oldest process. So the answer does not change while nothing changes.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/owner_table.h"
#include "sources/ownership/ownership.h"

namespace lockstep {

struct Claimant {
  int32_t pid = -1;  // -1: it cannot be seen from here
  uint64_t start_ticks = 0;
  ProcessOwner who;
  bool recorded = false;     // it writes a flight recorder
  bool idle = false;         // not a process: somebody whom a scheduler gave the GPU to
  bool service = false;      // of the driver (MPS server): holds nothing, disturbs nobody
  std::string reported_gpu;  // its own GPU, as it said itself; "": look at its memory
  std::string slurm_job;     // where schedulers have put it, whatever it calls itself
  std::string pod_uid;
};

struct GpuHolder {
  std::vector<Owner> owners;             // the first stands for the GPU; no two are equal. Empty: nobody's
  std::vector<int32_t> foreign;          // processes of another job or user than that first one's
  std::vector<int32_t> foreign_allowed;  // those of them whose job or pod was given this GPU, too
  bool operator==(const GpuHolder&) const = default;
};

struct GpuHolders {
  std::map<std::string, GpuHolder> by_gpu;  // by uuid; those with nobody are not there
  std::map<int32_t, std::string> gpu_of;    // a process's own GPU
  std::map<int32_t, Rank> rank_of;  // of every claimant with a pid; kNoRank also where two processes of a job on
                                    // different GPUs claim the same rank without a recorder
};

// claimants: one for each process, none of them idle. allocated: by uuid, as the schedulers gave them.
GpuHolders find_gpu_holders(const std::vector<GpuInfo>& gpus, const std::vector<GpuProcess>& on_gpus,
                            std::vector<Claimant> claimants,
                            const std::map<std::string, std::vector<Owner>>& allocated);

}  // namespace lockstep
