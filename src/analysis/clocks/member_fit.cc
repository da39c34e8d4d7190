#include "analysis/clocks/member_fit.h"

#include <algorithm>
#include <cmath>

#include "base/median.h"

namespace lockstep {
namespace {

// Taken for the noise of an end before anything is known, with the weight of one observation: ends of collectives of
// real jobs lie 10 to 140 us apart, where a GPU clock stamps them about 5.
constexpr double kNoisePriorNs = 20'000;
constexpr double kNoiseLeastNs = 300;
constexpr int kGradientRoundsMax = 200;
constexpr size_t kScaleSampleMax = 8'192;

struct Pair {
  double offset = 0;
  double edge = 0;
};
double dot(const std::vector<Pair>& a, const std::vector<Pair>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i].offset * b[i].offset + a[i].edge * b[i].edge;
  return sum;
}

// Symmetric 2 x 2.
struct Block {
  double oo = 0, oe = 0, ee = 0;
  Pair solve(const Pair& r) const {
    const double det = oo * ee - oe * oe;
    if (!(det > 1e-12 * oo * ee)) return {oo > 0 ? r.offset / oo : 0, ee > 0 ? r.edge / ee : 0};
    return {(ee * r.offset - oe * r.edge) / det, (oo * r.edge - oe * r.offset) / det};
  }
};

class Fit {
 public:
  Fit(const MemberEnds& ends, double edge_prior_ns)
      : ends_(ends),
        operations_(ends.tau.size()),
        ridge_(1 / (edge_prior_ns * edge_prior_ns)),
        x_(ends.members),
        weight_(ends.member.size()),
        left_(ends.member.size()) {}

  MemberFit run(int rounds) {
    start();
    for (int round = 0; round < rounds; ++round) {
      weigh();
      solve();
      residuals();
    }
    weigh();
    return result();
  }

