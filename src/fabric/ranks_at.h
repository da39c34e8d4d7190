// Where every rank of every job runs, as numbers of the topology.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/job_places.h"
#include "fabric/topology.h"
#include "model/ids.h"

namespace lockstep::fabric {

struct RankAt {
  uint32_t job = 0;
  Rank rank;
  NodeIndex host = kNone;  // kNone: the topology does not have it
  NodeIndex gpu = kNone;   // likewise
};

struct RanksAt {
  RanksAt(const Topology& topology, const JobPlaces& places, int64_t at_unix_ns);

  uint32_t end(uint32_t job) const {
    return job + 1 < begin.size() ? begin[job + 1] : static_cast<uint32_t>(ranks.size());
  }
  uint32_t find_job(std::string_view name) const;   // kNone: there is none
  uint32_t find_rank(std::string_view name) const;  // "llama/5"; likewise

  std::vector<std::string> jobs;
  std::vector<RankAt> ranks;    // of a job together
  std::vector<uint32_t> begin;  // of each job among them
};

}  // namespace lockstep::fabric
