// AMD's GPUs through its management library. One call, amdsmi_get_gpu_metrics_info(), brings most of what is read every
// tick, from one read of the driver's table. Not called, though it exists: amdsmi_get_violation_status() sleeps 100 ms
// for each GPU (the same counters are in the table), amdsmi_get_gpu_pci_throughput() a second, and
// amdsmi_get_link_metrics() has entries of another size in almost every version.
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "sources/amdsmi/amdsmi_library.h"
#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/gpu_reader.h"

namespace lockstep {
namespace {

using namespace amdsmi;

constexpr size_t kGpusMax = 256;
constexpr uint32_t kProcessesMax = 4096;  // of one GPU
constexpr double kKilobyte = 1024;        // of the XGMI counters, as the library's own tools read them
constexpr double kMegahertz = 1e6;

// What can be found to be missing, one by one for each GPU.
enum class Call : uint8_t {
  kMetrics,
  kMemoryTotal,
  kMemoryUsage,
  kEnergyUnit,
  kLimitHotspotCritical,
  kLimitHotspotEmergency,
  kLimitMemory,
  kClockGraphics,
  kClockMemory,
  kPowerCap,
  kPcie,
  kEcc,
  kBadPages,
  kProcesses,
  kCount
};
constexpr const char* kCallNames[] = {"metrics table",
                                      "memory size",
                                      "memory usage",
                                      "energy",
                                      "temperature limits",
                                      "temperature limits",
                                      "temperature limits",
                                      "clock limits",
                                      "clock limits",
                                      "power limits",
                                      "PCIe",
                                      "ECC errors",
                                      "retired pages",
                                      "processes"};
static_assert(std::size(kCallNames) == static_cast<size_t>(Call::kCount));

// One reason for which clocks are held back, counted by the firmware in samples of its own.
struct Throttle {
  uint64_t GpuMetrics::*samples;
  GpuMetric metric;
  const char* label;  // for kThrottleOther; else nullptr
};
constexpr Throttle kThrottles[] = {
    {&GpuMetrics::throttled_power, GpuMetric::kThrottlePower, nullptr},
    {&GpuMetrics::throttled_socket_heat, GpuMetric::kThrottleThermal, nullptr},
    {&GpuMetrics::throttled_prochot, GpuMetric::kThrottleOther, "prochot"},
    {&GpuMetrics::throttled_regulator_heat, GpuMetric::kThrottleOther, "regulator_thermal"},
    {&GpuMetrics::throttled_hbm_heat, GpuMetric::kThrottleOther, "hbm_thermal"},
};

struct Device {
  Handle handle = nullptr;
  GpuInfo info;
  std::bitset<static_cast<size_t>(Call::kCount)> off;  // not supported: not asked again
  bool answered = false;
  bool lost = false;
  double energy_joules = 0;  // of one unit of the counter; 0: not known
  double memory_total = 0;
  // For turning shares of the firmware's samples into seconds.
  bool throttles_known = false;
  int64_t throttles_ns = 0;
  GpuMetrics throttles_before{};
  double throttled_seconds[std::size(kThrottles)] = {};
};

// Known, and not the zero by which some boards say that there is no such sensor.
bool is_temperature(uint16_t degrees) {
  return degrees > 0 && degrees < 200;
}

// PCIe's signalling rate in MT/s as its generation; 0: none of them.
int pcie_generation(uint32_t megatransfers) {
  constexpr uint32_t kRates[] = {2500, 5000, 8000, 16'000, 32'000, 64'000};
  const auto* found = std::find(std::begin(kRates), std::end(kRates), megatransfers);
  return found == std::end(kRates) ? 0 : static_cast<int>(found - std::begin(kRates)) + 1;
}

// A structure of the library's: filled by it from the beginning, with room behind for what we do not read.
class Buffer {
 public:
  explicit Buffer(int fill) { std::memset(bytes_, fill, sizeof bytes_); }
  void* data() { return bytes_; }
  template <typename T>
  T read(size_t offset = 0) const {
    T value;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }
  std::string text(size_t offset, size_t bytes_max) const {
    const char* begin = bytes_ + offset;
    std::string text(begin, strnlen(begin, bytes_max));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
    return std::string(trim(text));
  }

 private:
  alignas(8) char bytes_[kBufferBytes];
};

class AmdsmiReader final : public GpuReader {
 public:
  AmdsmiReader(const Functions& library, AmdsmiVersion version)
      : library_(library), layout_(layout_of(version)), version_(version) {}
  ~AmdsmiReader() override { library_.shut_down(); }
  Result<void> find_devices();
  Result<GpuSnapshot> read(const GpuTick& tick) override;

 private:
  std::optional<Device> describe(Handle handle, int32_t index);
  Result<GpuState> read_device(Device& device, const GpuTick& tick, GpuSnapshot& snapshot);
  void read_metrics(Device& device, GpuState& gpu, const GpuMetrics& metrics);
  void read_clocks(GpuState& gpu, const GpuMetrics& metrics);
  void read_throttles(Device& device, GpuState& gpu, const GpuMetrics& metrics);
  void read_links(GpuState& gpu, const GpuMetrics& metrics, bool slow);
  void read_memory(Device& device, GpuState& gpu);
  void read_slow(Device& device, GpuState& gpu);
  void read_processes(Device& device, GpuSnapshot& snapshot);

  // Calls if the library has it and the GPU did not refuse it before; whether it succeeded.
  template <typename Function, typename... Arguments>
  bool call(Device& device, Call which, Function function, Arguments... arguments) {
    if (function == nullptr || device.off.test(static_cast<size_t>(which))) return false;
    const uint32_t status = function(device.handle, arguments...);
    last_status_ = status;
    if (status == kNotSupported || status == kNotImplemented) device.off.set(static_cast<size_t>(which));
    if (status == kNoPermission && refused_.insert(kCallNames[static_cast<size_t>(which)]).second)
      notes_.push_back(format("amdsmi: no permission to read %s", kCallNames[static_cast<size_t>(which)]));
    return status == kOk;
  }

  const Functions library_;
  const AmdsmiLayout layout_;
  const AmdsmiVersion version_;
  const SystemClock clock_;
  std::vector<Device> devices_;
  std::vector<std::string> notes_;  // for the next snapshot
  std::set<std::string> refused_;
  uint32_t last_status_ = kOk;
};

Result<void> AmdsmiReader::find_devices() {
  uint32_t socket_count = 0;
  uint32_t status = library_.get_socket_handles(&socket_count, nullptr);
  if (status != kOk) return Error{format("amdsmi: no list of sockets (status %u)", status)};
  std::vector<Handle> sockets(std::min<size_t>(socket_count, kGpusMax));
  socket_count = static_cast<uint32_t>(sockets.size());
  if (socket_count > 0) status = library_.get_socket_handles(&socket_count, sockets.data());
  if (status != kOk) return Error{format("amdsmi: no list of sockets (status %u)", status)};
  sockets.resize(std::min<size_t>(sockets.size(), socket_count));

  for (Handle socket : sockets) {
    uint32_t count = 0;
    if (library_.get_processor_handles(socket, &count, nullptr) != kOk) continue;
    std::vector<Handle> handles(std::min<size_t>(count, kGpusMax));
    count = static_cast<uint32_t>(handles.size());
    if (count == 0 || library_.get_processor_handles(socket, &count, handles.data()) != kOk) continue;
    handles.resize(std::min<size_t>(handles.size(), count));
    for (Handle handle : handles) {
      uint32_t type = 0;
      if (library_.get_processor_type(handle, &type) != kOk || type != kProcessorGpu) continue;
      if (devices_.size() == kGpusMax) break;
      if (std::optional<Device> device = describe(handle, static_cast<int32_t>(devices_.size())))
        devices_.push_back(std::move(*device));
    }
  }
  if (devices_.empty()) return Error{"amdsmi: the library is there, but no AMD GPU"};
  if (!layout_.structures) {
    notes_.push_back(
        format("amdsmi %u.%u is not a version whose structures are known here (24.5 to 24.7, 25, 26): only "
               "memory and temperature limits are read",
               version_.first, version_.second));
  } else if (layout_.process_bytes == 0) {
    notes_.push_back(
        format("amdsmi %u.%u: its list of processes is not known here; left out", version_.first, version_.second));
  }
  return {};
}

std::optional<Device> AmdsmiReader::describe(Handle handle, int32_t index) {
  Device device;
  device.handle = handle;
  GpuInfo& info = device.info;
  info.index = index;
  info.vendor = "amd";
  uint64_t bdf = 0;  // function 3 bits, device 5, bus 8, domain 48
  if (library_.get_device_bdf(handle, &bdf) != kOk) {
    notes_.push_back(format("amdsmi: GPU %d does not report its PCI address; left out", index));
    return std::nullopt;
  }
  info.pci =
      format("%04llx:%02x:%02x.%x", static_cast<unsigned long long>(bdf >> 16), static_cast<unsigned>(bdf >> 8 & 0xFF),
             static_cast<unsigned>(bdf >> 3 & 0x1F), static_cast<unsigned>(bdf & 7));
  Buffer text(0);
  uint32_t length = 256;
  if (library_.get_device_uuid != nullptr &&
      library_.get_device_uuid(handle, &length, static_cast<char*>(text.data())) == kOk)
    info.uuid = text.text(0, 255);
  // The library makes it from the serial number: GPUs that have none would all have the same.
  const bool taken =
      std::any_of(devices_.begin(), devices_.end(), [&](const Device& other) { return other.info.uuid == info.uuid; });
  if (info.uuid.empty() || taken) info.uuid = "AMD-" + info.pci;
  Buffer asic(0);
  if (library_.get_asic_info != nullptr && library_.get_asic_info(handle, asic.data()) == kOk) {
    info.model = asic.text(0, 255);
    if (layout_.serial_offset >= 0) info.serial = asic.text(static_cast<size_t>(layout_.serial_offset), 32);
  }
  Buffer driver(0);
  if (layout_.structures && library_.get_driver_info != nullptr &&
      library_.get_driver_info(handle, driver.data()) == kOk)
    info.driver = driver.text(0, 255);
  uint64_t energy = 0, time = 0;
  float microjoules = 0;
  if (call(device, Call::kEnergyUnit, library_.get_energy_count, &energy, &microjoules, &time) && microjoules > 0)
    device.energy_joules = static_cast<double>(microjoules) / 1e6;
  return device;
}

Result<GpuSnapshot> AmdsmiReader::read(const GpuTick& tick) {
  GpuSnapshot snapshot;
  snapshot.unix_ns = tick.unix_ns;
  for (Device& device : devices_) {
    GpuState gpu = LOCKSTEP_TRY(read_device(device, tick, snapshot));
    snapshot.gpus.push_back(std::move(gpu));
  }
  snapshot.notes.swap(notes_);
  return snapshot;
}

Result<GpuState> AmdsmiReader::read_device(Device& device, const GpuTick& tick, GpuSnapshot& snapshot) {
  GpuState gpu;
  gpu.info = device.info;
  const int64_t begin_ns = clock_.monotonic_ns();
  last_status_ = kOk;
  read_memory(device, gpu);
  bool answers = !gpu.values.empty();
  Buffer buffer(0xFF);
  if (layout_.structures && call(device, Call::kMetrics, library_.get_metrics_info, buffer.data())) {
    answers = true;
    const GpuMetrics metrics = buffer.read<GpuMetrics>();
    read_metrics(device, gpu, metrics);
    read_links(gpu, metrics, tick.slow);
  }
  if (!answers && (last_status_ == kDriverNotLoaded || last_status_ == kNotInitialised))
    return Error{format("amdsmi: the driver is gone (status %u)", last_status_)};
  // A GPU that never answered is not lost: it is one that we cannot read.
  const bool lost = device.answered && !answers;
  if (lost != device.lost)
    snapshot.events.push_back({device.info.uuid, lost ? "lost" : "appeared", last_status_, tick.unix_ns});
  device.lost = gpu.lost = lost;
  device.answered = device.answered || answers;
  if (answers) {
    if (tick.slow) read_slow(device, gpu);
    if (tick.processes) read_processes(device, snapshot);
  }
  add_gpu_value(gpu, GpuMetric::kUp, answers ? 1 : 0);
  add_gpu_value(gpu, GpuMetric::kReadSeconds, static_cast<double>(clock_.monotonic_ns() - begin_ns) / 1e9);
  return gpu;
}

void AmdsmiReader::read_memory(Device& device, GpuState& gpu) {
  uint64_t bytes = 0;
  if (device.memory_total == 0 && call(device, Call::kMemoryTotal, library_.get_memory_total, kMemoryVram, &bytes))
    device.memory_total = static_cast<double>(bytes);
  if (!call(device, Call::kMemoryUsage, library_.get_memory_usage, kMemoryVram, &bytes)) return;
  const double used = static_cast<double>(bytes);
  add_gpu_value(gpu, GpuMetric::kMemoryUsage, used);
  if (device.memory_total <= 0) return;
  add_gpu_value(gpu, GpuMetric::kMemoryLimit, device.memory_total);
  add_gpu_value(gpu, GpuMetric::kMemoryFree, std::max(0.0, device.memory_total - used));
  add_gpu_value(gpu, GpuMetric::kMemoryUtilization, std::min(1.0, used / device.memory_total));
}

void AmdsmiReader::read_metrics(Device& device, GpuState& gpu, const GpuMetrics& metrics) {
  if (metrics.graphics_activity <= 100) add_gpu_value(gpu, GpuMetric::kUtilGeneral, metrics.graphics_activity / 100.0);
  if (metrics.memory_activity <= 100)
    add_gpu_value(gpu, GpuMetric::kMemoryControllerActive, metrics.memory_activity / 100.0);

  // Older boards tell an average, newer ones what the firmware filters; few tell both.
  const bool average_known = metrics.power_average != kNotKnown<uint16_t>;
  const bool now_known = metrics.power_now != kNotKnown<uint16_t>;
  if (average_known || now_known)
    add_gpu_value(gpu, GpuMetric::kPower, average_known ? metrics.power_average : metrics.power_now);
  if (now_known) add_gpu_value(gpu, GpuMetric::kPowerInstant, metrics.power_now);
  if (device.energy_joules > 0 && metrics.energy != kNotKnown<uint64_t>)
    add_gpu_value(gpu, GpuMetric::kEnergy, static_cast<double>(metrics.energy) * device.energy_joules);

  if (is_temperature(metrics.temperature_edge)) add_gpu_value(gpu, GpuMetric::kTempGpu, metrics.temperature_edge);
  if (is_temperature(metrics.temperature_hotspot))
    add_gpu_value(gpu, GpuMetric::kTempHotspot, metrics.temperature_hotspot);
  if (is_temperature(metrics.temperature_memory))
    add_gpu_value(gpu, GpuMetric::kTempMemory, metrics.temperature_memory);
  for (size_t i = 0; i < std::size(metrics.temperature_hbm); ++i) {
    if (is_temperature(metrics.temperature_hbm[i]))
      add_gpu_value(gpu, GpuMetric::kTempOther, format("hbm%zu", i), metrics.temperature_hbm[i]);
  }

  if (metrics.pcie_width > 0 && metrics.pcie_width <= 32) add_gpu_value(gpu, GpuMetric::kPcieWidth, metrics.pcie_width);
  if (const int generation = pcie_generation(metrics.pcie_speed * 100u); generation > 0)
    add_gpu_value(gpu, GpuMetric::kPcieGeneration, generation);
  read_clocks(gpu, metrics);
  read_throttles(device, gpu, metrics);
}

void AmdsmiReader::read_clocks(GpuState& gpu, const GpuMetrics& metrics) {
  auto known = [](uint16_t clock) { return clock != 0 && clock != kNotKnown<uint16_t>; };
  double sum = 0;
  int count = 0;
  for (uint16_t clock : metrics.clocks_graphics) {
    if (!known(clock)) continue;
    sum += clock;
    ++count;
  }
  // Boards of several compute dies give a clock for each: their mean.
  if (count > 0) {
    add_gpu_value(gpu, GpuMetric::kClockSm, sum / count * kMegahertz);
  } else if (known(metrics.clock_graphics)) {
    add_gpu_value(gpu, GpuMetric::kClockSm, metrics.clock_graphics * kMegahertz);
  }
  if (known(metrics.clock_memory)) add_gpu_value(gpu, GpuMetric::kClockMemory, metrics.clock_memory * kMegahertz);
  const uint16_t video = known(metrics.clocks_video[0]) ? metrics.clocks_video[0] : metrics.clock_video;
  if (known(video)) add_gpu_value(gpu, GpuMetric::kClockVideo, video * kMegahertz);
}

// The firmware counts its own samples and, of these, the throttled ones. How long a sample is, it does not tell: their
// share of the time between two readings is what is added up here, from zero when the reader starts.
void AmdsmiReader::read_throttles(Device& device, GpuState& gpu, const GpuMetrics& metrics) {
  if (metrics.accumulation_counter == kNotKnown<uint64_t>) return;
  const int64_t now_ns = clock_.monotonic_ns();
  const GpuMetrics& before = device.throttles_before;
  const bool usable = device.throttles_known && metrics.accumulation_counter > before.accumulation_counter;
  const double samples = static_cast<double>(metrics.accumulation_counter - before.accumulation_counter);
  const double elapsed = static_cast<double>(now_ns - device.throttles_ns) / 1e9;
  for (size_t i = 0; i < std::size(kThrottles); ++i) {
    const uint64_t now_count = metrics.*kThrottles[i].samples, before_count = before.*kThrottles[i].samples;
    if (now_count == kNotKnown<uint64_t>) continue;
    if (usable && before_count != kNotKnown<uint64_t> && now_count >= before_count) {
      const double share = std::min(1.0, static_cast<double>(now_count - before_count) / samples);
      device.throttled_seconds[i] += share * elapsed;
    }
    if (kThrottles[i].label != nullptr) {
      add_gpu_value(gpu, kThrottles[i].metric, kThrottles[i].label, device.throttled_seconds[i]);
    } else {
      add_gpu_value(gpu, kThrottles[i].metric, device.throttled_seconds[i]);
    }
  }
  // The table changes a few times a second only: the same counter again says nothing about the time between.
  if (device.throttles_known && metrics.accumulation_counter == before.accumulation_counter) return;
  device.throttles_known = true;
  device.throttles_ns = now_ns;
  device.throttles_before = metrics;
}

void AmdsmiReader::read_links(GpuState& gpu, const GpuMetrics& metrics, bool slow) {
  double received = 0, sent = 0;
  int links = 0;
  for (size_t i = 0; i < std::size(metrics.xgmi_read); ++i) {
    if (metrics.xgmi_read[i] == kNotKnown<uint64_t> || metrics.xgmi_write[i] == kNotKnown<uint64_t>) continue;
    const double in = static_cast<double>(metrics.xgmi_read[i]) * kKilobyte;
    const double out = static_cast<double>(metrics.xgmi_write[i]) * kKilobyte;
    received += in;
    sent += out;
    ++links;
    if (!slow || (in == 0 && out == 0)) continue;  // the table has room for more links than most boards have
    add_gpu_value(gpu, GpuMetric::kLinkReceive, std::to_string(i), in);
    add_gpu_value(gpu, GpuMetric::kLinkTransmit, std::to_string(i), out);
  }
  if (links > 0) {
    add_gpu_value(gpu, GpuMetric::kLinksTransmit, sent);
    add_gpu_value(gpu, GpuMetric::kLinksReceive, received);
  }
  if (!slow) return;
  auto counted = [&](GpuMetric metric, uint64_t count, uint64_t not_known, const char* label) {
    if (count == not_known) return;
    if (label != nullptr) {
      add_gpu_value(gpu, metric, label, static_cast<double>(count));
    } else {
      add_gpu_value(gpu, metric, static_cast<double>(count));
    }
  };
  counted(GpuMetric::kPcieReplays, metrics.pcie_replays, kNotKnown<uint64_t>, nullptr);
  counted(GpuMetric::kPcieRecoveries, metrics.pcie_recoveries, kNotKnown<uint64_t>, nullptr);
  counted(GpuMetric::kPcieError, metrics.pcie_replay_rollovers, kNotKnown<uint64_t>, "replay_rollover");
  counted(GpuMetric::kPcieError, metrics.pcie_naks_sent, kNotKnown<uint32_t>, "nak_sent");
  counted(GpuMetric::kPcieError, metrics.pcie_naks_received, kNotKnown<uint32_t>, "nak_received");
}

void AmdsmiReader::read_slow(Device& device, GpuState& gpu) {
  auto limit = [&](Call which, uint32_t sensor, uint32_t kind, GpuMetric metric) {
    int64_t degrees = 0;
    if (call(device, which, library_.get_temperature, sensor, kind, &degrees) && degrees >= 30 && degrees < 200)
      add_gpu_value(gpu, metric, static_cast<double>(degrees));
  };
  limit(Call::kLimitHotspotCritical, kSensorHotspot, kTemperatureCritical, GpuMetric::kTempLimitSlowdown);
  limit(Call::kLimitHotspotEmergency, kSensorHotspot, kTemperatureEmergency, GpuMetric::kTempLimitShutdown);
  limit(Call::kLimitMemory, kSensorMemory, kTemperatureCritical, GpuMetric::kTempLimitMemory);
  if (!layout_.structures) return;

  auto clock_limit = [&](Call which, uint32_t clock, GpuMetric metric) {
    Buffer buffer(0);
    if (!call(device, which, library_.get_clock_info, clock, buffer.data())) return;
    const uint32_t max = buffer.read<ClockInfo>().max;
    if (max > 0 && max < 100'000) add_gpu_value(gpu, metric, max * kMegahertz);
  };
  clock_limit(Call::kClockGraphics, kClockGraphics, GpuMetric::kClockMaxSm);
  clock_limit(Call::kClockMemory, kClockMemory, GpuMetric::kClockMaxMemory);

  Buffer caps(0);
  if (call(device, Call::kPowerCap, library_.get_power_cap_info, 0u, caps.data())) {
    const PowerCapInfo cap = caps.read<PowerCapInfo>();
    auto watts = [&](GpuMetric metric, uint64_t microwatts) {
      if (microwatts > 0 && microwatts < 100'000'000'000)
        add_gpu_value(gpu, metric, static_cast<double>(microwatts) / 1e6);
    };
    watts(GpuMetric::kPowerLimit, cap.cap);
    watts(GpuMetric::kPowerLimitDefault, cap.cap_default);
    watts(GpuMetric::kPowerLimitMin, cap.cap_min);
    watts(GpuMetric::kPowerLimitMax, cap.cap_max);
  }
  Buffer pcie(0);
  if (call(device, Call::kPcie, library_.get_pcie_info, pcie.data())) {
    const PcieInfo info = pcie.read<PcieInfo>();
    if (info.width_max > 0 && info.width_max <= 32) add_gpu_value(gpu, GpuMetric::kPcieWidthMax, info.width_max);
    if (const int generation = pcie_generation(info.speed_max); generation > 0)
      add_gpu_value(gpu, GpuMetric::kPcieGenerationMax, generation);
  }
  Buffer errors(0);
  if (call(device, Call::kEcc, library_.get_total_ecc_count, errors.data())) {
    const ErrorCount count = errors.read<ErrorCount>();
    add_gpu_value(gpu, GpuMetric::kEccCorrected, static_cast<double>(count.corrected));
    add_gpu_value(gpu, GpuMetric::kEccUncorrected, static_cast<double>(count.uncorrected));
  }
  uint32_t pages = 0;  // stays as it is where there are none
  if (call(device, Call::kBadPages, library_.get_bad_page_info, &pages, static_cast<void*>(nullptr)))
    add_gpu_value(gpu, GpuMetric::kRetiredUncorrected, pages);
}

void AmdsmiReader::read_processes(Device& device, GpuSnapshot& snapshot) {
  if (layout_.process_bytes == 0) return;
  uint32_t count = 0;
  if (!call(device, Call::kProcesses, library_.get_process_list, &count, static_cast<void*>(nullptr))) return;
  snapshot.processes_read = true;
  const uint32_t room = std::min(count + 8, kProcessesMax);  // some may start between the calls
  std::vector<char> entries(room * layout_.process_bytes);
  uint32_t found = room;
  if (count > 0 &&
      !call(device, Call::kProcesses, library_.get_process_list, &found, static_cast<void*>(entries.data())) &&
      last_status_ != kOutOfResources)
    return;
  if (count == 0) found = 0;
  for (uint32_t i = 0; i < std::min(found, room); ++i) {
    const char* entry = entries.data() + i * layout_.process_bytes;
    uint32_t pid = 0;
    uint64_t bytes = 0;
    std::memcpy(&pid, entry + layout_.process_pid, sizeof pid);
    std::memcpy(&bytes, entry + layout_.process_memory, sizeof bytes);
    if (pid == 0 || pid > INT32_MAX || static_cast<pid_t>(pid) == getpid()) continue;
    snapshot.processes.push_back({static_cast<int32_t>(pid), device.info.uuid, bytes});
  }
}

}  // namespace

Result<std::unique_ptr<GpuReader>> open_amdsmi_reader(const std::string& library) {
  const Functions functions = LOCKSTEP_TRY(load(library));
  if (const uint32_t status = functions.init(kInitGpus); status != kOk)
    return Error{format("amdsmi: the library does not start (status %u%s)", status,
                        status == kDriverNotLoaded ? ", the driver is not loaded" : "")};
  uint32_t words[64] = {};  // three or four numbers, then a pointer
  functions.get_lib_version(words);
  auto reader = std::make_unique<AmdsmiReader>(functions, AmdsmiVersion{words[0], words[1]});
  LOCKSTEP_TRY(reader->find_devices());
  return std::unique_ptr<GpuReader>(std::move(reader));
}

}  // namespace lockstep
