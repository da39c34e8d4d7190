// What was fetched of ranks that hang, put to use: stacks say what the odd rank does instead, PyTorch's Flight Recorder
// says what each rank called last, from where, and whether all called the same.
//
// Ranks of one process group have to call the same operation at the same place of the sequence; where their dumps
// differ there, and the operation is not complete, that is why nothing moves. Sizes are compared for operations that
// want them equal (not for all-to-all, gather and scatter).
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnosis/detectors/hang/hang.h"
#include "diagnosis/finding.h"
#include "model/rank_evidence.h"

namespace lockstep {

using RankStacks = std::map<Rank, RankStack>;    // newest of each rank
using FlightDumps = std::map<Rank, FlightDump>;  // likewise

struct DumpMismatch {
  std::string group;  // as people call it
  int64_t seq = -1;
  std::vector<Rank> odd;    // the fewest
  std::vector<Rank> usual;  // the most
  DumpOp odd_op, usual_op;
  bool even = false;  // as many did the one as the other: nobody knows who is odd
};
// Dumps from before since_unix_ns are of another time and left out, here and below; clocks may differ a little.
std::optional<DumpMismatch> find_mismatch(const FlightDumps& dumps, int64_t since_unix_ns = 0);

// Adds what was fetched to the finding, in front of its chain; a mismatch in the dumps makes it that, and sure.
void add_evidence(Finding& finding, const RankStacks& stacks, const FlightDumps& dumps, int64_t since_unix_ns);

// The hang detector over dumps alone, with nothing running: every rank's dump as where it stands. Waiting times are not
// known. `window` is filled in. Ranks that left no dump are nobody's culprits: see ranks_without_dump().
std::optional<Finding> find_hang_in_dumps(const FlightDumps& dumps, JobWindow& window);
std::vector<Rank> ranks_without_dump(const FlightDumps& dumps);

}  // namespace lockstep
