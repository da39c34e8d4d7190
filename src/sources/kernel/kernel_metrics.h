// What the kernel's log and the driver's events count. docs/guide/xid.md has the same rows, and a test compares them.
//
// Thread rule: Immutable.
#pragma once

#include "model/metric_descriptor.h"

namespace lockstep {

inline constexpr MetricDescriptor kKernelMetrics[] = {
    {"lockstep_gpu_xid_total", "1", MetricKind::kSum, "gpu_uuid, xid",
     "XIDs of a GPU by number, from the kernel's log and the driver, each once. A GPU whose uuid is not known has its "
     "PCI address."},
    {"lockstep_gpu_xid_last", "1", MetricKind::kGauge, "gpu_uuid",
     "Number of the newest XID; 0 again after 5 minutes without one."},
    {"lockstep_kernel_events_total", "1", MetricKind::kSum, "kind",
     "What happened by kind of event, also where only a count of it was reported."},
    {"lockstep_kernel_lines_total", "1", MetricKind::kSum, "", "Lines of the kernel's log that were read."},
    {"lockstep_kernel_lines_lost_total", "1", MetricKind::kSum, "",
     "Lines that the kernel overwrote before they were read."},
};
inline constexpr const MetricDescriptor& kGpuXidTotal = kKernelMetrics[0];
inline constexpr const MetricDescriptor& kGpuXidLast = kKernelMetrics[1];
inline constexpr const MetricDescriptor& kKernelEventsTotal = kKernelMetrics[2];
inline constexpr const MetricDescriptor& kKernelLinesTotal = kKernelMetrics[3];
inline constexpr const MetricDescriptor& kKernelLinesLost = kKernelMetrics[4];

}  // namespace lockstep
