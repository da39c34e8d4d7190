// Plays AMD's management library (libamd_smi.so) for tests: answers from a text file, and complains about whoever calls
// it wrongly. LOCKSTEP_AMDSMI_STANDIN names the file, which is read at every call, so that a test can change it:
//
//   version 24 7 0                     as amdsmi_get_lib_version fills it; sizes of structures follow it
//   gpu 0000:c1:00.0 0x1a2b3c MODEL…   a GPU: PCI address, serial number, name
//   set 0 temperature_hotspot 61       a field of GPU 0's metrics table (the names are in kFields below)
//   set 0 memory_used 1073741824       or another number of it (numbers are in kNumbers)
//   process 0 4242 1048576             a process on GPU 0
//   fail 0 metrics 12                  a call on GPU 0 that fails with a status
//   init 34                            the status of amdsmi_init
//   hang                               amdsmi_get_gpu_metrics_info never returns
//   crash                              it ends the process by SIGSEGV
//   print TEXT                         it prints to the standard output, as the real one does in trouble
//
// Complaints go to FILE.complaints, one line each. Written from the public interface alone; offsets are spelled out
// again here, so that a slip in the reader's own does not go unseen.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

enum : uint32_t { kOk = 0, kInvalid = 1, kNotSupported = 2, kOutOfResources = 15, kNotInitialised = 32 };

struct Process {
  uint32_t pid;
  uint64_t bytes;
};
struct Gpu {
  uint64_t bdf = 0;
  std::string serial, model;
  std::map<std::string, uint64_t> numbers;
  std::map<std::string, uint32_t> failures;
  std::vector<Process> processes;
};
struct World {
  uint32_t version[3] = {24, 7, 0};
  uint32_t init_status = 0;
  bool hang = false, crash = false;
  std::string print;
  std::vector<Gpu> gpus;
};

struct Field {
  const char* name;
  size_t offset;
  size_t bytes;
};
constexpr Field kFields[] = {
    {"temperature_edge", 4, 2},      {"temperature_hotspot", 6, 2},   {"temperature_mem", 8, 2},
    {"average_gfx_activity", 16, 2}, {"average_umc_activity", 18, 2}, {"average_socket_power", 22, 2},
    {"energy_accumulator", 24, 8},   {"current_gfxclk", 54, 2},       {"current_uclk", 58, 2},
    {"current_vclk0", 60, 2},        {"pcie_link_width", 74, 2},      {"pcie_link_speed", 76, 2},
    {"temperature_hbm0", 88, 2},     {"temperature_hbm1", 90, 2},     {"current_socket_power", 120, 2},
    {"pcie_l0_to_recov", 160, 8},    {"pcie_replay", 168, 8},         {"pcie_replay_rover", 176, 8},
    {"xgmi_read0", 184, 8},          {"xgmi_read1", 192, 8},          {"xgmi_write0", 248, 8},
    {"xgmi_write1", 256, 8},         {"current_gfxclk0", 312, 2},     {"current_gfxclk1", 314, 2},
    {"pcie_nak_sent", 416, 4},       {"pcie_nak_rcvd", 420, 4},       {"accumulation_counter", 424, 8},
    {"prochot_residency", 432, 8},   {"ppt_residency", 440, 8},       {"socket_thm_residency", 448, 8},
    {"vr_thm_residency", 456, 8},    {"hbm_thm_residency", 464, 8}};
constexpr const char* kNumbers[] = {"memory_total",   "memory_used",   "ecc_corrected", "ecc_uncorrected",
                                    "bad_pages",      "power_cap",     "clock_max",     "pcie_width_max",
                                    "pcie_speed_max", "limit_hotspot", "limit_memory"};

int g_initialised = 0;
constexpr uintptr_t kSocketTag = 0x50C0000, kGpuTag = 0x60D0000;

std::string world_path() {
  const char* path = getenv("LOCKSTEP_AMDSMI_STANDIN");
  return path == nullptr ? "" : path;
}

void complain(const std::string& what) {
  std::ofstream(world_path() + ".complaints", std::ios::app) << what << "\n";
}

bool is_known(const std::string& name) {
  for (const Field& field : kFields) {
    if (name == field.name) return true;
  }
  for (const char* number : kNumbers) {
    if (name == number) return true;
  }
  return false;
}

