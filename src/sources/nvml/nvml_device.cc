#include "sources/nvml/nvml_device.h"

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::nvml {

using enum GpuMetric;

namespace {

constexpr double kPercent = 0.01;
constexpr double kMega = 1e6;
// Limits are looked at again every 60 slow readings: about 10 minutes.
constexpr int kLimitsEvery = 60;
constexpr uint32_t kInstancesMax = 64;
constexpr size_t kProcessesMax = 8192;

enum Clock : uint32_t { kClockDomainSm = 1, kClockDomainMemory = 2, kClockDomainVideo = 3 };
enum Threshold : uint32_t { kShutdown = 0, kSlowdown = 1, kMemoryMax = 2, kGpuMax = 3 };

std::string text(const Function<Handle, char*, uint32_t>& function, Handle device) {
  char buffer[128] = {};
  if (function.call == nullptr || function.call(device, buffer, sizeof(buffer) - 1) != kOk) return "";
  return buffer;
}

}  // namespace

GpuInfo describe(const Api& api, Handle device, int32_t index, const std::string& driver) {
  GpuInfo info;
  info.uuid = text(api.uuid, device);
  info.index = index;
  info.vendor = "nvidia";
  info.model = text(api.name, device);
  info.serial = text(api.serial, device);
  info.driver = driver;
  PciInfo pci;
  if (api.pci_info.call != nullptr && api.pci_info.call(device, &pci) == kOk) {
    info.pci = format("%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
  }
  uint32_t minor = 0;
  if (api.minor_number.call != nullptr && api.minor_number.call(device, &minor) == kOk) {
    info.minor = static_cast<int32_t>(minor);
  }
  return info;
}

Device::Device(const Api& api, Handle handle, GpuInfo info, Notes& notes)
    : api_(&api),
      info_(std::move(info)),
      caller_(handle, format("GPU %d (%s)", info_.index, info_.model.c_str()), notes),
      links_(api),
      gpm_(api, kNoInstance) {}

const std::string& Device::uuid_of(uint32_t gpu_instance, uint32_t compute_instance) const {
  for (const auto& instance : instances_) {
    if (instance->gpu_instance != gpu_instance) continue;
    if (compute_instance == kNoInstance || instance->compute_instance == compute_instance) return instance->info.uuid;
  }
  return info_.uuid;
}

void Device::read(const GpuTick& tick, bool slow, GpuSnapshot& out) {
  GpuState state;
  state.info = info_;
  state.values.reserve(slow ? 256 : 64);
  const int64_t begun = SystemClock().monotonic_ns();
  if (slow || mig_due_) read_mig_mode(state);
  read_fast(state);
  if (slow) read_slow(state);

  std::vector<GpuState> instances;
  for (auto& instance : instances_) {
    GpuState& part = instances.emplace_back();
    part.info = instance->info;
    read_memory(instance->caller, part);
    // The sample of an instance is taken through its GPU, so what it says about losing it counts for the GPU.
    instance->gpm.read(caller_, part);
    add_gpu_value(part, kUp, 1);
    if (tick.processes) read_processes(instance->caller, part.info.uuid, out);
    caller_.judge_part("MIG instance", instance->caller.lost());
    caller_.judge_part("MIG instance", instance->caller.fatal());
  }
  if (tick.processes && instances_.empty()) read_processes(caller_, state.info.uuid, out);

  // Not lost, and yet not one answer: it is not up either.
  add_gpu_value(state, kUp, lost() == 0 && !state.values.empty() ? 1 : 0);
  add_gpu_value(state, kReadSeconds, static_cast<double>(SystemClock().monotonic_ns() - begun) * 1e-9);
  out.gpus.push_back(std::move(state));
  for (GpuState& part : instances) out.gpus.push_back(std::move(part));
}

void Device::add_u32(GpuMetric metric, double scale, const Function<Handle, uint32_t*>& function, GpuState& out) {
  uint32_t value = 0;
  if (caller_.ask(function, &value)) add_gpu_value(out, metric, value * scale);
}

void Device::read_fast(GpuState& out) {
  Utilization utilization;
  if (caller_.ask(api_->utilization, &utilization)) {
    add_gpu_value(out, kUtilGeneral, utilization.gpu * kPercent);
    add_gpu_value(out, kMemoryControllerActive, utilization.memory * kPercent);
  }
  read_memory(caller_, out);
  uint32_t mhz = 0;
  if (caller_.ask_variant(kClockDomainSm, api_->clock, kClockDomainSm, &mhz)) add_gpu_value(out, kClockSm, mhz * kMega);
  if (caller_.ask_variant(kClockDomainMemory, api_->clock, kClockDomainMemory, &mhz)) {
    add_gpu_value(out, kClockMemory, mhz * kMega);
  }
  Temperature temperature;
  uint32_t celsius = 0;
  if (caller_.ask(api_->temperature_v, &temperature)) {
    add_gpu_value(out, kTempGpu, temperature.celsius);
  } else if (!caller_.may_ask(api_->temperature_v) && caller_.ask(api_->temperature, 0u, &celsius)) {
    add_gpu_value(out, kTempGpu, celsius);
  }
  read_fields(out);
  // A GPU that is split has no activity of its own: its instances do.
  if (!mig_on_) gpm_.read(caller_, out);
}

void Device::read_fields(GpuState& out) {
  const int64_t monotonic_ns = SystemClock().monotonic_ns();
  double transmitted = -1;
  double received = -1;
  fast_.read(*api_, caller_, [&](const FieldBatch::Request& request, double value) {
    if (request.row.metric == kLinksTransmit) transmitted = value;
    if (request.row.metric == kLinksReceive) received = value;
    add_gpu_value(out, request.row.metric, value);
  });
  if (transmitted >= 0 && received >= 0) {
    const double bytes = transmitted + received;
    if (links_bytes_ >= 0 && bytes >= links_bytes_ && monotonic_ns > links_bytes_ns_) {
      const double seconds = static_cast<double>(monotonic_ns - links_bytes_ns_) * 1e-9;
      add_gpu_value(out, kLinksRate, (bytes - links_bytes_) / seconds);
    }
    links_bytes_ = bytes;
    links_bytes_ns_ = monotonic_ns;
  }
  // Older GPUs (A100) have it only as a call of its own.
  if (!fast_.asks_for(185)) add_u32(kPower, 1e-3, api_->power_usage, out);
}

void Device::read_memory(Caller& caller, GpuState& out) {
  MemoryV2 memory;
  if (!caller.ask(api_->memory_v2, &memory)) {
    MemoryV1 old;
    if (caller.may_ask(api_->memory_v2) || !caller.ask(api_->memory_v1, &old)) return;
    memory.total = old.total;
    memory.free = old.free;
    memory.used = old.used;  // with what the driver keeps: the old call does not tell them apart
  } else {
    add_gpu_value(out, kMemoryReserved, static_cast<double>(memory.reserved));
  }
  add_gpu_value(out, kMemoryLimit, static_cast<double>(memory.total));
  add_gpu_value(out, kMemoryUsage, static_cast<double>(memory.used));
  add_gpu_value(out, kMemoryFree, static_cast<double>(memory.free));
  if (memory.total > memory.reserved) {
    add_gpu_value(out, kMemoryUtilization,
                  static_cast<double>(memory.used) / static_cast<double>(memory.total - memory.reserved));
  }
}

void Device::read_slow(GpuState& out) {
  if (slow_readings_++ % kLimitsEvery == 0) read_limits();
  out.values.insert(out.values.end(), limits_.values.begin(), limits_.values.end());

  uint32_t percent = 0;
  uint32_t window_us = 0;
  if (caller_.ask(api_->encoder_utilization, &percent, &window_us)) {
    add_gpu_value(out, kUtilEncoder, percent * kPercent);
  }
  if (caller_.ask(api_->decoder_utilization, &percent, &window_us)) {
    add_gpu_value(out, kUtilDecoder, percent * kPercent);
  }
  MemoryV1 bar1;
  if (caller_.ask(api_->bar1, &bar1)) {
    add_gpu_value(out, kBar1Limit, static_cast<double>(bar1.total));
    add_gpu_value(out, kBar1Usage, static_cast<double>(bar1.used));
  }
  uint32_t mhz = 0;
  if (caller_.ask_variant(kClockDomainVideo, api_->clock, kClockDomainVideo, &mhz)) {
    add_gpu_value(out, kClockVideo, mhz * kMega);
  }
  MarginTemperature margin;
  if (caller_.ask(api_->temperature_margin, &margin)) add_gpu_value(out, kTempMargin, margin.celsius);
  add_u32(kPState, 1, api_->performance_state, out);
  add_u32(kPcieGeneration, 1, api_->pcie_generation, out);
  add_u32(kPcieWidth, 1, api_->pcie_width, out);
  read_errors(out);
  // As with the mean power: older GPUs have it only as a call of its own.
  uint64_t millijoules = 0;
  if (!slow_.asks_for(83) && caller_.ask(api_->total_energy, &millijoules)) {
    add_gpu_value(out, kEnergy, static_cast<double>(millijoules) * 1e-3);
  }
  read_fabric(out);
  links_.read(caller_, fast_.asks_for(138), out);
}

void Device::read_errors(GpuState& out) {
  slow_.read(*api_, caller_, [&](const FieldBatch::Request& request, double value) {
    if (request.row.label != nullptr) {
      add_gpu_value(out, request.row.metric, request.row.label, value);
    } else {
      add_gpu_value(out, request.row.metric, value);
    }
  });
  EccSram sram;
  if (caller_.ask(api_->sram_ecc, &sram)) {
    add_gpu_value(out, kSramCorrected, static_cast<double>(sram.volatile_corrected));
    add_gpu_value(out, kSramUncorrected, static_cast<double>(sram.volatile_parity + sram.volatile_secded));
    add_gpu_value(out, kSramAggregateCorrected, static_cast<double>(sram.aggregate_corrected));
    add_gpu_value(out, kSramAggregateUncorrected, static_cast<double>(sram.aggregate_parity + sram.aggregate_secded));
    add_gpu_value(out, kSramThreshold, sram.threshold_exceeded != 0 ? 1 : 0);
  }
  RowRemapperHistogram banks;
  if (caller_.ask(api_->row_remapper_histogram, &banks)) {
    add_gpu_value(out, kBanksMax, banks.max);
    add_gpu_value(out, kBanksHigh, banks.high);
    add_gpu_value(out, kBanksPartial, banks.partial);
    add_gpu_value(out, kBanksLow, banks.low);
    add_gpu_value(out, kBanksNone, banks.none);
  }
  RepairStatus repair;
  if (caller_.ask(api_->repair_status, &repair)) {
    add_gpu_value(out, kRepairChannelPending, repair.channel_pending);
    add_gpu_value(out, kRepairTpcPending, repair.tpc_pending);
  }
}

void Device::read_fabric(GpuState& out) {
  FabricInfo fabric;
  // Variant 1 is version 2 of the struct: asked for once version 3 is refused.
  fabric.version = fabric_version_;
  bool good = caller_.ask_variant(fabric_version_ == kFabricInfoV3 ? 0 : 1, api_->fabric_info, &fabric);
  if (!good && fabric_version_ == kFabricInfoV3 &&
      (caller_.last_status() == kWrongVersion || caller_.last_status() == kInvalidArgument)) {
    fabric_version_ = kFabricInfoV2;
    fabric = FabricInfo{};
    fabric.version = kFabricInfoV2;
    good = caller_.ask_variant(1, api_->fabric_info, &fabric);
  }
  if (!good) return;
  add_gpu_value(out, kFabricState, fabric.state);
  if (fabric.state == 0) return;  // no fabric: the rest says nothing
  add_gpu_value(out, kFabricStatus, fabric.status);
  add_gpu_value(out, kFabricHealthMask, fabric.health_mask);
  // Two bits: 1 yes, 2 no, 0 not known.
  add_gpu_value(out, kFabricDegradedBandwidth, (fabric.health_mask & 3) == 1 ? 1 : 0);
  if (fabric_version_ == kFabricInfoV3) add_gpu_value(out, kFabricHealth, fabric.summary);
}

void Device::read_limits() {
  limits_.values.clear();
  uint32_t value = 0;
  const auto threshold = [&](Threshold which, GpuMetric metric) {
    if (caller_.ask_variant(which, api_->temperature_threshold, which, &value)) add_gpu_value(limits_, metric, value);
  };
  threshold(kShutdown, kTempLimitShutdown);
  threshold(kSlowdown, kTempLimitSlowdown);
  threshold(kGpuMax, kTempLimitMax);
  threshold(kMemoryMax, kTempLimitMemory);
  const auto clock_max = [&](Clock which, GpuMetric metric) {
    if (caller_.ask_variant(which, api_->clock_max, which, &value)) add_gpu_value(limits_, metric, value * kMega);
  };
  clock_max(kClockDomainSm, kClockMaxSm);
  clock_max(kClockDomainMemory, kClockMaxMemory);
  add_u32(kPcieGenerationMax, 1, api_->pcie_generation_max, limits_);
  add_u32(kPcieWidthMax, 1, api_->pcie_width_max, limits_);
  LicensableFeatures license;
  double licensed = 0;
  if (caller_.ask(api_->licensable_features, &license)) {
    for (uint32_t i = 0; i < std::min<uint32_t>(license.count, 3); ++i) {
      if (license.features[i].licensed != 0) licensed = 1;
    }
  }
  add_gpu_value(limits_, kVgpuLicense, licensed);
}

void Device::read_mig_mode(GpuState& out) {
  mig_due_ = false;
  uint32_t now = 0;
  uint32_t pending = 0;
  if (!caller_.ask(api_->mig_mode, &now, &pending)) return;
  if (mig_known_ && (now == 1) != mig_on_) {
    // Splitting a GPU changes what it supports.
    caller_.forget();
    fast_ = FieldBatch(kFastFields);
    slow_ = FieldBatch(kSlowFields);
    mig_changed_ = true;
  }
  mig_on_ = now == 1;
  find_instances();
  mig_known_ = true;
  add_gpu_value(out, kMigMode, mig_on_ ? 1 : 0);
  add_gpu_value(out, kMigInstances, static_cast<double>(instances_.size()));
}

void Device::find_instances() {
  std::vector<std::unique_ptr<MigInstance>> found;
  uint32_t most = 0;
  if (mig_on_ && caller_.ask(api_->mig_count_max, &most)) {
    for (uint32_t i = 0; i < std::min(most, kInstancesMax); ++i) {
      Handle handle = nullptr;
      // Straight to the library: an empty place is "not found" or "invalid", and neither says anything of the call.
      if (api_->mig_handle.call == nullptr || api_->mig_handle.call(caller_.device(), i, &handle) != kOk) continue;
      uint32_t gpu = kNoInstance;
      uint32_t compute = kNoInstance;
      if (api_->gpu_instance_id.call != nullptr) api_->gpu_instance_id.call(handle, &gpu);
      if (api_->compute_instance_id.call != nullptr) api_->compute_instance_id.call(handle, &compute);
      GpuInfo info = info_;
      info.uuid = text(api_->uuid, handle);
      info.parent_uuid = info_.uuid;
      if (const std::string model = text(api_->name, handle); !model.empty()) info.model = model;
      if (info.uuid.empty() || gpu == kNoInstance) continue;
      auto same = std::find_if(instances_.begin(), instances_.end(), [&](const auto& known) {
        return known && known->info == info && known->caller.device() == handle;
      });
      if (same != instances_.end()) {
        found.push_back(std::move(*same));
      } else {
        mig_changed_ = mig_changed_ || mig_known_;
        found.push_back(std::make_unique<MigInstance>(*api_, handle, info, gpu, compute, caller_.notes()));
      }
    }
  }
  if (mig_known_ && found.size() != instances_.size()) mig_changed_ = true;
  instances_ = std::move(found);
}

void Device::read_processes(Caller& caller, const std::string& uuid, GpuSnapshot& out) {
  if (!caller.may_ask(api_->processes)) return;
  if (processes_.size() < 32) processes_.resize(32);
  uint32_t count = 0;
  int status = kInsufficientSize;
  for (int attempt = 0; attempt < 3 && status == kInsufficientSize; ++attempt) {
    if (count > processes_.size()) processes_.resize(std::min<size_t>(count + 16, kProcessesMax));
    count = static_cast<uint32_t>(processes_.size());
    status = api_->processes.call(caller.device(), &count, processes_.data());
  }
  if (!caller.judge(api_->processes.id, api_->processes.name, status)) return;
  out.processes_read = true;
  for (uint32_t i = 0; i < std::min<size_t>(count, processes_.size()); ++i) {
    const ProcessInfo& process = processes_[i];
    const uint64_t bytes = process.memory == UINT64_MAX ? 0 : process.memory;
    out.processes.push_back({static_cast<int32_t>(process.pid), uuid, bytes});
  }
}

}  // namespace lockstep::nvml
