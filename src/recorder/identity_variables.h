// The environment variables that say which rank of which job a process is, the first that is set counts. One list for
// the process itself (writer.cc) and for those who look at it from outside (sources/ownership), so that both say the
// same; docs/formats/flight-recorder.md has it for people.
//
// Thread rule: Immutable.
#pragma once

#include <initializer_list>

namespace lockstep::identity_variables {

using Names = std::initializer_list<const char*>;

// In this order; the last does not count where it is kNoElasticJob, and after it comes Kubernetes (sources/ownership
// only).
inline constexpr const char* kJobId = "LOCKSTEP_JOB_ID";
inline constexpr const char* kSlurmJobId = "SLURM_JOB_ID";
inline constexpr const char* kElasticJobId = "TORCHELASTIC_RUN_ID";
inline constexpr const char* kNoElasticJob = "none";  // torchrun's word for a job without a name

inline constexpr Names kAttempt = {"LOCKSTEP_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"};
inline constexpr Names kRank = {"LOCKSTEP_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
inline constexpr Names kWorldSize = {"LOCKSTEP_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE",
                                     "PMI_SIZE"};
inline constexpr Names kLocalRank = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"};
inline constexpr const char* kGpuUuid = "LOCKSTEP_GPU_UUID";

// A job whose environment says nothing is "unknown-<host>-<session>": a name that no other host gives to it.
inline constexpr const char* kUnknownJobPrefix = "unknown-";

}  // namespace lockstep::identity_variables
