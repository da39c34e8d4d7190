#include "bench/plugin/host.h"

#include <dlfcn.h>
#include <unistd.h>

#include <type_traits>

#include "base/text.h"
#include "bench/plugin/timing.h"
#include "sim/replay/rank_player.h"

namespace lockstep::plugin_bench {
namespace {

using nccl::V4, nccl::V5, nccl::V6, nccl::V7;

template <typename Event>
constexpr bool common_places() {
  return offsetof(Event, parentObj) == 8 && offsetof(Event, coll) + offsetof(decltype(Event::coll), seqNumber) == 24 &&
         offsetof(Event, kernelCh) + offsetof(nccl::KernelChFields, pTimer) == 32;
}
static_assert(common_places<V4::Descriptor>() && common_places<V5::Descriptor>());
static_assert(common_places<V6::Descriptor>() && common_places<V7::Descriptor>());
static_assert(offsetof(V5::Descriptor, coll.parentGroup) == offsetof(V7::Descriptor, coll.parentGroup));
static_assert(offsetof(V5::Descriptor, p2p.parentGroup) == offsetof(V7::Descriptor, p2p.parentGroup));

void no_log(int, unsigned long, const char*, int, const char*, ...) {}

int null_init(void** context, uint64_t, int* mask, const char*, int, int, int, nccl::DebugLogger) {
  *context = context;
  *mask = 0xFFF;
  return 0;
}
int null_start(void*, void** handle, void*) {
  *handle = handle;
  return 0;
}
int null_stop(void*) {
  return 0;
}
int null_state(void*, int, void*) {
  return 0;
}

uint64_t spin_rounds = 0;
int spin() {
  for (uint64_t i = 0; i < spin_rounds; ++i) asm volatile("" : "+r"(i));
  return 0;
}
// By trying: a short loop runs faster than a long one, so its length is found with the timer that will judge it.
void set_spin(double ns) {
  const Timer timer = Timer::calibrate();
  spin_rounds = static_cast<uint64_t>(ns);
  for (int attempt = 0; attempt < 8; ++attempt) {
    Histogram ticks;
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t begin = ticks_begin();
      spin();
      ticks.add(timer.between(begin, ticks_end()));
    }
    const double taken_ns = std::max(1.0, timer.ns(static_cast<double>(ticks.quantile(0.5))));
    spin_rounds = static_cast<uint64_t>(static_cast<double>(spin_rounds) * std::clamp(ns / taken_ns, 0.5, 2.0)) + 1;
  }
}
int spin_start(void*, void** handle, void*) {
  *handle = handle;
  return spin();
}
int spin_stop(void*) {
  return spin();
}
int spin_state(void*, int, void*) {
  return spin();
}

}  // namespace

const Host::Table Host::kSpinTable = {"spin",   reinterpret_cast<void*>(null_init), spin_start, spin_stop, spin_state,
                                      null_stop};
const Host::Table Host::kNullTable = {"null",   reinterpret_cast<void*>(null_init), null_start, null_stop, null_state,
                                      null_stop};

