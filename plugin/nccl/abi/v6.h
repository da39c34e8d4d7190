// Interface v6 (NCCL 2.29): collectives that the copy engine carries out.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/v5.h"

namespace lockstep::nccl {

using CollFieldsV6 = CollFieldsV5;
using P2pFieldsV6 = P2pFieldsV5;
struct CeCollFieldsV6 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  const char* syncStrategy;  // "MC" or "UC"
  bool intraBatchSync;
  uint32_t batchSize;
  uint32_t numBatches;
  uint32_t ceSeqNum;
  void* stream;
};

struct EventDescrV6 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    GroupApiFields groupApi;
    CollApiFields collApi;
    P2pApiFields p2pApi;
    KernelLaunchFields kernelLaunch;
    CollFieldsV6 coll;
    P2pFieldsV6 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
    KernelChFields kernelCh;
    NetPluginFields netPlugin;
    CeCollFieldsV6 ceColl;
    CeSyncFields ceCollSync;
    CeBatchFields ceCollBatch;
  };
};

using ProfilerV6 = ProfilerTable<InitV5, EventDescrV6, EventStateArgs>;
inline constexpr const char* kSymbolV6 = "ncclProfiler_v6";

static_assert(sizeof(EventDescrV6) == 112);
static_assert(is_profiler_table<ProfilerV6>() && has_descriptor_head<EventDescrV6, uint64_t>());
static_assert(offsetof(EventDescrV6, ceColl.seqNumber) == 24 && offsetof(EventDescrV6, ceColl.func) == 32);
static_assert(offsetof(EventDescrV6, ceColl.sendBuff) == 40 && offsetof(EventDescrV6, ceColl.recvBuff) == 48);
static_assert(offsetof(EventDescrV6, ceColl.count) == 56 && offsetof(EventDescrV6, ceColl.root) == 64);
static_assert(offsetof(EventDescrV6, ceColl.datatype) == 72 && offsetof(EventDescrV6, ceColl.syncStrategy) == 80);
static_assert(offsetof(EventDescrV6, ceColl.intraBatchSync) == 88 && offsetof(EventDescrV6, ceColl.batchSize) == 92);
static_assert(offsetof(EventDescrV6, ceColl.numBatches) == 96 && offsetof(EventDescrV6, ceColl.ceSeqNum) == 100);
static_assert(offsetof(EventDescrV6, ceColl.stream) == 104);
static_assert(offsetof(EventDescrV6, ceCollSync) == 24 && offsetof(EventDescrV6, ceCollBatch) == 24);
static_assert(offsetof(EventDescrV6, groupApi) == 24 && offsetof(EventDescrV6, collApi) == 24);
static_assert(offsetof(EventDescrV6, p2pApi) == 24 && offsetof(EventDescrV6, kernelLaunch) == 24);
static_assert(offsetof(EventDescrV6, kernelCh) == 24 && offsetof(EventDescrV6, netPlugin) == 24);

}  // namespace lockstep::nccl
