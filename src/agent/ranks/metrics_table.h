// The metrics that are sent about each rank, one row each. docs/guide/agent-metrics.md has the same rows, and a test
// compares them.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/metric_descriptor.h"

namespace lockstep {

enum class RankMetric : uint8_t {
  kGpuInfo,
  kCollectiveOperations,
  kCollectiveBytes,
  kCollectiveGpuSeconds,
  kCollectiveBusBandwidth,
  kNetworkWait,
  kNetworkBytes,
  kPeerLatency,
  kPeerBandwidth,
  kLoss,
  kTokensPerSecond,
  kMfu,
  kStepSource,
  kPluginEvents,
  kPluginRecords,
  kPluginOverwritten,
  kPluginTorn,
  kPluginRefused,
  kPluginCallback,
  kPluginSwitchedOff,
  kPluginDetailMask,
  kPluginNcclVersion,
};

// In the order of RankMetric.
inline constexpr MetricDescriptor kRankMetrics[] = {
    {"lockstep_job_gpu_info", "1", MetricKind::kGauge, "",
     "Always 1: joins a job's rank with its host and GPU, which are in the resource. Only of ranks whose GPU the agent "
     "does not read itself."},
    {"lockstep_collective_operations_total", "1", MetricKind::kSum, "function, comm_size", "Operations."},
    {"lockstep_collective_bytes_total", "By", MetricKind::kSum, "function, comm_size", "Payload of this rank."},
    {"lockstep_collective_gpu_seconds_total", "s", MetricKind::kSum, "function, comm_size",
     "Time on the GPU of the operations whose time is known."},
    {"lockstep_collective_bus_bandwidth", "By/s", MetricKind::kGauge, "function, comm_size",
     "Bus bandwidth as nccl-tests define it, over all operations whose time is known."},
    {"lockstep_network_wait_seconds_total", "s", MetricKind::kSum,
     "function, comm_size, peer, direction, cause, channel",
     "What transfers waited for, by cause: own_gpu, peer, wire. Transfers overlap: it may grow faster than time."},
    {"lockstep_network_bytes_total", "By", MetricKind::kSum, "function, comm_size, peer, direction, channel",
     "What was sent to and received from a peer through the network."},
    {"lockstep_network_peer_latency_seconds", "s", MetricKind::kGauge, "comm_id, peer",
     "Fitted over transfers of many sizes: what a transfer to this peer takes beside its bytes."},
    {"lockstep_network_peer_bandwidth", "By/s", MetricKind::kGauge, "comm_id, peer",
     "Fitted likewise, of one channel to this peer."},
    {"lockstep_rank_loss", "1", MetricKind::kGauge, "",
     "Loss that the job reported in its last step that reported one; may be NaN or infinite."},
    {"lockstep_rank_tokens_per_second", "1/s", MetricKind::kGauge, "",
     "Tokens of this rank that the job reported, by the duration of their step."},
    {"lockstep_rank_mfu_ratio", "1", MetricKind::kGauge, "",
     "Model FLOPs utilisation: FLOPs that the job reported, by step duration and the GPU's peak, in the last step "
     "that reported them."},
    {"lockstep_rank_step_source", "1", MetricKind::kGauge, "",
     "Where the rank's steps come from: 1 reported by the job, 2 inferred from its operations, 3 no pattern yet, 4 "
     "none "
     "that could be found."},
    {"lockstep_plugin_events_total", "1", MetricKind::kSum, "", "Callbacks that NCCL made into the plugin."},
    {"lockstep_plugin_records_total", "1", MetricKind::kSum, "type",
     "Records read, by type: coll, p2p, kernel, proxy_op, proxy_step, mark."},
    {"lockstep_plugin_overwritten_total", "1", MetricKind::kSum, "", "Records overwritten before they were read."},
    {"lockstep_plugin_torn_total", "1", MetricKind::kSum, "", "Records overwritten while being read, or not finished."},
    {"lockstep_plugin_refused_total", "1", MetricKind::kSum, "reason",
     "Events that could not be recorded, by reason: handle, foreign, no_slot, no_communicator, no_lane, completion, "
     "text."},
    {"lockstep_plugin_callback_seconds", "s", MetricKind::kHistogram, "",
     "What a callback costs the job, from a sample of them."},
    {"lockstep_plugin_switched_off", "1", MetricKind::kGauge, "",
     "0, or the number of the reason for which the plugin has stopped recording."},
    {"lockstep_plugin_detail_mask", "1", MetricKind::kGauge, "", "NCCL's event bits that are asked for now."},
    {"lockstep_plugin_nccl_version", "1", MetricKind::kGauge, "",
     "NCCL's version as it numbers itself: 22809 is 2.28.9; 0: not known."},
};

constexpr const MetricDescriptor& descriptor_of(RankMetric metric) {
  return kRankMetrics[static_cast<size_t>(metric)];
}

}  // namespace lockstep
