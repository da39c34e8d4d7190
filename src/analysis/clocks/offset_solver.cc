#include "analysis/clocks/offset_solver.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int kRoundsMax = 2000;
// Of the residual. Noise is a thousandth of the values at best, so this is far below it.
constexpr double kTolerance = 1e-9;

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void OffsetSolver::finish(size_t node_count) {
  node_count_ = node_count;
  hub_begin_.push_back(static_cast<uint32_t>(nodes_.size()));

  // Edges of each node, then breadth first over nodes and hubs.
  std::vector<uint32_t> of_node_begin(node_count + 1, 0);
  for (uint32_t node : nodes_) ++of_node_begin[node + 1];
  for (size_t i = 0; i < node_count; ++i) of_node_begin[i + 1] += of_node_begin[i];
  std::vector<uint32_t> of_node(nodes_.size()), hub_of(nodes_.size());
  std::vector<uint32_t> at(of_node_begin.begin(), of_node_begin.end() - 1);
  for (uint32_t hub = 0; hub < hub_count(); ++hub) {
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) {
      of_node[at[nodes_[edge]]++] = edge;
      hub_of[edge] = hub;
    }
  }
  constexpr uint32_t kNone = UINT32_MAX;
  island_.assign(node_count, kNone);
  std::vector<bool> hub_seen(hub_count(), false);
  std::vector<uint32_t> queue;
  for (uint32_t root = 0; root < node_count; ++root) {
    if (island_[root] != kNone) continue;
    const uint32_t island = static_cast<uint32_t>(island_count_++);
    island_[root] = island;
    queue.assign(1, root);
    for (size_t next = 0; next < queue.size(); ++next) {
      const uint32_t node = queue[next];
      for (uint32_t i = of_node_begin[node]; i < of_node_begin[node + 1]; ++i) {
        const uint32_t hub = hub_of[of_node[i]];
        if (hub_seen[hub]) continue;
        hub_seen[hub] = true;
        tree_.push_back({of_node[i], hub, true});
        for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) {
          if (island_[nodes_[edge]] != kNone) continue;
          island_[nodes_[edge]] = island;
          tree_.push_back({edge, hub, false});
          queue.push_back(nodes_[edge]);
        }
      }
    }
  }
}

std::vector<double> OffsetSolver::from_tree(std::span<const double> values) const {
  std::vector<double> x(node_count_, 0), level(hub_count(), 0);
  for (const TreeStep& step : tree_) {
    if (step.to_hub) {
      level[step.hub] = values[step.edge] - x[nodes_[step.edge]];
    } else {
      x[nodes_[step.edge]] = values[step.edge] - level[step.hub];
    }
  }
  return x;
}

void OffsetSolver::apply(std::span<const double> weights, std::span<const double> x, std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0);
  for (size_t hub = 0; hub < hub_count(); ++hub) {
    double sum = 0, weight = 0;
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) {
      sum += weights[edge] * x[nodes_[edge]];
      weight += weights[edge];
    }
    const double mean = weight > 0 ? sum / weight : 0;
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge)
      out[nodes_[edge]] += weights[edge] * (x[nodes_[edge]] - mean);
  }
}

void OffsetSolver::centre(std::span<double> x) const {
  std::vector<double> sum(island_count_, 0), count(island_count_, 0);
  for (size_t i = 0; i < node_count_; ++i) {
    sum[island_[i]] += x[i];
    count[island_[i]] += 1;
  }
  for (size_t i = 0; i < node_count_; ++i) x[i] -= sum[island_[i]] / count[island_[i]];
}

std::vector<double> OffsetSolver::residuals(std::span<const double> values, std::span<const double> weights,
                                            std::span<const double> x) const {
  std::vector<double> out(edge_count());
  for (size_t hub = 0; hub < hub_count(); ++hub) {
    double sum = 0, weight = 0;
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) {
      out[edge] = values[edge] - x[nodes_[edge]];
      sum += weights[edge] * out[edge];
      weight += weights[edge];
    }
    const double mean = weight > 0 ? sum / weight : 0;
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) out[edge] -= mean;
  }
  return out;
}

std::vector<double> OffsetSolver::solve(std::span<const double> values, std::span<const double> weights) const {
  std::vector<double> x = from_tree(values);
  centre(x);
  const size_t n = node_count_;
  // Gradient of what the tree's answer leaves.
  std::vector<double> r(n, 0), diagonal(n, 0);
  const std::vector<double> left = residuals(values, weights, x);
  double scale = 0;
  for (size_t hub = 0; hub < hub_count(); ++hub) {
    double weight = 0;
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) weight += weights[edge];
    for (uint32_t edge = edges_begin(hub); edge < edges_end(hub); ++edge) {
      r[nodes_[edge]] += weights[edge] * left[edge];
      diagonal[nodes_[edge]] += weights[edge] * (1 - weights[edge] / weight);
      scale = std::max(scale, std::abs(weights[edge] * left[edge]));
    }
  }
  std::vector<double> z(n), p(n), q(n);
  auto precondition = [&] {
    for (size_t i = 0; i < n; ++i) z[i] = diagonal[i] > 0 ? r[i] / diagonal[i] : 0;
  };
  precondition();
  p = z;
  double rz = dot(r, z);
  const double enough = kTolerance * kTolerance * rz;
  for (int round = 0; round < kRoundsMax && rz > enough && rz > 0 && scale > 0; ++round) {
    apply(weights, p, q);
    const double curvature = dot(p, q);
    if (!(curvature > 0)) break;
    const double alpha = rz / curvature;
    for (size_t i = 0; i < n; ++i) {
      x[i] += alpha * p[i];
      r[i] -= alpha * q[i];
    }
    precondition();
    const double rz_next = dot(r, z);
    const double beta = rz_next / rz;
    for (size_t i = 0; i < n; ++i) p[i] = z[i] + beta * p[i];
    rz = rz_next;
  }
  centre(x);
  return x;
}

}  // namespace lockstep
