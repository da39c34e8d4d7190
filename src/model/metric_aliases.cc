#include "model/metric_aliases.h"

#include <cctype>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {
namespace {

constexpr MetricTool D = MetricTool::kDcgm, I = MetricTool::kInspector, M = MetricTool::kMosaic;
constexpr MetricTool O = MetricTool::kOpenConfig, S = MetricTool::kSnmp;
constexpr double kPerMiB = 1.0 / (1024 * 1024);

// clang-format off
constexpr MetricAlias kRows[] = {
    // tool, its name, ours, our label, its value, theirs is ours times, ours as it is sent (where that differs)
    {D, "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "lockstep_gpu_recovery_action", "", "", 1},
    {D, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "lockstep_gpu_fabric_state", "", "", 1},
    {D, "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE", "lockstep_gpu_fabric_status", "", "", 1},
    {D, "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "lockstep_gpu_fabric_health", "", "", 1},
    {D, "DCGM_FI_DEV_FABRIC_HEALTH_MASK", "lockstep_gpu_fabric_health_mask", "", "", 1},
    {D, "DCGM_FI_DEV_MIG_MODE", "lockstep_gpu_mig_mode", "", "", 1},
    {D, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "lockstep_gpu_vgpu_license_status", "", "", 1},
    {D, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "lockstep_gpu_engine_active", "", "", 1},
    {D, "DCGM_FI_PROF_SM_ACTIVE", "lockstep_gpu_sm_active", "", "", 1},
    {D, "DCGM_FI_PROF_SM_OCCUPANCY", "lockstep_gpu_sm_occupancy", "", "", 1},
    {D, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "lockstep_gpu_tensor_active", "", "", 1},
    {D, "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "hmma", 1},
    {D, "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "imma", 1},
    {D, "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "dfma", 1},
    {D, "DCGM_FI_PROF_PIPE_INT_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "int", 1},
    {D, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "fp64", 1},
    {D, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "fp32", 1},
    {D, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "lockstep_gpu_pipe_active", "pipe", "fp16", 1},
    {D, "DCGM_FI_PROF_DRAM_ACTIVE", "lockstep_gpu_dram_active", "", "", 1},
    {D, "DCGM_FI_DEV_GPU_UTIL", "hw_gpu_utilization_ratio", "hw_gpu_task", "general", 100, "hw.gpu.utilization", "hw.gpu.task"},
    {D, "DCGM_FI_DEV_ENC_UTIL", "hw_gpu_utilization_ratio", "hw_gpu_task", "encoder", 100, "hw.gpu.utilization", "hw.gpu.task"},
    {D, "DCGM_FI_DEV_DEC_UTIL", "hw_gpu_utilization_ratio", "hw_gpu_task", "decoder", 100, "hw.gpu.utilization", "hw.gpu.task"},
    {D, "DCGM_FI_DEV_MEM_COPY_UTIL", "lockstep_gpu_memory_controller_active", "", "", 100},
    {D, "DCGM_FI_DEV_FB_TOTAL", "hw_gpu_memory_limit_bytes", "", "", kPerMiB, "hw.gpu.memory.limit", ""},
    {D, "DCGM_FI_DEV_FB_USED", "hw_gpu_memory_usage_bytes", "", "", kPerMiB, "hw.gpu.memory.usage", ""},
    {D, "DCGM_FI_DEV_FB_USED_PERCENT", "hw_gpu_memory_utilization_ratio", "", "", 1, "hw.gpu.memory.utilization", ""},
    {D, "DCGM_FI_DEV_FB_FREE", "lockstep_gpu_memory_free_bytes", "", "", kPerMiB},
    {D, "DCGM_FI_DEV_FB_RESERVED", "lockstep_gpu_memory_reserved_bytes", "", "", kPerMiB},
    {D, "DCGM_FI_DEV_BAR1_TOTAL", "lockstep_gpu_bar1_limit_bytes", "", "", kPerMiB},
    {D, "DCGM_FI_DEV_BAR1_USED", "lockstep_gpu_bar1_usage_bytes", "", "", kPerMiB},
    {D, "DCGM_FI_DEV_POWER_USAGE", "hw_power_watts", "", "", 1, "hw.power", ""},
    {D, "DCGM_FI_DEV_POWER_USAGE_INSTANT", "lockstep_gpu_power_instant_watts", "", "", 1},
    {D, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "lockstep_gpu_power_limit_watts", "limit", "enforced", 1},
    {D, "DCGM_FI_DEV_POWER_MGMT_LIMIT", "lockstep_gpu_power_limit_watts", "limit", "requested", 1},
    {D, "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "lockstep_gpu_power_limit_watts", "limit", "default", 1},
    {D, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "lockstep_gpu_power_limit_watts", "limit", "min", 1},
    {D, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "lockstep_gpu_power_limit_watts", "limit", "max", 1},
    {D, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "hw_energy_joules_total", "", "", 1000, "hw.energy", ""},
    {D, "DCGM_FI_DEV_GPU_TEMP", "hw_temperature_celsius", "hw_sensor_location", "gpu", 1, "hw.temperature", "hw.sensor_location"},
    {D, "DCGM_FI_DEV_MEMORY_TEMP", "hw_temperature_celsius", "hw_sensor_location", "memory", 1, "hw.temperature", "hw.sensor_location"},
    {D, "DCGM_FI_DEV_GPU_TEMP_LIMIT", "lockstep_gpu_temperature_margin_celsius", "", "", 1},
    {D, "DCGM_FI_DEV_SHUTDOWN_TEMP", "hw_temperature_limit_celsius", "hw_limit_type", "high.critical", 1, "hw.temperature.limit", "hw.limit_type"},
    {D, "DCGM_FI_DEV_SLOWDOWN_TEMP", "hw_temperature_limit_celsius", "hw_limit_type", "high.degraded", 1, "hw.temperature.limit", "hw.limit_type"},
    {D, "DCGM_FI_DEV_GPU_MAX_OP_TEMP", "hw_temperature_limit_celsius", "hw_limit_type", "max", 1, "hw.temperature.limit", "hw.limit_type"},
    {D, "DCGM_FI_DEV_MEM_MAX_OP_TEMP", "lockstep_gpu_memory_temperature_limit_celsius", "", "", 1},
    {D, "DCGM_FI_DEV_SM_CLOCK", "lockstep_gpu_clock_hertz", "clock", "sm", 1e-6},
    {D, "DCGM_FI_DEV_MEM_CLOCK", "lockstep_gpu_clock_hertz", "clock", "memory", 1e-6},
    {D, "DCGM_FI_DEV_VIDEO_CLOCK", "lockstep_gpu_clock_hertz", "clock", "video", 1e-6},
    {D, "DCGM_FI_DEV_MAX_SM_CLOCK", "lockstep_gpu_clock_max_hertz", "clock", "sm", 1e-6},
    {D, "DCGM_FI_DEV_MAX_MEM_CLOCK", "lockstep_gpu_clock_max_hertz", "clock", "memory", 1e-6},
    {D, "DCGM_FI_DEV_PSTATE", "lockstep_gpu_pstate", "", "", 1},
    {D, "DCGM_FI_DEV_POWER_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "power", 1e9},
    {D, "DCGM_FI_DEV_THERMAL_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "thermal", 1e9},
    {D, "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "sync_boost", 1e9},
    {D, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "board_limit", 1e9},
    {D, "DCGM_FI_DEV_LOW_UTIL_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "low_utilization", 1e9},
    {D, "DCGM_FI_DEV_RELIABILITY_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "reliability", 1e9},
    {D, "DCGM_FI_DEV_TOTAL_APP_CLOCKS_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "below_app_clocks", 1e9},
    {D, "DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION", "lockstep_gpu_throttle_seconds_total", "reason", "below_base_clocks", 1e9},
    {D, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", "lockstep_gpu_throttle_seconds_total", "reason", "sw_thermal", 1e9},
    {D, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", "lockstep_gpu_throttle_seconds_total", "reason", "hw_thermal", 1e9},
    {D, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", "lockstep_gpu_throttle_seconds_total", "reason", "hw_power_brake", 1e9},
    {D, "DCGM_FI_DEV_ECC_CURRENT", "lockstep_gpu_ecc_enabled", "", "", 1},
    {D, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "hw_errors_total", "error_type", "corrected", 1, "hw.errors", "error.type"},
    {D, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "hw_errors_total", "error_type", "uncorrected", 1, "hw.errors", "error.type"},
    {D, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "lockstep_gpu_ecc_aggregate_errors_total", "type", "corrected", 1},
    {D, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "lockstep_gpu_ecc_aggregate_errors_total", "type", "uncorrected", 1},
    {D, "DCGM_FI_DEV_ECC_SBE_VOL_SRM", "lockstep_gpu_sram_errors_total", "type", "corrected", 1},
    {D, "DCGM_FI_DEV_ECC_DBE_VOL_SRM", "lockstep_gpu_sram_errors_total", "type", "uncorrected", 1},
    {D, "DCGM_FI_DEV_ECC_SBE_AGG_SRM", "lockstep_gpu_sram_aggregate_errors_total", "type", "corrected", 1},
    {D, "DCGM_FI_DEV_ECC_DBE_AGG_SRM", "lockstep_gpu_sram_aggregate_errors_total", "type", "uncorrected", 1},
    {D, "DCGM_FI_DEV_THRESHOLD_SRM", "lockstep_gpu_sram_threshold_exceeded", "", "", 1},
    {D, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "lockstep_gpu_remapped_rows_total", "cause", "correctable", 1},
    {D, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "lockstep_gpu_remapped_rows_total", "cause", "uncorrectable", 1},
    {D, "DCGM_FI_DEV_ROW_REMAP_PENDING", "lockstep_gpu_row_remap_pending", "", "", 1},
    {D, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "lockstep_gpu_row_remap_failure", "", "", 1},
    {D, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", "lockstep_gpu_remap_banks", "spare", "max", 1},
    {D, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH", "lockstep_gpu_remap_banks", "spare", "high", 1},
    {D, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL", "lockstep_gpu_remap_banks", "spare", "partial", 1},
    {D, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW", "lockstep_gpu_remap_banks", "spare", "low", 1},
    {D, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE", "lockstep_gpu_remap_banks", "spare", "none", 1},
    {D, "DCGM_FI_DEV_RETIRED_SBE", "lockstep_gpu_retired_pages_total", "cause", "corrected", 1},
    {D, "DCGM_FI_DEV_RETIRED_DBE", "lockstep_gpu_retired_pages_total", "cause", "uncorrected", 1},
    {D, "DCGM_FI_DEV_RETIRED_PENDING", "lockstep_gpu_retired_pages_pending", "", "", 1},
    {D, "DCGM_FI_DEV_PCIE_LINK_GEN", "lockstep_gpu_pcie_generation", "", "", 1},
    {D, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "lockstep_gpu_pcie_generation_max", "", "", 1},
    {D, "DCGM_FI_DEV_PCIE_LINK_WIDTH", "lockstep_gpu_pcie_width", "", "", 1},
    {D, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "lockstep_gpu_pcie_width_max", "", "", 1},
    {D, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "lockstep_gpu_pcie_replays_total", "", "", 1},
    {D, "DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", "lockstep_gpu_pcie_errors_total", "type", "correctable", 1},
    {D, "DCGM_FI_PROF_PCIE_TX_BYTES", "lockstep_gpu_pcie_bytes_per_second", "direction", "transmit", 1},
    {D, "DCGM_FI_PROF_PCIE_RX_BYTES", "lockstep_gpu_pcie_bytes_per_second", "direction", "receive", 1},
    {D, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "lockstep_gpu_links_bytes_per_second", "direction", "both", 1e-6},
    {D, "DCGM_FI_PROF_NVLINK_TX_BYTES", "lockstep_gpu_links_bytes_per_second", "direction", "transmit", 1},
    {D, "DCGM_FI_PROF_NVLINK_RX_BYTES", "lockstep_gpu_links_bytes_per_second", "direction", "receive", 1},
    {D, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "lockstep_gpu_links_errors_total", "type", "crc_flit", 1},
    {D, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "lockstep_gpu_links_errors_total", "type", "crc_data", 1},
    {D, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "lockstep_gpu_links_errors_total", "type", "replay", 1},
    {D, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "lockstep_gpu_links_errors_total", "type", "recovery", 1},
    {D, "DCGM_FI_DEV_XID_ERRORS", "lockstep_gpu_xid_last", "", "", 1},

    // Its times are means of an interval, which a counter of ours does not say: no row.
    {I, "nccl_bus_bandwidth_gbs", "lockstep_collective_bus_bandwidth", "", "", 1e-9},

    // Its times and sizes are histograms of means, likewise.
    {M, "nccl_profiler_collective_bytes_total", "lockstep_collective_bytes_total", "", "", 1},
    {M, "nccl_profiler_collective_count_sum", "lockstep_collective_operations_total", "", "", 1},

    // Leaves of OpenConfig as gnmic names them.
    {O, "interfaces_interface_state_counters_in_octets", "lockstep_port_bytes_total", "direction", "in", 1},
    {O, "interfaces_interface_state_counters_out_octets", "lockstep_port_bytes_total", "direction", "out", 1},
    {O, "interfaces_interface_state_counters_in_pkts", "lockstep_port_packets_total", "direction", "in", 1},
    {O, "interfaces_interface_state_counters_out_pkts", "lockstep_port_packets_total", "direction", "out", 1},
    {O, "interfaces_interface_state_counters_in_errors", "lockstep_port_errors_total", "direction", "in", 1},
    {O, "interfaces_interface_state_counters_out_errors", "lockstep_port_errors_total", "direction", "out", 1},
    {O, "interfaces_interface_state_counters_in_discards", "lockstep_port_discards_total", "direction", "in", 1},
    {O, "interfaces_interface_state_counters_out_discards", "lockstep_port_discards_total", "direction", "out", 1},
    {O, "interfaces_interface_ethernet_state_counters_in_crc_errors", "lockstep_port_fcs_errors_total", "direction", "in", 1},
    // Not by priority: OpenConfig has no such leaf.
    {O, "interfaces_interface_ethernet_state_counters_in_mac_pause_frames", "lockstep_port_pfc_pause_frames_total", "direction", "in", 1},
    {O, "interfaces_interface_ethernet_state_counters_out_mac_pause_frames", "lockstep_port_pfc_pause_frames_total", "direction", "out", 1},
    {O, "qos_interfaces_interface_output_queues_queue_state_ecn_marked_pkts", "lockstep_port_ecn_marked_packets_total", "direction", "out", 1},
    {O, "qos_interfaces_interface_output_queues_queue_state_max_queue_len", "lockstep_port_queue_bytes", "direction", "out", 1},

    // IF-MIB and EtherLike-MIB. Its packets are counted by kind, which ours are not: no row.
    {S, "ifHCInOctets", "lockstep_port_bytes_total", "direction", "in", 1},
    {S, "ifHCOutOctets", "lockstep_port_bytes_total", "direction", "out", 1},
    {S, "ifInErrors", "lockstep_port_errors_total", "direction", "in", 1},
    {S, "ifOutErrors", "lockstep_port_errors_total", "direction", "out", 1},
    {S, "ifInDiscards", "lockstep_port_discards_total", "direction", "in", 1},
    {S, "ifOutDiscards", "lockstep_port_discards_total", "direction", "out", 1},
    {S, "ifHighSpeed", "lockstep_port_speed_bytes_per_second", "", "", 8e-6},
    {S, "dot3StatsFCSErrors", "lockstep_port_fcs_errors_total", "direction", "in", 1},
    {S, "dot3StatsSymbolErrors", "lockstep_port_symbol_errors_total", "direction", "in", 1},
    {S, "dot3HCInPauseFrames", "lockstep_port_pfc_pause_frames_total", "direction", "in", 1},
    {S, "dot3HCOutPauseFrames", "lockstep_port_pfc_pause_frames_total", "direction", "out", 1},
};
// clang-format on

constexpr LabelAlias kDcgmLabels[] = {{"UUID", "gpu_uuid"}, {"Hostname", "host"}};
// Its "gpu" is a number on the node, which we do not know here.
constexpr LabelAlias kInspectorLabels[] = {
    {"node", "host"}, {"slurm_job_id", "job_id"}, {"collective", "function"}, {"nranks", "comm_size"}};
constexpr LabelAlias kMosaicLabels[] = {
    {"gpu_uuid", "gpu_uuid"}, {"hostname", "host"}, {"operation", "function"}, {"comm_nranks", "comm_size"}};
constexpr LabelAlias kOpenConfigLabels[] = {
    {"source", "switch"}, {"interface_name", "port"}, {"interface_interface_id", "port"}, {"queue_name", "queue"}};
constexpr LabelAlias kSnmpLabels[] = {{"instance", "switch"}, {"ifName", "port"}};

struct Index {
  std::unordered_map<std::string_view, const MetricAlias*> others;
  std::unordered_map<std::string_view, std::vector<const MetricAlias*>> ours;
  Index() {
    for (const MetricAlias& row : kRows) {
      others.emplace(row.other, &row);
      ours[row.ours].push_back(&row);
    }
  }
};
const Index& index() {
  static const Index all;
  return all;
}

}  // namespace

const char* to_text(MetricTool tool) {
  static constexpr const char* kNames[] = {"dcgm-exporter", "NCCL Inspector", "Open Mosaic", "gnmic", "snmp_exporter"};
  return kNames[static_cast<size_t>(tool)];
}

std::span<const MetricAlias> metric_aliases() {
  return kRows;
}

std::span<const LabelAlias> label_aliases(MetricTool tool) {
  if (tool == MetricTool::kDcgm) return kDcgmLabels;
  if (tool == MetricTool::kInspector) return kInspectorLabels;
  if (tool == MetricTool::kOpenConfig) return kOpenConfigLabels;
  return tool == MetricTool::kSnmp ? std::span<const LabelAlias>(kSnmpLabels) : kMosaicLabels;
}

bool may_be_other_name(std::string_view name) {
  for (const std::string_view begin :
       {"DCGM_", "nccl_", "ifHC", "ifIn", "ifOut", "ifHighSpeed", "dot3", "interfaces_interface_", "qos_interfaces_"}) {
    if (name.starts_with(begin)) return true;
  }
  return false;
}

std::string dcgm_bus_id(std::string_view pci) {
  std::string text;
  for (char letter : pci) text += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text.find(':') == 4 ? "0000" + text : text;
}

const MetricAlias* alias_of_other(std::string_view other) {
  if (!may_be_other_name(other)) return nullptr;
  const auto found = index().others.find(other);
  return found == index().others.end() ? nullptr : found->second;
}

std::span<const MetricAlias* const> aliases_of_ours(std::string_view ours) {
  const auto found = index().ours.find(ours);
  if (found == index().ours.end()) return {};
  return found->second;
}

}  // namespace lockstep
