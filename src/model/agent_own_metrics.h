// What the agent reports of itself among the node's series: cost and work. Its counters of records are in
// agent/counters_table.h. Here because agents of simulated nodes report it too (src/sim/node/agent_model.h).
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/metric_descriptor.h"

namespace lockstep {

enum class OwnMetric : uint8_t {
  kCpuSeconds,
  kMemory,
  kSentBytes,
  kShedLevel,
  kInterval,
  kSourceSeconds,
  kSourceFailures,
  kSeries,
  kReadings,
  kPointsReported,
  kPointsReportedBefore,
  kPointsUnchanged,
  kReadingsRefused,
  kTracedSteps,
  kKeptDetail,
};

// In the order of OwnMetric.
inline constexpr MetricDescriptor kOwnMetrics[] = {
    {"lockstep_agent_cpu_seconds_total", "s", MetricKind::kSum, "",
     "CPU time of the agent and of its process that reads the GPUs.", 1.0 / 64},
    {"lockstep_agent_memory_bytes", "By", MetricKind::kGauge, "",
     "Resident memory of both, shared pages counted in each.", 1 << 20},
    {"lockstep_agent_sent_bytes_total", "By", MetricKind::kSum, "",
     "Bytes sent to the server or a bucket, compressed: telemetry and files, with what had to be sent again."},
    {"lockstep_agent_shed_level", "1", MetricKind::kGauge, "",
     "0, or how far over its CPU budget the agent was: at 1, 2, 3 it reads 2, 5, 10 times less often."},
    {"lockstep_agent_interval_seconds", "s", MetricKind::kGauge, "", "How often the node is read now."},
    {"lockstep_agent_source_seconds", "s", MetricKind::kGauge, "source", "What the last reading of a source took.",
     1.0 / 4096},
    {"lockstep_agent_source_failures_total", "{failure}", MetricKind::kSum, "source",
     "Files or answers of a source that could not be read."},
    {"lockstep_agent_series", "{series}", MetricKind::kGauge, "", "Series of this node that are read now."},
    {"lockstep_agent_readings_total", "{reading}", MetricKind::kSum, "", "Values read."},
    {"lockstep_agent_points_reported_total", "{point}", MetricKind::kSum, "",
     "Points of the node's series handed to export."},
    {"lockstep_agent_points_told_total", "{point}", MetricKind::kSum, "",
     "The former name of lockstep_agent_points_reported_total, for one version."},
    {"lockstep_agent_points_unchanged_total", "{point}", MetricKind::kSum, "",
     "Points not sent because they had not changed."},
    {"lockstep_agent_readings_refused_total", "{reading}", MetricKind::kSum, "",
     "Values that were not numbers, or of series beyond the limit."},
    {"lockstep_agent_traced_steps_total", "{step}", MetricKind::kSum, "result",
     "Steps of ranks by what became of their detail: periodic and asked were sent, left_out was kept in vain."},
    {"lockstep_agent_kept_detail_bytes", "By", MetricKind::kGauge, "",
     "Memory that detail kept for the server's questions takes.", 1 << 20},
};

constexpr const MetricDescriptor& descriptor_of(OwnMetric metric) {
  return kOwnMetrics[static_cast<size_t>(metric)];
}

}  // namespace lockstep
