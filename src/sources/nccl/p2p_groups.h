// AlltoAll, Gather and Scatter reach NCCL's profiler as up to two sends and receives per rank, their names lost; what
// still joins the parts is their ncclGroup. Here the parts of a group are put together again, and the name is told from
// the pattern: a send to every other rank of the communicator and a receive from every other one is an AlltoAll.
//
// Only what one rank can tell for sure is named: of a Gather the root sees every receive, while each of the others sees
// one send like any other. A group that repeats its pattern (several AlltoAlls in one ncclGroup) is as many operations.
//
// Limits: holds the parts of groups that are not settled; its user bounds the operations that are open.
// Thread rule: Confined; recognise() is pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "recorder/records.h"

namespace lockstep {

struct P2pPart {
  bool send = true;
  int32_t peer = -1;
  int64_t bytes = 0;
  int64_t start_ns = 0;  // on the GPU; all parts of a group on one clock
  int64_t stop_ns = 0;   // start_ns: the time is not known
};

struct GroupWork {
  Function function = Function::kUnknown;  // kAlltoAll, kGather, kScatter; kUnknown: no more than sends and receives
  uint64_t operations = 0;
  uint64_t bytes = 0;    // sent, of a Gather received; the own part too, where it is told
  double bus_bytes = 0;  // of those: to or from other ranks. 0 where the time is not known
  uint64_t gpu_ns = 0;   // while at least one part to or from others ran; 0: of one or more it is not known
};

// Ranks of the communicator below which a pattern says nothing: two that exchange are a send and a receive.
inline constexpr int32_t kPatternRanksMin = 3;

// What these parts of one group are to rank `own` of a communicator of `size` ranks.
GroupWork recognise(std::span<const P2pPart> parts, int32_t size, int32_t own);

class P2pGroups {
 public:
  struct Key {
    uint16_t comm_index = kNoComm;
    uint32_t group = 0;
    uint32_t round = 0;  // a captured graph plays its group again and again
    auto operator<=>(const Key&) const = default;
  };
  // An operation of this group was enqueued. Its part follows: done(), or lost() where it will never be known.
  Key opened(uint16_t comm_index, uint32_t group, bool send, int32_t peer);
  void done(const Key& key, const P2pPart& part);
  void lost(const Key& key);

  // Groups of which every part has come and to which nothing was added since the call before: an ncclGroup is enqueued
  // within microseconds, but the reader may cut it in two. `all`: whatever there is, nothing more will come.
  struct Settled {
    uint16_t comm_index = kNoComm;
    std::vector<P2pPart> parts;
  };
  std::vector<Settled> settle(bool all);

 private:
  struct Pending {
    std::vector<P2pPart> parts;
    std::set<std::pair<int32_t, bool>> peers;  // of a captured graph: who is in this round already
    size_t open = 0;
    bool touched = false;
  };
  std::map<Key, Pending> pending_;
};

}  // namespace lockstep
