// NCCL's profiler plugin interface, versions 4 (NCCL 2.27) and 5 (NCCL 2.28), as the bytes that cross the border: the
// structs are written down here so that the plugin, its test host and the replay build without NCCL. An interface
// version never changes once released, so the static_asserts below pin each offset for good (LP64: x86-64 and arm64).
//
// The plugin exports one data symbol per version, `ncclProfiler_v4` and `ncclProfiler_v5`, each a vtable; NCCL takes
// the newest that both know.
//
// Thread rule: Immutable (plain data).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::nccl {

// Event type bits: the same in `type` and in the activation mask.
enum EventType : uint64_t {
  kEventGroup = 1u << 0,
  kEventColl = 1u << 1,
  kEventP2p = 1u << 2,
  kEventProxyOp = 1u << 3,
  kEventProxyStep = 1u << 4,
  kEventProxyCtrl = 1u << 5,
  kEventKernelCh = 1u << 6,
  kEventNetPlugin = 1u << 7,
  kEventGroupApi = 1u << 8,  // from v5 on, with the three below
  kEventCollApi = 1u << 9,
  kEventP2pApi = 1u << 10,
  kEventKernelLaunch = 1u << 11,
};

// States of recordEventState. 0 to 7 belong to interfaces before v4.
enum EventState : int {
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
  kStateProxyOpInProgress = 19,
  kStateStepSendPeerWait = 20,  // ready to send; the receiver has not posted. Repeated at every poll
  kStateNetPluginUpdate = 21,
  kStateKernelChStop = 22,       // pTimer is the GPU's stop time
  kStateGroupStartApiStop = 23,  // args may be null for this one and the next
  kStateGroupEndApiStart = 24,
};

inline constexpr int kNcclSuccess = 0;

// Levels and flags of the logger that init() gets.
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kLogFlagInit = 0x1;
inline constexpr unsigned long kLogFlagProfile = 0x4000;
using DebugLogger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

// Payloads that are the same in v4 and v5.
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
struct KernelChFields {
  uint8_t channelId;
  uint64_t pTimer;  // %globaltimer, ns
};
struct NetPluginFields {
  int64_t id;
  void* data;
};

struct CollFieldsV4 {
  uint64_t seqNumber;  // per communicator and function, from 0
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};
struct P2pFieldsV4 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;  // NCCL 2.28 and later leave it uninitialised for a v4 plugin
};

struct CollFieldsV5 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
  void* parentGroup;
};
struct P2pFieldsV5 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
};
struct GroupApiFields {
  bool graphCaptured;
  int groupDepth;
};
struct CollApiFields {
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
struct KernelLaunchFields {
  void* stream;
};

struct EventDescrV4 {
  uint8_t type;
  void* parentObj;  // what startEvent gave for the parent
  int rank;
  union {
    CollFieldsV4 coll;
    P2pFieldsV4 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
    KernelChFields kernelCh;
    NetPluginFields netPlugin;
  };
};

struct EventDescrV5 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApiFields groupApi;
    CollApiFields collApi;
    P2pApiFields p2pApi;
    KernelLaunchFields kernelLaunch;
    CollFieldsV5 coll;
    P2pFieldsV5 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
    KernelChFields kernelCh;
    NetPluginFields netPlugin;
  };
};

// The same in v4 and v5.
union EventStateArgs {
  struct {
    size_t transSize;
  } proxyStep;
  struct {
    int appendedProxyOps;
  } proxyCtrl;
  struct {
    void* data;
  } netPlugin;
  struct {
    uint64_t pTimer;
  } kernelCh;
};

struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* eActivationMask, const char* commName, uint64_t commHash, int nNodes, int nranks,
              int rank, DebugLogger logfn);
  int (*startEvent)(void* context, void** eHandle, EventDescrV4* eDescr);
  int (*stopEvent)(void* eHandle);
  int (*recordEventState)(void* eHandle, int eState, EventStateArgs* eStateArgs);
  int (*finalize)(void* context);
};

struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, uint64_t commId, int* eActivationMask, const char* commName, int nNodes, int nranks,
              int rank, DebugLogger logfn);
  int (*startEvent)(void* context, void** eHandle, EventDescrV5* eDescr);
  int (*stopEvent)(void* eHandle);
  int (*recordEventState)(void* eHandle, int eState, EventStateArgs* eStateArgs);
  int (*finalize)(void* context);
};

inline constexpr const char* kSymbolV4 = "ncclProfiler_v4";
inline constexpr const char* kSymbolV5 = "ncclProfiler_v5";

