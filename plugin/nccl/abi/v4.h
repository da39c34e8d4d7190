// Interface v4 (NCCL 2.27): init tells which communicator it is for and brings a logger; kernel channels carry the
// GPU's times.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/common.h"

namespace lockstep::nccl {

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

// The same from v4 to v7.
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

using InitV4 = int(void** context, int* eActivationMask, const char* commName, uint64_t commHash, int nNodes,
                   int nranks, int rank, DebugLogger logfn);
using ProfilerV4 = ProfilerTable<InitV4, EventDescrV4, EventStateArgs>;
inline constexpr const char* kSymbolV4 = "ncclProfiler_v4";

static_assert(sizeof(EventDescrV4) == 104 && sizeof(EventStateArgs) == 8);
static_assert(is_profiler_table<ProfilerV4>() && has_descriptor_head<EventDescrV4, uint8_t>());
static_assert(offsetof(EventDescrV4, coll.seqNumber) == 24 && offsetof(EventDescrV4, coll.func) == 32);
static_assert(offsetof(EventDescrV4, coll.sendBuff) == 40 && offsetof(EventDescrV4, coll.recvBuff) == 48);
static_assert(offsetof(EventDescrV4, coll.count) == 56 && offsetof(EventDescrV4, coll.root) == 64);
static_assert(offsetof(EventDescrV4, coll.datatype) == 72 && offsetof(EventDescrV4, coll.nChannels) == 80);
static_assert(offsetof(EventDescrV4, coll.nWarps) == 81 && offsetof(EventDescrV4, coll.algo) == 88);
static_assert(offsetof(EventDescrV4, coll.proto) == 96);
static_assert(offsetof(EventDescrV4, p2p.func) == 24 && offsetof(EventDescrV4, p2p.buff) == 32);
static_assert(offsetof(EventDescrV4, p2p.datatype) == 40 && offsetof(EventDescrV4, p2p.count) == 48);
static_assert(offsetof(EventDescrV4, p2p.peer) == 56 && offsetof(EventDescrV4, p2p.nChannels) == 60);
static_assert(offsetof(EventDescrV4, kernelCh.pTimer) == 32 && offsetof(EventDescrV4, netPlugin.data) == 32);

}  // namespace lockstep::nccl
