// Every number that we keep about a GPU, whoever made it: one row each, filled by sources/nvml and sources/amdsmi.
//
// Rows that share a name are neighbours, agree in unit, kind and label, and differ in the value of that label: print
// the description of a name once. A row whose label value is not in the table (kLabelByReader) takes it from
// GpuValue::label, e.g. the number of a link. What others call them: model/metric_aliases.cc.
//
// The table is one macro, so that the enumerators and the rows cannot drift apart:
//   X(enumerator, name, unit, kind, label, label value, quantum, help)
// Thread rule: Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "model/metric_descriptor.h"
#include "sources/gpu/gpu_reader.h"

namespace lockstep {

inline constexpr const char* kLabelByReader = "*";

inline constexpr double kRatioQuantum = 1.0 / 1024;
inline constexpr double kRateQuantum = 1 << 20;   // rates of bytes: 1 MiB/s
inline constexpr double kBytesQuantum = 1 << 20;  // memory and counters of bytes: 1 MiB

// clang-format off
#define LOCKSTEP_GPU_METRICS(X) \
  /* Health */ \
  X(kUp, "lockstep_gpu_up", "1", kGauge, "", "", 0, "1 while the GPU answers, 0 once it is lost") \
  X(kReadSeconds, "lockstep_gpu_read_seconds", "s", kGauge, "", "", 1.0 / 4096, "Time spent in the driver's library for this GPU in this reading") \
  X(kRecoveryAction, "lockstep_gpu_recovery_action", "1", kGauge, "", "", 0, "What the driver wants done: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain peers, 4 drain and reset, 5 recover the IMEX domain") \
  X(kFabricState, "lockstep_gpu_fabric_state", "1", kGauge, "", "", 0, "Joining the NVLink fabric: 0 not there, 1 not started, 2 in progress, 3 done") \
  X(kFabricStatus, "lockstep_gpu_fabric_status", "1", kGauge, "", "", 0, "How joining the NVLink fabric ended; 0: well") \
  X(kFabricHealth, "lockstep_gpu_fabric_health", "1", kGauge, "", "", 0, "0 not known, 1 healthy, 2 unhealthy, 3 limited") \
  X(kFabricHealthMask, "lockstep_gpu_fabric_health_mask", "1", kGauge, "", "", 0, "Health bits of the NVLink fabric as the driver gives them") \
  X(kFabricDegradedBandwidth, "lockstep_gpu_fabric_degraded_bandwidth", "1", kGauge, "", "", 0, "1 while the NVLink fabric runs with fewer links than it should") \
  X(kMigMode, "lockstep_gpu_mig_mode", "1", kGauge, "", "", 0, "1 while the GPU is split into instances") \
  X(kMigInstances, "lockstep_gpu_mig_instances", "{instance}", kGauge, "", "", 0, "Instances that the GPU is split into") \
  X(kVgpuLicense, "lockstep_gpu_vgpu_license_status", "1", kGauge, "", "", 0, "1: a vGPU licence is held; 0 also where none is needed") \
  /* Activity, as the hardware counts it over the last tick */ \
  X(kEngineActive, "lockstep_gpu_engine_active", "1", kGauge, "", "", kRatioQuantum, "Share of the time in which the compute engine had work") \
  X(kSmActive, "lockstep_gpu_sm_active", "1", kGauge, "", "", kRatioQuantum, "Share of the cycles in which an SM had a warp, mean over SMs") \
  X(kSmOccupancy, "lockstep_gpu_sm_occupancy", "1", kGauge, "", "", kRatioQuantum, "Resident warps as a share of the most that fit") \
  X(kTensorActive, "lockstep_gpu_tensor_active", "1", kGauge, "", "", kRatioQuantum, "Share of the cycles in which the matrix units worked; an upper bound of MFU") \
  X(kPipeHmma, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "hmma", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kPipeImma, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "imma", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kPipeDfma, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "dfma", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kPipeInt, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "int", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kPipeFp64, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "fp64", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kPipeFp32, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "fp32", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kPipeFp16, "lockstep_gpu_pipe_active", "1", kGauge, "pipe", "fp16", kRatioQuantum, "Share of the cycles in which a pipe worked") \
  X(kDramActive, "lockstep_gpu_dram_active", "1", kGauge, "", "", kRatioQuantum, "Share of the memory bandwidth in use") \
  X(kUtilGeneral, "hw.gpu.utilization", "1", kGauge, "hw.gpu.task", "general", kRatioQuantum, "Share of the time in which the GPU did anything at all of a kind") \
  X(kUtilEncoder, "hw.gpu.utilization", "1", kGauge, "hw.gpu.task", "encoder", kRatioQuantum, "Share of the time in which the GPU did anything at all of a kind") \
  X(kUtilDecoder, "hw.gpu.utilization", "1", kGauge, "hw.gpu.task", "decoder", kRatioQuantum, "Share of the time in which the GPU did anything at all of a kind") \
  X(kMemoryControllerActive, "lockstep_gpu_memory_controller_active", "1", kGauge, "", "", kRatioQuantum, "Share of the time in which memory was read or written at all") \
  /* Memory */ \
  X(kMemoryLimit, "hw.gpu.memory.limit", "By", kGauge, "", "", 0, "Memory of the GPU") \
  X(kMemoryUsage, "hw.gpu.memory.usage", "By", kGauge, "", "", kBytesQuantum, "Memory in use by programs") \
  X(kMemoryUtilization, "hw.gpu.memory.utilization", "1", kGauge, "", "", kRatioQuantum, "Memory in use as a share of what programs may have") \
  X(kMemoryFree, "lockstep_gpu_memory_free_bytes", "By", kGauge, "", "", kBytesQuantum, "Memory that is free") \
  X(kMemoryReserved, "lockstep_gpu_memory_reserved_bytes", "By", kGauge, "", "", kBytesQuantum, "Memory that the driver and the firmware keep") \
  X(kBar1Limit, "lockstep_gpu_bar1_limit_bytes", "By", kGauge, "", "", 0, "Size of the window through which others reach GPU memory") \
  X(kBar1Usage, "lockstep_gpu_bar1_usage_bytes", "By", kGauge, "", "", kBytesQuantum, "Part of that window in use") \
  /* Power */ \
  X(kPower, "hw.power", "W", kGauge, "", "", 1, "Power draw, mean over a second") \
  X(kPowerInstant, "lockstep_gpu_power_instant_watts", "W", kGauge, "", "", 1, "Power draw at the moment of reading") \
  X(kPowerLimit, "lockstep_gpu_power_limit_watts", "W", kGauge, "limit", "enforced", 0, "Power limits") \
  X(kPowerLimitRequested, "lockstep_gpu_power_limit_watts", "W", kGauge, "limit", "requested", 0, "Power limits") \
  X(kPowerLimitDefault, "lockstep_gpu_power_limit_watts", "W", kGauge, "limit", "default", 0, "Power limits") \
  X(kPowerLimitMin, "lockstep_gpu_power_limit_watts", "W", kGauge, "limit", "min", 0, "Power limits") \
  X(kPowerLimitMax, "lockstep_gpu_power_limit_watts", "W", kGauge, "limit", "max", 0, "Power limits") \
  X(kEnergy, "hw.energy", "J", kSum, "", "", 1, "Energy used since the driver was loaded") \
  /* Heat */ \
  X(kTempGpu, "hw.temperature", "Cel", kGauge, "hw.sensor_location", "gpu", 0, "Temperature") \
  X(kTempMemory, "hw.temperature", "Cel", kGauge, "hw.sensor_location", "memory", 0, "Temperature") \
  X(kTempHotspot, "hw.temperature", "Cel", kGauge, "hw.sensor_location", "hotspot", 0, "Temperature") \
  X(kTempOther, "hw.temperature", "Cel", kGauge, "hw.sensor_location", kLabelByReader, 0, "Temperature") \
  X(kTempMargin, "lockstep_gpu_temperature_margin_celsius", "Cel", kGauge, "", "", 0, "Degrees that are left before the GPU slows itself down") \
  X(kTempLimitShutdown, "hw.temperature.limit", "Cel", kGauge, "hw.limit_type", "high.critical", 0, "Temperature at which the GPU shuts down (high.critical), slows down (high.degraded), or should stay below (max)") \
  X(kTempLimitSlowdown, "hw.temperature.limit", "Cel", kGauge, "hw.limit_type", "high.degraded", 0, "Temperature at which the GPU shuts down (high.critical), slows down (high.degraded), or should stay below (max)") \
  X(kTempLimitMax, "hw.temperature.limit", "Cel", kGauge, "hw.limit_type", "max", 0, "Temperature at which the GPU shuts down (high.critical), slows down (high.degraded), or should stay below (max)") \
  X(kTempLimitMemory, "lockstep_gpu_memory_temperature_limit_celsius", "Cel", kGauge, "", "", 0, "Temperature that GPU memory should stay below") \
  /* Clocks */ \
  X(kClockSm, "lockstep_gpu_clock_hertz", "Hz", kGauge, "clock", "sm", 0, "Clock frequency now") \
  X(kClockMemory, "lockstep_gpu_clock_hertz", "Hz", kGauge, "clock", "memory", 0, "Clock frequency now") \
  X(kClockVideo, "lockstep_gpu_clock_hertz", "Hz", kGauge, "clock", "video", 0, "Clock frequency now") \
  X(kClockMaxSm, "lockstep_gpu_clock_max_hertz", "Hz", kGauge, "clock", "sm", 0, "Highest clock frequency") \
  X(kClockMaxMemory, "lockstep_gpu_clock_max_hertz", "Hz", kGauge, "clock", "memory", 0, "Highest clock frequency") \
  X(kPState, "lockstep_gpu_pstate", "1", kGauge, "", "", 0, "Performance state; 0 is the fastest") \
  /* Time below the clocks that were asked for, by reason; counted by the driver, so that short spells are seen */ \
  X(kThrottlePower, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "power", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleThermal, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "thermal", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleSyncBoost, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "sync_boost", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleBoardLimit, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "board_limit", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleLowUtilization, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "low_utilization", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleReliability, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "reliability", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleAppClocks, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "below_app_clocks", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleBaseClocks, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "below_base_clocks", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleSwThermal, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "sw_thermal", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleHwThermal, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "hw_thermal", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottlePowerBrake, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", "hw_power_brake", 1.0 / 1024, "Time that clocks were held back, by reason") \
  X(kThrottleOther, "lockstep_gpu_throttle_seconds_total", "s", kSum, "reason", kLabelByReader, 1.0 / 1024, "Time that clocks were held back, by reason") \
  /* Memory errors */ \
  X(kEccEnabled, "lockstep_gpu_ecc_enabled", "1", kGauge, "", "", 0, "1 while memory is protected by ECC") \
  X(kEccCorrected, "hw.errors", "{error}", kSum, "error.type", "corrected", 0, "Memory errors since the driver was loaded") \
  X(kEccUncorrected, "hw.errors", "{error}", kSum, "error.type", "uncorrected", 0, "Memory errors since the driver was loaded") \
  X(kEccAggregateCorrected, "lockstep_gpu_ecc_aggregate_errors_total", "{error}", kSum, "type", "corrected", 0, "Memory errors in the life of the GPU") \
  X(kEccAggregateUncorrected, "lockstep_gpu_ecc_aggregate_errors_total", "{error}", kSum, "type", "uncorrected", 0, "Memory errors in the life of the GPU") \
  X(kEccUnitCorrected, "lockstep_gpu_ecc_unit_corrected_errors_total", "{error}", kSum, "unit", kLabelByReader, 0, "Corrected memory errors since the driver was loaded, by where: l1, l2, memory, register, texture, cbu") \
  X(kEccUnitUncorrected, "lockstep_gpu_ecc_unit_uncorrected_errors_total", "{error}", kSum, "unit", kLabelByReader, 0, "Uncorrected memory errors since the driver was loaded, by where") \
  X(kSramCorrected, "lockstep_gpu_sram_errors_total", "{error}", kSum, "type", "corrected", 0, "Errors of on-chip memory since the driver was loaded") \
  X(kSramUncorrected, "lockstep_gpu_sram_errors_total", "{error}", kSum, "type", "uncorrected", 0, "Errors of on-chip memory since the driver was loaded") \
  X(kSramAggregateCorrected, "lockstep_gpu_sram_aggregate_errors_total", "{error}", kSum, "type", "corrected", 0, "Errors of on-chip memory in the life of the GPU") \
  X(kSramAggregateUncorrected, "lockstep_gpu_sram_aggregate_errors_total", "{error}", kSum, "type", "uncorrected", 0, "Errors of on-chip memory in the life of the GPU") \
  X(kSramThreshold, "lockstep_gpu_sram_threshold_exceeded", "1", kGauge, "", "", 0, "1: so many on-chip memory errors that the maker takes the GPU back") \
  X(kRemappedCorrectable, "lockstep_gpu_remapped_rows_total", "{row}", kSum, "cause", "correctable", 0, "Memory rows that were replaced by spare ones") \
  X(kRemappedUncorrectable, "lockstep_gpu_remapped_rows_total", "{row}", kSum, "cause", "uncorrectable", 0, "Memory rows that were replaced by spare ones") \
  X(kRemapPending, "lockstep_gpu_row_remap_pending", "1", kGauge, "", "", 0, "1: a row waits for a GPU reset to be replaced") \
  X(kRemapFailure, "lockstep_gpu_row_remap_failure", "1", kGauge, "", "", 0, "1: a row could not be replaced") \
  X(kBanksMax, "lockstep_gpu_remap_banks", "{bank}", kGauge, "spare", "max", 0, "Memory banks by how many spare rows they have left") \
  X(kBanksHigh, "lockstep_gpu_remap_banks", "{bank}", kGauge, "spare", "high", 0, "Memory banks by how many spare rows they have left") \
  X(kBanksPartial, "lockstep_gpu_remap_banks", "{bank}", kGauge, "spare", "partial", 0, "Memory banks by how many spare rows they have left") \
  X(kBanksLow, "lockstep_gpu_remap_banks", "{bank}", kGauge, "spare", "low", 0, "Memory banks by how many spare rows they have left") \
  X(kBanksNone, "lockstep_gpu_remap_banks", "{bank}", kGauge, "spare", "none", 0, "Memory banks by how many spare rows they have left") \
  X(kRetiredCorrected, "lockstep_gpu_retired_pages_total", "{page}", kSum, "cause", "corrected", 0, "Memory pages that are no longer used") \
  X(kRetiredUncorrected, "lockstep_gpu_retired_pages_total", "{page}", kSum, "cause", "uncorrected", 0, "Memory pages that are no longer used") \
  X(kRetiredPending, "lockstep_gpu_retired_pages_pending", "1", kGauge, "", "", 0, "Memory pages that wait for a reset to be retired") \
  X(kRepairChannelPending, "lockstep_gpu_repair_pending", "1", kGauge, "part", "channel", 0, "1: a memory channel or a TPC waits for a reset to be repaired") \
  X(kRepairTpcPending, "lockstep_gpu_repair_pending", "1", kGauge, "part", "tpc", 0, "1: a memory channel or a TPC waits for a reset to be repaired") \
  /* PCIe */ \
  X(kPcieGeneration, "lockstep_gpu_pcie_generation", "1", kGauge, "", "", 0, "PCIe generation now; falls while the GPU idles") \
  X(kPcieGenerationMax, "lockstep_gpu_pcie_generation_max", "1", kGauge, "", "", 0, "PCIe generation that GPU and slot can do") \
  X(kPcieWidth, "lockstep_gpu_pcie_width", "{lane}", kGauge, "", "", 0, "PCIe lanes in use") \
  X(kPcieWidthMax, "lockstep_gpu_pcie_width_max", "{lane}", kGauge, "", "", 0, "PCIe lanes that GPU and slot can use") \
  X(kPcieReplays, "lockstep_gpu_pcie_replays_total", "{replay}", kSum, "", "", 0, "PCIe packets sent again") \
  X(kPcieCorrectable, "lockstep_gpu_pcie_errors_total", "{error}", kSum, "type", "correctable", 0, "PCIe errors as the GPU counts them") \
  X(kPcieNonFatal, "lockstep_gpu_pcie_errors_total", "{error}", kSum, "type", "non_fatal", 0, "PCIe errors as the GPU counts them") \
  X(kPcieFatal, "lockstep_gpu_pcie_errors_total", "{error}", kSum, "type", "fatal", 0, "PCIe errors as the GPU counts them") \
  X(kPcieError, "lockstep_gpu_pcie_errors_total", "{error}", kSum, "type", kLabelByReader, 0, "PCIe errors as the GPU counts them") \
  X(kPcieRecoveries, "lockstep_gpu_pcie_l0_recoveries_total", "{recovery}", kSum, "", "", 0, "Times that the PCIe link had to recover") \
  X(kPcieTransmit, "hw.gpu.io", "By", kSum, "network.io.direction", "transmit", kBytesQuantum, "Bytes over PCIe, seen from the GPU") \
  X(kPcieReceive, "hw.gpu.io", "By", kSum, "network.io.direction", "receive", kBytesQuantum, "Bytes over PCIe, seen from the GPU") \
  X(kPcieTransmitRate, "lockstep_gpu_pcie_bytes_per_second", "By/s", kGauge, "direction", "transmit", kRateQuantum, "Rate over PCIe, headers and all, seen from the GPU") \
  X(kPcieReceiveRate, "lockstep_gpu_pcie_bytes_per_second", "By/s", kGauge, "direction", "receive", kRateQuantum, "Rate over PCIe, headers and all, seen from the GPU") \
  /* Links between GPUs: NVLink, XGMI */ \
  X(kLinks, "lockstep_gpu_links", "{link}", kGauge, "", "", 0, "Links to other GPUs or switches that the GPU has") \
  X(kLinksUp, "lockstep_gpu_links_up", "{link}", kGauge, "", "", 0, "Links to other GPUs or switches that are up") \
  X(kLinkDowns, "lockstep_gpu_link_downs_total", "{event}", kSum, "", "", 0, "Links seen to go down since the reader started") \
  X(kLinksTransmit, "lockstep_gpu_links_bytes_total", "By", kSum, "direction", "transmit", kBytesQuantum, "Bytes over all links between GPUs") \
  X(kLinksReceive, "lockstep_gpu_links_bytes_total", "By", kSum, "direction", "receive", kBytesQuantum, "Bytes over all links between GPUs") \
  X(kLinksRate, "lockstep_gpu_links_bytes_per_second", "By/s", kGauge, "direction", "both", kRateQuantum, "Rate over all links between GPUs") \
  X(kLinksTransmitRate, "lockstep_gpu_links_bytes_per_second", "By/s", kGauge, "direction", "transmit", kRateQuantum, "Rate over all links between GPUs") \
  X(kLinksReceiveRate, "lockstep_gpu_links_bytes_per_second", "By/s", kGauge, "direction", "receive", kRateQuantum, "Rate over all links between GPUs") \
  X(kLinksCrcFlit, "lockstep_gpu_links_errors_total", "{error}", kSum, "type", "crc_flit", 0, "Errors of all links between GPUs") \
  X(kLinksCrcData, "lockstep_gpu_links_errors_total", "{error}", kSum, "type", "crc_data", 0, "Errors of all links between GPUs") \
  X(kLinksReplay, "lockstep_gpu_links_errors_total", "{error}", kSum, "type", "replay", 0, "Errors of all links between GPUs") \
  X(kLinksRecovery, "lockstep_gpu_links_errors_total", "{error}", kSum, "type", "recovery", 0, "Errors of all links between GPUs") \
  X(kLinksEcc, "lockstep_gpu_links_errors_total", "{error}", kSum, "type", "ecc", 0, "Errors of all links between GPUs") \
  X(kLinksError, "lockstep_gpu_links_errors_total", "{error}", kSum, "type", kLabelByReader, 0, "Errors of all links between GPUs") \
  /* One link each; the label is its number */ \
  X(kLinkUp, "lockstep_gpu_link_up", "1", kGauge, "link", kLabelByReader, 0, "1 while the link is up") \
  X(kLinkTransmit, "lockstep_gpu_link_transmit_bytes_total", "By", kSum, "link", kLabelByReader, kBytesQuantum, "Bytes sent over one link") \
  X(kLinkReceive, "lockstep_gpu_link_receive_bytes_total", "By", kSum, "link", kLabelByReader, kBytesQuantum, "Bytes received over one link") \
  X(kLinkCrc, "lockstep_gpu_link_crc_errors_total", "{error}", kSum, "link", kLabelByReader, 0, "Damaged packets on one link") \
  X(kLinkReplay, "lockstep_gpu_link_replays_total", "{replay}", kSum, "link", kLabelByReader, 0, "Packets sent again on one link") \
  X(kLinkRecovery, "lockstep_gpu_link_recoveries_total", "{recovery}", kSum, "link", kLabelByReader, 0, "Times that one link had to recover") \
  X(kLinkErrors, "lockstep_gpu_link_errors_total", "{error}", kSum, "link", kLabelByReader, 0, "Receive errors of one link") \
  X(kLinkSymbolErrors, "lockstep_gpu_link_symbol_errors_total", "{error}", kSum, "link", kLabelByReader, 0, "Symbols of one link that came through damaged, before correction") \
  X(kLinkEffectiveErrors, "lockstep_gpu_link_effective_errors_total", "{error}", kSum, "link", kLabelByReader, 0, "Errors of one link that correction could not mend") \
  X(kLinkRecoveryFailed, "lockstep_gpu_link_recoveries_failed_total", "{recovery}", kSum, "link", kLabelByReader, 0, "Times that one link could not recover")
// clang-format on

enum class GpuMetric : uint16_t {
#define LOCKSTEP_GPU_ENUMERATOR(id, ...) id,
  LOCKSTEP_GPU_METRICS(LOCKSTEP_GPU_ENUMERATOR)
#undef LOCKSTEP_GPU_ENUMERATOR
      kCount
};

inline constexpr size_t kGpuMetricCount = static_cast<size_t>(GpuMetric::kCount);

inline constexpr std::array<MetricDescriptor, kGpuMetricCount> kGpuMetrics = {{
#define LOCKSTEP_GPU_ROW(id, name, unit, kind, label, label_value, quantum, help) \
  {name, unit, MetricKind::kind, label[0] == '\0' ? "gpu_uuid" : "gpu_uuid, " label, help, quantum},
    LOCKSTEP_GPU_METRICS(LOCKSTEP_GPU_ROW)
#undef LOCKSTEP_GPU_ROW
}};

// The value of a row's second label: "" where it has none, kLabelByReader where the reader fills it in.
inline constexpr std::array<const char*, kGpuMetricCount> kGpuLabelValues = {{
#define LOCKSTEP_GPU_LABEL(id, name, unit, kind, label, label_value, ...) label_value,
    LOCKSTEP_GPU_METRICS(LOCKSTEP_GPU_LABEL)
#undef LOCKSTEP_GPU_LABEL
}};

constexpr const MetricDescriptor& gpu_metric(GpuMetric metric) {
  return kGpuMetrics[static_cast<size_t>(metric)];
}

// How readers add a value: the label comes from the table.
inline void add_gpu_value(GpuState& gpu, GpuMetric metric, double value) {
  gpu.values.push_back({&gpu_metric(metric), kGpuLabelValues[static_cast<size_t>(metric)], value});
}
// For the rows marked kLabelByReader.
inline void add_gpu_value(GpuState& gpu, GpuMetric metric, std::string label, double value) {
  gpu.values.push_back({&gpu_metric(metric), std::move(label), value});
}

}  // namespace lockstep
