// Variables that tell of a process's pod, its code and the GPUs it was given, beside those of recorder/identity_variables.h.
//
// Thread rule: Immutable.
#pragma once

#include "recorder/identity_variables.h"

namespace lockstep {

// From the downward API by these usual names, or set by Kubernetes itself (HOSTNAME, JOB_COMPLETION_INDEX). They count
// in a pod only: elsewhere HOSTNAME and JOB_NAME are anybody's.
inline constexpr const char* kPodName = "POD_NAME";
inline constexpr const char* kPodNamespace = "POD_NAMESPACE";
inline constexpr const char* kPodContainer = "CONTAINER_NAME";
inline constexpr const char* kPodHostName = "HOSTNAME";
inline constexpr const char* kPodJobName = "JOB_NAME";
inline constexpr const char* kPodJobIndex = "JOB_COMPLETION_INDEX";
inline constexpr identity_variables::Names kPodVariables = {kPodName,     kPodNamespace, kPodContainer,
                                                            kPodHostName, kPodJobName,   kPodJobIndex};

// Of the code that a job runs: a commit, an image's tag. Whoever starts the job says it.
inline constexpr const char* kCodeVersion = "LOCKSTEP_CODE_VERSION";

// Read for uuids alone: indices count from zero in every container and under Slurm's device cgroup, so they say
// nothing. SLURM_JOB_GPUS is not among them: it is wrong for processes that were adopted into a job (pam_slurm_adopt).
inline constexpr const char* kGpusInOrder = "CUDA_VISIBLE_DEVICES";       // as the process numbers them
inline constexpr const char* kGpusInAnyOrder = "NVIDIA_VISIBLE_DEVICES";  // what the container was given
inline constexpr identity_variables::Names kVisibleGpus = {kGpusInOrder, kGpusInAnyOrder};

}  // namespace lockstep
