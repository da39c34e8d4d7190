// What several versions of NCCL's profiler interface share: event bits, states, the logger, and payloads that never
// changed. The structs of v1.h to v7.h are the bytes that cross the border, written down here so that everything builds
// without NCCL. A version never changes once released, so static_asserts pin each offset for good (LP64: x86-64,
// arm64).
//
// Thread rule: Immutable (plain data).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::nccl {

static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8 && sizeof(int) == 4 && sizeof(bool) == 1,
              "the pinned offsets are for LP64");

// Event type bits: the same in `type` and in the activation mask.
enum EventType : uint64_t {
  kEventGroup = 1u << 0,
  kEventColl = 1u << 1,
  kEventP2p = 1u << 2,
  kEventProxyOp = 1u << 3,
  kEventProxyStep = 1u << 4,
  kEventProxyCtrl = 1u << 5,
  kEventKernelCh = 1u << 6,  // from v3 on, with the next
  kEventNetPlugin = 1u << 7,
  kEventGroupApi = 1u << 8,  // from v5 on, with the three below
  kEventCollApi = 1u << 9,
  kEventP2pApi = 1u << 10,
  kEventKernelLaunch = 1u << 11,
  kEventCeColl = 1u << 12,  // copy engine: from v6 on, with the two below
  kEventCeSync = 1u << 13,
  kEventCeBatch = 1u << 14,
  kEventKernelPhase = 1u << 15,  // v7
};

// States of recordEventState.
enum EventState : int {
  kStateProxyOpSendPosted = 0,  // 0 to 7: only NCCL 2.23 to 2.26 (v1 to v3) send them
  kStateProxyOpSendRemFifoWait = 1,
  kStateProxyOpSendTransmitted = 2,
  kStateProxyOpSendDone = 3,
  kStateProxyOpRecvPosted = 4,
  kStateProxyOpRecvReceived = 5,
  kStateProxyOpRecvTransmitted = 6,
  kStateProxyOpRecvDone = 7,
  kStateStepSendGpuWait = 8,     // posted; own GPU has not filled the buffer
  kStateStepSendWait = 9,        // on the wire; transSize is valid
  kStateStepRecvWait = 10,       // posted; the sender's data has not come
  kStateStepRecvFlushWait = 11,  // data has come, is being flushed; transSize is valid
  kStateStepRecvGpuWait = 12,    // own GPU has not taken the data
  kStateProxyCtrlIdle = 13,
  kStateProxyCtrlActive = 14,
  kStateProxyCtrlSleep = 15,
  kStateProxyCtrlWakeup = 16,
  kStateProxyCtrlAppend = 17,
  kStateProxyCtrlAppendEnd = 18,
  kStateProxyOpInProgress = 19,  // from v4 on, with the three below
  kStateStepSendPeerWait = 20,   // ready to send; the receiver has not posted. Repeated at every poll
  kStateNetPluginUpdate = 21,
  kStateKernelChStop = 22,       // pTimer is the GPU's stop time
  kStateGroupStartApiStop = 23,  // args may be null for this one and the next
  kStateGroupEndApiStart = 24,
  kStateCeCollStart = 25,  // 25 to 30 have a number, but NCCL does not send them
  kStateCeCollComplete = 26,
  kStateCeSyncStart = 27,
  kStateCeSyncComplete = 28,
  kStateCeBatchStart = 29,
  kStateCeBatchComplete = 30,
  kStateKernelPhaseStop = 31,  // kernelCh.pTimer is the GPU's stop time
};

inline constexpr int kNcclSuccess = 0;

