// Interface v3 (NCCL 2.26): kernel channels, still without the GPU's times, and events of the network plugin.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/v2.h"

namespace lockstep::nccl {

struct CollFieldsV3 {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};
using P2pFieldsV3 = P2pFieldsV2;
struct KernelChFieldsV3 {
  uint8_t channelId;
};

struct EventDescrV3 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollFieldsV3 coll;
    P2pFieldsV3 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
    KernelChFieldsV3 kernelCh;
    NetPluginFields netPlugin;
  };
};

using EventStateArgsV3 = EventStateArgsV1;
using ProfilerV3 = ProfilerTable<InitV1, EventDescrV3, EventStateArgsV3>;
inline constexpr const char* kSymbolV3 = "ncclProfiler_v3";

static_assert(sizeof(EventDescrV3) == 120);
static_assert(is_profiler_table<ProfilerV3>() && has_descriptor_head<EventDescrV3, uint8_t>());
static_assert(offsetof(EventDescrV3, coll.name) == 24 && offsetof(EventDescrV3, coll.commHash) == 32);
static_assert(offsetof(EventDescrV3, coll.seqNumber) == 40 && offsetof(EventDescrV3, coll.func) == 48);
static_assert(offsetof(EventDescrV3, coll.sendBuff) == 56 && offsetof(EventDescrV3, coll.recvBuff) == 64);
static_assert(offsetof(EventDescrV3, coll.count) == 72 && offsetof(EventDescrV3, coll.root) == 80);
static_assert(offsetof(EventDescrV3, coll.datatype) == 88 && offsetof(EventDescrV3, coll.nMaxChannels) == 96);
static_assert(offsetof(EventDescrV3, coll.nWarps) == 97 && offsetof(EventDescrV3, coll.algo) == 104);
static_assert(offsetof(EventDescrV3, coll.proto) == 112);
static_assert(offsetof(EventDescrV3, p2p.peer) == 72);
static_assert(offsetof(EventDescrV3, kernelCh.channelId) == 24 && offsetof(EventDescrV3, netPlugin.id) == 24);

}  // namespace lockstep::nccl