World read_world() {
  World world;
  std::ifstream file(world_path());
  if (!file) complain("no file in LOCKSTEP_AMDSMI_STANDIN");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb.empty() || verb[0] == '#') continue;
    if (verb == "version") {
      words >> world.version[0] >> world.version[1] >> world.version[2];
    } else if (verb == "init") {
      words >> world.init_status;
    } else if (verb == "hang" || verb == "crash") {
      (verb == "hang" ? world.hang : world.crash) = true;
    } else if (verb == "print") {
      std::getline(words >> std::ws, world.print);
    } else if (verb == "gpu") {
      Gpu gpu;
      std::string pci;
      unsigned domain = 0, bus = 0, device = 0, function = 0;
      words >> pci >> gpu.serial;
      std::getline(words >> std::ws, gpu.model);
      if (sscanf(pci.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) complain("bad line: " + line);
      gpu.bdf = uint64_t{domain} << 16 | bus << 8 | device << 3 | function;
      world.gpus.push_back(gpu);
    } else {
      size_t index = 0;
      std::string name;
      uint64_t value = 0;
      words >> index >> name >> value;
      if (!words || index >= world.gpus.size()) {
        complain("bad line: " + line);
      } else if (verb == "set" && is_known(name)) {
        world.gpus[index].numbers[name] = value;
      } else if (verb == "fail") {
        world.gpus[index].failures[name] = static_cast<uint32_t>(value);
      } else if (verb == "process") {
        world.gpus[index].processes.push_back({static_cast<uint32_t>(std::stoul(name)), value});
      } else {
        complain("bad line: " + line);
      }
    }
  }
  return world;
}

// Every call on a GPU begins with this: the GPU, or the status to return.
struct Call {
  World world = read_world();
  Gpu* gpu = nullptr;
  uint32_t status = kOk;

  Call(void* handle, const char* name, bool arguments_are_fine) {
    const uintptr_t value = reinterpret_cast<uintptr_t>(handle);
    if (g_initialised == 0) {
      complain(std::string(name) + " before amdsmi_init");
      status = kNotInitialised;
    } else if (!arguments_are_fine) {
      complain(std::string(name) + " with bad arguments");
      status = kInvalid;
    } else if (value < kGpuTag || value >= kGpuTag + world.gpus.size()) {
      complain(std::string(name) + " with a handle that is none");
      status = kInvalid;
    } else {
      gpu = &world.gpus[value - kGpuTag];
      auto failure = gpu->failures.find(name);
      if (failure != gpu->failures.end()) status = failure->second;
    }
  }
  uint64_t number(const char* name, bool& known) const {
    auto found = gpu->numbers.find(name);
    known = found != gpu->numbers.end();
    return known ? found->second : 0;
  }
};

template <typename T>
void put(void* structure, size_t offset, T value) {
  memcpy(static_cast<char*>(structure) + offset, &value, sizeof value);
}

void put_text(void* structure, size_t offset, size_t bytes, const std::string& text) {
  char* target = static_cast<char*>(structure) + offset;
  memset(target, 0, bytes);
  strncpy(target, text.c_str(), bytes - 1);
}

