// Interface v7 (NCCL 2.31): phases of a kernel, kernels on symmetric memory, and the caller's own tag on each
// operation.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/v6.h"

namespace lockstep::nccl {

struct CollFieldsV7 {
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
  const char* kernelVariant;
  bool isSymColl;
  uint64_t userTag;  // 0: the caller gave none
};
struct P2pFieldsV7 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
  uint64_t userTag;
};
struct CollApiFieldsV7 {
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;
};
struct P2pApiFieldsV7 {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;
};
struct CeCollFieldsV7 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  const char* syncStrategy;
  bool intraBatchSync;
  uint32_t batchSize;
  uint32_t numBatches;
  uint32_t ceSeqNum;
  void* stream;
  uint64_t userTag;
};
struct KernelPhaseFields {
  uint8_t channelId;
  uint8_t phaseId;  // 0 waits for the peers, 1 computes, 2 waits again at the end
  const char* phaseName;
  uint64_t pTimer;  // GPU start; the stop comes as kernelCh.pTimer of the state
};

struct EventDescrV7 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApiFields groupApi;
    CollApiFieldsV7 collApi;
    P2pApiFieldsV7 p2pApi;
    KernelLaunchFields kernelLaunch;
    CollFieldsV7 coll;
    P2pFieldsV7 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
    KernelChFields kernelCh;
    NetPluginFields netPlugin;
    CeCollFieldsV7 ceColl;
    CeSyncFields ceCollSync;
    CeBatchFields ceCollBatch;
    KernelPhaseFields kernelPhase;
  };
};

using ProfilerV7 = ProfilerTable<InitV5, EventDescrV7, EventStateArgs>;
inline constexpr const char* kSymbolV7 = "ncclProfiler_v7";

static_assert(sizeof(EventDescrV7) == 136);
static_assert(is_profiler_table<ProfilerV7>() && has_descriptor_head<EventDescrV7, uint64_t>());
static_assert(offsetof(EventDescrV7, coll.seqNumber) == 24 && offsetof(EventDescrV7, coll.func) == 32);
static_assert(offsetof(EventDescrV7, coll.sendBuff) == 40 && offsetof(EventDescrV7, coll.recvBuff) == 48);
static_assert(offsetof(EventDescrV7, coll.count) == 56 && offsetof(EventDescrV7, coll.root) == 64);
static_assert(offsetof(EventDescrV7, coll.datatype) == 72 && offsetof(EventDescrV7, coll.nChannels) == 80);
static_assert(offsetof(EventDescrV7, coll.nWarps) == 81 && offsetof(EventDescrV7, coll.algo) == 88);
static_assert(offsetof(EventDescrV7, coll.proto) == 96 && offsetof(EventDescrV7, coll.parentGroup) == 104);
static_assert(offsetof(EventDescrV7, coll.kernelVariant) == 112 && offsetof(EventDescrV7, coll.isSymColl) == 120);
static_assert(offsetof(EventDescrV7, coll.userTag) == 128);
static_assert(offsetof(EventDescrV7, p2p.func) == 24 && offsetof(EventDescrV7, p2p.buff) == 32);
static_assert(offsetof(EventDescrV7, p2p.datatype) == 40 && offsetof(EventDescrV7, p2p.count) == 48);
static_assert(offsetof(EventDescrV7, p2p.peer) == 56 && offsetof(EventDescrV7, p2p.nChannels) == 60);
static_assert(offsetof(EventDescrV7, p2p.parentGroup) == 64 && offsetof(EventDescrV7, p2p.userTag) == 72);
static_assert(offsetof(EventDescrV7, collApi.func) == 24 && offsetof(EventDescrV7, collApi.count) == 32);
static_assert(offsetof(EventDescrV7, collApi.datatype) == 40 && offsetof(EventDescrV7, collApi.root) == 48);
static_assert(offsetof(EventDescrV7, collApi.stream) == 56 && offsetof(EventDescrV7, collApi.graphCaptured) == 64);
static_assert(offsetof(EventDescrV7, collApi.userTag) == 72);
static_assert(offsetof(EventDescrV7, p2pApi.func) == 24 && offsetof(EventDescrV7, p2pApi.count) == 32);
static_assert(offsetof(EventDescrV7, p2pApi.datatype) == 40 && offsetof(EventDescrV7, p2pApi.stream) == 48);
static_assert(offsetof(EventDescrV7, p2pApi.graphCaptured) == 56 && offsetof(EventDescrV7, p2pApi.userTag) == 64);
static_assert(offsetof(EventDescrV7, ceColl.seqNumber) == 24 && offsetof(EventDescrV7, ceColl.func) == 32);
static_assert(offsetof(EventDescrV7, ceColl.sendBuff) == 40 && offsetof(EventDescrV7, ceColl.recvBuff) == 48);
static_assert(offsetof(EventDescrV7, ceColl.count) == 56 && offsetof(EventDescrV7, ceColl.root) == 64);
static_assert(offsetof(EventDescrV7, ceColl.datatype) == 72 && offsetof(EventDescrV7, ceColl.syncStrategy) == 80);
static_assert(offsetof(EventDescrV7, ceColl.intraBatchSync) == 88 && offsetof(EventDescrV7, ceColl.batchSize) == 92);
static_assert(offsetof(EventDescrV7, ceColl.numBatches) == 96 && offsetof(EventDescrV7, ceColl.ceSeqNum) == 100);
static_assert(offsetof(EventDescrV7, ceColl.stream) == 104 && offsetof(EventDescrV7, ceColl.userTag) == 112);
static_assert(offsetof(EventDescrV7, ceCollSync) == 24 && offsetof(EventDescrV7, ceCollBatch) == 24);
static_assert(offsetof(EventDescrV7, kernelPhase.channelId) == 24 && offsetof(EventDescrV7, kernelPhase.phaseId) == 25);
static_assert(offsetof(EventDescrV7, kernelPhase.phaseName) == 32 && offsetof(EventDescrV7, kernelPhase.pTimer) == 40);
static_assert(offsetof(EventDescrV7, groupApi) == 24 && offsetof(EventDescrV7, kernelLaunch) == 24);
static_assert(offsetof(EventDescrV7, kernelCh) == 24 && offsetof(EventDescrV7, netPlugin) == 24);

}  // namespace lockstep::nccl
