// Collectives of all ranks: which kernel of one rank belongs to which of another, the ranks' clocks aligned on them, and
// on these who came when.
//
// Matching: by process group and sequence number where PyTorch reports it (2.12 on), else by order within the group. A
// profile does not begin at the same collective on all ranks, so the orders are first laid over each other: so that most
// operations are the same on both (name, elements, data type), and of shifts that are equally good the one whose
// wall-clock times lie nearest. A trace that says nothing of groups (older PyTorch, gloo) is matched by order within a
// stream's place, or all of gloo as one.
//
// Clocks: all members of an all-reduce, all-gather, reduce-scatter or barrier leave it nearly together
// (analysis/clocks/clock_alignment.h estimates offset and drift from the ends). Ranks that nothing connects keep their
// own clocks, and it is said.
//
// Waiting: a member's kernel runs from its own start, but nothing moves before the last member has come: until then it
// waits, and only what comes after is the transfer.
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/clocks/clock_alignment.h"
#include "profile/ranks/rank_profile.h"

namespace lockstep::profile {

struct CollectiveMember {
  uint32_t profile = 0;   // in the list of ranks
  uint32_t activity = 0;  // in its index
  int64_t start_ns = 0;   // on the common axis
  int64_t end_ns = 0;
  int64_t wait_ns = 0;  // until the last member came
};

struct MatchedCollective {
  std::string name;   // "allreduce"
  std::string group;  // process group
  int64_t seq = -1;   // -1: matched by order
  int64_t elements = -1;
  bool is_barrier = false;
  std::vector<CollectiveMember> members;
  uint32_t last_member = 0;  // who came last, in members

  int64_t transfer_ns() const;  // from the last start to the last end
};

struct RankWaits {
  int64_t wait_ns = 0;          // in collectives, for their last member; several at once count once
  int64_t exposed_wait_ns = 0;  // of it: while nothing was computed or copied
  int64_t transfer_ns = 0;
  uint64_t collectives = 0;  // matched
  uint64_t came_last = 0;
  std::vector<int64_t> by_step_ns;  // of wait_ns: in which marked step it began
};

struct CollectiveAnalysis {
  std::vector<MatchedCollective> matched;  // by time
  std::vector<RankWaits> waits;            // per rank
  ClockAlignment clocks;
  size_t by_seq = 0;
  size_t by_order = 0;
  size_t unmatched = 0;  // kernels of which no other rank's part was found
  bool is_aligned = false;
};

CollectiveAnalysis match_collectives(std::span<const RankProfile> ranks);

}  // namespace lockstep::profile