 private:
  // Offsets against the member that was in most operations, by median: no single end can spoil the start.
  void start() {
    std::vector<size_t> count(ends_.members, 0);
    for (uint32_t member : ends_.member) ++count[member];
    const size_t first = static_cast<size_t>(std::max_element(count.begin(), count.end()) - count.begin());
    std::vector<std::vector<double>> differences(ends_.members);
    for (size_t member = 0; member < ends_.members; ++member) differences[member].reserve(count[member]);
    for (size_t op = 0; op < operations_; ++op) {
      const uint32_t* begin = ends_.member.data() + ends_.begin[op];
      const uint32_t* end = ends_.member.data() + ends_.begin[op + 1];
      const uint32_t* found = std::find(begin, end, static_cast<uint32_t>(first));
      if (found == end) continue;
      const double base = ends_.end_ns[static_cast<size_t>(found - ends_.member.data())];
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i)
        differences[ends_.member[i]].push_back(ends_.end_ns[i] - base);
    }
    for (size_t member = 0; member < ends_.members; ++member) {
      std::vector<double>& list = differences[member];
      if (list.empty()) continue;
      x_[member].offset = upper_median_in_place(list);
    }
    // The moment of each operation by median too: these residuals only set the first weights.
    std::vector<double> corrected;
    for (size_t op = 0; op < operations_; ++op) {
      corrected.clear();
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i)
        corrected.push_back(ends_.end_ns[i] - x_[ends_.member[i]].offset);
      const double moment = upper_median_in_place(corrected);
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i)
        left_[i] = ends_.end_ns[i] - x_[ends_.member[i]].offset - moment;
    }
  }

  void weigh() {
    // Median of what is left, in units of nothing else known, corrected for what the fit has eaten.
    std::vector<double> sizes;
    const size_t stride = left_.size() / kScaleSampleMax + 1;
    for (size_t i = 0; i < left_.size(); i += stride) sizes.push_back(std::abs(left_[i]));
    const double middle = upper_median_in_place(sizes);
    const double observations = static_cast<double>(left_.size());
    const double freedom = observations - static_cast<double>(operations_) - 2 * static_cast<double>(ends_.members) + 1;
    double square = kNoisePriorNs * kNoisePriorNs;
    if (freedom >= 1) {
      const double seen = 1.4826 * middle;
      square = (square + freedom * seen * seen * observations / freedom) / (1 + freedom);
    }
    noise_ = std::max(kNoiseLeastNs, std::sqrt(square));
    double spread = 0, total = 0;
    for (size_t op = 0; op < operations_; ++op) {
      const double variance = noise_ * noise_ + ends_.spread_ns[op] * ends_.spread_ns[op];
      const double sigma = std::sqrt(variance);
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) {
        // Huber's rule, and beyond 6 sigma like a Cauchy tail: an end that is hours off has no say.
        const double z = std::abs(left_[i]) / sigma;
        const double trust = z <= 1.5 ? 1 : z <= 6 ? 1.5 / z : 9 / (z * z);
        weight_[i] = trust / variance;
        spread += weight_[i] * ends_.spread_ns[op];
        total += weight_[i];
      }
    }
    spread_ = total > 0 ? spread / total : 0;
  }

  void apply(const std::vector<Pair>& x, std::vector<Pair>& out) const {
    for (size_t i = 0; i < x.size(); ++i) out[i] = {0, ridge_ * x[i].edge};
    for (size_t op = 0; op < operations_; ++op) {
      const double tau = ends_.tau[op];
      double sum = 0, total = 0;
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) {
        const Pair& at = x[ends_.member[i]];
        sum += weight_[i] * (at.offset + tau * at.edge);
        total += weight_[i];
      }
      const double mean = sum / total;
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) {
        const Pair& at = x[ends_.member[i]];
        const double force = weight_[i] * (at.offset + tau * at.edge - mean);
        out[ends_.member[i]].offset += force;
        out[ends_.member[i]].edge += tau * force;
      }
    }
  }

  void residuals() {
    for (size_t op = 0; op < operations_; ++op) {
      const double tau = ends_.tau[op];
      const double base = ends_.end_ns[ends_.begin[op]];
      double sum = 0, total = 0;
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) {
        const Pair& at = x_[ends_.member[i]];
        left_[i] = (ends_.end_ns[i] - base) - at.offset - tau * at.edge;
        sum += weight_[i] * left_[i];
        total += weight_[i];
      }
      const double mean = sum / total;
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) left_[i] -= mean;
    }
  }

  void make_blocks() {
    blocks_.assign(ends_.members, {0, 0, ridge_});
    for (size_t op = 0; op < operations_; ++op) {
      const double tau = ends_.tau[op];
      double total = 0;
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) total += weight_[i];
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) {
        const double own = weight_[i] * (1 - weight_[i] / total);
        Block& block = blocks_[ends_.member[i]];
        block.oo += own;
        block.oe += tau * own;
        block.ee += tau * tau * own;
      }
    }
  }

  // Preconditioned conjugate gradients from where we are.
  void solve() {
    make_blocks();
    residuals();
    const size_t n = ends_.members;
    std::vector<Pair> r(n), z(n), p(n), q(n);
    for (size_t i = 0; i < n; ++i) r[i] = {0, -ridge_ * x_[i].edge};
    for (size_t op = 0; op < operations_; ++op) {
      for (uint32_t i = ends_.begin[op]; i < ends_.begin[op + 1]; ++i) {
        r[ends_.member[i]].offset += weight_[i] * left_[i];
        r[ends_.member[i]].edge += ends_.tau[op] * weight_[i] * left_[i];
      }
    }
    auto precondition = [&] {
      for (size_t i = 0; i < n; ++i) z[i] = blocks_[i].solve(r[i]);
    };
    precondition();
    p = z;
    double rz = dot(r, z);
    // In units of the error of the answer: a thousandth of a standard deviation per member.
    const double enough = 1e-6 * static_cast<double>(n);
    for (int round = 0; round < kGradientRoundsMax && rz > enough; ++round) {
      apply(p, q);
      const double curvature = dot(p, q);
      if (!(curvature > 0)) break;
      const double alpha = rz / curvature;
      for (size_t i = 0; i < n; ++i) {
        x_[i].offset += alpha * p[i].offset;
        x_[i].edge += alpha * p[i].edge;
        r[i].offset -= alpha * q[i].offset;
        r[i].edge -= alpha * q[i].edge;
      }
      precondition();
      const double next = dot(r, z);
      const double beta = next / rz;
      for (size_t i = 0; i < n; ++i) p[i] = {z[i].offset + beta * p[i].offset, z[i].edge + beta * p[i].edge};
      rz = next;
    }
  }

  MemberFit result() {
    make_blocks();
    MemberFit out;
    out.noise_ns = noise_;
    out.spread_ns = spread_;
    out.clocks.resize(ends_.members);
    for (uint32_t member : ends_.member) ++out.clocks[member].ends;
    double mean = 0;
    for (const Pair& at : x_) mean += at.offset / static_cast<double>(x_.size());
    for (size_t i = 0; i < ends_.members; ++i) {
      MemberClock& clock = out.clocks[i];
      clock.offset_ns = x_[i].offset - mean;
      clock.edge_ns = x_[i].edge;
      clock.offset_variance = std::max(0.0, blocks_[i].solve({1, 0}).offset);
      clock.edge_variance = std::max(0.0, blocks_[i].solve({0, 1}).edge);
    }
    return out;
  }

  const MemberEnds& ends_;
  const size_t operations_;
  const double ridge_;
  std::vector<Pair> x_;
  std::vector<double> weight_;
  std::vector<double> left_;
  std::vector<Block> blocks_;
  double noise_ = 0;
  double spread_ = 0;
};

}  // namespace

MemberFit fit_members(const MemberEnds& ends, double edge_prior_ns, int rounds) {
  return Fit(ends, edge_prior_ns).run(rounds);
}

}  // namespace lockstep
