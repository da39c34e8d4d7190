// Whose GPU it is, as metrics. Hardware series carry the GPU's uuid alone; lockstep_job_gpu_info joins them with job
// and rank (docs/guide/attribution.md).
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/metric_descriptor.h"

namespace lockstep {

enum class GpuOwnershipMetric : uint8_t {
  kJobGpuInfo,
  kAllocated,
  kProcesses,
  kProcessMemory,
  kForeignProcesses,
  kJobEnergy,
};

// In the order of GpuOwnershipMetric.
inline constexpr MetricDescriptor kWhoMetrics[] = {
    {"lockstep_job_gpu_info", "1", MetricKind::kGauge,
     "gpu_uuid, job_id, attempt, rank, user, namespace, pod, container, source, further",
     "Always 1: who holds a GPU. One row for each rank on it; all but one of a GPU have further=\"true\". Labels that "
     "are not known are not there."},
    {"lockstep_gpu_allocated", "1", MetricKind::kGauge, "gpu_uuid",
     "1: a process is on this GPU or a scheduler gave it to somebody; 0: it is free."},
    {"lockstep_gpu_processes", "1", MetricKind::kGauge, "gpu_uuid", "Processes on this GPU."},
    {"lockstep_gpu_process_memory_bytes", "By", MetricKind::kGauge, "gpu_uuid",
     "Memory of the process that has most of it on this GPU.", 1 << 20},
    {"lockstep_gpu_foreign_processes", "1", MetricKind::kGauge, "gpu_uuid",
     "Processes on this GPU of another job or user than the one that holds it, or left over from an earlier attempt."},
    {"lockstep_job_energy_joules_total", "J", MetricKind::kSum, "job_id",
     "Energy that this host's GPUs used while the job held them. Of a shared GPU all counts for the job that stands "
     "for "
     "it (further=\"\").",
     1},
};

constexpr const MetricDescriptor& descriptor_of(GpuOwnershipMetric metric) {
  return kWhoMetrics[static_cast<size_t>(metric)];
}

}  // namespace lockstep
