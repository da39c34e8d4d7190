// Interface v2 (NCCL 2.24): names are strings.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/v1.h"

namespace lockstep::nccl {

struct CollFieldsV2 {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  size_t trafficBytes;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};
struct P2pFieldsV2 {
  const char* name;
  uint64_t commHash;
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
};

struct EventDescrV2 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollFieldsV2 coll;
    P2pFieldsV2 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
  };
};

using EventStateArgsV2 = EventStateArgsV1;
using ProfilerV2 = ProfilerTable<InitV1, EventDescrV2, EventStateArgsV2>;
inline constexpr const char* kSymbolV2 = "ncclProfiler_v2";

static_assert(sizeof(EventDescrV2) == 128);
static_assert(is_profiler_table<ProfilerV2>() && has_descriptor_head<EventDescrV2, uint8_t>());
static_assert(offsetof(EventDescrV2, coll.name) == 24 && offsetof(EventDescrV2, coll.commHash) == 32);
static_assert(offsetof(EventDescrV2, coll.seqNumber) == 40 && offsetof(EventDescrV2, coll.func) == 48);
static_assert(offsetof(EventDescrV2, coll.sendBuff) == 56 && offsetof(EventDescrV2, coll.recvBuff) == 64);
static_assert(offsetof(EventDescrV2, coll.count) == 72 && offsetof(EventDescrV2, coll.root) == 80);
static_assert(offsetof(EventDescrV2, coll.datatype) == 88 && offsetof(EventDescrV2, coll.trafficBytes) == 96);
static_assert(offsetof(EventDescrV2, coll.nMaxChannels) == 104 && offsetof(EventDescrV2, coll.nWarps) == 105);
static_assert(offsetof(EventDescrV2, coll.algo) == 112 && offsetof(EventDescrV2, coll.proto) == 120);
static_assert(offsetof(EventDescrV2, p2p.name) == 24 && offsetof(EventDescrV2, p2p.commHash) == 32);
static_assert(offsetof(EventDescrV2, p2p.func) == 40 && offsetof(EventDescrV2, p2p.buff) == 48);
static_assert(offsetof(EventDescrV2, p2p.datatype) == 56 && offsetof(EventDescrV2, p2p.count) == 64);
static_assert(offsetof(EventDescrV2, p2p.peer) == 72);

}  // namespace lockstep::nccl
