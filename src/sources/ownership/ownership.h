// From what is known of a process to its owner: job, attempt, rank, user, pod.
//
// The job's id comes from the first of: LOCKSTEP_JOB_ID, Slurm (its cgroup, else its variable), TorchElastic,
// Kubernetes. A flight recorder's own word goes before all of them, so that what a rank tells and what is said about
// its GPU carry the same id.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/owner_table.h"
#include "model/step.h"
#include "sources/ownership/pods.h"
#include "sources/ownership/processes.h"

namespace lockstep {

struct ProcessOwner {
  Owner owner;
  bool attempt_reported = false;  // else it is 0 because nobody said
  int32_t local_rank = -1;
};
ProcessOwner owner_from_process(const ProcessFacts& process, const std::optional<PodRef>& pod);

// The recorder's identity over what the process shows. A job that the recorder could not name ("unknown-…") takes its
// name from the process; where both say the same, the source is the process's.
ProcessOwner with_recorder(ProcessOwner from_process, const Identity& recorder);

// Who a scheduler gave a GPU to, where no process says more.
Owner owner_from_pod(const PodRef& pod);
Owner owner_from_slurm(std::string_view job);

// "team/llama" of pod llama-worker-3, llama-0-x7k2p, llama-6d5f9c7b8d-x7k2p: its name without what the controllers of
// Kubernetes append (index, hash, role), so that all pods of a job have one id. A pod that was named "llama-3" by hand
// cannot be told from one that a controller numbered.
std::string job_of_pod(std::string_view pod_namespace, std::string_view pod);

// The GPU that the process was shown alone, or that stands at its local rank's place; by uuid only. "" else.
std::string gpu_from_environment(const ProcessFacts& process, int32_t local_rank, const std::vector<GpuInfo>& gpus);

}  // namespace lockstep