// Levels and flags of the logger that init() gets from v4 on.
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kLogFlagInit = 0x1;
inline constexpr unsigned long kLogFlagProfile = 0x4000;
using DebugLogger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct ProxyOpFields {
  pid_t pid;  // the process that asked for the transfer; not always this one (PXN)
  uint8_t channelId;
  int peer;
  int nSteps;
  int chunkSize;
  int isSend;
};
struct ProxyStepFields {
  int step;
};
struct NetPluginFields {  // v3 on
  int64_t id;             // type of the network plugin and version of what data points at
  void* data;
};
struct KernelChFields {  // v4 on
  uint8_t channelId;
  uint64_t pTimer;  // %globaltimer, ns
};
struct GroupApiFields {  // v5 on, with the next
  bool graphCaptured;
  int groupDepth;
};
struct KernelLaunchFields {
  void* stream;
};
struct CollApiFields {  // v5 and v6, with the next
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
};
struct P2pApiFields {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
};
struct CeSyncFields {  // v6 on, with the next
  bool isComplete;
  int nRanks;
};
struct CeBatchFields {
  int numOps;
  size_t totalBytes;
  bool useIntraSync;
};

static_assert(offsetof(ProxyOpFields, pid) == 0 && offsetof(ProxyOpFields, channelId) == 4);
static_assert(offsetof(ProxyOpFields, peer) == 8 && offsetof(ProxyOpFields, nSteps) == 12);
static_assert(offsetof(ProxyOpFields, chunkSize) == 16 && offsetof(ProxyOpFields, isSend) == 20);
static_assert(offsetof(ProxyStepFields, step) == 0);
static_assert(offsetof(NetPluginFields, id) == 0 && offsetof(NetPluginFields, data) == 8);
static_assert(offsetof(KernelChFields, channelId) == 0 && offsetof(KernelChFields, pTimer) == 8);
static_assert(offsetof(GroupApiFields, graphCaptured) == 0 && offsetof(GroupApiFields, groupDepth) == 4);
static_assert(offsetof(KernelLaunchFields, stream) == 0);
static_assert(offsetof(CollApiFields, func) == 0 && offsetof(CollApiFields, count) == 8);
static_assert(offsetof(CollApiFields, datatype) == 16 && offsetof(CollApiFields, root) == 24);
static_assert(offsetof(CollApiFields, stream) == 32 && offsetof(CollApiFields, graphCaptured) == 40);
static_assert(offsetof(P2pApiFields, func) == 0 && offsetof(P2pApiFields, count) == 8);
static_assert(offsetof(P2pApiFields, datatype) == 16 && offsetof(P2pApiFields, stream) == 24);
static_assert(offsetof(P2pApiFields, graphCaptured) == 32);
static_assert(offsetof(CeSyncFields, isComplete) == 0 && offsetof(CeSyncFields, nRanks) == 4);
static_assert(offsetof(CeBatchFields, numOps) == 0 && offsetof(CeBatchFields, totalBytes) == 8);
static_assert(offsetof(CeBatchFields, useIntraSync) == 16);

// The exported vtable: six pointers in this order in every version.
template <typename Init, typename Descriptor, typename StateArgs>
struct ProfilerTable {
  const char* name;
  Init* init;
  int (*startEvent)(void* context, void** eHandle, Descriptor* eDescr);
  int (*stopEvent)(void* eHandle);
  int (*recordEventState)(void* eHandle, int eState, StateArgs* eStateArgs);
  int (*finalize)(void* context);
};

template <typename Table>
constexpr bool is_profiler_table() {
  return sizeof(Table) == 48 && offsetof(Table, name) == 0 && offsetof(Table, init) == 8 &&
         offsetof(Table, startEvent) == 16 && offsetof(Table, stopEvent) == 24 &&
         offsetof(Table, recordEventState) == 32 && offsetof(Table, finalize) == 40;
}

// Where every version has the head of a descriptor; its payload is a union at 24.
template <typename Descriptor, typename Type>
constexpr bool has_descriptor_head() {
  return offsetof(Descriptor, type) == 0 && sizeof(Descriptor::type) == sizeof(Type) &&
         offsetof(Descriptor, parentObj) == 8 && offsetof(Descriptor, rank) == 16 && offsetof(Descriptor, coll) == 24 &&
         offsetof(Descriptor, p2p) == 24 && offsetof(Descriptor, proxyOp) == 24 &&
         offsetof(Descriptor, proxyStep) == 24;
}

}  // namespace lockstep::nccl