static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8 && sizeof(int) == 4, "the offsets below are for LP64");
static_assert(sizeof(EventDescrV4) == 104 && sizeof(EventDescrV5) == 112);
static_assert(sizeof(ProfilerV4) == 48 && sizeof(ProfilerV5) == 48 && sizeof(EventStateArgs) == 8);

static_assert(offsetof(EventDescrV4, type) == 0 && sizeof(EventDescrV4::type) == 1);
static_assert(offsetof(EventDescrV5, type) == 0 && sizeof(EventDescrV5::type) == 8);
static_assert(offsetof(EventDescrV4, parentObj) == 8 && offsetof(EventDescrV5, parentObj) == 8);
static_assert(offsetof(EventDescrV4, rank) == 16 && offsetof(EventDescrV5, rank) == 16);

static_assert(offsetof(EventDescrV4, coll) == 24 && offsetof(EventDescrV5, coll) == 24);
static_assert(offsetof(CollFieldsV4, seqNumber) == 0 && offsetof(CollFieldsV5, seqNumber) == 0);
static_assert(offsetof(CollFieldsV4, func) == 8 && offsetof(CollFieldsV5, func) == 8);
static_assert(offsetof(CollFieldsV4, sendBuff) == 16 && offsetof(CollFieldsV5, sendBuff) == 16);
static_assert(offsetof(CollFieldsV4, recvBuff) == 24 && offsetof(CollFieldsV5, recvBuff) == 24);
static_assert(offsetof(CollFieldsV4, count) == 32 && offsetof(CollFieldsV5, count) == 32);
static_assert(offsetof(CollFieldsV4, root) == 40 && offsetof(CollFieldsV5, root) == 40);
static_assert(offsetof(CollFieldsV4, datatype) == 48 && offsetof(CollFieldsV5, datatype) == 48);
static_assert(offsetof(CollFieldsV4, nChannels) == 56 && offsetof(CollFieldsV5, nChannels) == 56);
static_assert(offsetof(CollFieldsV4, nWarps) == 57 && offsetof(CollFieldsV5, nWarps) == 57);
static_assert(offsetof(CollFieldsV4, algo) == 64 && offsetof(CollFieldsV5, algo) == 64);
static_assert(offsetof(CollFieldsV4, proto) == 72 && offsetof(CollFieldsV5, proto) == 72);
static_assert(offsetof(CollFieldsV5, parentGroup) == 80);

static_assert(offsetof(P2pFieldsV4, func) == 0 && offsetof(P2pFieldsV5, func) == 0);
static_assert(offsetof(P2pFieldsV4, buff) == 8 && offsetof(P2pFieldsV5, buff) == 8);
static_assert(offsetof(P2pFieldsV4, datatype) == 16 && offsetof(P2pFieldsV5, datatype) == 16);
static_assert(offsetof(P2pFieldsV4, count) == 24 && offsetof(P2pFieldsV5, count) == 24);
static_assert(offsetof(P2pFieldsV4, peer) == 32 && offsetof(P2pFieldsV5, peer) == 32);
static_assert(offsetof(P2pFieldsV4, nChannels) == 36 && offsetof(P2pFieldsV5, nChannels) == 36);
static_assert(offsetof(P2pFieldsV5, parentGroup) == 40);

static_assert(offsetof(ProxyOpFields, pid) == 0 && offsetof(ProxyOpFields, channelId) == 4);
static_assert(offsetof(ProxyOpFields, peer) == 8 && offsetof(ProxyOpFields, nSteps) == 12);
static_assert(offsetof(ProxyOpFields, chunkSize) == 16 && offsetof(ProxyOpFields, isSend) == 20);
static_assert(offsetof(KernelChFields, channelId) == 0 && offsetof(KernelChFields, pTimer) == 8);
static_assert(offsetof(NetPluginFields, id) == 0 && offsetof(NetPluginFields, data) == 8);
static_assert(offsetof(GroupApiFields, graphCaptured) == 0 && offsetof(GroupApiFields, groupDepth) == 4);
static_assert(offsetof(CollApiFields, func) == 0 && offsetof(CollApiFields, count) == 8);
static_assert(offsetof(CollApiFields, datatype) == 16 && offsetof(CollApiFields, root) == 24);
static_assert(offsetof(CollApiFields, stream) == 32 && offsetof(CollApiFields, graphCaptured) == 40);
static_assert(offsetof(P2pApiFields, func) == 0 && offsetof(P2pApiFields, count) == 8);
static_assert(offsetof(P2pApiFields, datatype) == 16 && offsetof(P2pApiFields, stream) == 24);
static_assert(offsetof(P2pApiFields, graphCaptured) == 32);

}  // namespace lockstep::nccl
