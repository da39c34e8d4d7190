// Which line makes a rank slow: the share of its time that each function and line has, less the share that it has of a
// peer's time.
//
// A share is of wall time: looks at which the line was somewhere on the thread's stack, of all looks at the rank; of
// worker processes, on average over them. What both do alike (the loop around everything) has no difference; what the
// slow rank does instead of waiting for others has one above 0, and the peers' wait has one below.
//
// Other threads and worker processes that wait for work count as idle: what they wait in is nobody's fault.
//
// Named is the innermost function of the job's own code that has most of the largest difference, and in it the line
// with the largest difference; a worker's or another thread's rather than the main thread's, which waits for it. Library
// code below it is shown in the table and not blamed.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/ids.h"
#include "model/rank_samples.h"

namespace lockstep {

using SampledRanks = std::map<Rank, RankSamples>;  // the newest of each rank

struct LineShare {
  ThreadRole role = ThreadRole::kMain;
  StackFrame frame;       // of a function as a whole: line 0
  double share = 0;       // 0..1 of the rank's time in which it was on the stack
  double own = 0;         // 0..1 in which it was the innermost
  double peer_share = 0;  // of the peers' time
  double difference() const { return share - peer_share; }
};

struct LineDifference {
  Rank rank = kNoRank;
  std::vector<Rank> peers;           // their mean is compared with; empty: there is nothing to compare with
  std::vector<LineShare> lines;      // by difference, the largest first
  std::vector<LineShare> functions;  // likewise
  std::optional<LineShare> named;    // the line; none: no line differs enough to be named
  LineShare function;                // of `named`: its function as a whole
  std::optional<LineShare> instead;  // what the peers do most of that time
  // "train.py:142 in load_batch: 61 % of rank 2's time, 2 % of rank 5's"; else why no line is named.
  std::string sentence;
};

// A difference below this names nothing: 5 s at 100 Hz have a deviation of 2 %.
inline constexpr double kLineDifferenceLeast = 0.08;

// rank: in `samples`. peers: those of them that are there count.
LineDifference line_difference(const SampledRanks& samples, Rank rank, std::span<const Rank> peers);

std::string line_text(const StackFrame& frame);  // "train.py:142 in load_batch"

}  // namespace lockstep
