// The exported vtables, one per version of NCCL's interface: thin adapters over one Tracker. Whatever happens, NCCL
// hears "success": an error from init makes some NCCL releases drop the plugin for the whole process and others call it
// with a context it never made.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <new>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "plugin/nccl/abi/versions.h"
#include "plugin/nccl/chain.h"
#include "plugin/nccl/names.h"
#include "plugin/nccl/tracker.h"
#include "recorder/writer.h"

namespace lockstep::nccl {
namespace {

using Word = Tracker::Word;

constinit std::atomic<Tracker*> tracker{nullptr};
constinit std::atomic<Chain*> chain{nullptr};  // to a second plugin; null: there is none
constinit Mutex init_mutex;
// In a forked child nobody is left to give it back.
[[maybe_unused]] const int forks_watched = ::pthread_atfork(nullptr, nullptr, [] { new (&init_mutex) Mutex; });
constinit std::atomic<DebugLogger> nccl_log{nullptr};
constinit std::atomic<bool> said{false};
// Functions, types, algorithms, protocols.
constinit NameCache names[4];

void say_once(const char* what, const char* why) {
  DebugLogger log = nccl_log.load(std::memory_order_relaxed);
  if (log == nullptr || said.exchange(true, std::memory_order_relaxed)) return;
  log(kLogInfo, kLogFlagInit | kLogFlagProfile, __FILE__, __LINE__, "Lockstep %s: %s", what, why);
}

[[gnu::noinline, gnu::cold]] Tracker* inactive(Tracker* here) {
  const SwitchOff reason = here != nullptr ? here->recorder().off_reason() : SwitchOff::kNone;
  if (reason != SwitchOff::kNone) say_once("stopped recording", to_text(reason));
  return nullptr;
}

Tracker* active() {
  Tracker* here = tracker.load(std::memory_order_acquire);
  if (here == nullptr || here->off()) [[unlikely]]
    return inactive(here);
  return here;
}

Word word_of(const void* pointer) {
  return reinterpret_cast<Word>(pointer);
}
void* pointer_of(Word word) {
  return reinterpret_cast<void*>(word);
}

// A number of the environment; none where it is not set or not one.
std::optional<uint32_t> number_in_environment(const char* name) {
  const char* reported = std::getenv(name);
  if (reported == nullptr || *reported == '\0') return std::nullopt;
  char* end = nullptr;
  const unsigned long number = std::strtoul(reported, &end, 0);
  return *end == '\0' ? std::optional(static_cast<uint32_t>(number)) : std::nullopt;
}

// As NCCL numbers itself (22809 is 2.28.9); 0 where it cannot be found. It is in this process, but not always under a
// name of its own: some programs carry it inside. A recording has none: there it can be told from outside.
uint32_t nccl_version() {
  if (const auto reported = number_in_environment("LOCKSTEP_NCCL_VERSION")) return *reported;
  void* library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) library = ::dlopen("librccl.so.1", RTLD_LAZY | RTLD_NOLOAD);
  auto* get = reinterpret_cast<int (*)(int*)>(::dlsym(library != nullptr ? library : RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (get != nullptr && get(&version) != kNcclSuccess) version = 0;
  if (library != nullptr) ::dlclose(library);
  return version > 0 ? static_cast<uint32_t>(version) : 0;
}

Tracker* tracker_for_init(int version) {
  const MutexLock lock(init_mutex);
  RecorderWriter* recorder = process_recorder();
  if (recorder != nullptr && !recorder->header_intact()) recorder->switch_off(SwitchOff::kHeaderChanged);
  if (recorder == nullptr) {
    const std::string fault = process_recorder_fault();
    say_once("does not record", fault.empty() ? "switched off" : fault.c_str());
    return nullptr;
  }
  if (tracker.load(std::memory_order_relaxed) == nullptr) {
    const uint32_t nccl = nccl_version();
    recorder->show_nccl(nccl, static_cast<uint32_t>(version));
    const Policy policy = policy_for(version, nccl, number_in_environment("LOCKSTEP_NCCL_MASK"),
                                     number_in_environment("LOCKSTEP_NCCL_SAMPLE"));
    tracker.store(new Tracker(*recorder, policy), std::memory_order_release);
  }
  return active();
}

// For every communicator anew: each takes some of it.
void leave_room_to_nccl(Tracker& here, const InFlightTable::Comm& comm) {
  struct statvfs memory {};
  if ((here.events() & kEventKernelCh) == 0 || ::statvfs("/dev/shm", &memory) != 0) return;
  if (room_for_kernel_events(uint64_t{memory.f_bavail} * memory.f_frsize, comm.size, comm.nodes)) return;
  here.drop_kernel_events();
  say_once("asks for no kernel events", "too little is free in /dev/shm for what NCCL keeps there for them");
}

Chain* chain_for_init(int version, DebugLogger log) {
  const MutexLock lock(init_mutex);
  static constinit bool tried = false;
  try {
    if (!tried) chain.store(Chain::load(version, log), std::memory_order_release);
  } catch (...) {  // out of memory: our half does without
  }
  tried = true;
  return chain.load(std::memory_order_relaxed);
}

Word init(int version, int* mask, const InFlightTable::Comm& comm, Chain* with) {
  try {
    for (NameCache& cache : names) cache.forget();  // NCCL may have been unloaded and loaded again
    if (Tracker* here = tracker_for_init(version)) {
      leave_room_to_nccl(*here, comm);
      if (with != nullptr) {
        here->keep_events(with->events());
        with->ours_follows(here->events());
      }
      return here->comm_init(comm, mask);
    }
  } catch (...) {  // out of memory: this communicator is not followed, and its events find no context
  }
  __atomic_store_n(mask, with != nullptr ? static_cast<int>(with->events()) : 0, __ATOMIC_RELAXED);
  return 0;
}

struct Sized {
  uint64_t bytes;
  uint8_t flags;
};
Sized sized(size_t count, Datatype datatype) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(uint64_t{count}, uint64_t{bytes_of(datatype)}, &bytes))
    return {UINT64_MAX, kFlagSaturated};
  return {bytes, 0};
}

template <typename V, typename Fields>
Function function_in(const Fields& fields) {
  if constexpr (V::kNamesAreNumbers) {
    return function_of_v1(fields.func);
  } else {
    return names[0].of(fields.func, function_of);
  }
}
template <typename V, typename Fields>
Datatype datatype_in(const Fields& fields) {
  if constexpr (V::kNamesAreNumbers) {
    return datatype_of_v1(fields.datatype);
  } else {
    return names[1].of(fields.datatype, datatype_of);
  }
}

template <typename V, typename Fields>
void identify(Tracker& here, Word context, int rank, const Fields& fields) {
  if constexpr (!V::kIdentityInInit) here.comm_identity(context, fields.commHash, rank, fields.name);
}

template <typename V>
Word coll_start(Tracker& here, Word context, const typename V::Descriptor& descriptor) {
  const auto& fields = descriptor.coll;
  identify<V>(here, context, descriptor.rank, fields);
  const Datatype datatype = datatype_in<V>(fields);
  const Sized size = sized(fields.count, datatype);
  uint8_t flags = size.flags;
  uint8_t channels = 0;
  uint8_t algorithm = 0;
  uint8_t protocol = 0;
  Word launch = 0;
  if constexpr (V::kNumber >= 4) channels = fields.nChannels;  // before: the most it might use
  if constexpr (V::kNamesAreNumbers) {
    algorithm = algorithm_of_v1(fields.algo);
    protocol = protocol_of_v1(fields.proto);
  } else {
    algorithm = names[2].of(fields.algo, algorithm_of);
    protocol = names[3].of(fields.proto, protocol_of);
  }
  if constexpr (V::kApiEvents) launch = word_of(fields.parentGroup);
  if constexpr (V::kKernelPhase) {
    if (fields.isSymColl) flags |= kFlagSymmetric;
  }
  return here.op_start(context,
                       {.head = op_head_word(RecordType::kColl, flags, 0),
                        .seq = fields.seqNumber,
                        .bytes = size.bytes,
                        .detail = op_detail_word(fields.root, function_in<V>(fields), datatype, channels, algorithm),
                        .protocol = protocol,
                        .parent = word_of(descriptor.parentObj),
                        .launch = launch});
}

template <typename V>
Word p2p_start(Tracker& here, Word context, const typename V::Descriptor& descriptor) {
  const auto& fields = descriptor.p2p;
  identify<V>(here, context, descriptor.rank, fields);
  const Datatype datatype = datatype_in<V>(fields);
  const Sized size = sized(fields.count, datatype);
  // Versions before 4 do not tell, and of 4 NCCL 2.28 and later leave it uninitialised.
  uint8_t channels = 0;
  Word launch = 0;
  if constexpr (V::kApiEvents) {
    channels = fields.nChannels;
    launch = word_of(fields.parentGroup);
  }
  return here.op_start(context, {.head = op_head_word(RecordType::kP2p, size.flags, 0),
                                 .bytes = size.bytes,
                                 .detail = op_detail_word(fields.peer, function_in<V>(fields), datatype, channels, 0),
                                 .parent = word_of(descriptor.parentObj),
                                 .launch = launch});
}

template <typename V>
Word copy_engine_start(Tracker& here, Word context, const typename V::Descriptor& descriptor) {
  const auto& fields = descriptor.ceColl;
  const Datatype datatype = datatype_in<V>(fields);
  const Sized size = sized(fields.count, datatype);
  return here.op_start(context, {.head = op_head_word(RecordType::kColl, size.flags | kFlagCopyEngine, 0),
                                 .seq = fields.seqNumber,
                                 .bytes = size.bytes,
                                 .detail = op_detail_word(fields.root, function_in<V>(fields), datatype, 0, 0),
                                 .parent = word_of(descriptor.parentObj)});
}

template <typename V>
Word kernel_start(Tracker& here, const typename V::Descriptor& descriptor) {
  if constexpr (V::kGpuTimes) {
    return here.kernel_start(word_of(descriptor.parentObj), descriptor.kernelCh.channelId, descriptor.kernelCh.pTimer);
  } else {
    return here.kernel_start(word_of(descriptor.parentObj), descriptor.kernelCh.channelId, 0);
  }
}

template <typename V>
Word start_event(Tracker& here, Word context, const typename V::Descriptor& descriptor) {
  const Word parent = word_of(descriptor.parentObj);
  switch (descriptor.type) {
    case kEventColl:
      return coll_start<V>(here, context, descriptor);
    case kEventP2p:
      return p2p_start<V>(here, context, descriptor);
    case kEventProxyOp:
      return here.proxy_op_start(context, parent, descriptor.proxyOp);
    case kEventProxyStep:
      return here.proxy_step_start(parent, descriptor.proxyStep);
    case kEventGroup:
      return here.group_start();
    default:
      break;
  }
  if constexpr (V::kKernelEvents) {
    if (descriptor.type == kEventKernelCh) return kernel_start<V>(here, descriptor);
  }
  if constexpr (V::kApiEvents) {
    if (descriptor.type == kEventGroupApi) return here.group_start();
    if (descriptor.type == kEventCollApi)
      return here.call_start(context, parent, false, descriptor.collApi.graphCaptured);
    if (descriptor.type == kEventP2pApi) return here.call_start(context, parent, true, descriptor.p2pApi.graphCaptured);
  }
  if constexpr (V::kCopyEngine) {
    if (descriptor.type == kEventCeColl) return copy_engine_start<V>(here, context, descriptor);
  }
  return 0;  // a parent that NCCL sends along with what was asked for; not followed
}

// What a version's callbacks do in our own half; the chain calls the same.
template <typename V>
struct Ours {
  static Word start(Word context, const typename V::Descriptor& descriptor) {
    Tracker* here = active();
    return here != nullptr ? start_event<V>(*here, context, descriptor) : 0;
  }
  static void stop(Word handle) {
    if (Tracker* here = active()) here->stop(handle);
  }
  static void state(Word handle, int state, const typename V::StateArgs* args) {
    Tracker* here = active();
    if (here == nullptr) return;
    Tracker::StateValue value;
    if constexpr (V::kNumber >= 4) {
      // Both are the same eight bytes; the state says which they are.
      if (args != nullptr) value = {.bytes = args->proxyStep.transSize, .gpu_stop_ns = args->kernelCh.pTimer};
    } else {
      if (args != nullptr) value = {.bytes = args->proxyOp.transSize};
    }
    here->state(handle, state, value);
  }
  static bool keep(uint32_t events) {
    Tracker* here = active();
    if (here != nullptr) here->keep_events(events);
    return here != nullptr;
  }
};

Chain* chained() {
  return chain.load(std::memory_order_acquire);
}

template <typename V>
int start(void* context, void** handle, typename V::Descriptor* descriptor) {
  if (handle == nullptr) return kNcclSuccess;
  *handle = nullptr;  // NCCL leaves an old value there
  if (descriptor == nullptr) return kNcclSuccess;
  if (Chain* with = chained()) [[unlikely]] {
    *handle = pointer_of(with->start<V, Ours<V>>(word_of(context), *descriptor));
    return kNcclSuccess;
  }
  *handle = pointer_of(Ours<V>::start(word_of(context), *descriptor));
  return kNcclSuccess;
}

template <typename V>
int stop(void* handle) {
  if (handle == nullptr) return kNcclSuccess;  // what start() itself gave for an event that is not followed
  Word ours = word_of(handle);
  if (Chain* with = chained()) [[unlikely]]
    ours = with->stop(ours);
  if (ours != 0) Ours<V>::stop(ours);
  return kNcclSuccess;
}

template <typename V>
int record_state(void* handle, int state, typename V::StateArgs* args) {
  if (handle == nullptr) return kNcclSuccess;
  Word ours = word_of(handle);
  if (Chain* with = chained()) [[unlikely]]
    ours = with->state<V>(ours, state, args);
  if (ours != 0) Ours<V>::state(ours, state, args);
  return kNcclSuccess;
}

int finalize(void* context) {
  Word ours = word_of(context);
  if (Chain* with = chained(); with != nullptr && ours != 0) ours = with->finalize(ours);
  if (Tracker* here = active(); here != nullptr && ours != 0) here->comm_finalize(ours);
  return kNcclSuccess;
}

template <typename V>
int init_of(void** context, int* mask, const InFlightTable::Comm& comm, DebugLogger log) {
  if (context != nullptr) *context = nullptr;
  if (context == nullptr || mask == nullptr) return kNcclSuccess;
  if (log != nullptr) nccl_log.store(log, std::memory_order_relaxed);
  Chain* with = chain_for_init(V::kNumber, log);
  const Chain::Theirs theirs = with != nullptr ? with->init<V>(comm, log) : Chain::Theirs{};
  const Word ours = init(V::kNumber, mask, comm, with);
  *context = pointer_of(with != nullptr ? with->add(ours, theirs, comm, mask) : ours);
  return kNcclSuccess;
}

// The three signatures that init has had.
template <typename V>
int init_without_identity(void** context, int* mask) {
  return init_of<V>(context, mask, {.rank_in_comm = -1}, nullptr);
}
template <typename V>
int init_with_hash(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
                   DebugLogger log) {
  return init_of<V>(context, mask, {hash, ranks, rank, nodes, name}, log);
}
template <typename V>
int init_with_id(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                 DebugLogger log) {
  return init_of<V>(context, mask, {id, ranks, rank, nodes, name}, log);
}

template <typename V>
constexpr typename V::Profiler table() {
  typename V::Profiler table{};
  table.name = kPluginName;
  if constexpr (V::kNumber <= 3) {
    table.init = init_without_identity<V>;
  } else if constexpr (V::kNumber == 4) {
    table.init = init_with_hash<V>;
  } else {
    table.init = init_with_id<V>;
  }
  table.startEvent = start<V>;
  table.stopEvent = stop<V>;
  table.recordEventState = record_state<V>;
  table.finalize = finalize;
  return table;
}

}  // namespace
}  // namespace lockstep::nccl

// NCCL looks for the newest of these that it knows.
#define LOCKSTEP_EXPORT extern "C" __attribute__((visibility("default")))
#define LOCKSTEP_EXPORT_TABLE(number)                                       \
  LOCKSTEP_EXPORT lockstep::nccl::ProfilerV##number ncclProfiler_v##number; \
  constinit lockstep::nccl::ProfilerV##number ncclProfiler_v##number =      \
      lockstep::nccl::table<lockstep::nccl::V##number>()

LOCKSTEP_EXPORT_TABLE(1);
LOCKSTEP_EXPORT_TABLE(2);
LOCKSTEP_EXPORT_TABLE(3);
LOCKSTEP_EXPORT_TABLE(4);
LOCKSTEP_EXPORT_TABLE(5);
LOCKSTEP_EXPORT_TABLE(6);
LOCKSTEP_EXPORT_TABLE(7);

// For replay and tests: every time stamp from here on is what now_ns says; null goes back to the system's clock.
LOCKSTEP_EXPORT void lockstep_use_clock(uint64_t (*now_ns)(void)) {
  lockstep::use_recorder_clock(now_ns);
}
