// Least squares over things that are only known relative to each other: each hub (a communicator, a pair of ranks)
// says how far each of its nodes is from the hub's own unknown level, v = x[node] + level[hub] + noise. Wanted are the
// x, which are determined up to a constant per island of connected nodes.
//
// The method: levels are eliminated (each is the weighted mean of what its nodes leave), the rest is a weighted graph
// Laplacian and is solved by conjugate gradients, from the exact answer of a spanning tree: chains, where gradients are
// slow, are right from the start, and dense overlaps converge in a few rounds.
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class OffsetSolver {
 public:
  // Edges are kept hub by hub.
  void begin_hub() { hub_begin_.push_back(static_cast<uint32_t>(nodes_.size())); }
  void add_edge(uint32_t node) { nodes_.push_back(node); }
  // Once all hubs are there.
  void finish(size_t node_count);

  size_t node_count() const { return node_count_; }
  size_t hub_count() const { return hub_begin_.size() - 1; }
  size_t edge_count() const { return nodes_.size(); }
  uint32_t edges_begin(size_t hub) const { return hub_begin_[hub]; }
  uint32_t edges_end(size_t hub) const { return hub_begin_[hub + 1]; }
  uint32_t node(size_t edge) const { return nodes_[edge]; }

  // Of nodes: numbered from 0 in order of the smallest node. Nodes of no hub are islands of their own.
  const std::vector<uint32_t>& island() const { return island_; }
  size_t island_count() const { return island_count_; }

  // x for these values and weights (one each per edge; weights > 0), the mean of every island 0.
  std::vector<double> solve(std::span<const double> values, std::span<const double> weights) const;
  // What every edge leaves: value - x - level.
  std::vector<double> residuals(std::span<const double> values, std::span<const double> weights,
                                std::span<const double> x) const;

 private:
  std::vector<double> from_tree(std::span<const double> values) const;
  void apply(std::span<const double> weights, std::span<const double> x, std::span<double> out) const;
  void centre(std::span<double> x) const;

  size_t node_count_ = 0;
  std::vector<uint32_t> hub_begin_;
  std::vector<uint32_t> nodes_;
  std::vector<uint32_t> island_;
  size_t island_count_ = 0;
  // A spanning tree in the order in which values can be filled in: edges that lead to a hub, or from it to a node.
  struct TreeStep {
    uint32_t edge;
    uint32_t hub;
    bool to_hub;
  };
  std::vector<TreeStep> tree_;
};

}  // namespace lockstep
