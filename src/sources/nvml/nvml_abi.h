// The part of NVIDIA's management library that we call, as it lies in memory: structs, statuses and signatures. Written
// down here, so that the agent needs no header of theirs and runs with any driver.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::nvml {

using Handle = void*;  // a device, an event set or a GPM sample: opaque

enum Status : int {
  kOk = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kFunctionNotFound = 13,
  kGpuLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kVersionMismatch = 18,
  kNoData = 21,
  kWrongVersion = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kUnknown = 999,
};
const char* status_text(int status);  // "GPU is lost"

// Most versioned structs begin with their size and version; GPM structs begin with a plain 1.
constexpr uint32_t struct_version(size_t bytes, uint32_t version) {
  return static_cast<uint32_t>(bytes) | (version << 24);
}

enum class ValueType : uint32_t { kDouble, kU32, kUnsignedLong, kU64, kI64, kI32, kU16 };

struct FieldValue {
  uint32_t field = 0;
  uint32_t scope = 0;  // a link, kAllLinks, or 0 GPU / 1 module for power
  int64_t timestamp_us = 0;
  int64_t latency_us = 0;
  ValueType type = ValueType::kU64;
  int32_t status = 0;
  union {
    double f64;
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    int32_t i32;
    uint16_t u16;
  } value = {};
};
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, type) == 24 && offsetof(FieldValue, value) == 32);
inline constexpr uint32_t kAllLinks = 0xFFFFFFFFu;

struct GpmMetric {
  uint32_t id = 0;
  int32_t status = 0;
  double value = 0;
  const char* names[3] = {};
};
static_assert(sizeof(GpmMetric) == 40 && offsetof(GpmMetric, value) == 8);

// The library touches only `count` metrics, so the array is as long as what we ask for.
inline constexpr uint32_t kGpmMetricsMax = 32;
struct GpmMetricsGet {
  uint32_t version = 1;
  uint32_t count = 0;
  Handle older = nullptr;
  Handle newer = nullptr;
  GpmMetric metrics[kGpmMetricsMax];
};
static_assert(offsetof(GpmMetricsGet, older) == 8 && offsetof(GpmMetricsGet, metrics) == 24);

struct GpmSupport {
  uint32_t version = 1;
  uint32_t supported = 0;
};
static_assert(sizeof(GpmSupport) == 8);

struct EventData {
  Handle device = nullptr;
  uint64_t type = 0;
  uint64_t data = 0;
  uint32_t gpu_instance = 0;
  uint32_t compute_instance = 0;
};
static_assert(sizeof(EventData) == 32);
inline constexpr uint64_t kEventXid = 0x8;
inline constexpr uint64_t kEventMigChange = 0x100;
inline constexpr uint64_t kEventUnavailable = 0x4000;
inline constexpr uint64_t kEventRecoveryAction = 0x8000;
inline constexpr uint32_t kNoInstance = 0xFFFFFFFFu;

struct Utilization {
  uint32_t gpu = 0;
  uint32_t memory = 0;
};
static_assert(sizeof(Utilization) == 8);

struct MemoryV1 {
  uint64_t total = 0, free = 0, used = 0;
};
struct MemoryV2 {
  uint32_t version = 0x02000028;
  uint64_t total = 0, reserved = 0, free = 0, used = 0;
};
static_assert(sizeof(MemoryV1) == 24 && sizeof(MemoryV2) == 40 && offsetof(MemoryV2, total) == 8);
static_assert(struct_version(sizeof(MemoryV2), 2) == MemoryV2{}.version);

struct PciInfo {
  char bus_id_legacy[16] = {};
  uint32_t domain = 0, bus = 0, device = 0, device_id = 0, subsystem = 0;
  char bus_id[32] = {};
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, domain) == 16 && offsetof(PciInfo, bus_id) == 36);

struct ProcessInfo {
  uint32_t pid = 0;
  uint64_t memory = 0;  // all ones: not known
  uint32_t gpu_instance = 0, compute_instance = 0;
};
static_assert(sizeof(ProcessInfo) == 24 && offsetof(ProcessInfo, memory) == 8);

struct Temperature {
  uint32_t version = 0x0100000C;
  uint32_t sensor = 0;
  int32_t celsius = 0;
};
struct MarginTemperature {
  uint32_t version = 0x01000008;
  int32_t celsius = 0;
};
static_assert(struct_version(sizeof(Temperature), 1) == Temperature{}.version);
static_assert(struct_version(sizeof(MarginTemperature), 1) == MarginTemperature{}.version);

