// Interface v5 (NCCL 2.28): 64 bits of event type, events of the API calls, and a collective's parent is its API call.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/v4.h"

namespace lockstep::nccl {

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

using InitV5 = int(void** context, uint64_t commId, int* eActivationMask, const char* commName, int nNodes, int nranks,
                   int rank, DebugLogger logfn);
using ProfilerV5 = ProfilerTable<InitV5, EventDescrV5, EventStateArgs>;
inline constexpr const char* kSymbolV5 = "ncclProfiler_v5";

static_assert(sizeof(EventDescrV5) == 112);
static_assert(is_profiler_table<ProfilerV5>() && has_descriptor_head<EventDescrV5, uint64_t>());
static_assert(offsetof(EventDescrV5, coll.seqNumber) == 24 && offsetof(EventDescrV5, coll.func) == 32);
static_assert(offsetof(EventDescrV5, coll.sendBuff) == 40 && offsetof(EventDescrV5, coll.recvBuff) == 48);
static_assert(offsetof(EventDescrV5, coll.count) == 56 && offsetof(EventDescrV5, coll.root) == 64);
static_assert(offsetof(EventDescrV5, coll.datatype) == 72 && offsetof(EventDescrV5, coll.nChannels) == 80);
static_assert(offsetof(EventDescrV5, coll.nWarps) == 81 && offsetof(EventDescrV5, coll.algo) == 88);
static_assert(offsetof(EventDescrV5, coll.proto) == 96 && offsetof(EventDescrV5, coll.parentGroup) == 104);
static_assert(offsetof(EventDescrV5, p2p.func) == 24 && offsetof(EventDescrV5, p2p.buff) == 32);
static_assert(offsetof(EventDescrV5, p2p.datatype) == 40 && offsetof(EventDescrV5, p2p.count) == 48);
static_assert(offsetof(EventDescrV5, p2p.peer) == 56 && offsetof(EventDescrV5, p2p.nChannels) == 60);
static_assert(offsetof(EventDescrV5, p2p.parentGroup) == 64);
static_assert(offsetof(EventDescrV5, groupApi) == 24 && offsetof(EventDescrV5, collApi) == 24);
static_assert(offsetof(EventDescrV5, p2pApi) == 24 && offsetof(EventDescrV5, kernelLaunch) == 24);
static_assert(offsetof(EventDescrV5, kernelCh) == 24 && offsetof(EventDescrV5, netPlugin) == 24);

}  // namespace lockstep::nccl
