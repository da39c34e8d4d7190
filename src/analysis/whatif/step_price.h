// What suspects cost, from step summaries alone: the online form of the replay, for every step of a job of any size.
//
// A summary says how long a rank worked by itself (own), how long communication kept it, and how long each communicator
// did. Who waited is in there: the member of a collective's communicator with the shortest time in it waited least, so
// that time is the transfer and what others have above it is waiting. Between the stages of a pipeline even the
// shortest time is mostly waiting, so sends and receives are no work, unless a suspect says that they were too slow:
//
//     until(rank) = own + communication - waiting in collectives      when it had done its part
//     busy(rank)  = until - sends and receives                        what it worked for that
//
// Ranks that send to each other are a chain (a pipeline; a rank that sends to nobody is one by itself). A chain has
// done its part when its last rank has, and the step lasts as long as its last chain. Without a suspect the suspect's
// chain is
//
//     max busy + k x (sum of the others' busy)     but no shorter than by what was taken off
//
// where k says how much of the other stages a pipeline has to wait for while it fills and drains (1 / micro-batches in
// a 1F1B schedule): the median of what the chains without suspects show, of all chains where every one has a suspect.
// Chains that meet a suspect's in collectives as often as it sends (tensor-parallel peers) waited because of it, so
// they are counted by the same rule; all others stay as they were.
//
// A suspect's own time is set to the median of the ranks of the same role that are not suspects (of all that are not,
// where a whole role is suspected); a suspect's transfer to its baseline. What the step gets shorter by is what the
// suspect costs.
//
// How good, in what is recovered against the same pipeline without the fault, on shapes that the model was not written
// with (about 50 each; median, 90th percentile, worst): even work 0, 0.4, 11 %; uneven stages 0, 0.8, 4 %; two suspects
// 0, 1, 5 %. Where micro-batches differ by 10 % at random 0, 9, 97 %, by 40 % 0, 37, 94 %: there the suspect's chain
// may have had more work than its peers, which own time alone does not tell, and in a tenth to a sixth of the cases it
// is blamed for more than it cost. So with uneven micro-batches price over several steps, or by tokens. Where different
// ranks of a collective are late in turn, the shortest time in it still holds waiting and too little is recovered.
// step_price_test.cc holds the even case against the replay of whole graphs.
//
// Time: one pass over ranks and memberships to build, one over ranks for each suspect. 100,000 ranks with 400,000
// memberships: some 80 ms to build and 2 ms a suspect (bench/results/whatif.md). Thread rule: Thread-safe (pure
// functions); values are Immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/step.h"

namespace lockstep {

struct SummarizedRank {
  int32_t rank = -1;
  // Ranks of one role do the same work. kDeriveRole: those with the same communicators by size, operations and bytes.
  uint64_t role = 0;
  const StepSummary* summary = nullptr;
  static constexpr uint64_t kDeriveRole = 0;
};

struct StepGraph {
  int64_t step_ns = 0;  // the longest rank's
  std::vector<int32_t> rank;
  std::vector<uint64_t> role;
  std::vector<int64_t> own_ns;
  std::vector<int64_t> until_ns;
  std::vector<int64_t> busy_ns;
  std::vector<int64_t> messages;  // sends and receives
  std::vector<uint32_t> chain;    // ranks of one number send to each other; a rank that sends to nobody is alone
  uint32_t chains = 0;

  struct Group {
    uint64_t comm_id = 0;
    bool p2p = false;
    int64_t operations = 0;  // of its first member
    int64_t transfer_ns = 0;
    int64_t usual_ns = 0;  // median transfer of the groups that do the same (size, operations, bytes); its own if alone
  };
  std::vector<Group> groups;                   // by comm_id and p2p
  std::vector<uint32_t> member_begin, member;  // indexes into the ranks
  size_t unknown = 0;                          // rows without GPU times: they say nothing and are left out
};

// One step. Rows of ranks that come twice: the first counts.
StepGraph step_graph_of(std::span<const SummarizedRank> rows);

struct Suspect {
  enum class Kind : uint8_t { kOwn, kTransfer };
  Kind kind = Kind::kOwn;
  std::vector<int32_t> ranks;  // kOwn
  uint64_t comm_id = 0;        // kTransfer
  int64_t usual_ns = -1;       // kTransfer: what the transfer should take; -1: as in StepGraph::Group
};

struct StepPrice {
  int64_t step_ns = 0;
  int64_t baseline_ns = 0;
  std::vector<int64_t> recovered_ns;  // by suspect, each alone
  int64_t joint_ns = 0;               // all of them together
  std::vector<double> shares;         // by suspect, of step - baseline
  double unexplained = 0;             // with the shares: 1, or all 0 where nothing is lost
};

// baseline_ns: what the step should take (a healthy time of this job).
StepPrice price(const StepGraph& graph, std::span<const Suspect> suspects, int64_t baseline_ns);

}  // namespace lockstep
