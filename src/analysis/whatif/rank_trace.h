// Builds an OpGraph from steps that ranks of our own recorded in detail: operations of communication on one time axis.
// What a rank does between them is its own work, and that is all that is known of it.
//
// A rank's operation waits for own work, and that work for the newest thing that happened on the rank before it: the
// end of an operation, or (where the operation before is still running, because computing and communication overlap)
// its start. Operations of one communicator on one rank come one after the other, unless they were seen to overlap.
// Members of a collective meet; so do a send and its receive. The rest of the step behind the last operation is own
// work too.
//
// Equals are ranks that did the same operations in the same communicators by size: their n-th pieces of own work, and
// their n-th operations, should take the same time. The parallelism is not told, so there are no stages here.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/whatif/op_graph.h"
#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

struct TracedOp {
  CommId comm_id;
  uint64_t ordinal = 0;  // of a collective on its communicator, the same on all its ranks
  bool p2p = false;
  bool send = false;     // p2p
  Rank peer = kNoRank;   // p2p; kNoRank: not known, then it meets nobody
  std::string function;  // "AllReduce"
  int64_t bytes = 0;
  double start_s = 0;  // on the job's axis
  double end_s = 0;
};

struct TracedRank {
  Rank rank = kNoRank;
  double begin_s = 0;  // of its step
  double end_s = 0;
  std::vector<TracedOp> ops;  // in any order
};

// One step. notes: what of it could not be used.
Result<OpGraph> graph_of_traced_ranks(std::span<const TracedRank> ranks, StepNumber step,
                                      std::vector<std::string>& notes);

}  // namespace lockstep
