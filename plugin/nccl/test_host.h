// Plays NCCL for tests and benchmarks: opens a profiler library as NCCL does and makes the callbacks of a collective in
// NCCL's order, as the release that brought this version of the interface makes them. What that release does not do is
// not done here: nothing is called with a null handle, a declined parent silences its children where it silences them
// in NCCL, and an event that the mask does not ask for is sent only as the parent of one that it does.
//
// Thread rule: Confined.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <vector>

#include "plugin/nccl/profiler_abi.h"

namespace lockstep::nccl {

inline void* const kGarbage = reinterpret_cast<void*>(0xdeadbeef);  // what NCCL leaves in *eHandle

// Names in the order of v1's numbers.
inline constexpr const char* kFunctionNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                                 "AllReduce", "SendRecv", "Send",      "Recv"};
inline constexpr const char* kDatatypeNames[] = {"ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
                                                 "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                                 "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

template <size_t kCount>
uint8_t number_of(const char* name, const char* const (&names)[kCount]) {
  for (size_t i = 0; i < kCount; ++i) {
    if (std::string_view(name) == names[i]) return static_cast<uint8_t>(i);
  }
  std::fprintf(stderr, "test host: v1 has no number for %s\n", name);
  std::abort();
}

template <typename Version>
class TestHost {
 public:
  using Descriptor = typename Version::Descriptor;
  using StateArgs = typename Version::StateArgs;
  using Table = typename Version::Profiler;

  explicit TestHost(const char* library = LOCKSTEP_LIBRARY_DIRECTORY "/libnccl-profiler-lockstep.so") {
    library_ = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) table_ = static_cast<const Table*>(::dlsym(library_, Version::kSymbol));
    if (table_ == nullptr) {
      std::fprintf(stderr, "test host: %s: %s\n", library, ::dlerror());
      std::abort();
    }
  }

  // A table in the same program, without a library.
  explicit TestHost(const Table& table) : table_(&table) {}

  void* library() const { return library_; }
  const Table& table() const { return *table_; }
  int mask() const { return mask_; }
  // As an operator does from outside (NCCL 2.31), without asking the plugin.
  void set_mask(int mask) { mask_ = mask; }

  // Before v4 init says nothing about the communicator; start() then writes it into each collective of the context.
  void* init(uint64_t comm_id, int ranks = 16, int rank = 3, const char* name = nullptr, DebugLogger log = nullptr) {
    constexpr int kNodes = 2;
    void* context = kGarbage;
    if constexpr (Version::kApiEvents) {
      table_->init(&context, comm_id, &mask_, name, kNodes, ranks, rank, log);
    } else if constexpr (Version::kIdentityInInit) {
      table_->init(&context, &mask_, name, comm_id, kNodes, ranks, rank, log);
    } else {
      table_->init(&context, &mask_);
      communicators_.push_back({context, comm_id, name, rank});
    }
    return context;
  }
  void finalize(void* context) { table_->finalize(context); }

  // Before v4: from here on name is null and commHash 0, as NCCL 2.27 and later have it for so old a plugin.
  void hide_identity() { identity_hidden_ = true; }

  void* start(void* context, Descriptor&& descriptor) { return start(context, descriptor); }
  void* start(void* context, Descriptor& descriptor) {
    if constexpr (!Version::kIdentityInInit) identify(context, descriptor);
    void* handle = kGarbage;
    table_->startEvent(context, &handle, &descriptor);
    return handle;
  }
  void stop(void* handle) { table_->stopEvent(handle); }
  // value: the bytes of a transfer, the GPU's time or the operations appended, by what the state carries. steps: only
  // for the states of a proxy operation before v4. A state that carries nothing comes with null arguments.
  void state(void* handle, int state, uint64_t value = 0, int steps = 0) {
    StateArgs args{};
    bool carries = true;
    if (state >= kStateProxyCtrlIdle && state <= kStateProxyCtrlAppendEnd) {
      args.proxyCtrl.appendedProxyOps = static_cast<int>(value);
    } else if constexpr (Version::kIdentityInInit) {
      args.kernelCh.pTimer = value;  // the same bytes as proxyStep.transSize
      carries = state != kStateGroupStartApiStop && state != kStateGroupEndApiStart;
    } else {
      args.proxyOp.transSize = value;
      args.proxyOp.steps = steps;
      carries = state <= kStateProxyOpRecvDone;
    }
    table_->recordEventState(handle, state, carries ? &args : nullptr);
  }

  static Descriptor of(uint64_t type, void* parent = nullptr, int rank = 0) {
    Descriptor descriptor{};
    descriptor.type = static_cast<decltype(descriptor.type)>(type);
    descriptor.parentObj = parent;
    descriptor.rank = rank;
    return descriptor;
  }
  static Descriptor coll(const char* function, uint64_t seq, size_t count, const char* datatype, uint8_t channels) {
    Descriptor descriptor = of(kEventColl, nullptr, 3);
    descriptor.coll.seqNumber = seq;
    descriptor.coll.count = count;
    descriptor.coll.nWarps = 16;
    if constexpr (Version::kIdentityInInit) {
      descriptor.coll.nChannels = channels;
    } else {
      descriptor.coll.nMaxChannels = channels;
    }
    if constexpr (Version::kNamesAreNumbers) {
      descriptor.coll.func = number_of(function, kFunctionNames);
      descriptor.coll.datatype = number_of(datatype, kDatatypeNames);
      descriptor.coll.algo = kAlgorithmV1Ring;
      descriptor.coll.proto = kProtocolV1Simple;
    } else {
      descriptor.coll.func = function;
      descriptor.coll.datatype = datatype;
      descriptor.coll.algo = "RING";
      descriptor.coll.proto = "SIMPLE";
    }
    return descriptor;
  }
  static Descriptor all_reduce(uint64_t seq, size_t count, uint8_t channels) {
    return coll("AllReduce", seq, count, "ncclFloat32", channels);
  }
  static Descriptor p2p(const char* function, int peer, size_t count, uint8_t channels) {
    Descriptor descriptor = of(kEventP2p, nullptr, 3);
    descriptor.p2p.count = count;
    descriptor.p2p.peer = peer;
    if constexpr (Version::kNamesAreNumbers) {
      descriptor.p2p.func = number_of(function, kFunctionNames);
      descriptor.p2p.datatype = kDatatypeV1Bfloat16;
    } else {
      descriptor.p2p.func = function;
      descriptor.p2p.datatype = "ncclBfloat16";
    }
    if constexpr (Version::kIdentityInInit) descriptor.p2p.nChannels = channels;
    return descriptor;
  }
  static Descriptor kernel(void* op, uint8_t channel, uint64_t gpu_ns) requires(Version::kKernelEvents) {
    Descriptor descriptor = of(kEventKernelCh, op);
    descriptor.kernelCh.channelId = channel;
    if constexpr (Version::kGpuTimes) descriptor.kernelCh.pTimer = gpu_ns;
    return descriptor;
  }
  static Descriptor kernel_phase(void* kernel, uint8_t channel, uint8_t phase,
                                 uint64_t gpu_ns) requires(Version::kKernelPhase) {
    constexpr const char* kNames[] = {"initial_sync", "compute", "final_sync"};
    Descriptor descriptor = of(kEventKernelPhase, kernel);
    descriptor.kernelPhase.channelId = channel;
    descriptor.kernelPhase.phaseId = phase;
    descriptor.kernelPhase.phaseName = phase < std::size(kNames) ? kNames[phase] : nullptr;
    descriptor.kernelPhase.pTimer = gpu_ns;
    return descriptor;
  }
  static Descriptor proxy_op(void* op, uint8_t channel, int peer, bool send, int steps, pid_t pid = ::getpid()) {
    Descriptor descriptor = of(kEventProxyOp, op, 3);
    descriptor.proxyOp.pid = pid;
    descriptor.proxyOp.channelId = channel;
    descriptor.proxyOp.peer = peer;
    descriptor.proxyOp.nSteps = steps;
    descriptor.proxyOp.chunkSize = kChunkBytes;
    descriptor.proxyOp.isSend = send ? 1 : 0;
    return descriptor;
  }
  static Descriptor proxy_step(void* proxy_op, int step) {
    Descriptor descriptor = of(kEventProxyStep, proxy_op, 3);
    descriptor.proxyStep.step = step;
    return descriptor;
  }
  static Descriptor group_api(int depth = 1, bool graph_captured = false) requires(Version::kApiEvents) {
    Descriptor descriptor = of(kEventGroupApi);
    descriptor.groupApi.groupDepth = depth;
    descriptor.groupApi.graphCaptured = graph_captured;
    return descriptor;
  }
  static Descriptor coll_api(void* group_api, const char* function, size_t count, const char* datatype,
                             bool graph_captured = false) requires(Version::kApiEvents) {
    Descriptor descriptor = of(kEventCollApi, group_api);
    descriptor.collApi.func = function;
    descriptor.collApi.count = count;
    descriptor.collApi.datatype = datatype;
    descriptor.collApi.graphCaptured = graph_captured;
    return descriptor;
  }
  static Descriptor p2p_api(void* group_api, const char* function, size_t count, const char* datatype,
                            bool graph_captured = false) requires(Version::kApiEvents) {
    Descriptor descriptor = of(kEventP2pApi, group_api);
    descriptor.p2pApi.func = function;
    descriptor.p2pApi.count = count;
    descriptor.p2pApi.datatype = datatype;
    descriptor.p2pApi.graphCaptured = graph_captured;
    return descriptor;
  }
  static Descriptor ce_coll(void* coll_api, const char* function, uint64_t seq, size_t count,
                            const char* datatype) requires(Version::kCopyEngine) {
    Descriptor descriptor = of(kEventCeColl, coll_api, 3);
    descriptor.ceColl.seqNumber = seq;
    descriptor.ceColl.ceSeqNum = static_cast<uint32_t>(seq);
    descriptor.ceColl.func = function;
    descriptor.ceColl.count = count;
    descriptor.ceColl.datatype = datatype;
    descriptor.ceColl.syncStrategy = "UC";
    return descriptor;
  }
  static Descriptor ce_sync(void* ce_coll, int ranks) requires(Version::kCopyEngine) {
    Descriptor descriptor = of(kEventCeSync, ce_coll, 3);
    descriptor.ceCollSync.nRanks = ranks;
    return descriptor;
  }
  static Descriptor ce_batch(void* ce_coll, int operations, size_t bytes) requires(Version::kCopyEngine) {
    Descriptor descriptor = of(kEventCeBatch, ce_coll, 3);
    descriptor.ceCollBatch.numOps = operations;
    descriptor.ceCollBatch.totalBytes = bytes;
    return descriptor;
  }

  // One whole AllReduce of 2^24 floats, on one thread. gpu_ns: when the first channel's kernel starts.
  void play_collective(void* context, uint64_t seq, int channels, int steps, uint64_t gpu_ns) {
    latch_mask();
    void* group_api = nullptr;
    void* coll_api = nullptr;
    if constexpr (Version::kApiEvents) {
      play_calls(context, "AllReduce", 1 << 24, "ncclFloat32", &group_api, &coll_api);
      if (wanted(kEventKernelLaunch)) stop_unless_null(start(context, of(kEventKernelLaunch, group_api)));
    }
    void* group = wanted(kUnderGroup) ? start(context, of(kEventGroup)) : nullptr;
    Descriptor descriptor = all_reduce(seq, 1 << 24, static_cast<uint8_t>(channels));
    bool collective_sent = wanted(kUnderColl);
    if constexpr (Version::kApiEvents) {
      descriptor.parentObj = coll_api;
      descriptor.coll.parentGroup = group;
    } else {
      descriptor.parentObj = group;
      collective_sent = collective_sent && group != nullptr;  // NCCL 2.27 and before
    }
    void* coll = collective_sent ? start(context, descriptor) : nullptr;
    stop_unless_null(coll);
    stop_unless_null(group);
    stop_unless_null(group_api);

    proxies_.clear();
    kernels_.clear();
    if (steps > 0 && wanted(kUnderProxyOp)) start_proxies(context, coll, channels, steps);
    if constexpr (Version::kKernelEvents) {
      if (wanted(kUnderKernelCh)) {
        for (int i = 0; i < channels; ++i) {
          kernels_.push_back(start(context, kernel(coll, static_cast<uint8_t>(i), gpu_ns + static_cast<uint64_t>(i))));
        }
      }
    }
    if (wanted(kUnderProxyStep)) {
      for (int step = 0; step < steps; ++step) {
        for (size_t i = 0; i < proxies_.size(); ++i) play_step(context, proxies_[i], i % 2 == 0, step);
      }
    }
    for (void* handle : proxies_) stop_unless_null(handle);
    for (size_t i = 0; i < kernels_.size(); ++i) {
      play_phases(context, kernels_[i], static_cast<uint8_t>(i), gpu_ns + i, gpu_ns + kKernelNs);
      if (kernels_[i] == nullptr) continue;
      if constexpr (Version::kGpuTimes) state(kernels_[i], kStateKernelChStop, gpu_ns + kKernelNs);
      stop(kernels_[i]);
    }
  }

  // One AllGather of 2^20 bytes that the copy engine carries out: synchronise, one batch of copies, synchronise.
  void play_copy_engine(void* context, uint64_t seq, int ranks) requires(Version::kCopyEngine) {
    latch_mask();
    void* group_api = nullptr;
    void* coll_api = nullptr;
    play_calls(context, "AllGather", 1 << 20, "ncclInt8", &group_api, &coll_api);
    void* coll = nullptr;
    if (wanted(kUnderCeColl)) coll = start(context, ce_coll(coll_api, "AllGather", seq, 1 << 20, "ncclInt8"));
    if (coll != nullptr) {
      if (wanted(kEventCeSync)) stop_unless_null(start(context, ce_sync(coll, ranks)));
      if (wanted(kEventCeBatch)) stop_unless_null(start(context, ce_batch(coll, ranks - 1, size_t{1} << 20)));
      if (wanted(kEventCeSync)) stop_unless_null(start(context, ce_sync(coll, ranks)));
      stop(coll);
    }
    stop_unless_null(group_api);
  }

 private:
  struct Communicator {
    void* context;
    uint64_t id;
    const char* name;
    int rank;
  };

  static constexpr int kChunkBytes = 1 << 19;
  static constexpr uint64_t kKernelNs = 150'000;

  // An event is sent when any of these is in the mask.
  static constexpr uint64_t kUnderProxyStep = kEventProxyStep | kEventNetPlugin;
  static constexpr uint64_t kUnderProxyOp = kEventProxyOp | kUnderProxyStep;
  static constexpr uint64_t kUnderKernelCh = kEventKernelCh | kEventKernelPhase;
  static constexpr uint64_t kUnderColl = kEventColl | kUnderProxyOp | kUnderKernelCh;
  static constexpr uint64_t kUnderGroup = kEventGroup | kEventP2p | kUnderColl;
  static constexpr uint64_t kUnderCeColl = kEventCeColl | kEventCeSync | kEventCeBatch;
  static constexpr uint64_t kUnderCollApi = kEventCollApi | kUnderColl | kUnderCeColl;
  static constexpr uint64_t kUnderGroupApi =
      kEventGroupApi | kEventP2pApi | kEventKernelLaunch | kUnderGroup | kUnderCollApi;

  void latch_mask() { latched_ = static_cast<uint64_t>(__atomic_load_n(&mask_, __ATOMIC_RELAXED)) & Version::kEvents; }
  bool wanted(uint64_t types) const { return (latched_ & types) != 0; }
  void stop_unless_null(void* handle) {
    if (handle != nullptr) stop(handle);
  }

  void identify(void* context, Descriptor& descriptor) {
    if (descriptor.type != kEventColl && descriptor.type != kEventP2p) return;
    for (const Communicator& communicator : communicators_) {
      if (communicator.context != context) continue;
      descriptor.rank = communicator.rank;
      const char* name = identity_hidden_ ? nullptr : communicator.name;
      const uint64_t id = identity_hidden_ ? 0 : communicator.id;
      if (descriptor.type == kEventColl) {
        descriptor.coll.name = name;
        descriptor.coll.commHash = id;
      } else {
        descriptor.p2p.name = name;
        descriptor.p2p.commHash = id;
      }
    }
  }

  // What the thread that calls NCCL sends before the launch; the group is still open.
  void play_calls(void* context, const char* function, size_t count, const char* datatype, void** group_api_handle,
                  void** coll_api_handle) {
    void* group = wanted(kUnderGroupApi) ? start(context, group_api()) : nullptr;
    if (group != nullptr) state(group, kStateGroupStartApiStop);
    void* coll = wanted(kUnderCollApi) ? start(context, coll_api(group, function, count, datatype)) : nullptr;
    stop_unless_null(coll);
    if (group != nullptr) state(group, kStateGroupEndApiStart);
    *group_api_handle = group;
    *coll_api_handle = coll;
  }

  // A sending and a receiving one per channel, in turn.
  void start_proxies(void* context, void* coll, int channels, int steps) {
    for (int i = 0; i < 2 * channels; ++i) {
      void* proxy = start(context, proxy_op(coll, static_cast<uint8_t>(i / 2), 4, i % 2 == 0, steps));
      if constexpr (Version::kIdentityInInit) {
        if (proxy != nullptr) state(proxy, kStateProxyOpInProgress);
      }
      proxies_.push_back(proxy);
    }
  }

  void play_step(void* context, void* proxy, bool send, int step) {
    if (proxy == nullptr && !Version::kApiEvents) return;  // NCCL 2.27 and before
    void* handle = start(context, proxy_step(proxy, step));
    if constexpr (Version::kIdentityInInit) {
      if (proxy != nullptr && handle != nullptr) {
        state(handle, send ? kStateStepSendGpuWait : kStateStepRecvWait);
        state(handle, send ? kStateStepSendPeerWait : kStateStepRecvFlushWait, kChunkBytes);
        state(handle, send ? kStateStepSendWait : kStateStepRecvGpuWait, kChunkBytes);
      }
      stop_unless_null(handle);
    } else {
      // The bytes are those of the whole operation so far, and come with the operation's states.
      const uint64_t before = static_cast<uint64_t>(step) * kChunkBytes;
      const uint64_t after = before + kChunkBytes;
      const int number = step + 1;
      const auto of_step = [&](int step_state) {
        if (handle != nullptr) state(handle, step_state);
      };
      state(proxy, send ? kStateProxyOpSendPosted : kStateProxyOpRecvPosted, before, number);
      of_step(send ? kStateStepSendGpuWait : kStateStepRecvWait);
      if (send) {
        state(proxy, kStateProxyOpSendRemFifoWait, before, number);
        state(proxy, kStateProxyOpSendTransmitted, after, number);
        of_step(kStateStepSendWait);
      } else {
        state(proxy, kStateProxyOpRecvReceived, after, number);
        of_step(kStateStepRecvFlushWait);
        state(proxy, kStateProxyOpRecvTransmitted, after, number);
        of_step(kStateStepRecvGpuWait);
      }
      stop_unless_null(handle);
      state(proxy, send ? kStateProxyOpSendDone : kStateProxyOpRecvDone, after, number);
    }
  }

  // The three phases of a kernel arrive together, once the kernel is over and before its own stop.
  void play_phases(void* context, void* kernel, uint8_t channel, uint64_t from_ns, uint64_t to_ns) {
    if constexpr (Version::kKernelPhase) {
      if (!wanted(kEventKernelPhase)) return;
      const uint64_t borders[] = {from_ns, from_ns + (to_ns - from_ns) / 4, to_ns - (to_ns - from_ns) / 4, to_ns};
      for (uint8_t phase = 0; phase < 3; ++phase) {
        void* handle = start(context, kernel_phase(kernel, channel, phase, borders[phase]));
        if (handle == nullptr) continue;
        state(handle, kStateKernelPhaseStop, borders[phase + 1]);
        stop(handle);
      }
    }
  }

  void* library_ = nullptr;
  const Table* table_ = nullptr;
  int mask_ = 0;          // NCCL's: the plugin has its address
  uint64_t latched_ = 0;  // the mask at the time of the API call holds for all that follows from it
  bool identity_hidden_ = false;
  std::vector<Communicator> communicators_;  // only before v4
  std::vector<void*> proxies_;
  std::vector<void*> kernels_;
};

}  // namespace lockstep::nccl
