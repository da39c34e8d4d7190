// AMD's management library as far as we call it, without its header: status codes, the layouts that we read, and which
// versions of the library have them.
//
// Layouts were compared between the public headers of 24.5 (ROCm 6.1), 24.6 (6.2), 24.7 (6.3), 26.1 and 26.5 (7.x). The
// library changes its structures between versions, so what is read is what all of these agree in; where they do not,
// the version decides (AmdsmiLayout), and with a version that is not known the value is left out. Buffers are larger
// than any of the structures, and filled beforehand: a version that knows less leaves our filling where its end is.
// Of 25.x no header was at hand; it is read only where the versions before and after it agree.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::amdsmi {

using Handle = void*;

inline constexpr uint64_t kInitGpus = 2;
inline constexpr uint32_t kProcessorGpu = 1;
inline constexpr uint32_t kMemoryVram = 0;
inline constexpr uint32_t kClockGraphics = 0;
inline constexpr uint32_t kClockMemory = 4;
inline constexpr uint32_t kSensorHotspot = 1;
inline constexpr uint32_t kSensorMemory = 2;
inline constexpr uint32_t kTemperatureCritical = 5;
inline constexpr uint32_t kTemperatureEmergency = 7;

enum Status : uint32_t {
  kOk = 0,
  kNotSupported = 2,
  kNotImplemented = 3,
  kNoPermission = 10,
  kOutOfResources = 15,
  kNotInitialised = 32,
  kDriverNotLoaded = 34,
};

// The library's word for "not known" in a field of this type.
template <typename T>
inline constexpr T kNotKnown = static_cast<T>(-1);

// The first part of what amdsmi_get_gpu_metrics_info() fills: alike in 24.5 to 26.5, but that 24.5 and 24.6 end before
// accumulation_counter. Whole degrees, percent, watts, MHz.
struct GpuMetrics {
  uint16_t structure_size;
  uint8_t format_revision;
  uint8_t content_revision;
  uint16_t temperature_edge;
  uint16_t temperature_hotspot;
  uint16_t temperature_memory;
  uint16_t temperature_regulators[3];
  uint16_t graphics_activity;
  uint16_t memory_activity;
  uint16_t media_activity;
  uint16_t power_average;
  uint64_t energy;  // in units that amdsmi_get_energy_count() tells
  uint64_t system_clock;
  uint16_t clocks_average[7];
  uint16_t clock_graphics;
  uint16_t clock_soc;
  uint16_t clock_memory;
  uint16_t clock_video;
  uint16_t clocks_other[3];
  uint32_t throttle_status;
  uint16_t fan_speed;
  uint16_t pcie_width;
  uint16_t pcie_speed;  // 0.1 GT/s
  uint32_t graphics_activity_sum;
  uint32_t memory_activity_sum;
  uint16_t temperature_hbm[4];
  uint64_t firmware_time;
  uint16_t voltages[3];
  uint64_t independent_throttle_status;
  uint16_t power_now;
  uint16_t video_activity[4];
  uint32_t graphics_clock_lock;
  uint16_t xgmi_width;
  uint16_t xgmi_speed;
  uint64_t pcie_bandwidth_sum;
  uint64_t pcie_bandwidth_now;
  uint64_t pcie_recoveries;
  uint64_t pcie_replays;
  uint64_t pcie_replay_rollovers;
  uint64_t xgmi_read[8];  // kilobytes
  uint64_t xgmi_write[8];
  uint16_t clocks_graphics[8];  // one for each compute die, where there are several
  uint16_t clocks_soc[4];
  uint16_t clocks_video[4];
  uint16_t clocks_display[4];
  uint16_t jpeg_activity[32];
  uint32_t pcie_naks_sent;
  uint32_t pcie_naks_received;
  // Samples of the firmware so far, and those of them in which it held clocks back, by reason.
  uint64_t accumulation_counter;
  uint64_t throttled_prochot;
  uint64_t throttled_power;
  uint64_t throttled_socket_heat;
  uint64_t throttled_regulator_heat;
  uint64_t throttled_hbm_heat;
};
static_assert(offsetof(GpuMetrics, temperature_edge) == 4);
static_assert(offsetof(GpuMetrics, graphics_activity) == 16);
static_assert(offsetof(GpuMetrics, power_average) == 22);
static_assert(offsetof(GpuMetrics, energy) == 24);
static_assert(offsetof(GpuMetrics, clock_graphics) == 54);
static_assert(offsetof(GpuMetrics, pcie_width) == 74);
static_assert(offsetof(GpuMetrics, temperature_hbm) == 88);
static_assert(offsetof(GpuMetrics, power_now) == 120);
static_assert(offsetof(GpuMetrics, pcie_recoveries) == 160);
static_assert(offsetof(GpuMetrics, xgmi_read) == 184);
static_assert(offsetof(GpuMetrics, xgmi_write) == 248);
static_assert(offsetof(GpuMetrics, clocks_graphics) == 312);
static_assert(offsetof(GpuMetrics, pcie_naks_sent) == 416);
static_assert(offsetof(GpuMetrics, accumulation_counter) == 424);
static_assert(sizeof(GpuMetrics) == 472);

