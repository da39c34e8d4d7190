// Whose flows are: their addresses joined with adapters and storage servers of the topology, adapters with ranks of jobs.
//
// A rank sends by the adapter of its GPU, or by all that are as near to it; by an interface that no rank's GPU has for its
// own (Ethernet beside InfiniBand, a host without GPUs) any rank of its host may. An address that two adapters have is
// nobody's.
// Cost: a walk over all ranks.
// Thread rule: Immutable; the topology outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fabric/ranks_at.h"
#include "fabric/topology.h"
#include "model/ids.h"
#include "model/ip_address.h"

namespace lockstep::fabric {

class FlowEnds {
 public:
  FlowEnds(const Topology& topology, const JobPlaces& places, int64_t at_unix_ns);

  // An adapter or a storage server; kNone: nobody that is known.
  NodeIndex find(const IpAddress& address) const;
  struct JobRanks {
    std::string_view job;
    std::vector<Rank> ranks;  // ascending
  };
  // Who may send by this adapter; none by a storage server.
  std::vector<JobRanks> ranks_behind(NodeIndex node) const;
  bool has_job(std::string_view job) const { return ranks_.find_job(job) != kNone; }
  // That ranks of a job send from and are sent to, sorted. Empty: no adapter of theirs has one that is known.
  std::vector<IpAddress> addresses_of(std::string_view job) const;

 private:
  std::span<const uint32_t> indices_behind(NodeIndex node) const;  // of ranks_

  const Topology& topology_;
  const RanksAt ranks_;
  std::map<IpAddress, NodeIndex> by_address_;
  std::unordered_map<NodeIndex, std::vector<uint32_t>> ranks_of_;  // by adapter, and by host those of all of it
};

}  // namespace lockstep::fabric
