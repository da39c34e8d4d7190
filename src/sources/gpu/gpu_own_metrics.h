// What we say ourselves about GPUs and about reading them, beside the vendors' numbers (gpu_metrics.h).
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/metric_descriptor.h"

namespace lockstep {

enum class GpuOwnMetric : uint8_t {
  kInfo,
  kReaderUp,
  kReaderHungSeconds,
  kReaderAnswerSeconds,
  kReaderStarts,
  kReaderRefusedLines,
  kReaderSkippedRequests,
};

// In the order of GpuOwnMetric.
inline constexpr MetricDescriptor kGpuOwnMetrics[] = {
    {"lockstep_gpu_info", "1", MetricKind::kGauge, "gpu_uuid, vendor, model, pci, index, serial, driver, parent",
     "Always 1: what a GPU is, for joining with its other series. parent: the GPU of a MIG instance. A label that is "
     "not known is left out."},
    {"lockstep_gpu_reader_up", "1", MetricKind::kGauge, "",
     "1 while the process that reads the GPUs answers; 0 while it starts, hangs, is drained or has failed. Not there "
     "where there is no GPU."},
    {"lockstep_gpu_reader_hung_seconds", "s", MetricKind::kGauge, "",
     "For how long the driver has not answered; 0 while it does."},
    {"lockstep_gpu_reader_answer_seconds", "s", MetricKind::kGauge, "",
     "What the last reading of all GPUs took, from the request to its answer.", 1.0 / 4096},
    {"lockstep_gpu_reader_starts_total", "{start}", MetricKind::kSum, "",
     "Times that the process that reads the GPUs was started."},
    {"lockstep_gpu_reader_refused_lines_total", "{line}", MetricKind::kSum, "",
     "Lines of that process that could not be used: not understood, or late."},
    {"lockstep_gpu_reader_skipped_requests_total", "{request}", MetricKind::kSum, "",
     "Readings left out because the one before was not answered yet."},
};

constexpr const MetricDescriptor& own_metric(GpuOwnMetric metric) {
  return kGpuOwnMetrics[static_cast<size_t>(metric)];
}

}  // namespace lockstep