// amdsmi_get_pcie_info(), 24.5 to 26.5; the part that does not change while the machine runs.
struct PcieInfo {
  uint16_t width_max;
  uint32_t speed_max;  // MT/s
};
static_assert(offsetof(PcieInfo, speed_max) == 4);

// amdsmi_get_clock_info(), 24.5 to 26.5. MHz.
struct ClockInfo {
  uint32_t now;
  uint32_t min;
  uint32_t max;
};
static_assert(offsetof(ClockInfo, max) == 8);

// amdsmi_get_power_cap_info(), 23.2 to 26.5. Microwatts; dpm_cap is not.
struct PowerCapInfo {
  uint64_t cap;
  uint64_t cap_default;
  uint64_t dpm_cap;
  uint64_t cap_min;
  uint64_t cap_max;
};
static_assert(offsetof(PowerCapInfo, cap_max) == 32);

// amdsmi_get_gpu_total_ecc_count(), 24.5 to 26.5. The library adds to what stands there: it has to be zero before.
struct ErrorCount {
  uint64_t corrected;
  uint64_t uncorrected;
  uint64_t deferred;
};
static_assert(offsetof(ErrorCount, deferred) == 16);

// Room for any of these structures, whatever the version.
inline constexpr size_t kBufferBytes = 32u << 10;

// Where versions differ. Offsets in bytes; 0 bytes or -1: not known for this version, so not read.
struct AmdsmiLayout {
  bool structures = false;   // those above
  int serial_offset = -1;    // in amdsmi_get_gpu_asic_info()'s; the model's name stands at 0 in all
  size_t process_bytes = 0;  // of one entry of amdsmi_get_gpu_process_list()
  size_t process_pid = 0;
  size_t process_memory = 0;
};

struct AmdsmiVersion {
  // As amdsmi_get_lib_version() fills them: 24, 7, 0, 0 up to 24.x (the first is a year); 26, 5, 0 from 26 on.
  uint32_t first = 0;
  uint32_t second = 0;
};

inline AmdsmiLayout layout_of(AmdsmiVersion version) {
  AmdsmiLayout layout;
  const bool known_24 = version.first == 24 && version.second >= 5 && version.second <= 7;
  layout.structures = known_24 || version.first == 25 || version.first == 26;
  if (known_24) {
    layout.serial_offset = version.second == 5 ? 148 : 340;
    layout.process_bytes = 224;
    layout.process_pid = 32;
    layout.process_memory = 128;
  } else if (version.first == 26) {
    layout.serial_offset = 532;
    layout.process_bytes = 704;
    layout.process_pid = 256;
    layout.process_memory = 352;
  }
  return layout;
}

}  // namespace lockstep::amdsmi