inline constexpr uint32_t kFabricInfoV2 = 0x02000024;
inline constexpr uint32_t kFabricInfoV3 = 0x03000028;
struct FabricInfo {  // as of version 3; version 2 ends before `summary`
  uint32_t version = kFabricInfoV3;
  uint8_t cluster_uuid[16] = {};
  uint32_t status = 0;
  uint32_t clique = 0;
  uint8_t state = 0;
  uint32_t health_mask = 0;
  uint8_t summary = 0;
};
static_assert(struct_version(sizeof(FabricInfo), 3) == kFabricInfoV3);
static_assert(struct_version(offsetof(FabricInfo, summary), 2) == kFabricInfoV2);
static_assert(offsetof(FabricInfo, state) == 28 && offsetof(FabricInfo, health_mask) == 32);

struct EccSram {
  uint32_t version = 0x01000068;
  uint64_t aggregate_parity = 0, aggregate_secded = 0, aggregate_corrected = 0;
  uint64_t volatile_parity = 0, volatile_secded = 0, volatile_corrected = 0;
  uint64_t aggregate_by_place[5] = {};
  uint32_t threshold_exceeded = 0;
};
static_assert(struct_version(sizeof(EccSram), 1) == EccSram{}.version);
static_assert(offsetof(EccSram, volatile_parity) == 32 && offsetof(EccSram, threshold_exceeded) == 96);

struct RowRemapperHistogram {
  uint32_t max = 0, high = 0, partial = 0, low = 0, none = 0;
};
static_assert(sizeof(RowRemapperHistogram) == 20);

struct RepairStatus {
  uint32_t version = 0x0100000C;
  uint32_t channel_pending = 0, tpc_pending = 0;
};
static_assert(struct_version(sizeof(RepairStatus), 1) == RepairStatus{}.version);

struct LicensableFeature {
  uint32_t code = 0;
  uint32_t licensed = 0;
  char texts[2][128] = {};
  uint32_t enabled = 0;
  uint8_t expiry[16] = {};
};
struct LicensableFeatures {
  int32_t supported = 0;
  uint32_t count = 0;
  LicensableFeature features[3];
};
static_assert(sizeof(LicensableFeatures) == 860);

