// A library with the face of NVIDIA's management library and no GPU behind it; standin_script.h says how it is steered.
//
// It is strict where the real one is (struct versions, handles, calls before nvmlInit) and stricter where a mistake of
// ours would only cost time or disturb a job: calls that we must never make, and GPM samples taken too fast, end the
// process with a message.
//
// Thread rule: Thread-safe (one lock), but for a blocked call, which waits without it.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "sources/nvml/nvml_abi.h"
#include "sources/nvml/nvml_library.h"
#include "tests/standins/nvml/standin_script.h"

using namespace lockstep::nvml;
using lockstep::Mutex;
using lockstep::MutexLock;
using lockstep::standin::Event;
using lockstep::standin::Instance;
using lockstep::standin::Process;
using lockstep::standin::Script;
using lockstep::standin::Value;

namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGpmIntervalMin = 0.100;

constexpr std::array<const char*, kCallCount> kNames = {
#define STANDIN_NAME(member, symbol, ...) symbol,
    LOCKSTEP_NVML_FUNCTIONS(STANDIN_NAME)
#undef STANDIN_NAME
};

struct Object {  // a GPU or, with an instance, a part of one
  int gpu = 0;
  std::string instance;  // uuid; empty: the GPU itself
};
struct Sample {
  int gpu = -1;
  uint32_t instance = kNoInstance;
  double at = -1;
};
struct EventSet {
  std::map<int, uint64_t> masks;  // by GPU
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "NVML stand-in: %s\n", why.c_str());
  std::abort();
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What every field and value is when the script does not say. H200-like; a thing not listed is not supported.
const std::map<std::string, Value>& defaults() {
  static const std::map<std::string, Value> values = [] {
    std::map<std::string, Value> all = {
        {"util.gpu", {97}},
        {"util.memory", {41}},
        {"util.encoder", {0}},
        {"util.decoder", {0}},
        {"memory.total", {143771 * kMiB}},
        {"memory.used", {120000 * kMiB}},
        {"memory.reserved", {551 * kMiB}},
        {"bar1.total", {262144 * kMiB}},
        {"bar1.used", {2 * kMiB}},
        {"clock.0", {1980}},
        {"clock.1", {1980}},
        {"clock.2", {3201}},
        {"clock.3", {1545}},
        {"clock_max.1", {1980}},
        {"clock_max.2", {3201}},
        {"temperature", {55}},
        {"margin", {32}},
        {"threshold.0", {92}},
        {"threshold.1", {89}},
        {"threshold.2", {95}},
        {"threshold.3", {87}},
        {"pstate", {0}},
        {"pcie.generation", {5}},
        {"pcie.width", {16}},
        {"pcie.generation_max", {5}},
        {"pcie.width_max", {16}},
        {"sram.corrected", {0}},
        {"sram.uncorrected", {0}},
        {"sram.threshold", {0}},
        {"bank.0", {2560}},
        {"bank.1", {0}},
        {"bank.2", {0}},
        {"bank.3", {0}},
        {"bank.4", {0}},
        {"repair.channel", {0}},
        {"repair.tpc", {0}},
        {"fabric.state", {3}},
        {"fabric.mask", {0xAA}},
        {"fabric.summary", {1}},
        {"gpm.supported", {1}},
        {"power", {512000}},
        {"energy", {9e9, 512000}},
        {"field.1", {1}},
        {"field.82", {61}},
        {"field.83", {9e9, 512000}},
        {"field.91", {18}},
        {"field.94", {0}},
        {"field.138", {4e9, 2e8}},
        {"field.139", {4e9, 2e8}},
        {"field.160", {0}},
        {"field.169", {0}},
        {"field.185", {512000}},
        {"field.186", {530000}},
        {"field.187", {200000}},
        {"field.188", {700000}},
        {"field.189", {700000}},
        {"field.190", {700000}},
        {"field.192", {700000}},
        {"field.197", {1e12, 1e9}},
        {"field.198", {1e12, 1e9}},
        {"field.230", {0}},
        {"field.161", {0}},
        {"field.162", {0}},
        {"field.163", {0}},
        {"field.165", {1}},
        {"gpm.1", {99}},
        {"gpm.2", {93}},
        {"gpm.3", {48}},
        {"gpm.4", {12}},
        {"gpm.5", {61}},
        {"gpm.6", {0}},
        {"gpm.7", {60}},
        {"gpm.9", {0}},
        {"gpm.10", {37}},
        {"gpm.11", {0}},
        {"gpm.12", {9}},
        {"gpm.13", {3}},
        {"gpm.20", {820}},
        {"gpm.21", {640}},
        {"gpm.60", {180000}},
        {"gpm.61", {180000}},
    };
    for (int id = 3; id <= 17; ++id) all["field." + std::to_string(id)] = {0};
    for (int id = 74; id <= 81; ++id) all["field." + std::to_string(id)] = {0};
    all["field.74"] = {5e12, 2e8};
    for (int id = 142; id <= 145; ++id) all["field." + std::to_string(id)] = {0};
    for (int id = 173; id <= 183; ++id) all["field." + std::to_string(id)] = {0};
    for (int id = 269; id <= 271; ++id) all["field." + std::to_string(id)] = {0};
    return all;
  }();
  return values;
}

