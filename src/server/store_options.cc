#include "server/store_options.h"

#include <algorithm>

namespace lockstep {
namespace {

// What a store keeps in memory: as usual, but no more than this part of the budget.
size_t part_of(const MemoryBudget& memory, uint64_t parts, size_t usual) {
  return std::min<size_t>(usual, memory.bytes_max() / parts);
}

}  // namespace

ColumnarStepStoreOptions step_options(const ServerOptions& options, const ClockWitness& witness,
                                      const MemoryBudget& memory) {
  ColumnarStepStoreOptions steps;
  steps.witness = &witness;
  steps.folder = options.data + "/steps";
  steps.days = options.step_days;
  steps.bytes_max = static_cast<uint64_t>(options.step_bytes_max);
  steps.hot_bytes_max = part_of(memory, 8, steps.hot_bytes_max);
  steps.cache_bytes_max = part_of(memory, 32, steps.cache_bytes_max);
  steps.memory.step_bytes_max = part_of(memory, 4, steps.memory.step_bytes_max);
  steps.memory.log_bytes_max = part_of(memory, 16, steps.memory.log_bytes_max);
  return steps;
}
ColumnarSpanStoreOptions span_options(const ServerOptions& options, const ClockWitness& witness,
                                      const MemoryBudget& memory) {
  ColumnarSpanStoreOptions spans;
  spans.witness = &witness;
  spans.folder = options.data + "/spans";
  spans.days = options.trace_days;
  spans.bytes_max = static_cast<uint64_t>(options.trace_bytes_max);
  spans.head_bytes_max = part_of(memory, 16, spans.head_bytes_max);
  spans.unsealed_bytes_max = part_of(memory, 8, spans.unsealed_bytes_max);
  return spans;
}
ColumnarLogStoreOptions log_record_options(const ServerOptions& options, const ClockWitness& witness,
                                           const MemoryBudget& memory) {
  ColumnarLogStoreOptions logs;
  logs.witness = &witness;
  logs.folder = options.data + "/logs";
  logs.days = options.log_days;
  logs.bytes_max = static_cast<uint64_t>(options.log_record_bytes_max);
  logs.head_bytes_max = part_of(memory, 32, logs.head_bytes_max);
  logs.unsealed_bytes_max = part_of(memory, 16, logs.unsealed_bytes_max);
  return logs;
}
MetricEngineOptions metric_options(const ServerOptions& options, const ClockWitness& witness, MemoryBudget& memory) {
  MetricEngineOptions metrics;
  metrics.witness = &witness;
  metrics.memory = &memory;
  metrics.seal_bytes_min = part_of(memory, 16, metrics.seal_bytes_min);
  metrics.folder = options.data + "/metrics";
  metrics.ack = options.metric_ack == "synced" ? metrics::Ack::kFsynced : metrics::Ack::kWritten;
  metrics.limits.series_max = static_cast<uint64_t>(options.metric_series_max);
  metrics.limits.series_per_tenant_max = static_cast<uint64_t>(options.metric_series_per_tenant);
  metrics.limits.series_per_job_max = static_cast<uint64_t>(options.metric_series_per_job);
  metrics.limits.series_per_metric_max = static_cast<uint64_t>(options.metric_series_per_metric);
  metrics.limits.series_per_stream_max = static_cast<uint64_t>(options.metric_series_per_agent);
  constexpr int64_t kDayMs = 86'400'000;
  metrics.bytes_max[0] = static_cast<uint64_t>(options.metric_bytes_max);
  metrics.snapshot_bytes_max = metrics.bytes_max[0];  // all copies together, no more than what they are copies of
  metrics.keep_ms[0] = options.metric_days * kDayMs;
  for (size_t tier = 1; tier < metrics::kTiers; ++tier)
    metrics.keep_ms[tier] = std::max(metrics.keep_ms[tier], metrics.keep_ms[0]);
  return metrics;
}

}  // namespace lockstep
