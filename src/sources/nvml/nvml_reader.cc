#include "sources/nvml/nvml_reader.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace lockstep {

Result<std::unique_ptr<GpuReader>> open_nvml_reader(const std::string& library) {
  return nvml::Reader::open(library);
}

namespace nvml {
namespace {

constexpr uint32_t kGpusMax = 64;
// While a GPU is lost, every sixth slow tick (about a minute) begins with a fresh start of the library, because it
// knows only the GPUs that were there when it started.
constexpr int kRestartEvery = 6;

Error failure(const char* function, int status) {
  return Error{format("NVML: %s: %s (status %d)", function, status_text(status), status)};
}

bool is_fatal(int status) {
  return status == kUninitialized || status == kDriverNotLoaded || status == kVersionMismatch;
}

// A lost GPU may still have a handle and a name in the library's memory: only the hardware's own answer counts.
bool answers(const Api& api, Handle device) {
  MemoryV1 memory;
  uint32_t state = 0;
  const int status = api.memory_v1.call ? api.memory_v1.call(device, &memory) : kOk;
  const int second = api.performance_state.call ? api.performance_state.call(device, &state) : kOk;
  return (status == kOk || status == kNotSupported) && (second == kOk || second == kNotSupported);
}

}  // namespace

Result<std::unique_ptr<GpuReader>> Reader::open(const std::string& path) {
  Library library = LOCKSTEP_TRY(Library::open(path));
  std::unique_ptr<Reader> reader(new Reader(std::move(library)));
  LOCKSTEP_TRY(reader->start());
  LOCKSTEP_TRY(reader->find_gpus(true, 0, nullptr));
  if (reader->gpus_.empty()) return Error{"NVML: no NVIDIA GPU that answers (the library loads, and counts none)"};
  reader->listen();
  return std::unique_ptr<GpuReader>(std::move(reader));
}

Reader::~Reader() {
  stop();
}

Result<void> Reader::start() {
  if (const int status = api().init.call(); status != kOk) return failure(api().init.name, status);
  initialized_ = true;
  char version[96] = {};
  if (api().driver_version.call && api().driver_version.call(version, sizeof(version) - 1) == kOk) driver_ = version;
  events_ = std::make_unique<Events>(api(), notes_);
  return {};
}

void Reader::stop() {
  for (auto& gpu : gpus_) gpu->device.reset();
  events_.reset();
  if (initialized_) api().shutdown.call();
  initialized_ = false;
}

void Reader::listen() {
  std::vector<Device*> devices;
  for (auto& gpu : gpus_) {
    if (gpu->device) devices.push_back(gpu->device.get());
  }
  events_->listen_to(devices);
  listen_again_ = false;
}

// Takes in every GPU that the library shows: new ones, and lost ones that are back. Says which known ones it does not
// show any more. at_start: GPUs are simply there, without events.
Result<void> Reader::find_gpus(bool at_start, int64_t unix_ns, GpuSnapshot* out) {
  uint32_t count = 0;
  if (const int status = api().count.call(&count); status != kOk) return failure(api().count.name, status);
  std::set<std::string> shown;
  bool hidden = false;  // a place that did not answer: its GPU may be any of ours
  for (uint32_t i = 0; i < std::min(count, kGpusMax); ++i) {
    Handle handle = nullptr;
    char uuid[97] = {};
    int status = api().handle_by_index.call(i, &handle);
    if (status == kOk) status = api().uuid.call(handle, uuid, sizeof(uuid) - 1);
    if (is_fatal(status)) return failure(api().handle_by_index.name, status);
    if (status != kOk || uuid[0] == '\0') {
      hidden = true;
      notes_.say_once(format("index %u %d", i, status), format("NVML: GPU %u of %u does not answer: %s (status %d)", i,
                                                               count, status_text(status), status));
      continue;
    }
    shown.insert(uuid);
    auto known = std::find_if(gpus_.begin(), gpus_.end(), [&uuid](const auto& gpu) { return gpu->info.uuid == uuid; });
    if (known != gpus_.end() && (*known)->device) continue;
    if (known != gpus_.end() && !answers(api(), handle)) continue;
    GpuInfo info = describe(api(), handle, static_cast<int32_t>(i), driver_);
    if (known == gpus_.end()) known = gpus_.insert(gpus_.end(), std::make_unique<Gpu>());
    Gpu& gpu = **known;
    gpu.device = std::make_unique<Device>(api(), handle, info, notes_);
    gpu.info = std::move(info);
    listen_again_ = true;
    if (!at_start) out->events.push_back({gpu.info.uuid, "appeared", 0, unix_ns});
  }
  if (at_start || hidden) return {};
  for (auto& gpu : gpus_) {
    if (gpu->device && !shown.count(gpu->info.uuid)) lose(*gpu, kNotFound, unix_ns, *out);
  }
  return {};
}

Result<void> Reader::poll_gpus(int64_t unix_ns, GpuSnapshot& out) {
  ++looks_;
  const bool any_lost = std::any_of(gpus_.begin(), gpus_.end(), [](const auto& gpu) { return !gpu->device; });
  if (!any_lost || looks_ % kRestartEvery != 0) return find_gpus(false, unix_ns, &out);

  std::set<std::string> there;
  for (auto& gpu : gpus_) {
    if (gpu->device) there.insert(gpu->info.uuid);
  }
  stop();
  LOCKSTEP_TRY(start());
  GpuSnapshot found;
  LOCKSTEP_TRY(find_gpus(false, unix_ns, &found));
  // Those that we had and have again did not appear; those that we had and have not are lost.
  for (GpuEvent& event : found.events) {
    if (!there.count(event.gpu_uuid)) out.events.push_back(std::move(event));
  }
  for (auto& gpu : gpus_) {
    if (!gpu->device && there.count(gpu->info.uuid)) lose(*gpu, kNotFound, unix_ns, out);
  }
  listen_again_ = true;
  return {};
}

void Reader::lose(Gpu& gpu, int status, int64_t unix_ns, GpuSnapshot& out) {
  gpu.device.reset();
  listen_again_ = true;
  out.events.push_back({gpu.info.uuid, "lost", status, unix_ns});
}

void Reader::take_event(const EventData& event, int64_t unix_ns, GpuSnapshot& out) {
  auto found = std::find_if(gpus_.begin(), gpus_.end(),
                            [&event](const auto& gpu) { return gpu->device && gpu->device->handle() == event.device; });
  if (found == gpus_.end()) return;
  Gpu& gpu = **found;
  GpuEvent reported{gpu.info.uuid, "", static_cast<int64_t>(event.data), unix_ns};
  switch (event.type) {
    case kEventXid:
      reported.kind = "xid";
      reported.gpu_uuid = gpu.device->uuid_of(event.gpu_instance, event.compute_instance);
      break;
    case kEventRecoveryAction:
      reported.kind = "recovery_action";
      break;
    case kEventMigChange:
      reported.kind = "mig_changed";
      reported.code = 0;
      gpu.device->look_at_mig();
      break;
    case kEventUnavailable:
      reported.kind = "unavailable";
      break;
    default:
      return;  // not asked for
  }
  out.events.push_back(std::move(reported));
}

Result<void> Reader::take_events(int64_t unix_ns, GpuSnapshot& out) {
  if (listen_again_) listen();
  const int status = events_->drain([&](const EventData& event) { take_event(event, unix_ns, out); });
  if (is_fatal(status)) return failure(api().event_set_wait.name, status);
  // A GPU in the set is lost; which one, its own calls will tell.
  if (status != kOk && status != kTimeout) listen_again_ = true;
  return {};
}

Result<GpuSnapshot> Reader::read(const GpuTick& tick) {
  if (!initialized_) return Error{"NVML: not started; open the library again"};
  GpuSnapshot out;
  out.unix_ns = tick.unix_ns;
  if (tick.slow && read_once_) {
    LOCKSTEP_TRY(poll_gpus(tick.unix_ns, out));
  }
  LOCKSTEP_TRY(take_events(tick.unix_ns, out));

  for (auto& gpu : gpus_) {
    if (gpu->device) {
      // Everything is read at the first sight of a GPU, whatever the tick.
      const size_t place = out.gpus.size();
      gpu->device->read(tick, tick.slow || !gpu->device->read_before(), out);
      if (const int status = gpu->device->fatal(); status != 0) {
        return Error{format("NVML: GPU %d: %s (status %d): the driver is gone or was replaced", gpu->info.index,
                            status_text(status), status)};
      }
      if (gpu->device->mig_changed()) {
        const GpuEvent changed{gpu->info.uuid, "mig_changed", 0, tick.unix_ns};
        if (std::find(out.events.begin(), out.events.end(), changed) == out.events.end()) out.events.push_back(changed);
      }
      GpuState& state = out.gpus[place];
      if (const int status = gpu->device->lost(); status != 0) {
        state.lost = true;
        out.gpus.resize(place + 1);  // its instances went with it
        lose(*gpu, status, tick.unix_ns, out);
      }
    } else {
      GpuState& state = out.gpus.emplace_back();
      state.info = gpu->info;
      state.lost = true;
      add_gpu_value(state, GpuMetric::kUp, 0);
    }
  }
  read_once_ = true;
  out.notes = notes_.take();
  return out;
}

}  // namespace nvml
}  // namespace lockstep