class Standin {
 public:
  // The beginning of every call: counts it, reads the script again, and says how the call ends before it begins.
  int enter(Call call, Handle handle = nullptr) {
    const size_t index = static_cast<size_t>(call);
    for (bool counted = false;; counted = true) {
      {
        MutexLock lock(mutex_);
        const int gpu = handle == nullptr ? -1 : gpu_of_known(handle);
        reload();
        if (!counted) ++calls_[index];
        if (!is_blocked(kNames[index], gpu)) {
          if (references_ == 0 && call != Call::init) return kUninitialized;
          return failure(kNames[index], gpu);
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the interval of the poll
    }
  }

  int init() {
    MutexLock lock(mutex_);
    if (references_++ > 0) return kOk;
    if (!begun_) begun_ = steady_seconds();
    if (!script_->real.empty() && !real_) {
      auto library = Library::open(script_->real);
      if (!library.ok()) stop(library.error());
      real_ = std::make_unique<Library>(std::move(library).value());
      steer_real();
    }
    if (real_) {
      const Api& api = real_->api();
      if (const int status = api.init.call(); status != kOk) return status;
      if (const int status = api.handle_by_index.call(0, &real_handle_); status != kOk) return status;
    }
    return kOk;
  }

  int shutdown() {
    MutexLock lock(mutex_);
    write_calls(true);
    if (--references_ > 0) return kOk;
    if (real_) return real_->api().shutdown.call();
    return kOk;
  }

  // Where another library does the work: its functions, and its name for our handle. It stays once it is there.
  const Api* real() const {
    MutexLock lock(mutex_);
    return real_ ? &real_->api() : nullptr;
  }
  Handle real_handle(Handle handle) const {
    MutexLock lock(mutex_);
    return is_known(handle) ? real_handle_ : handle;
  }
  int copies() const { return script()->copies; }

  std::vector<int> present() const {
    MutexLock lock(mutex_);
    std::vector<int> found;
    for (int gpu = 0; gpu < script_->gpus; ++gpu) {
      if (!about(gpu) || !about(gpu)->absent) found.push_back(gpu);
    }
    return found;
  }

  Handle object(int gpu, const std::string& instance = "") {
    MutexLock lock(mutex_);
    for (Object& object : objects_) {
      if (object.gpu == gpu && object.instance == instance) return &object;
    }
    return &objects_.emplace_back(Object{gpu, instance});
  }
  bool is_ours(Handle handle) const {
    MutexLock lock(mutex_);
    return is_known(handle);
  }
  int gpu_of(Handle handle) const {
    MutexLock lock(mutex_);
    return gpu_of_known(handle);
  }
  std::optional<Instance> instance_of(Handle handle) const {
    const Object* object = static_cast<Object*>(handle);
    if (object->instance.empty()) return std::nullopt;
    for (const Instance& instance : instances(object->gpu)) {
      if (instance.uuid == object->instance) return instance;
    }
    return std::nullopt;
  }
  std::vector<Instance> instances(int gpu) const {
    MutexLock lock(mutex_);
    return about(gpu) ? about(gpu)->instances : std::vector<Instance>();
  }
  std::vector<Process> processes(int gpu) const {
    MutexLock lock(mutex_);
    return about(gpu) ? about(gpu)->processes : std::vector<Process>();
  }

  // First key that the script or the defaults know; nullopt: not supported.
  std::optional<double> value(int gpu, std::initializer_list<std::string> keys) {
    MutexLock lock(mutex_);
    for (const std::string& key : keys) {
      ++asked_[key];
      const std::map<std::string, Value>* places[] = {about(gpu) ? &about(gpu)->values : nullptr, &script_->all.values,
                                                      &defaults()};
      for (const auto* values : places) {
        if (values == nullptr) continue;
        auto found = values->find(key);
        if (found == values->end()) continue;
        if (found->second.none) return std::nullopt;
        return found->second.base + found->second.per_second * seconds_since_begin();
      }
    }
    return std::nullopt;
  }
  int part_failure(const std::string& what, int gpu) const {
    MutexLock lock(mutex_);
    for (const auto* script : {about(gpu), &script_->all}) {
      if (script == nullptr) continue;
      if (auto found = script->failures.find(what); found != script->failures.end()) return found->second;
    }
    return kOk;
  }

  void use_script(const char* path) {
    MutexLock lock(mutex_);
    own_path_ = path;
  }

  double seconds() const {
    MutexLock lock(mutex_);
    return seconds_since_begin();
  }
  std::shared_ptr<const Script> script() const {
    MutexLock lock(mutex_);
    return script_;
  }

  Handle add_sample() {
    MutexLock lock(mutex_);
    return samples_.emplace_back(std::make_unique<Sample>()).get();
  }
  void take_sample(Handle handle, const Sample& sample) {
    MutexLock lock(mutex_);
    known_sample(handle) = sample;
  }
  Sample sample(Handle handle) {
    MutexLock lock(mutex_);
    return known_sample(handle);
  }
  void drop_sample(Handle handle) {
    MutexLock lock(mutex_);
    known_sample(handle);
    std::erase_if(samples_, [handle](const auto& sample) { return sample.get() == handle; });
  }
  Handle add_set() {
    MutexLock lock(mutex_);
    return sets_.emplace_back(std::make_unique<EventSet>()).get();
  }
  void add_to_set(Handle handle, int gpu, uint64_t types) {
    MutexLock lock(mutex_);
    known_set(handle).masks[gpu] |= types;
  }
  void drop_set(Handle handle) {
    MutexLock lock(mutex_);
    known_set(handle);
    std::erase_if(sets_, [handle](const auto& set) { return set.get() == handle; });
  }
  bool next_event(Handle handle, Event& event) {
    MutexLock lock(mutex_);
    const EventSet& set = known_set(handle);
    write_calls(false);
    for (const Event& candidate : script_->events) {
      auto mask = set.masks.find(candidate.gpu);
      if (reported_.count(candidate.id) || mask == set.masks.end() || (mask->second & candidate.type) == 0) continue;
      reported_.insert(candidate.id);
      event = candidate;
      return true;
    }
    return false;
  }
  // As the real one: a lost GPU in the set spoils the waiting.
  bool has_lost(Handle handle) {
    MutexLock lock(mutex_);
    for (const auto& [gpu, mask] : known_set(handle).masks) {
      if (lost_now(gpu) != 0) return true;
    }
    return false;
  }

  uint64_t calls(const char* name) const {
    MutexLock lock(mutex_);
    uint64_t sum = 0;
    for (size_t i = 0; i < kCallCount; ++i) {
      if (name == nullptr || std::strcmp(name, kNames[i]) == 0) sum += calls_[i];
    }
    return sum;
  }
  uint64_t asked(const char* key) const {
    MutexLock lock(mutex_);
    auto found = asked_.find(key);
    return found == asked_.end() ? 0 : found->second;
  }
  void reset_counts() {
    MutexLock lock(mutex_);
    calls_.fill(0);
    asked_.clear();
  }
  size_t open_objects() const {
    MutexLock lock(mutex_);
    return samples_.size() + sets_.size() + static_cast<size_t>(references_);
  }

  int lost(int gpu) const {
    MutexLock lock(mutex_);
    return lost_now(gpu);
  }

 private:
  const lockstep::standin::Gpu* about(int gpu) const LOCKSTEP_REQUIRES(mutex_) {
    auto found = script_->by_gpu.find(gpu);
    return found == script_->by_gpu.end() ? nullptr : &found->second;
  }
  double seconds_since_begin() const LOCKSTEP_REQUIRES(mutex_) { return begun_ ? steady_seconds() - *begun_ : 0; }
  bool is_known(Handle handle) const LOCKSTEP_REQUIRES(mutex_) {
    for (const Object& object : objects_) {
      if (&object == handle) return true;
    }
    return false;
  }
  int gpu_of_known(Handle handle) const LOCKSTEP_REQUIRES(mutex_) {
    if (!is_known(handle)) {
      if (real_) return -1;
      stop("a handle that was never given out");
    }
    return static_cast<Object*>(handle)->gpu;
  }
  Sample& known_sample(Handle handle) LOCKSTEP_REQUIRES(mutex_) {
    for (auto& sample : samples_) {
      if (sample.get() == handle) return *sample;
    }
    stop("a GPM sample that was never given out, or freed before");
  }
  EventSet& known_set(Handle handle) LOCKSTEP_REQUIRES(mutex_) {
    for (auto& set : sets_) {
      if (set.get() == handle) return *set;
    }
    stop("an event set that was never given out, or freed before");
  }
  int lost_now(int gpu) const LOCKSTEP_REQUIRES(mutex_) {
    const lockstep::standin::Gpu* script = about(gpu);
    if (script == nullptr) return 0;
    if (script->lost != 0) return script->lost;
    if (script->lost_at >= 0 && seconds_since_begin() >= script->lost_at) return kGpuLost;
    if (!script->lost_file.empty() && access(script->lost_file.c_str(), F_OK) == 0) return kGpuLost;
    return 0;
  }

  // The library behind may be a copy of this one, in a test: it then has a script of its own, named after ours.
  void steer_real() LOCKSTEP_REQUIRES(mutex_) {
    void* file = dlopen(script_->real.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (file == nullptr) return;
    if (void* use_script = dlsym(file, "nvml_standin_use_script")) {
      reinterpret_cast<void (*)(const char*)>(use_script)((path_ + ".real").c_str());
    }
    dlclose(file);
  }

  void reload() LOCKSTEP_REQUIRES(mutex_) {
    const char* path = own_path_.empty() ? std::getenv("LOCKSTEP_NVML_STANDIN") : own_path_.c_str();
    if (path == nullptr) return;
    struct stat now = {};
    if (stat(path, &now) != 0) {
      if (path_ == path) return;  // being replaced
      stop(std::string("cannot read ") + path);
    }
    if (path_ == path && now.st_ino == seen_.st_ino && now.st_size == seen_.st_size &&
        now.st_mtim.tv_sec == seen_.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec) {
      return;
    }
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    script_ = std::make_shared<const Script>(lockstep::standin::parse_script(text.str()));
    path_ = path;
    seen_ = now;
  }

  bool is_blocked(const char* name, int gpu) const LOCKSTEP_REQUIRES(mutex_) {
    for (const auto* script : {about(gpu), &script_->all}) {
      if (script != nullptr && (script->blocked.count(name) || script->blocked.count("*"))) return true;
    }
    return false;
  }
  int failure(const char* name, int gpu) const LOCKSTEP_REQUIRES(mutex_) {
    for (const auto* script : {about(gpu), &script_->all}) {
      if (script == nullptr) continue;
      for (const char* what : {name, "*"}) {
        if (auto found = script->failures.find(what); found != script->failures.end()) return found->second;
      }
    }
    return kOk;
  }

  void write_calls(bool at_once) LOCKSTEP_REQUIRES(mutex_) {
    const double now = seconds_since_begin();
    if (script_->calls_file.empty() || (!at_once && now - written_at_ < 0.2)) return;
    written_at_ = now;
    const std::string beside = script_->calls_file + ".new";
    std::ofstream out(beside);
    for (size_t i = 0; i < kCallCount; ++i) out << kNames[i] << ' ' << calls_[i] << '\n';
    out.close();
    std::rename(beside.c_str(), script_->calls_file.c_str());
  }

  mutable Mutex mutex_;
  std::shared_ptr<const Script> script_ LOCKSTEP_GUARDED_BY(mutex_) = std::make_shared<const Script>();
  std::string path_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string own_path_ LOCKSTEP_GUARDED_BY(mutex_);
  struct stat seen_ LOCKSTEP_GUARDED_BY(mutex_) = {};
  int references_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::optional<double> begun_ LOCKSTEP_GUARDED_BY(mutex_);
  double written_at_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, kCallCount> calls_ LOCKSTEP_GUARDED_BY(mutex_) = {};
  std::map<std::string, uint64_t> asked_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<int64_t> reported_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<Object> objects_ LOCKSTEP_GUARDED_BY(mutex_);  // themselves they never change
  std::vector<std::unique_ptr<Sample>> samples_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<EventSet>> sets_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unique_ptr<Library> real_ LOCKSTEP_GUARDED_BY(mutex_);
  Handle real_handle_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
};

Standin& standin() {
  static Standin one;
  return one;
}

int write_text(const std::string& text, char* out, uint32_t length) {
  if (length < text.size() + 1) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kOk;
}

std::string made_uuid(int gpu) {
  char text[64];
  std::snprintf(text, sizeof(text), "GPU-57a4d000-0000-4000-8000-%012x", static_cast<unsigned>(gpu));
  return text;
}

int read_number(Handle device, const std::string& key, uint32_t* out) {
  const auto value = standin().value(standin().gpu_of(device), {key});
  if (!value) return kNotSupported;
  *out = static_cast<uint32_t>(*value);
  return kOk;
}

bool is_split(Handle device) {
  return !standin().instances(standin().gpu_of(device)).empty();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
// Begins a call; about a device, it ends here where the GPU is lost.
#define ENTER(member) \
  if (const int ended = standin().enter(Call::member)) return ended
#define ENTER_DEVICE(member, device)                                         \
  if (const int ended = standin().enter(Call::member, device)) return ended; \
  if (!standin().real() && standin().lost(standin().gpu_of(device)) != 0) {  \
    return standin().lost(standin().gpu_of(device));                         \
  }
// Hands the call on, where a real library does the work.
#define FORWARD(member, ...)                                                      \
  if (const Api* api = standin().real()) {                                        \
    return api->member.call ? api->member.call(__VA_ARGS__) : +kFunctionNotFound; \
  }
#define REAL(device) standin().real_handle(device)

EXPORT int nvmlInit_v2() {
  ENTER(init);
  return standin().init();
}
EXPORT int nvmlShutdown() {
  ENTER(shutdown);
  return standin().shutdown();
}
EXPORT int nvmlSystemGetDriverVersion(char* out, uint32_t length) {
  ENTER(driver_version);
  FORWARD(driver_version, out, length);
  return write_text(standin().script()->driver, out, length);
}
EXPORT int nvmlDeviceGetCount_v2(uint32_t* count) {
  ENTER(count);
  *count =
      standin().real() ? static_cast<uint32_t>(standin().copies()) : static_cast<uint32_t>(standin().present().size());
  return kOk;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(uint32_t index, Handle* device) {
  ENTER(handle_by_index);
  if (standin().real()) {
    if (index >= static_cast<uint32_t>(standin().copies())) return kInvalidArgument;
    *device = standin().object(static_cast<int>(index));
    return kOk;
  }
  const std::vector<int> present = standin().present();
  if (index >= present.size()) return kInvalidArgument;
  *device = standin().object(present[index]);
  return kOk;
}
// Also of a lost GPU: the library knows it from before.
EXPORT int nvmlDeviceGetUUID(Handle device, char* out, uint32_t length) {
  if (const int ended = standin().enter(Call::uuid, device)) return ended;
  if (const Api* api = standin().real()) {
    const int status = api->uuid.call(REAL(device), out, length);
    const int copy = standin().is_ours(device) ? standin().gpu_of(device) : 0;
    if (status == kOk && copy > 0 && std::strlen(out) > 2) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(copy) & 0xFF);
      std::memcpy(out + std::strlen(out) - 2, digits, 2);
    }
    return status;
  }
  const Object* object = static_cast<Object*>(device);
  return write_text(object->instance.empty() ? made_uuid(object->gpu) : object->instance, out, length);
}
EXPORT int nvmlDeviceGetName(Handle device, char* out, uint32_t length) {
  ENTER_DEVICE(name, device);
  FORWARD(name, REAL(device), out, length);
  const Object* object = static_cast<Object*>(device);
  return write_text(standin().script()->model + (object->instance.empty() ? "" : " MIG 1g.18gb"), out, length);
}
EXPORT int nvmlDeviceGetSerial(Handle device, char* out, uint32_t length) {
  ENTER_DEVICE(serial, device);
  FORWARD(serial, REAL(device), out, length);
  return write_text(std::to_string(1650000000000 + standin().gpu_of(device)), out, length);
}
EXPORT int nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* pci) {
  ENTER_DEVICE(pci_info, device);
  if (const Api* api = standin().real()) {
    if (!api->pci_info.call) return kFunctionNotFound;
    const int status = api->pci_info.call(REAL(device), pci);
    if (status == kOk && standin().is_ours(device))
      pci->domain += 0x1000u * static_cast<uint32_t>(standin().gpu_of(device));
    return status;
  }
  *pci = PciInfo{};
  pci->bus = 0x1b + 0x10u * static_cast<uint32_t>(standin().gpu_of(device));
  std::snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", pci->bus);
  return kOk;
}
EXPORT int nvmlDeviceGetMinorNumber(Handle device, uint32_t* minor) {
  ENTER_DEVICE(minor_number, device);
  *minor = static_cast<uint32_t>(std::max(0, standin().gpu_of(device)));
  return kOk;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(Handle device, MemoryV2* memory) {
  ENTER_DEVICE(memory_v2, device);
  FORWARD(memory_v2, REAL(device), memory);
  if (memory->version != MemoryV2{}.version) return kWrongVersion;
  const int gpu = standin().gpu_of(device);
  const std::optional<Instance> instance = standin().instance_of(device);
  const auto total =
      instance ? std::optional<double>(static_cast<double>(instance->bytes)) : standin().value(gpu, {"memory.total"});
  const double used =
      instance ? static_cast<double>(instance->bytes) / 4 : standin().value(gpu, {"memory.used"}).value_or(0);
  const double reserved = instance ? 0 : standin().value(gpu, {"memory.reserved"}).value_or(0);
  if (!total) return kNotSupported;
  memory->total = static_cast<uint64_t>(*total);
  memory->used = static_cast<uint64_t>(used);
  memory->reserved = static_cast<uint64_t>(reserved);
  memory->free = memory->total - memory->used - memory->reserved;
  return kOk;
}
EXPORT int nvmlDeviceGetMemoryInfo(Handle device, MemoryV1* memory) {
  ENTER_DEVICE(memory_v1, device);
  FORWARD(memory_v1, REAL(device), memory);
  const int gpu = standin().gpu_of(device);
  const auto total = standin().value(gpu, {"memory.total"});
  if (!total) return kNotSupported;
  memory->total = static_cast<uint64_t>(*total);
  memory->used = static_cast<uint64_t>(standin().value(gpu, {"memory.used"}).value_or(0) +
                                       standin().value(gpu, {"memory.reserved"}).value_or(0));
  memory->free = memory->total - memory->used;
  return kOk;
}
EXPORT int nvmlDeviceGetBAR1MemoryInfo(Handle device, MemoryV1* memory) {
  ENTER_DEVICE(bar1, device);
  FORWARD(bar1, REAL(device), memory);
  const int gpu = standin().gpu_of(device);
  const auto total = standin().value(gpu, {"bar1.total"});
  if (!total) return kNotSupported;
  memory->total = static_cast<uint64_t>(*total);
  memory->used = static_cast<uint64_t>(standin().value(gpu, {"bar1.used"}).value_or(0));
  memory->free = memory->total - memory->used;
  return kOk;
}
EXPORT int nvmlDeviceGetUtilizationRates(Handle device, Utilization* utilization) {
  ENTER_DEVICE(utilization, device);
  FORWARD(utilization, REAL(device), utilization);
  if (is_split(device)) return kNotSupported;
  if (const int status = read_number(device, "util.gpu", &utilization->gpu)) return status;
  return read_number(device, "util.memory", &utilization->memory);
}
EXPORT int nvmlDeviceGetEncoderUtilization(Handle device, uint32_t* percent, uint32_t* window_us) {
  ENTER_DEVICE(encoder_utilization, device);
  FORWARD(encoder_utilization, REAL(device), percent, window_us);
  *window_us = 166666;
  return read_number(device, "util.encoder", percent);
}
EXPORT int nvmlDeviceGetDecoderUtilization(Handle device, uint32_t* percent, uint32_t* window_us) {
  ENTER_DEVICE(decoder_utilization, device);
  FORWARD(decoder_utilization, REAL(device), percent, window_us);
  *window_us = 166666;
  return read_number(device, "util.decoder", percent);
}
EXPORT int nvmlDeviceGetClockInfo(Handle device, uint32_t clock, uint32_t* mhz) {
  ENTER_DEVICE(clock, device);
  FORWARD(clock, REAL(device), clock, mhz);
  return read_number(device, "clock." + std::to_string(clock), mhz);
}
EXPORT int nvmlDeviceGetMaxClockInfo(Handle device, uint32_t clock, uint32_t* mhz) {
  ENTER_DEVICE(clock_max, device);
  FORWARD(clock_max, REAL(device), clock, mhz);
  return read_number(device, "clock_max." + std::to_string(clock), mhz);
}
EXPORT int nvmlDeviceGetTemperatureV(Handle device, Temperature* temperature) {
  ENTER_DEVICE(temperature_v, device);
  FORWARD(temperature_v, REAL(device), temperature);
  if (temperature->version != Temperature{}.version) return kWrongVersion;
  uint32_t celsius = 0;
  const int status = read_number(device, "temperature", &celsius);
  temperature->celsius = static_cast<int32_t>(celsius);
  return status;
}
EXPORT int nvmlDeviceGetTemperature(Handle device, uint32_t sensor, uint32_t* celsius) {
  ENTER_DEVICE(temperature, device);
  FORWARD(temperature, REAL(device), sensor, celsius);
  return read_number(device, "temperature", celsius);
}
EXPORT int nvmlDeviceGetTemperatureThreshold(Handle device, uint32_t which, uint32_t* celsius) {
  ENTER_DEVICE(temperature_threshold, device);
  FORWARD(temperature_threshold, REAL(device), which, celsius);
  return read_number(device, "threshold." + std::to_string(which), celsius);
}
EXPORT int nvmlDeviceGetMarginTemperature(Handle device, MarginTemperature* margin) {
  ENTER_DEVICE(temperature_margin, device);
  FORWARD(temperature_margin, REAL(device), margin);
  if (margin->version != MarginTemperature{}.version) return kWrongVersion;
  uint32_t celsius = 0;
  const int status = read_number(device, "margin", &celsius);
  margin->celsius = static_cast<int32_t>(celsius);
  return status;
}
EXPORT int nvmlDeviceGetPerformanceState(Handle device, uint32_t* state) {
  ENTER_DEVICE(performance_state, device);
  FORWARD(performance_state, REAL(device), state);
  return read_number(device, "pstate", state);
}
EXPORT int nvmlDeviceGetPowerUsage(Handle device, uint32_t* milliwatts) {
  ENTER_DEVICE(power_usage, device);
  FORWARD(power_usage, REAL(device), milliwatts);
  return read_number(device, "power", milliwatts);
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(Handle device, uint64_t* millijoules) {
  ENTER_DEVICE(total_energy, device);
  FORWARD(total_energy, REAL(device), millijoules);
  const auto value = standin().value(standin().gpu_of(device), {"energy"});
  if (!value) return kNotSupported;
  *millijoules = static_cast<uint64_t>(*value);
  return kOk;
}
EXPORT int nvmlDeviceGetFieldValues(Handle device, int count, FieldValue* values) {
  ENTER_DEVICE(field_values, device);
  FORWARD(field_values, REAL(device), count, values);
  if (count <= 0 || values == nullptr) return kInvalidArgument;
  const int gpu = standin().gpu_of(device);
  for (int i = 0; i < count; ++i) {
    FieldValue& field = values[i];
    const std::string key = "field." + std::to_string(field.field);
    field.status = standin().part_failure(key, gpu);
    if (field.status != kOk) continue;
    const auto value = standin().value(gpu, {"link." + std::to_string(field.scope) + "." + key, key});
    if (!value) {
      field.status = kNotSupported;
      continue;
    }
    field.timestamp_us = static_cast<int64_t>(standin().seconds() * 1e6);
    // Power and temperature are 32 bits in the real library too; the rest of the union keeps what was there.
    if (field.field == 82 || (field.field >= 185 && field.field <= 192 && field.field != 191)) {
      field.type = ValueType::kU32;
      field.value.u64 = 0xFFFFFFFF00000000u;
      field.value.u32 = static_cast<uint32_t>(*value);
    } else {
      field.type = ValueType::kU64;
      field.value.u64 = static_cast<uint64_t>(*value);
    }
  }
  return kOk;
}
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(Handle device, uint32_t* value) {
  ENTER_DEVICE(pcie_generation, device);
  FORWARD(pcie_generation, REAL(device), value);
  return read_number(device, "pcie.generation", value);
}
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(Handle device, uint32_t* value) {
  ENTER_DEVICE(pcie_width, device);
  FORWARD(pcie_width, REAL(device), value);
  return read_number(device, "pcie.width", value);
}
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(Handle device, uint32_t* value) {
  ENTER_DEVICE(pcie_generation_max, device);
  FORWARD(pcie_generation_max, REAL(device), value);
  return read_number(device, "pcie.generation_max", value);
}
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(Handle device, uint32_t* value) {
  ENTER_DEVICE(pcie_width_max, device);
  FORWARD(pcie_width_max, REAL(device), value);
  return read_number(device, "pcie.width_max", value);
}
EXPORT int nvmlDeviceGetSramEccErrorStatus(Handle device, EccSram* sram) {
  ENTER_DEVICE(sram_ecc, device);
  FORWARD(sram_ecc, REAL(device), sram);
  if (sram->version != EccSram{}.version) return kWrongVersion;
  const int gpu = standin().gpu_of(device);
  const auto corrected = standin().value(gpu, {"sram.corrected"});
  if (!corrected) return kNotSupported;
  const auto uncorrected = static_cast<uint64_t>(standin().value(gpu, {"sram.uncorrected"}).value_or(0));
  sram->volatile_corrected = static_cast<uint64_t>(*corrected);
  sram->volatile_parity = uncorrected / 2;
  sram->volatile_secded = uncorrected - uncorrected / 2;
  sram->aggregate_corrected = sram->volatile_corrected + 100;
  sram->aggregate_parity = sram->volatile_parity;
  sram->aggregate_secded = sram->volatile_secded;
  sram->threshold_exceeded = static_cast<uint32_t>(standin().value(gpu, {"sram.threshold"}).value_or(0));
  return kOk;
}
EXPORT int nvmlDeviceGetRowRemapperHistogram(Handle device, RowRemapperHistogram* banks) {
  ENTER_DEVICE(row_remapper_histogram, device);
  FORWARD(row_remapper_histogram, REAL(device), banks);
  uint32_t* const out[] = {&banks->max, &banks->high, &banks->partial, &banks->low, &banks->none};
  for (int i = 0; i < 5; ++i) {
    if (const int status = read_number(device, "bank." + std::to_string(i), out[i])) return status;
  }
  return kOk;
}
EXPORT int nvmlDeviceGetRepairStatus(Handle device, RepairStatus* repair) {
  ENTER_DEVICE(repair_status, device);
  FORWARD(repair_status, REAL(device), repair);
  if (repair->version != RepairStatus{}.version) return kWrongVersion;
  if (const int status = read_number(device, "repair.channel", &repair->channel_pending)) return status;
  return read_number(device, "repair.tpc", &repair->tpc_pending);
}
EXPORT int nvmlDeviceGetGpuFabricInfoV(Handle device, FabricInfo* fabric) {
  ENTER_DEVICE(fabric_info, device);
  FORWARD(fabric_info, REAL(device), fabric);
  const int gpu = standin().gpu_of(device);
  // "set fabric.summary none" is a driver that knows version 2 only.
  const auto summary = standin().value(gpu, {"fabric.summary"});
  if (fabric->version != kFabricInfoV2 && (fabric->version != kFabricInfoV3 || !summary)) return kWrongVersion;
  const auto state = standin().value(gpu, {"fabric.state"});
  if (!state) return kNotSupported;
  fabric->state = static_cast<uint8_t>(*state);
  fabric->status = 0;
  fabric->health_mask = static_cast<uint32_t>(standin().value(gpu, {"fabric.mask"}).value_or(0));
  if (fabric->version == kFabricInfoV3) fabric->summary = static_cast<uint8_t>(*summary);
  return kOk;
}
EXPORT int nvmlDeviceGetNvLinkState(Handle device, uint32_t link, uint32_t* active) {
  ENTER_DEVICE(link_state, device);
  FORWARD(link_state, REAL(device), link, active);
  const auto value =
      standin().value(standin().gpu_of(device), {"link." + std::to_string(link) + ".state", "link.state"});
  *active = static_cast<uint32_t>(value.value_or(1));
  return kOk;
}
EXPORT int nvmlDeviceGetGridLicensableFeatures_v4(Handle device, LicensableFeatures* features) {
  ENTER_DEVICE(licensable_features, device);
  FORWARD(licensable_features, REAL(device), features);
  const auto licensed = standin().value(standin().gpu_of(device), {"license"});
  if (!licensed) return kNotSupported;
  features->supported = 1;
  features->count = 1;
  features->features[0].licensed = static_cast<uint32_t>(*licensed);
  return kOk;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, uint32_t* count, ProcessInfo* infos) {
  ENTER_DEVICE(processes, device);
  FORWARD(processes, REAL(device), count, infos);
  const std::optional<Instance> instance = standin().instance_of(device);
  std::vector<ProcessInfo> found;
  for (const Process& process : standin().processes(standin().gpu_of(device))) {
    if (instance && process.gpu_instance != instance->gpu) continue;
    found.push_back({process.pid, process.bytes, process.gpu_instance, kNoInstance});
  }
  const uint32_t room = *count;
  *count = static_cast<uint32_t>(found.size());
  if (found.size() > room) return kInsufficientSize;
  std::copy(found.begin(), found.end(), infos);
  return kOk;
}
EXPORT int nvmlDeviceGetMigMode(Handle device, uint32_t* current, uint32_t* pending) {
  ENTER_DEVICE(mig_mode, device);
  FORWARD(mig_mode, REAL(device), current, pending);
  *current = *pending = is_split(device) ? 1 : 0;
  return kOk;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(Handle device, uint32_t* count) {
  ENTER_DEVICE(mig_count_max, device);
  FORWARD(mig_count_max, REAL(device), count);
  *count = 7;
  return kOk;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, uint32_t index, Handle* instance) {
  ENTER_DEVICE(mig_handle, device);
  FORWARD(mig_handle, REAL(device), index, instance);
  const int gpu = standin().gpu_of(device);
  const std::vector<Instance> instances = standin().instances(gpu);
  if (index >= instances.size()) return kNotFound;
  *instance = standin().object(gpu, instances[index].uuid);
  return kOk;
}
EXPORT int nvmlDeviceGetGpuInstanceId(Handle device, uint32_t* id) {
  ENTER_DEVICE(gpu_instance_id, device);
  FORWARD(gpu_instance_id, REAL(device), id);
  const std::optional<Instance> instance = standin().instance_of(device);
  if (!instance) return kInvalidArgument;
  *id = instance->gpu;
  return kOk;
}
EXPORT int nvmlDeviceGetComputeInstanceId(Handle device, uint32_t* id) {
  ENTER_DEVICE(compute_instance_id, device);
  FORWARD(compute_instance_id, REAL(device), id);
  const std::optional<Instance> instance = standin().instance_of(device);
  if (!instance) return kInvalidArgument;
  *id = instance->compute;
  return kOk;
}

EXPORT int nvmlGpmQueryDeviceSupport(Handle device, GpmSupport* support) {
  ENTER_DEVICE(gpm_support, device);
  FORWARD(gpm_support, REAL(device), support);
  if (support->version != 1) return kWrongVersion;
  support->supported = standin().value(standin().gpu_of(device), {"gpm.supported"}).value_or(0) != 0 ? 1 : 0;
  return kOk;
}
EXPORT int nvmlGpmSampleAlloc(Handle* sample) {
  ENTER(gpm_sample_alloc);
  FORWARD(gpm_sample_alloc, sample);
  *sample = standin().add_sample();
  return kOk;
}
EXPORT int nvmlGpmSampleFree(Handle sample) {
  ENTER(gpm_sample_free);
  FORWARD(gpm_sample_free, sample);
  standin().drop_sample(sample);
  return kOk;
}
EXPORT int nvmlGpmSampleGet(Handle device, Handle sample) {
  ENTER_DEVICE(gpm_sample_get, device);
  FORWARD(gpm_sample_get, REAL(device), sample);
  if (is_split(device)) return kNotSupported;
  standin().take_sample(sample, {standin().gpu_of(device), kNoInstance, standin().seconds()});
  return kOk;
}
EXPORT int nvmlGpmMigSampleGet(Handle device, uint32_t instance, Handle sample) {
  ENTER_DEVICE(gpm_mig_sample_get, device);
  FORWARD(gpm_mig_sample_get, REAL(device), instance, sample);
  standin().take_sample(sample, {standin().gpu_of(device), instance, standin().seconds()});
  return kOk;
}
EXPORT int nvmlGpmMetricsGet(GpmMetricsGet* get) {
  ENTER(gpm_metrics_get);
  FORWARD(gpm_metrics_get, get);
  if (get->version != 1) return kWrongVersion;
  const Sample older = standin().sample(get->older), newer = standin().sample(get->newer);
  if (older.gpu != newer.gpu || older.instance != newer.instance) stop("GPM samples of different GPUs");
  if (older.at < 0 || newer.at < 0) stop("a GPM sample that was never taken");
  if (newer.at - older.at < kGpmIntervalMin) stop("GPM samples less than 100 ms apart, or in the wrong order");
  for (uint32_t i = 0; i < get->count; ++i) {
    GpmMetric& metric = get->metrics[i];
    const std::string key = "gpm." + std::to_string(metric.id);
    metric.status = standin().part_failure(key, newer.gpu);
    if (metric.status != kOk) continue;
    const auto value = standin().value(newer.gpu, {"gi." + std::to_string(newer.instance) + "." + key, key});
    metric.status = value ? kOk : kNotSupported;
    metric.value = value.value_or(0);
  }
  return kOk;
}

EXPORT int nvmlEventSetCreate(Handle* set) {
  ENTER(event_set_create);
  FORWARD(event_set_create, set);
  *set = standin().add_set();
  return kOk;
}
EXPORT int nvmlEventSetFree(Handle set) {
  ENTER(event_set_free);
  FORWARD(event_set_free, set);
  standin().drop_set(set);
  return kOk;
}
EXPORT int nvmlDeviceGetSupportedEventTypes(Handle device, uint64_t* types) {
  ENTER_DEVICE(events_supported, device);
  FORWARD(events_supported, REAL(device), types);
  *types = 0xFF9F;
  return kOk;
}
EXPORT int nvmlDeviceRegisterEvents(Handle device, uint64_t types, Handle set) {
  ENTER_DEVICE(events_register, device);
  // One real GPU: its events are told once, as those of the first copy.
  if (standin().real() && standin().is_ours(device) && standin().gpu_of(device) > 0) return kOk;
  FORWARD(events_register, REAL(device), types, set);
  standin().add_to_set(set, standin().gpu_of(device), types);
  return kOk;
}
EXPORT int nvmlEventSetWait_v2(Handle set, EventData* data, uint32_t timeout_ms) {
  ENTER(event_set_wait);
  if (timeout_ms != 0) stop("nvmlEventSetWait with a timeout: it would hold up the reading");
  if (const Api* api = standin().real()) {
    const int status = api->event_set_wait.call(set, data, timeout_ms);
    if (status == kOk) data->device = standin().object(0);
    return status;
  }
  if (standin().has_lost(set)) return kGpuLost;
  Event event;
  if (!standin().next_event(set, event)) return kTimeout;
  *data = {standin().object(event.gpu), event.type, event.data, event.gpu_instance, kNoInstance};
  return kOk;
}

// What must never be called: it blocks for 40 ms, is no longer maintained, or changes something.
#define NEVER(name)                           \
  EXPORT int name() {                         \
    stop(#name " was called: never do that"); \
  }
NEVER(nvmlDeviceGetPcieThroughput)
NEVER(nvmlDeviceGetNvLinkUtilizationCounter)
NEVER(nvmlDeviceResetNvLinkErrorCounters)
NEVER(nvmlDeviceClearEccErrorCounts)
NEVER(nvmlGpmSetStreamingEnabled)
NEVER(nvmlDeviceSetRusdSettings_v1)

// For tests that load this library themselves.
EXPORT void nvml_standin_use_script(const char* path) {
  standin().use_script(path);
}  // instead of the environment's
EXPORT uint64_t nvml_standin_calls(const char* name) {
  return standin().calls(name);
}  // null: all of them
EXPORT uint64_t nvml_standin_asked(const char* key) {
  return standin().asked(key);
}  // "field.82", "gpm.13"
EXPORT void nvml_standin_reset_counts() {
  standin().reset_counts();
}
// Samples, event sets and references to the library that were not given back.
EXPORT uint64_t nvml_standin_open_objects() {
  return standin().open_objects();
}
