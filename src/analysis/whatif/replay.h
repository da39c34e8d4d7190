// Plays an OpGraph again with chosen durations, and the durations it is played with.
//
// A replay is one pass over the operations in an order that is computed once, over flat arrays: time and memory grow
// with operations and edges, nothing is allocated per operation. About 40 ns an operation (bench/results/whatif.md).
//
// The ideal of a group of equal operations is their mean for computing (the same work, spread evenly) and their median
// for transfers (what is far from it is a flap, not work).
// Thread rule: Replayer is Confined (it keeps its arrays); everything else is Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/whatif/op_graph.h"

namespace lockstep {

class Replayer {
 public:
  // The graph must outlive it.
  explicit Replayer(const OpGraph& graph);

  // Length of each step. lengths: one per operation. with_gaps: also the time that nobody recorded; with the graph's
  // own lengths this gives the recorded steps back, as far as the records agree with each other.
  const std::vector<double>& run(std::span<const double> lengths, bool with_gaps = false);
  // The mean over steps of a run.
  double mean_step_s(std::span<const double> lengths, bool with_gaps = false);

  // Of the last run, from the begin of each operation's step.
  const std::vector<double>& starts() const { return start_; }
  const std::vector<double>& ends() const { return end_; }

 private:
  const OpGraph& graph_;
  std::vector<double> start_, end_, last_start_, step_s_;
};

std::vector<double> ideal_lengths(const OpGraph& graph);
// Each worker's own mean for what it computes on micro-batches, everything else as it was: what is left of a loss when
// all micro-batches of a worker are alike.
std::vector<double> even_batches(const OpGraph& graph);

}  // namespace lockstep
