#include "plugin/nccl/test_second_plugin.h"

#include <map>
#include <type_traits>

#include "base/mutex.h"
#include "plugin/nccl/abi/versions.h"

namespace lockstep::nccl {
namespace {

Mutex mutex;
SecondPlugin second;
std::map<void*, uint64_t> open_events;  // and their type
uintptr_t next_handle = 0x1000;         // no pointer: who follows it dies

template <typename T>
std::string text(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return value != nullptr ? value : "(null)";
  } else {
    return std::to_string(value);
  }
}

template <typename V>
SecondCall described(const typename V::Descriptor& descriptor) {
  SecondCall call{.what = SecondCall::kStart, .version = V::kNumber};
  call.type = descriptor.type;
  call.parent = descriptor.parentObj;
  call.rank = descriptor.rank;
  call.descriptor = &descriptor;
  if (descriptor.type == kEventColl) {
    const auto& coll = descriptor.coll;
    call.value = coll.count;
    call.seq = coll.seqNumber;
    call.function = text(coll.func);
    call.datatype = text(coll.datatype);
    call.algorithm = text(coll.algo);
    call.protocol = text(coll.proto);
    if constexpr (V::kApiEvents) call.parent_group = coll.parentGroup;
    if constexpr (V::kIdentityInInit) {
      call.channel = coll.nChannels;
    } else {
      call.channel = coll.nMaxChannels;
      call.name = text(coll.name);
      call.comm_id = coll.commHash;
    }
  } else if (descriptor.type == kEventP2p) {
    const auto& p2p = descriptor.p2p;
    call.value = p2p.count;
    call.function = text(p2p.func);
    call.datatype = text(p2p.datatype);
    call.peer = p2p.peer;
    if constexpr (V::kApiEvents) call.parent_group = p2p.parentGroup;
    if constexpr (V::kIdentityInInit) {
      call.channel = p2p.nChannels;
    } else {
      call.name = text(p2p.name);
      call.comm_id = p2p.commHash;
    }
  } else if (descriptor.type == kEventProxyOp) {
    call.channel = descriptor.proxyOp.channelId;
    call.peer = descriptor.proxyOp.peer;
    call.value = static_cast<uint64_t>(descriptor.proxyOp.nSteps);
  } else if (descriptor.type == kEventProxyStep) {
    call.value = static_cast<uint64_t>(descriptor.proxyStep.step);
  }
  if constexpr (V::kGpuTimes) {
    if (descriptor.type == kEventKernelCh) {
      call.channel = descriptor.kernelCh.channelId;
      call.value = descriptor.kernelCh.pTimer;
    }
  }
  if constexpr (V::kApiEvents) {
    if (descriptor.type == kEventCollApi) call.function = text(descriptor.collApi.func);
  }
  return call;
}

template <typename V>
int init(void** context, int* mask, SecondCall call) {
  const MutexLock lock(mutex);
  __atomic_store_n(mask, second.mask, __ATOMIC_RELAXED);
  second.nccl_mask = mask;
  *context = second.null_context ? nullptr : reinterpret_cast<void*>(next_handle += 16);
  call.version = V::kNumber;
  call.context = *context;
  call.type = ~0ULL;
  second.calls.push_back(call);
  return second.init_result;
}
template <typename V>
int init_without_identity(void** context, int* mask) {
  return init<V>(context, mask, {});
}
template <typename V>
int init_with_hash(void** context, int* mask, const char* name, uint64_t hash, int, int, int rank, DebugLogger log) {
  return init<V>(context, mask, {.rank = rank, .has_args = log != nullptr, .name = text(name), .comm_id = hash});
}
template <typename V>
int init_with_id(void** context, uint64_t id, int* mask, const char* name, int, int, int rank, DebugLogger log) {
  return init<V>(context, mask, {.rank = rank, .has_args = log != nullptr, .name = text(name), .comm_id = id});
}

template <typename V>
int start(void* context, void** handle, typename V::Descriptor* descriptor) {
  const MutexLock lock(mutex);
  SecondCall call = described<V>(*descriptor);
  call.context = context;
  *handle = nullptr;
  if ((descriptor->type & second.declined) == 0) {
    *handle = reinterpret_cast<void*>(next_handle += 16);
    open_events[*handle] = descriptor->type;
    second.open += 1;
  }
  call.handle = *handle;
  if (second.keep_calls) second.calls.push_back(call);
  descriptor->parentObj = reinterpret_cast<void*>(0xbad);  // a plugin may write here: it must be a copy
  return 0;
}

template <typename V>
int stop(void* handle) {
  const MutexLock lock(mutex);
  const auto found = open_events.find(handle);
  if (found == open_events.end()) {
    second.stops_without_start += 1;
    return 0;
  }
  if (second.keep_calls)
    second.calls.push_back({.what = SecondCall::kStop, .version = V::kNumber, .handle = handle, .type = found->second});
  open_events.erase(found);
  second.open -= 1;
  return 0;
}

template <typename V>
int state(void* handle, int number, typename V::StateArgs* args) {
  const MutexLock lock(mutex);
  const auto found = open_events.find(handle);
  if (found == open_events.end()) {
    second.states_without_start += 1;
    return 0;
  }
  if (!second.keep_calls) return 0;
  SecondCall call{.what = SecondCall::kState, .version = V::kNumber, .handle = handle, .type = found->second};
  call.state = number;
  call.has_args = args != nullptr;
  if constexpr (V::kIdentityInInit) {
    if (args != nullptr) call.value = args->kernelCh.pTimer;
  } else {
    if (args != nullptr) call.value = args->proxyOp.transSize;
  }
  second.calls.push_back(call);
  return 0;
}

int finalize(void* context) {
  const MutexLock lock(mutex);
  second.calls.push_back({.what = SecondCall::kFinalize, .context = context, .type = ~0ULL});
  return 0;
}

template <typename V>
constexpr typename V::Profiler table() {
  typename V::Profiler table{};
  table.name = "Second";
  if constexpr (V::kApiEvents) {
    table.init = init_with_id<V>;
  } else if constexpr (V::kIdentityInInit) {
    table.init = init_with_hash<V>;
  } else {
    table.init = init_without_identity<V>;
  }
  table.startEvent = start<V>;
  table.stopEvent = stop<V>;
  table.recordEventState = state<V>;
  table.finalize = finalize;
  return table;
}

}  // namespace
}  // namespace lockstep::nccl

#define SECOND_EXPORT extern "C" __attribute__((visibility("default")))
#define SECOND_EXPORT_TABLE(number)                                       \
  SECOND_EXPORT lockstep::nccl::ProfilerV##number ncclProfiler_v##number; \
  lockstep::nccl::ProfilerV##number ncclProfiler_v##number = lockstep::nccl::table<lockstep::nccl::V##number>()

#if SECOND_PLUGIN_VERSIONS == 1
SECOND_EXPORT_TABLE(1);
#elif SECOND_PLUGIN_VERSIONS == 4
SECOND_EXPORT_TABLE(4);
#elif SECOND_PLUGIN_VERSIONS == 45
SECOND_EXPORT_TABLE(4);
SECOND_EXPORT_TABLE(5);
#else
SECOND_EXPORT_TABLE(6);
#endif

SECOND_EXPORT lockstep::nccl::SecondPlugin* test_second_plugin() {
  return &lockstep::nccl::second;
}