Result<Host> Host::open(const std::string& path) {
  Host host;
  host.version_ = V7::kNumber;
  if (path == kNullPlugin) {
    host.table_ = &kNullTable;
    return host;
  }
  if (path.starts_with(kSpinPlugin)) {
    const std::optional<double> ns = parse_double(path.substr(std::strlen(kSpinPlugin)));
    if (!ns || *ns < 0) return Error{path + ": spin:NS takes a number of nanoseconds"};
    set_spin(*ns);
    host.table_ = &kSpinTable;
    return host;
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{::dlerror()};
  for (const auto& [version, symbol] : {std::pair(V7::kNumber, V7::kSymbol), std::pair(V6::kNumber, V6::kSymbol),
                                        std::pair(V5::kNumber, V5::kSymbol), std::pair(V4::kNumber, V4::kSymbol)}) {
    host.table_ = static_cast<const Table*>(::dlsym(library, symbol));
    host.version_ = version;
    if (host.table_ != nullptr) return host;
  }
  return Error{path + " exports none of ncclProfiler_v4 to v7"};
}

uint64_t Host::wanted() const {
  const auto mask = static_cast<uint64_t>(__atomic_load_n(&mask_, __ATOMIC_RELAXED));
  const uint64_t with = replay::with_ancestors(mask);
  return version_ >= 5 ? with : with & 0xFF;
}

void* Host::init(uint64_t id, const char* name, int nodes, int ranks, int rank) {
  void* context = nullptr;
  if (version_ >= 5) {
    const auto call = reinterpret_cast<nccl::InitV5*>(table_->init);
    call(&context, id, &mask_, name, nodes, ranks, rank, no_log);
  } else {
    const auto call = reinterpret_cast<nccl::InitV4*>(table_->init);
    call(&context, &mask_, name, id, nodes, ranks, rank, no_log);
  }
  return context;
}

template <typename Event>
void Host::fill(Event& event, const replay::CallLine& line, int our_pid) {
  event.type = static_cast<decltype(event.type)>(line.type);
  event.rank = line.rank;
  if constexpr (!std::is_same_v<Event, V4::Descriptor>) {
    switch (line.type) {
      case nccl::kEventGroupApi:
        event.groupApi = {line.flag, line.number};
        return;
      case nccl::kEventCollApi:
        event.collApi.func = literal(line.function);
        event.collApi.count = line.count;
        event.collApi.datatype = literal(line.datatype);
        event.collApi.root = line.root_or_peer;
        event.collApi.stream = reinterpret_cast<void*>(line.stream);
        event.collApi.graphCaptured = line.flag;
        return;
      case nccl::kEventP2pApi:
        event.p2pApi.func = literal(line.function);
        event.p2pApi.count = line.count;
        event.p2pApi.datatype = literal(line.datatype);
        event.p2pApi.stream = reinterpret_cast<void*>(line.stream);
        event.p2pApi.graphCaptured = line.flag;
        return;
      case nccl::kEventKernelLaunch:
        event.kernelLaunch = {reinterpret_cast<void*>(line.stream)};
        return;
      default:
        break;
    }
  }
  switch (line.type) {
    case nccl::kEventColl:
      event.coll.seqNumber = line.seq;
      event.coll.func = literal(line.function);
      event.coll.count = line.count;
      event.coll.root = line.root_or_peer;
      event.coll.datatype = literal(line.datatype);
      event.coll.nChannels = line.channel;
      event.coll.nWarps = line.warps;
      event.coll.algo = literal(line.algorithm);
      event.coll.proto = literal(line.protocol);
      break;
    case nccl::kEventP2p:
      event.p2p.func = literal(line.function);
      event.p2p.datatype = literal(line.datatype);
      event.p2p.count = line.count;
      event.p2p.peer = line.root_or_peer;
      event.p2p.nChannels = line.channel;
      break;
    case nccl::kEventProxyOp:
      event.proxyOp = {line.pid == our_pid ? ::getpid() : ::getppid(),
                       line.channel,
                       line.root_or_peer,
                       line.step_count,
                       line.chunk_bytes,
                       line.flag};
      break;
    case nccl::kEventProxyStep:
      event.proxyStep = {line.number};
      break;
    case nccl::kEventKernelCh:
      event.kernelCh = {line.channel, line.gpu_time_ns};
      break;
    default:
      break;
  }
}

Descriptor Host::describe(const replay::CallLine& line, int our_pid) {
  Descriptor descriptor;
  std::memset(descriptor.bytes, 0, sizeof descriptor.bytes);
  switch (version_) {
    case 4:
      fill(descriptor.v4, line, our_pid);
      break;
    case 5:
      fill(descriptor.v5, line, our_pid);
      break;
    case 6:
      fill(descriptor.v6, line, our_pid);
      break;
    default:
      fill(descriptor.v7, line, our_pid);
  }
  return descriptor;
}

uint32_t Host::group_offset(uint64_t type) const {
  if (version_ < 5) return 0;
  if (type == nccl::kEventColl) return offsetof(V5::Descriptor, coll.parentGroup);
  if (type == nccl::kEventP2p) return offsetof(V5::Descriptor, p2p.parentGroup);
  return 0;
}

}  // namespace lockstep::plugin_bench