// One number that stands for the whole answer of a call.
uint32_t give(const Call& call, const char* name, uint64_t* target) {
  if (call.status != kOk) return call.status;
  bool known = false;
  *target = call.number(name, known);
  return known ? kOk : kNotSupported;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

uint32_t amdsmi_init(uint64_t flags) {
  if (flags != 2) complain("amdsmi_init with other flags than those of GPUs");
  const World world = read_world();
  if (world.init_status == kOk) ++g_initialised;
  return world.init_status;
}

uint32_t amdsmi_shut_down() {
  if (g_initialised == 0) complain("amdsmi_shut_down without amdsmi_init");
  --g_initialised;
  return kOk;
}

uint32_t amdsmi_get_lib_version(void* version) {
  const World world = read_world();
  for (size_t i = 0; i < 3; ++i) put(version, 4 * i, world.version[i]);
  // Four numbers and a pointer up to 25, three and a pointer from 26 on.
  if (world.version[0] < 26) put(version, 12, uint32_t{0});
  put<const char*>(version, 16, "stand-in");
  return kOk;
}

uint32_t amdsmi_get_socket_handles(uint32_t* count, void** handles) {
  const World world = read_world();
  if (count == nullptr || g_initialised == 0) return kInvalid;
  const uint32_t all = static_cast<uint32_t>(world.gpus.size());
  for (uint32_t i = 0; handles != nullptr && i < *count && i < all; ++i)
    handles[i] = reinterpret_cast<void*>(kSocketTag + i);
  *count = all;
  return kOk;
}

uint32_t amdsmi_get_processor_handles(void* socket, uint32_t* count, void** handles) {
  const World world = read_world();
  const uintptr_t index = reinterpret_cast<uintptr_t>(socket) - kSocketTag;
  if (count == nullptr || index >= world.gpus.size()) {
    complain("amdsmi_get_processor_handles with a socket that is none");
    return kInvalid;
  }
  if (handles != nullptr && *count > 0) handles[0] = reinterpret_cast<void*>(kGpuTag + index);
  *count = 1;
  return kOk;
}

uint32_t amdsmi_get_processor_type(void* handle, uint32_t* type) {
  const Call call(handle, "type", type != nullptr);
  if (call.status == kOk) *type = 1;
  return call.status;
}

uint32_t amdsmi_get_gpu_device_bdf(void* handle, uint64_t* bdf) {
  const Call call(handle, "bdf", bdf != nullptr);
  if (call.status == kOk) *bdf = call.gpu->bdf;
  return call.status;
}

// As the real one, made from the serial number: without any, all are the same.
uint32_t amdsmi_get_gpu_device_uuid(void* handle, uint32_t* length, char* uuid) {
  const Call call(handle, "uuid", length != nullptr && uuid != nullptr && *length >= 38);
  if (call.status != kOk) return call.status;
  const unsigned long long serial = strtoull(call.gpu->serial.c_str(), nullptr, 16);
  snprintf(uuid, 38, "%08llx-0000-1000-80%02llx-%012llx", serial & 0xFFFFFFFF, serial & 0xFF, serial);
  return kOk;
}

uint32_t amdsmi_get_gpu_asic_info(void* handle, void* info) {
  const Call call(handle, "asic", info != nullptr);
  if (call.status != kOk) return call.status;
  const bool is_26 = call.world.version[0] >= 26;
  const bool is_24_5 = call.world.version[0] == 24 && call.world.version[1] == 5;
  put_text(info, 0, is_24_5 ? 64 : 256, call.gpu->model);
  put_text(info, is_26 ? 532 : is_24_5 ? 148 : 340, is_26 ? 256 : 32, call.gpu->serial);
  return kOk;
}

uint32_t amdsmi_get_gpu_driver_info(void* handle, void* info) {
  const Call call(handle, "driver", info != nullptr);
  if (call.status != kOk) return call.status;
  const size_t bytes = call.world.version[0] >= 26 ? 256 : 64;
  put_text(info, 0, bytes, "6.8.5");
  put_text(info, bytes, bytes, "2024/10/01 00:00");
  put_text(info, 2 * bytes, bytes, "amdgpu");
  return kOk;
}

uint32_t amdsmi_get_gpu_metrics_info(void* handle, void* metrics) {
  const Call call(handle, "metrics", metrics != nullptr);
  if (!call.world.print.empty()) {
    printf("%s\n", call.world.print.c_str());
    fflush(stdout);
  }
  while (call.world.hang) pause();
  if (call.world.crash) raise(SIGSEGV);
  if (call.status != kOk) return call.status;
  const size_t bytes = call.world.version[0] == 24 && call.world.version[1] <= 6 ? 424
                       : call.world.version[0] == 24                             ? 1832
                                                                                 : 6000;
  memset(metrics, 0, bytes);
  memset(static_cast<char*>(metrics) + 4, 0xFF, bytes - 4);
  for (const Field& field : kFields) {
    bool known = false;
    const uint64_t value = call.number(field.name, known);
    if (known && field.offset < bytes) memcpy(static_cast<char*>(metrics) + field.offset, &value, field.bytes);
  }
  return kOk;
}

uint32_t amdsmi_get_gpu_memory_total(void* handle, uint32_t type, uint64_t* total) {
  return give(Call(handle, "memory_total", type == 0 && total != nullptr), "memory_total", total);
}

uint32_t amdsmi_get_gpu_memory_usage(void* handle, uint32_t type, uint64_t* used) {
  return give(Call(handle, "memory_used", type == 0 && used != nullptr), "memory_used", used);
}

uint32_t amdsmi_get_energy_count(void* handle, uint64_t* count, float* resolution, uint64_t* time) {
  const Call call(handle, "energy", count != nullptr && resolution != nullptr && time != nullptr);
  if (call.status != kOk) return call.status;
  bool known = false;
  *count = call.number("energy_accumulator", known);
  *resolution = 15.3F;
  *time = 1;
  return known ? kOk : kNotSupported;
}

uint32_t amdsmi_get_temp_metric(void* handle, uint32_t sensor, uint32_t metric, int64_t* degrees) {
  const Call call(handle, "temperature", (sensor == 1 || sensor == 2) && metric <= 14 && degrees != nullptr);
  uint64_t value = 0;
  const uint32_t status = give(call, sensor == 1 ? "limit_hotspot" : "limit_memory", &value);
  *degrees = static_cast<int64_t>(value) + (metric == 7 ? 5 : 0);  // the emergency comes after the critical
  return status;
}

uint32_t amdsmi_get_clock_info(void* handle, uint32_t clock, void* info) {
  const Call call(handle, "clock", (clock == 0 || clock == 4) && info != nullptr);
  uint64_t max = 0;
  const uint32_t status = give(call, "clock_max", &max);
  if (status == kOk) put(info, 8, static_cast<uint32_t>(max));
  return status;
}

uint32_t amdsmi_get_power_cap_info(void* handle, uint32_t sensor, void* info) {
  const Call call(handle, "power_cap", sensor == 0 && info != nullptr);
  uint64_t cap = 0;
  const uint32_t status = give(call, "power_cap", &cap);
  if (status != kOk) return status;
  memset(info, 0, 64);
  put(info, 0, cap);
  put(info, 8, cap);
  put(info, 16, uint64_t{2100});
  put(info, 32, cap + 1'000'000);
  return kOk;
}

uint32_t amdsmi_get_pcie_info(void* handle, void* info) {
  const Call call(handle, "pcie", info != nullptr);
  uint64_t width = 0, speed = 0;
  uint32_t status = give(call, "pcie_width_max", &width);
  if (status == kOk) status = give(call, "pcie_speed_max", &speed);
  if (status != kOk) return status;
  memset(info, 0, 512);
  put(info, 0, static_cast<uint16_t>(width));
  put(info, 4, static_cast<uint32_t>(speed));
  return kOk;
}

// As the real one, it adds to what is there.
uint32_t amdsmi_get_gpu_total_ecc_count(void* handle, void* count) {
  const Call call(handle, "ecc", count != nullptr);
  uint64_t corrected = 0, uncorrected = 0;
  uint32_t status = give(call, "ecc_corrected", &corrected);
  if (status == kOk) status = give(call, "ecc_uncorrected", &uncorrected);
  if (status != kOk) return status;
  uint64_t before[2];
  memcpy(before, count, sizeof before);
  put(count, 0, before[0] + corrected);
  put(count, 8, before[1] + uncorrected);
  return kOk;
}

// As the real one, it leaves the number as it is where there are none.
uint32_t amdsmi_get_gpu_bad_page_info(void* handle, uint32_t* count, void* pages) {
  const Call call(handle, "bad_pages", count != nullptr && pages == nullptr);
  uint64_t value = 0;
  const uint32_t status = give(call, "bad_pages", &value);
  if (status == kOk && value > 0) *count = static_cast<uint32_t>(value);
  return status;
}

uint32_t amdsmi_get_gpu_process_list(void* handle, uint32_t* count, void* list) {
  const Call call(handle, "processes", count != nullptr && (*count == 0 || list != nullptr));
  if (call.status != kOk) return call.status;
  const uint32_t room = *count, all = static_cast<uint32_t>(call.gpu->processes.size());
  *count = all;
  if (room == 0 || all == 0) return kOk;
  const bool is_26 = call.world.version[0] >= 26;
  const size_t bytes = is_26 ? 704 : 224;
  for (uint32_t i = 0; i < room && i < all; ++i) {
    char* entry = static_cast<char*>(list) + i * bytes;
    memset(entry, 0, bytes);
    put(entry, is_26 ? 256 : 32, call.gpu->processes[i].pid);
    put(entry, is_26 ? 264 : 40, uint64_t{7});
    put(entry, is_26 ? 352 : 128, call.gpu->processes[i].bytes);
  }
  return room < all ? kOutOfResources : kOk;
}

}  // extern "C"
#pragma GCC visibility pop