// X(member, symbol, older symbol with the same signature, parameters...)
// clang-format off
#define LOCKSTEP_NVML_FUNCTIONS(X) \
  X(init, "nvmlInit_v2", "nvmlInit") \
  X(shutdown, "nvmlShutdown", nullptr) \
  X(driver_version, "nvmlSystemGetDriverVersion", nullptr, char*, uint32_t) \
  X(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", uint32_t*) \
  X(handle_by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex", uint32_t, Handle*) \
  X(uuid, "nvmlDeviceGetUUID", nullptr, Handle, char*, uint32_t) \
  X(name, "nvmlDeviceGetName", nullptr, Handle, char*, uint32_t) \
  X(serial, "nvmlDeviceGetSerial", nullptr, Handle, char*, uint32_t) \
  X(pci_info, "nvmlDeviceGetPciInfo_v3", nullptr, Handle, PciInfo*) \
  X(minor_number, "nvmlDeviceGetMinorNumber", nullptr, Handle, uint32_t*) \
  X(memory_v2, "nvmlDeviceGetMemoryInfo_v2", nullptr, Handle, MemoryV2*) \
  X(memory_v1, "nvmlDeviceGetMemoryInfo", nullptr, Handle, MemoryV1*) \
  X(bar1, "nvmlDeviceGetBAR1MemoryInfo", nullptr, Handle, MemoryV1*) \
  X(utilization, "nvmlDeviceGetUtilizationRates", nullptr, Handle, Utilization*) \
  X(encoder_utilization, "nvmlDeviceGetEncoderUtilization", nullptr, Handle, uint32_t*, uint32_t*) \
  X(decoder_utilization, "nvmlDeviceGetDecoderUtilization", nullptr, Handle, uint32_t*, uint32_t*) \
  X(clock, "nvmlDeviceGetClockInfo", nullptr, Handle, uint32_t, uint32_t*) \
  X(clock_max, "nvmlDeviceGetMaxClockInfo", nullptr, Handle, uint32_t, uint32_t*) \
  X(temperature_v, "nvmlDeviceGetTemperatureV", nullptr, Handle, Temperature*) \
  X(temperature, "nvmlDeviceGetTemperature", nullptr, Handle, uint32_t, uint32_t*) \
  X(temperature_threshold, "nvmlDeviceGetTemperatureThreshold", nullptr, Handle, uint32_t, uint32_t*) \
  X(temperature_margin, "nvmlDeviceGetMarginTemperature", nullptr, Handle, MarginTemperature*) \
  X(performance_state, "nvmlDeviceGetPerformanceState", nullptr, Handle, uint32_t*) \
  X(power_usage, "nvmlDeviceGetPowerUsage", nullptr, Handle, uint32_t*) \
  X(total_energy, "nvmlDeviceGetTotalEnergyConsumption", nullptr, Handle, uint64_t*) \
  X(field_values, "nvmlDeviceGetFieldValues", nullptr, Handle, int, FieldValue*) \
  X(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration", nullptr, Handle, uint32_t*) \
  X(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", nullptr, Handle, uint32_t*) \
  X(pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration", nullptr, Handle, uint32_t*) \
  X(pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth", nullptr, Handle, uint32_t*) \
  X(sram_ecc, "nvmlDeviceGetSramEccErrorStatus", nullptr, Handle, EccSram*) \
  X(row_remapper_histogram, "nvmlDeviceGetRowRemapperHistogram", nullptr, Handle, RowRemapperHistogram*) \
  X(repair_status, "nvmlDeviceGetRepairStatus", nullptr, Handle, RepairStatus*) \
  X(fabric_info, "nvmlDeviceGetGpuFabricInfoV", nullptr, Handle, FabricInfo*) \
  X(link_state, "nvmlDeviceGetNvLinkState", nullptr, Handle, uint32_t, uint32_t*) \
  X(licensable_features, "nvmlDeviceGetGridLicensableFeatures_v4", nullptr, Handle, LicensableFeatures*) \
  X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", Handle, uint32_t*, \
    ProcessInfo*) \
  X(mig_mode, "nvmlDeviceGetMigMode", nullptr, Handle, uint32_t*, uint32_t*) \
  X(mig_count_max, "nvmlDeviceGetMaxMigDeviceCount", nullptr, Handle, uint32_t*) \
  X(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", nullptr, Handle, uint32_t, Handle*) \
  X(gpu_instance_id, "nvmlDeviceGetGpuInstanceId", nullptr, Handle, uint32_t*) \
  X(compute_instance_id, "nvmlDeviceGetComputeInstanceId", nullptr, Handle, uint32_t*) \
  X(gpm_support, "nvmlGpmQueryDeviceSupport", nullptr, Handle, GpmSupport*) \
  X(gpm_sample_alloc, "nvmlGpmSampleAlloc", nullptr, Handle*) \
  X(gpm_sample_free, "nvmlGpmSampleFree", nullptr, Handle) \
  X(gpm_sample_get, "nvmlGpmSampleGet", nullptr, Handle, Handle) \
  X(gpm_mig_sample_get, "nvmlGpmMigSampleGet", nullptr, Handle, uint32_t, Handle) \
  X(gpm_metrics_get, "nvmlGpmMetricsGet", nullptr, GpmMetricsGet*) \
  X(event_set_create, "nvmlEventSetCreate", nullptr, Handle*) \
  X(event_set_free, "nvmlEventSetFree", nullptr, Handle) \
  X(event_set_wait, "nvmlEventSetWait_v2", "nvmlEventSetWait", Handle, EventData*, uint32_t) \
  X(events_supported, "nvmlDeviceGetSupportedEventTypes", nullptr, Handle, uint64_t*) \
  X(events_register, "nvmlDeviceRegisterEvents", nullptr, Handle, uint64_t, Handle)
// clang-format on

enum class Call : uint8_t {
#define LOCKSTEP_NVML_CALL(member, ...) member,
  LOCKSTEP_NVML_FUNCTIONS(LOCKSTEP_NVML_CALL)
#undef LOCKSTEP_NVML_CALL
      kCount
};
inline constexpr size_t kCallCount = static_cast<size_t>(Call::kCount);

// A function of the library; `call` is null where this driver does not have it.
template <typename... Parameters>
struct Function {
  int (*call)(Parameters...) = nullptr;
  Call id;
  const char* name;
};

struct Api {
#define LOCKSTEP_NVML_MEMBER(member, symbol, older, ...) Function<__VA_ARGS__> member{nullptr, Call::member, symbol};
  LOCKSTEP_NVML_FUNCTIONS(LOCKSTEP_NVML_MEMBER)
#undef LOCKSTEP_NVML_MEMBER
};

}  // namespace lockstep::nvml
