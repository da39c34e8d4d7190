// Plays NCCL for tests and benchmarks: opens the plugin as NCCL does and makes the callbacks of a collective in NCCL's
// order.
//
// Thread rule: Confined.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "plugin/nccl/profiler_abi.h"

namespace lockstep::nccl {

struct V4 {
  using Table = ProfilerV4;
  using Descriptor = EventDescrV4;
  static constexpr const char* kSymbol = kSymbolV4;
  static void init(const Table& table, void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
                   int rank) {
    table.init(context, mask, name, id, nodes, ranks, rank, nullptr);
  }
};
struct V5 {
  using Table = ProfilerV5;
  using Descriptor = EventDescrV5;
  static constexpr const char* kSymbol = kSymbolV5;
  static void init(const Table& table, void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
                   int rank) {
    table.init(context, id, mask, name, nodes, ranks, rank, nullptr);
  }
};

inline void* const kGarbage = reinterpret_cast<void*>(0xdeadbeef);  // what NCCL leaves in *eHandle

template <typename Version>
class TestHost {
 public:
  using Descriptor = typename Version::Descriptor;

  TestHost() {
    library_ = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/libnccl-profiler-lockstep.so", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      std::fprintf(stderr, "%s\n", ::dlerror());
      std::abort();
    }
    table_ = static_cast<typename Version::Table*>(::dlsym(library_, Version::kSymbol));
    if (table_ == nullptr) std::abort();
  }

  void* library() const { return library_; }
  const typename Version::Table& table() const { return *table_; }
  int mask() const { return mask_; }

  void* init(uint64_t comm_id, int ranks = 16, int rank = 3, const char* name = nullptr) {
    void* context = kGarbage;
    Version::init(*table_, &context, comm_id, &mask_, name, 2, ranks, rank);
    return context;
  }
  void finalize(void* context) { table_->finalize(context); }

  void* start(void* context, Descriptor&& descriptor) { return start(context, descriptor); }
  void* start(void* context, Descriptor& descriptor) {
    void* handle = kGarbage;
    table_->startEvent(context, &handle, &descriptor);
    return handle;
  }
  void stop(void* handle) { table_->stopEvent(handle); }
  void state(void* handle, int state, uint64_t value = 0) {
    EventStateArgs args;
    args.kernelCh.pTimer = value;  // the same bytes as proxyStep.transSize
    table_->recordEventState(handle, state, &args);
  }

  static Descriptor of(uint64_t type, void* parent = nullptr, int rank = 0) {
    Descriptor descriptor{};
    descriptor.type = static_cast<decltype(descriptor.type)>(type);
    descriptor.parentObj = parent;
    descriptor.rank = rank;
    return descriptor;
  }
  static Descriptor all_reduce(uint64_t seq, size_t count, uint8_t channels) {
    Descriptor descriptor = of(kEventColl, nullptr, 3);
    descriptor.coll.seqNumber = seq;
    descriptor.coll.func = "AllReduce";
    descriptor.coll.count = count;
    descriptor.coll.datatype = "ncclFloat32";
    descriptor.coll.nChannels = channels;
    descriptor.coll.nWarps = 16;
    descriptor.coll.algo = "RING";
    descriptor.coll.proto = "SIMPLE";
    return descriptor;
  }
  static Descriptor p2p(const char* function, int peer, size_t count, uint8_t channels) {
    Descriptor descriptor = of(kEventP2p, nullptr, 3);
    descriptor.p2p.func = function;
    descriptor.p2p.datatype = "ncclBfloat16";
    descriptor.p2p.count = count;
    descriptor.p2p.peer = peer;
    descriptor.p2p.nChannels = channels;
    return descriptor;
  }
  static Descriptor kernel(void* op, uint8_t channel, uint64_t gpu_ns) {
    Descriptor descriptor = of(kEventKernelCh, op);
    descriptor.kernelCh.channelId = channel;
    descriptor.kernelCh.pTimer = gpu_ns;
    return descriptor;
  }
  static Descriptor proxy_op(void* op, uint8_t channel, int peer, bool send, int steps, pid_t pid = ::getpid()) {
    Descriptor descriptor = of(kEventProxyOp, op, 3);
    descriptor.proxyOp.pid = pid;
    descriptor.proxyOp.channelId = channel;
    descriptor.proxyOp.peer = peer;
    descriptor.proxyOp.nSteps = steps;
    descriptor.proxyOp.chunkSize = 1 << 19;
    descriptor.proxyOp.isSend = send ? 1 : 0;
    return descriptor;
  }
  static Descriptor proxy_step(void* proxy_op, int step) {
    Descriptor descriptor = of(kEventProxyStep, proxy_op, 3);
    descriptor.proxyStep.step = step;
    return descriptor;
  }

  // One whole AllReduce as NCCL 2.28 makes the calls, on one thread. gpu_ns: when the first channel's kernel starts.
  void play_collective(void* context, uint64_t seq, int channels, int steps, uint64_t gpu_ns) {
    void* group_api = wanted(kEventGroupApi) ? start(context, of(kEventGroupApi)) : nullptr;
    void* coll_api = wanted(kEventCollApi) ? start(context, of(kEventCollApi, group_api)) : nullptr;
    if (coll_api != nullptr) stop(coll_api);
    void* group = start(context, of(kEventGroup));
    Descriptor descriptor = all_reduce(seq, 1 << 24, static_cast<uint8_t>(channels));
    descriptor.parentObj = coll_api != nullptr ? coll_api : group;
    void* coll = start(context, descriptor);
    stop(coll);
    if (group != nullptr) stop(group);
    if (group_api != nullptr) stop(group_api);

    std::vector<void*>& proxies = proxies_;
    std::vector<void*>& kernels = kernels_;
    proxies.clear();
    kernels.clear();
    if (steps > 0 && wanted(kEventProxyOp)) {
      for (int i = 0; i < 2 * channels; ++i) {
        proxies.push_back(start(context, proxy_op(coll, static_cast<uint8_t>(i / 2), 4, i % 2 == 0, steps)));
        state(proxies.back(), kStateProxyOpInProgress);
      }
    }
    if (wanted(kEventKernelCh)) {
      for (int i = 0; i < channels; ++i) {
        kernels.push_back(start(context, kernel(coll, static_cast<uint8_t>(i), gpu_ns + static_cast<uint64_t>(i))));
      }
    }
    if (wanted(kEventProxyStep)) {
      for (int step = 0; step < steps; ++step) {
        for (size_t i = 0; i < proxies.size(); ++i) {
          const bool send = i % 2 == 0;
          void* handle = start(context, proxy_step(proxies[i], step));
          state(handle, send ? kStateStepSendGpuWait : kStateStepRecvWait);
          state(handle, send ? kStateStepSendPeerWait : kStateStepRecvFlushWait, 1 << 19);
          state(handle, send ? kStateStepSendWait : kStateStepRecvGpuWait, 1 << 19);
          stop(handle);
        }
      }
    }
    for (void* handle : proxies) stop(handle);
    for (void* handle : kernels) {
      state(handle, kStateKernelChStop, gpu_ns + 150'000);
      stop(handle);
    }
  }

 private:
  bool wanted(uint64_t type) const { return (static_cast<uint64_t>(mask_) & type) != 0; }

  void* library_ = nullptr;
  typename Version::Table* table_ = nullptr;
  int mask_ = 0;
  std::vector<void*> proxies_;
  std::vector<void*> kernels_;
};

}  // namespace lockstep::nccl
