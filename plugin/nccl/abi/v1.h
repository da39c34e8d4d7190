// Interface v1 (NCCL 2.23). Functions, types, algorithms and protocols are numbers; the communicator is named in each
// collective and not in init. NCCL 2.27 and later, which still serve a v1 plugin, leave name null and commHash 0.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/common.h"

namespace lockstep::nccl {

enum FunctionNumberV1 : uint8_t {
  kFunctionV1Broadcast = 0,
  kFunctionV1Reduce = 1,
  kFunctionV1AllGather = 2,
  kFunctionV1ReduceScatter = 3,
  kFunctionV1AllReduce = 4,
  kFunctionV1SendRecv = 5,
  kFunctionV1Send = 6,
  kFunctionV1Recv = 7,
};

enum DatatypeNumberV1 : uint8_t {
  kDatatypeV1Int8 = 0,
  kDatatypeV1Uint8 = 1,
  kDatatypeV1Int32 = 2,
  kDatatypeV1Uint32 = 3,
  kDatatypeV1Int64 = 4,
  kDatatypeV1Uint64 = 5,
  kDatatypeV1Float16 = 6,
  kDatatypeV1Float32 = 7,
  kDatatypeV1Float64 = 8,
  kDatatypeV1Bfloat16 = 9,
  kDatatypeV1Float8e4m3 = 10,
  kDatatypeV1Float8e5m2 = 11,
};

enum AlgorithmNumberV1 : uint8_t {
  kAlgorithmV1Tree = 0,
  kAlgorithmV1Ring = 1,
  kAlgorithmV1CollnetDirect = 2,
  kAlgorithmV1CollnetChain = 3,
  kAlgorithmV1Nvls = 4,
  kAlgorithmV1NvlsTree = 5,
  kAlgorithmV1Pat = 6,
};

enum ProtocolNumberV1 : uint8_t {
  kProtocolV1Ll = 0,
  kProtocolV1Ll128 = 1,
  kProtocolV1Simple = 2,
};

struct CollFieldsV1 {
  const char* name;
  uint64_t commHash;
  uint64_t seqNumber;
  uint8_t func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t op;
  size_t trafficBytes;
  uint8_t nMaxChannels;
  uint8_t nWarps;
  uint8_t algo;
  uint8_t proto;
  int isCollnet;
  int isNvls;
};
struct P2pFieldsV1 {
  const char* name;
  uint64_t commHash;
  uint8_t func;
  void* buff;
  uint8_t datatype;
  size_t count;
  int peer;
};

struct EventDescrV1 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollFieldsV1 coll;
    P2pFieldsV1 p2p;
    ProxyOpFields proxyOp;
    ProxyStepFields proxyStep;
  };
};

// The same in v1, v2 and v3.
union EventStateArgsV1 {
  struct {
    size_t transSize;
    int steps;
  } proxyOp;
  struct {
    int appendedProxyOps;
  } proxyCtrl;
};

using InitV1 = int(void** context, int* eActivationMask);
using ProfilerV1 = ProfilerTable<InitV1, EventDescrV1, EventStateArgsV1>;
inline constexpr const char* kSymbolV1 = "ncclProfiler_v1";

static_assert(sizeof(EventDescrV1) == 120 && sizeof(EventStateArgsV1) == 16);
static_assert(is_profiler_table<ProfilerV1>() && has_descriptor_head<EventDescrV1, uint8_t>());
static_assert(offsetof(EventDescrV1, coll.name) == 24 && offsetof(EventDescrV1, coll.commHash) == 32);
static_assert(offsetof(EventDescrV1, coll.seqNumber) == 40 && offsetof(EventDescrV1, coll.func) == 48);
static_assert(offsetof(EventDescrV1, coll.sendBuff) == 56 && offsetof(EventDescrV1, coll.recvBuff) == 64);
static_assert(offsetof(EventDescrV1, coll.count) == 72 && offsetof(EventDescrV1, coll.root) == 80);
static_assert(offsetof(EventDescrV1, coll.datatype) == 84 && offsetof(EventDescrV1, coll.op) == 88);
static_assert(offsetof(EventDescrV1, coll.trafficBytes) == 96 && offsetof(EventDescrV1, coll.nMaxChannels) == 104);
static_assert(offsetof(EventDescrV1, coll.nWarps) == 105 && offsetof(EventDescrV1, coll.algo) == 106);
static_assert(offsetof(EventDescrV1, coll.proto) == 107 && offsetof(EventDescrV1, coll.isCollnet) == 108);
static_assert(offsetof(EventDescrV1, coll.isNvls) == 112);
static_assert(offsetof(EventDescrV1, p2p.name) == 24 && offsetof(EventDescrV1, p2p.commHash) == 32);
static_assert(offsetof(EventDescrV1, p2p.func) == 40 && offsetof(EventDescrV1, p2p.buff) == 48);
static_assert(offsetof(EventDescrV1, p2p.datatype) == 56 && offsetof(EventDescrV1, p2p.count) == 64);
static_assert(offsetof(EventDescrV1, p2p.peer) == 72);
static_assert(offsetof(EventStateArgsV1, proxyOp.transSize) == 0 && offsetof(EventStateArgsV1, proxyOp.steps) == 8);
static_assert(offsetof(EventStateArgsV1, proxyCtrl.appendedProxyOps) == 0);

}  // namespace lockstep::nccl
