// Turns what NCCL says through one version of its interface into what an older version would have said: the descriptor
// of an event and the arguments of a state. NCCL does the same for a plugin that is older than itself; where it leaves
// a field out although it is known (the communicator before v4, the channels of a v4 p2p), it is filled in here.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include "plugin/nccl/abi/versions.h"
#include "plugin/nccl/names.h"

namespace lockstep::nccl {

// What goes into the descriptor instead of NCCL's own pointers.
struct Links {
  void* parent = nullptr;
  void* parent_group = nullptr;  // of an operation, from v5 on
};
// Before v4 an operation names its communicator.
struct Identity {
  const char* name = nullptr;
  uint64_t comm_id = 0;
};

// Where a descriptor carries parentGroup; null: nowhere.
template <typename V>
void** parent_group_of(typename V::Descriptor& descriptor) {
  if constexpr (V::kApiEvents) {
    if (descriptor.type == kEventColl) return &descriptor.coll.parentGroup;
    if (descriptor.type == kEventP2p) return &descriptor.p2p.parentGroup;
  }
  return nullptr;
}

namespace convert_detail {

// The number that v1 has for what a name means; false: v1 does not know it.
template <typename Meaning>
bool number_of_v1(Meaning meaning, Meaning (*of_v1)(uint8_t), uint8_t* number) {
  for (uint8_t candidate = 0; candidate < 16 && meaning != Meaning{}; ++candidate) {
    if (of_v1(candidate) != meaning) continue;
    *number = candidate;
    return true;
  }
  return false;
}

// What coll and p2p have in common. False: the event cannot be said in that version.
template <typename From, typename To, typename In, typename Out>
bool convert_operation(const In& in, const Identity& identity, Out& out) {
  out.count = in.count;
  if constexpr (To::kNamesAreNumbers) {
    if (!number_of_v1(function_of(in.func), function_of_v1, &out.func) ||
        !number_of_v1(datatype_of(in.datatype), datatype_of_v1, &out.datatype)) {
      return false;
    }
  } else {
    out.func = in.func;
    out.datatype = in.datatype;
  }
  if constexpr (!From::kIdentityInInit) {
    out.name = in.name;
    out.commHash = in.commHash;
  } else if constexpr (!To::kIdentityInInit) {
    out.name = identity.name;
    out.commHash = identity.comm_id;
  }
  return true;
}

template <typename From, typename To, typename In, typename Out>
bool convert_coll(const In& in, const Identity& identity, Out& out) {
  out.seqNumber = in.seqNumber;
  out.sendBuff = in.sendBuff;
  out.recvBuff = in.recvBuff;
  out.root = in.root;
  out.nWarps = in.nWarps;
  if constexpr (To::kIdentityInInit) {
    out.nChannels = in.nChannels;
  } else if constexpr (From::kIdentityInInit) {
    out.nMaxChannels = in.nChannels;
  } else {
    out.nMaxChannels = in.nMaxChannels;
  }
  if constexpr (To::kNamesAreNumbers) {
    out.algo = kAlgorithmV1Pat;  // NCCL's own answer for one that v1 does not know; the same of the protocol
    out.proto = kProtocolV1Simple;
    number_of_v1(algorithm_of(in.algo), algorithm_of_v1, &out.algo);
    number_of_v1(protocol_of(in.proto), protocol_of_v1, &out.proto);
  } else {
    out.algo = in.algo;
    out.proto = in.proto;
  }
  if constexpr (From::kNumber == 2) out.trafficBytes = in.trafficBytes;
  return convert_operation<From, To>(in, identity, out);
}

template <typename From, typename To, typename In, typename Out>
bool convert_p2p(const In& in, const Identity& identity, Out& out) {
  out.buff = in.buff;
  out.peer = in.peer;
  if constexpr (To::kIdentityInInit) out.nChannels = in.nChannels;
  return convert_operation<From, To>(in, identity, out);
}

template <typename In, typename Out>
void convert_call(const In& in, Out& out) {
  out.func = in.func;
  out.count = in.count;
  out.datatype = in.datatype;
  out.stream = in.stream;
  out.graphCaptured = in.graphCaptured;
}

template <typename In, typename Out>
void convert_copy_engine(const In& in, Out& out) {
  out.seqNumber = in.seqNumber;
  out.func = in.func;
  out.sendBuff = in.sendBuff;
  out.recvBuff = in.recvBuff;
  out.count = in.count;
  out.root = in.root;
  out.datatype = in.datatype;
  out.syncStrategy = in.syncStrategy;
  out.intraBatchSync = in.intraBatchSync;
  out.batchSize = in.batchSize;
  out.numBatches = in.numBatches;
  out.ceSeqNum = in.ceSeqNum;
  out.stream = in.stream;
}

// The events that came with v3, v5 and v6.
template <typename From, typename To>
void convert_later_event(const typename From::Descriptor& in, typename To::Descriptor& out) {
  if constexpr (To::kKernelEvents) {
    if (in.type == kEventNetPlugin) out.netPlugin = in.netPlugin;
    if (in.type == kEventKernelCh) {
      out.kernelCh.channelId = in.kernelCh.channelId;
      if constexpr (To::kGpuTimes) out.kernelCh.pTimer = in.kernelCh.pTimer;
    }
  }
  if constexpr (To::kApiEvents) {
    if (in.type == kEventGroupApi) out.groupApi = in.groupApi;
    if (in.type == kEventKernelLaunch) out.kernelLaunch = in.kernelLaunch;
    if (in.type == kEventP2pApi) convert_call(in.p2pApi, out.p2pApi);
    if (in.type == kEventCollApi) {
      convert_call(in.collApi, out.collApi);
      out.collApi.root = in.collApi.root;
    }
  }
  if constexpr (To::kCopyEngine) {
    if (in.type == kEventCeColl) convert_copy_engine(in.ceColl, out.ceColl);
    if (in.type == kEventCeSync) out.ceCollSync = in.ceCollSync;
    if (in.type == kEventCeBatch) out.ceCollBatch = in.ceCollBatch;
  }
}

}  // namespace convert_detail

// False: the older version cannot say it, and its plugin is not called.
template <typename From, typename To>
bool convert(const typename From::Descriptor& in, const Links& links, const Identity& identity,
             typename To::Descriptor& out) {
  static_assert(From::kNumber > To::kNumber);
  out = {};
  if ((in.type & To::kEvents) == 0) return false;
  out.type = static_cast<decltype(out.type)>(in.type);
  out.parentObj = links.parent;
  out.rank = in.rank;
  const bool operation = in.type == kEventColl || in.type == kEventP2p;
  if constexpr (From::kApiEvents && !To::kApiEvents) {
    if (operation) out.parentObj = links.parent_group;
  }
  if (operation) {
    const bool known = in.type == kEventColl ? convert_detail::convert_coll<From, To>(in.coll, identity, out.coll)
                                             : convert_detail::convert_p2p<From, To>(in.p2p, identity, out.p2p);
    if (void** group = parent_group_of<To>(out)) *group = links.parent_group;
    return known;
  }
  if (in.type == kEventProxyOp) out.proxyOp = in.proxyOp;
  if (in.type == kEventProxyStep) out.proxyStep = in.proxyStep;
  convert_detail::convert_later_event<From, To>(in, out);
  return true;
}

// False: the older version has no such state. in may be null; out never is for the plugin, as NCCL has it.
template <typename From, typename To>
bool convert_state(int state, const typename From::StateArgs* in, typename To::StateArgs& out) {
  static_assert(From::kNumber > To::kNumber);
  constexpr int kLast = To::kCopyEngine       ? kStateCeBatchComplete
                        : To::kApiEvents      ? kStateGroupEndApiStart
                        : To::kIdentityInInit ? kStateKernelChStop
                                              : kStateProxyCtrlAppendEnd;
  out = {};
  if (state < 0 || state > kLast) return false;
  if constexpr (From::kIdentityInInit == To::kIdentityInInit) {
    if (in != nullptr) out = *in;
  } else if (in != nullptr && state >= kStateProxyCtrlIdle && state <= kStateProxyCtrlAppendEnd) {
    out.proxyCtrl.appendedProxyOps = in->proxyCtrl.appendedProxyOps;
  }
  return true;
}

}  // namespace lockstep::nccl
