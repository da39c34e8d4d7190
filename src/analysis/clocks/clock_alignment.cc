// How the estimate is made:
//  1. Each communicator by itself: how its members' clocks lie against each other (member_fit.h), with the variance of
//     each member's answer and the noise of a single end.
//  2. All of them together: each communicator says how far each of its members is from a level of its own; that is
//     solved over all ranks (hub_system.h). What communicators contradict each other in tells how far ends of a
//     communicator lie apart always the same way; a communicator that contradicts the others counts less.
//  3. Both are done twice. Drift times offset is a product that matters with clocks seconds apart; on the axis of the
//     first pass offsets are small and it does not.
//  4. Groups that share no communicator are joined through messages where these go both ways.
//  5. Error bars by trial: the same system solved for noise of the size that was found. A rank at the end of a chain
//     gets the error of the whole chain, which no local formula would give.
#include "analysis/clocks/clock_alignment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "analysis/clocks/member_fit.h"
#include "analysis/clocks/offset_solver.h"
#include "base/median.h"

namespace lockstep {
namespace {

// Quartz is within 50 parts in a million, and NTP holds it nearer.
constexpr double kDriftPrior = 20e-6;
// Ends lie apart by so much of what the operation takes whoever leaves first: 1 to 3 in 100 in published traces.
constexpr double kSpreadShare = 0.02;
constexpr double kBiasLeastNs = 500;
// A communicator nobody contradicts: of the noise of single ends so much is taken to be always the same way.
constexpr double kBiasOfNoise = 0.5;
// What is taken for the bias before anything is known weighs as much as so many contradictions.
constexpr double kBiasPriorFreedom = 20;
// So much worse than the rest, and of so many members: this communicator is odd, not the others.
constexpr double kStandsOut = 4;
constexpr double kStandsOutMembers = 4;
constexpr double kMedianOfSquares = 0.455;  // of a normal variable
constexpr int kPasses = 2;
constexpr int kRoundsFirstPass = 4;
constexpr int kRounds = 6;
constexpr int kJoinRounds = 12;
// Drift within a window hides the least delay, until the axis has it.
constexpr int kMessagePasses = 3;
constexpr int kTrials = 24;
// Two standard deviations, and a little for the standard deviation being estimated from kTrials.
constexpr double kErrorSigmas = 2.6;
constexpr double kErrorLeastNs = 1'000;
constexpr size_t kMessageWindows = 8;
constexpr int64_t kUnixMost = int64_t{1} << 62;  // so that differences fit

class Sets {  // union-find
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0u); }
  uint32_t find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(uint32_t a, uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<uint32_t> parent_;
};

struct Estimate {  // of one rank; edge: what its clock gains over half of the time looked at
  double offset = 0;
  double edge = 0;
  double offset_variance = 0;
  double edge_variance = 0;
};

// One rank's part in one communicator.
struct Edge {
  double offset = 0;
  double edge = 0;
  double offset_variance = 0;
  double edge_variance = 0;
};

struct Operation {  // ends begin .. end - 1 of the sorted list
  uint32_t begin;
  uint32_t end;
};
struct Communicator {
  std::vector<uint32_t> ranks;  // indexes, by member
  std::vector<Operation> operations;
  std::vector<uint32_t> member;  // of every end of the operations, in order
};

class Estimator {
 public:
  Estimator(std::span<const BarrierEnd> ends, std::span<const MessagePair> messages) : messages_(messages) {
    take_ends(ends);
    find_ranks();
    find_communicators();
  }

  static bool usable(const MessagePair& message) {
    return message.sent_unix_ns > 0 && message.sent_unix_ns < kUnixMost && message.received_unix_ns > 0 &&
           message.received_unix_ns < kUnixMost && message.from_rank != message.to_rank;
  }

  bool empty() const { return ranks_.empty(); }
  int64_t reference() const { return reference_; }

  std::vector<RankClock> run() {
    estimates_.assign(ranks_.size(), {});
    if (!communicators_.empty()) {
      for (int pass = 0; pass < kPasses; ++pass) {
        correct();
        one_pass(pass + 1 == kPasses);
      }
    } else {
      OffsetSolver nobody;
      nobody.finish(ranks_.size());
      island_ = nobody.island();
      islands_ = nobody.island_count();
    }
    for (const MessagePair& message : messages_) {
      if (!usable(message)) continue;
      const uint32_t from = index_of(message.from_rank), to = index_of(message.to_rank);
      if (island_[from] != island_[to]) between_.push_back({from, to, message.sent_unix_ns, message.received_unix_ns});
    }
    for (int pass = 0; pass < kMessagePasses; ++pass) join_by_messages(pass + 1 == kMessagePasses);
    return clocks();
  }

 private:
  void take_ends(std::span<const BarrierEnd> ends) {
    ends_.reserve(ends.size());
    for (const BarrierEnd& end : ends) {
      if (end.end_unix_ns > 0 && end.end_unix_ns < kUnixMost) ends_.push_back(end);
    }
    auto order = [](const BarrierEnd& a, const BarrierEnd& b) {
      if (a.comm_id != b.comm_id) return a.comm_id < b.comm_id;
      if (a.key != b.key) return a.key < b.key;
      return a.rank < b.rank;
    };
    std::sort(ends_.begin(), ends_.end(), order);
    auto same = [](const BarrierEnd& a, const BarrierEnd& b) {
      return a.comm_id == b.comm_id && a.key == b.key && a.rank == b.rank;
    };
    ends_.erase(std::unique(ends_.begin(), ends_.end(), same), ends_.end());
  }

  void find_ranks() {
    size_t tidy_at = 65'536;  // each rank comes hundreds of times
    auto tidy = [&] {
      std::sort(ranks_.begin(), ranks_.end());
      ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
      tidy_at = std::max(tidy_at, ranks_.size() * 4);
    };
    auto add_rank = [&](Rank rank) {
      ranks_.push_back(rank);
      if (ranks_.size() >= tidy_at) tidy();
    };
    for (const BarrierEnd& end : ends_) add_rank(end.rank);
    for (const MessagePair& message : messages_) {
      if (!usable(message)) continue;
      add_rank(message.from_rank);
      add_rank(message.to_rank);
    }
    tidy();
  }
  uint32_t index_of(Rank rank) const {
    return static_cast<uint32_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }

  // Operations of one communicator, split where members were never in one operation, directly or through others: a
  // rank that was restarted, or steps of which only some ranks told.
  void find_communicators() {
    std::vector<uint32_t> local(ranks_.size());
    std::vector<int64_t> moments;
    for (uint32_t begin = 0; begin < ends_.size();) {
      uint32_t comm_end = begin;
      std::vector<Operation> operations;
      std::vector<uint32_t> members;  // indexes of ranks
      while (comm_end < ends_.size() && ends_[comm_end].comm_id == ends_[begin].comm_id) {
        Operation op{comm_end, comm_end};
        while (op.end < ends_.size() && ends_[op.end].comm_id == ends_[begin].comm_id &&
               ends_[op.end].key == ends_[op.begin].key)
          ++op.end;
        comm_end = op.end;
        if (op.end - op.begin < 2) continue;
        for (uint32_t i = op.begin; i < op.end; ++i) members.push_back(index_of(ends_[i].rank));
        moments.push_back(ends_[op.begin + (op.end - op.begin) / 2].end_unix_ns);
        operations.push_back(op);
      }
      begin = comm_end;
      if (operations.empty()) continue;

      const std::vector<uint32_t> of_ends = members;
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      for (uint32_t i = 0; i < members.size(); ++i) local[members[i]] = i;
      Sets sets(members.size());
      size_t at = 0;
      for (const Operation& op : operations) {
        for (uint32_t i = 1; i < op.end - op.begin; ++i) sets.join(local[of_ends[at]], local[of_ends[at + i]]);
        at += op.end - op.begin;
      }
      std::map<uint32_t, size_t> part_of;  // root -> communicator
      std::vector<uint32_t> member(members.size());
      for (uint32_t i = 0; i < members.size(); ++i) {
        const auto [part, fresh] = part_of.try_emplace(sets.find(i), communicators_.size());
        if (fresh) communicators_.emplace_back();
        Communicator& communicator = communicators_[part->second];
        member[i] = static_cast<uint32_t>(communicator.ranks.size());
        communicator.ranks.push_back(members[i]);
      }
      at = 0;
      for (const Operation& op : operations) {
        Communicator& communicator = communicators_[part_of.at(sets.find(local[of_ends[at]]))];
        communicator.operations.push_back(op);
        for (uint32_t i = 0; i < op.end - op.begin; ++i) communicator.member.push_back(member[local[of_ends[at + i]]]);
        at += op.end - op.begin;
      }
    }
    for (const MessagePair& message : messages_) {
      if (usable(message)) moments.push_back(message.sent_unix_ns);
    }
    if (moments.empty()) return;
    // Nearly all of them: a clock that is years off must not stretch the axis.
    std::sort(moments.begin(), moments.end());
    const size_t cut = moments.size() / 50;
    const int64_t first = moments[cut], last = moments[moments.size() - 1 - cut];
    reference_ = first + (last - first) / 2;
    half_span_ns_ = std::max(1e6, static_cast<double>(last - first) / 2);
  }

  // A time of this rank on the axis as it is known so far, against the reference.
  double corrected_ns(uint32_t rank, int64_t unix_ns) const {
    const Estimate& known = estimates_[rank];
    return (static_cast<double>(unix_ns - reference_) - known.offset) / (1 + known.edge / half_span_ns_);
  }
  void correct() {
    corrected_.resize(ends_.size());
    for (const Communicator& communicator : communicators_) {
      size_t at = 0;
      for (const Operation& op : communicator.operations) {
        for (uint32_t i = op.begin; i < op.end; ++i)
          corrected_[i] = corrected_ns(communicator.ranks[communicator.member[at++]], ends_[i].end_unix_ns);
      }
    }
  }

  MemberEnds ends_of(const Communicator& communicator) const {
    MemberEnds out;
    out.members = communicator.ranks.size();
    out.member = communicator.member;
    out.end_ns.reserve(communicator.member.size());
    std::vector<double> ends;
    for (const Operation& op : communicator.operations) {
      out.begin.push_back(static_cast<uint32_t>(out.end_ns.size()));
      ends.assign(corrected_.begin() + op.begin, corrected_.begin() + op.end);
      out.end_ns.insert(out.end_ns.end(), ends.begin(), ends.end());
      const double moment = upper_median_of(std::move(ends));
      out.tau.push_back(std::clamp(moment / half_span_ns_, -2.0, 2.0));
      int64_t least = std::numeric_limits<int64_t>::max();
      for (uint32_t i = op.begin; i < op.end; ++i) {
        if (ends_[i].spent_ns > 0) least = std::min(least, ends_[i].spent_ns);
      }
      out.spread_ns.push_back(least == std::numeric_limits<int64_t>::max() ? 0
                                                                           : kSpreadShare * static_cast<double>(least));
    }
    out.begin.push_back(static_cast<uint32_t>(out.end_ns.size()));
    return out;
  }

  void one_pass(bool last) {
    OffsetSolver system;
    std::vector<Edge> edges;
    std::vector<double> bias_prior;  // of each communicator
    if (last) barriers_.assign(ranks_.size(), 0);
    for (const Communicator& communicator : communicators_) {
      const MemberFit fit =
          fit_members(ends_of(communicator), kDriftPrior * half_span_ns_, last ? kRounds : kRoundsFirstPass);
      system.begin_hub();
      for (size_t i = 0; i < communicator.ranks.size(); ++i) {
        const MemberClock& clock = fit.clocks[i];
        system.add_edge(communicator.ranks[i]);
        edges.push_back({clock.offset_ns, clock.edge_ns, clock.offset_variance, clock.edge_variance});
        if (last) barriers_[communicator.ranks[i]] += clock.ends;
      }
      bias_prior.push_back(std::max({kBiasLeastNs, kBiasOfNoise * fit.noise_ns, fit.spread_ns}));
    }
    system.finish(ranks_.size());
    join(system, edges, bias_prior, last);
    island_ = system.island();
    islands_ = system.island_count();
  }

  // Stage 2, and 5 in the last pass.
  void join(const OffsetSolver& system, const std::vector<Edge>& edges, const std::vector<double>& bias_prior,
            bool last) {
    const size_t count = edges.size();
    std::vector<double> offsets(count), gains(count), weights(count), gain_weights(count), bias(bias_prior);
    std::vector<double> trust(count, 1);
    for (size_t i = 0; i < count; ++i) {
      offsets[i] = edges[i].offset;
      gains[i] = edges[i].edge;
      gain_weights[i] = 1 / std::max(1.0, edges[i].edge_variance);
    }
    // What is left over, of all there is: the rest was used up by the answer.
    const double freedom = static_cast<double>(count) - static_cast<double>(ranks_.size() + communicators_.size()) +
                           static_cast<double>(system.island_count());
    std::vector<double> x;
    for (int round = 0; round < kJoinRounds; ++round) {
      for (size_t hub = 0; hub < system.hub_count(); ++hub) {
        for (uint32_t i = system.edges_begin(hub); i < system.edges_end(hub); ++i)
          weights[i] = trust[i] / (edges[i].offset_variance + bias[hub] * bias[hub]);
      }
      x = system.solve(offsets, weights);
      if (freedom < 1) break;  // nothing contradicts anything
      rescale(system, edges, system.residuals(offsets, weights, x), freedom, bias, trust);
    }
    std::vector<double> gain = system.solve(gains, gain_weights);
    around_median(system, x);
    around_median(system, gain);
    for (size_t i = 0; i < ranks_.size(); ++i) add(estimates_[i], x[i], gain[i]);
    if (!last) return;

    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    std::vector<double> offset_noise(count), gain_noise(count);
    for (int trial = 0; trial < kTrials; ++trial) {
      for (size_t hub = 0; hub < system.hub_count(); ++hub) {
        for (uint32_t i = system.edges_begin(hub); i < system.edges_end(hub); ++i) {
          offset_noise[i] = normal(random) * std::sqrt(edges[i].offset_variance + bias[hub] * bias[hub]);
          gain_noise[i] = normal(random) * std::sqrt(std::max(1.0, edges[i].edge_variance));
        }
      }
      const std::vector<double> offset_error = system.solve(offset_noise, weights);
      const std::vector<double> gain_error = system.solve(gain_noise, gain_weights);
      for (size_t i = 0; i < ranks_.size(); ++i) {
        estimates_[i].offset_variance += offset_error[i] * offset_error[i] / kTrials;
        estimates_[i].edge_variance += gain_error[i] * gain_error[i] / kTrials;
      }
    }
  }

  // The mean of an island with one clock in another century would carry all the others away.
  static void around_median(const OffsetSolver& system, std::vector<double>& x) {
    std::vector<std::vector<double>> of_island(system.island_count());
    for (size_t i = 0; i < x.size(); ++i) of_island[system.island()[i]].push_back(x[i]);
    std::vector<double> middle;
    for (std::vector<double>& values : of_island) middle.push_back(upper_median_of(std::move(values)));
    for (size_t i = 0; i < x.size(); ++i) x[i] -= middle[system.island()[i]];
  }

  // Biases so large that what is left over is as large as expected. Where a rank is in two communicators that
  // contradict each other nobody can say which of them is wrong, and to believe the one that fits better makes it fit
  // better still: so all are scaled alike, and only one that stands out far is set apart.
  static void rescale(const OffsetSolver& system, const std::vector<Edge>& edges, const std::vector<double>& left,
                      double freedom, std::vector<double>& bias, std::vector<double>& trust) {
    const double kept = freedom / static_cast<double>(edges.size());
    std::vector<double> squares(edges.size());
    std::vector<double> misfit(system.hub_count(), 0), statistical(system.hub_count(), 0);
    for (size_t hub = 0; hub < system.hub_count(); ++hub) {
      const double members = system.edges_end(hub) - system.edges_begin(hub);
      for (uint32_t i = system.edges_begin(hub); i < system.edges_end(hub); ++i) {
        const double variance = edges[i].offset_variance + bias[hub] * bias[hub];
        const double z = std::abs(left[i]) / std::sqrt(variance * std::min(1.0, kept));
        trust[i] = z <= 2 ? 1 : 2 / z;
        squares[i] = z * z;
        misfit[hub] += trust[i] * z * z / members;
        statistical[hub] += edges[i].offset_variance / members;
      }
    }
    // By the median: one communicator that tells nonsense must not make all the others look bad.
    const double typical = upper_median_of(std::move(squares)) / kMedianOfSquares;
    const double all = (kBiasPriorFreedom + typical * freedom) / (kBiasPriorFreedom + freedom);
    for (size_t hub = 0; hub < system.hub_count(); ++hub) {
      const double members = system.edges_end(hub) - system.edges_begin(hub);
      const bool stands_out = members >= kStandsOutMembers && misfit[hub] > kStandsOut * all;
      const double factor = stands_out ? misfit[hub] : all;
      const double square = factor * (statistical[hub] + bias[hub] * bias[hub]) - statistical[hub];
      bias[hub] = std::sqrt(std::max(kBiasLeastNs * kBiasLeastNs, square));
    }
  }

  // A correction on the axis that `known` gives: clock = t1 + o1 + d1 t1 with t1 = t + o2 + d2 t.
  void add(Estimate& known, double offset, double edge) const {
    const double drift = known.edge / half_span_ns_;
    known.offset += offset * (1 + drift);
    known.edge += edge * (1 + drift);
  }

  struct Crossing {  // messages between two islands, a < b
    struct Message {
      double tau;
      double delay_ns;  // as the axes of the islands are
    };
    std::vector<Message> there;  // from a to b
    std::vector<Message> back;
  };

  void join_by_messages(bool last) {
    group_ = island_;
    groups_ = islands_;
    std::map<std::pair<uint32_t, uint32_t>, Crossing> crossings;
    for (const BetweenIslands& message : between_) {
      const uint32_t a = island_[message.from], b = island_[message.to];
      const double sent = corrected_ns(message.from, message.sent_unix_ns);
      const double delay = corrected_ns(message.to, message.received_unix_ns) - sent;
      Crossing& crossing = crossings[{std::min(a, b), std::max(a, b)}];
      (a < b ? crossing.there : crossing.back).push_back({std::clamp(sent / half_span_ns_, -2.0, 2.0), delay});
    }
    OffsetSolver system;
    std::vector<Edge> edges;
    for (const auto& [pair, crossing] : crossings) {
      if (crossing.there.empty() || crossing.back.empty()) continue;  // a bound on one side says nothing of the other
      const Edge between = offset_between(crossing);
      system.begin_hub();
      system.add_edge(pair.first);
      system.add_edge(pair.second);
      edges.push_back({-between.offset / 2, -between.edge / 2, between.offset_variance / 2, between.edge_variance / 2});
      edges.push_back({between.offset / 2, between.edge / 2, between.offset_variance / 2, between.edge_variance / 2});
    }
    if (edges.empty()) return;
    system.finish(islands_);
    std::vector<double> offsets, gains, weights, gain_weights;
    for (const Edge& edge : edges) {
      offsets.push_back(edge.offset);
      gains.push_back(edge.edge);
      weights.push_back(1 / edge.offset_variance);
      gain_weights.push_back(1 / edge.edge_variance);
    }
    const std::vector<double> x = system.solve(offsets, weights);
    const std::vector<double> gain = system.solve(gains, gain_weights);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      add(estimates_[i], x[island_[i]], gain[island_[i]]);
      group_[i] = system.island()[island_[i]];
    }
    groups_ = system.island_count();
    if (!last) return;
    std::vector<double> variance(islands_, 0), gain_variance(islands_, 0);
    std::mt19937_64 random(2);
    std::normal_distribution<double> normal;
    for (int trial = 0; trial < kTrials; ++trial) {
      for (size_t i = 0; i < edges.size(); ++i) {
        offsets[i] = normal(random) * std::sqrt(edges[i].offset_variance);
        gains[i] = normal(random) * std::sqrt(edges[i].edge_variance);
      }
      const std::vector<double> error = system.solve(offsets, weights);
      const std::vector<double> gain_error = system.solve(gains, gain_weights);
      for (size_t i = 0; i < islands_; ++i) {
        variance[i] += error[i] * error[i] / kTrials;
        gain_variance[i] += gain_error[i] * gain_error[i] / kTrials;
      }
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      estimates_[i].offset_variance += variance[island_[i]];
      estimates_[i].edge_variance += gain_variance[island_[i]];
    }
  }

  // Axis of b against that of a: at most the least delay there, at least minus the least delay back. The truth is taken
  // to be anywhere between with the same right.
  Edge offset_between(const Crossing& crossing) const {
    double first = 2, last = -2;
    for (const auto* list : {&crossing.there, &crossing.back}) {
      for (const Crossing::Message& message : *list) {
        first = std::min(first, message.tau);
        last = std::max(last, message.tau);
      }
    }
    // By window, since with drift the least of all says little; but not where they are all of one moment.
    const size_t windows = last - first > 0.05 ? kMessageWindows : 1;
    constexpr double kNone = std::numeric_limits<double>::infinity();
    std::vector<std::array<double, 2>> least(windows, {kNone, kNone});
    for (size_t way = 0; way < 2; ++way) {
      for (const Crossing::Message& message : way == 0 ? crossing.there : crossing.back) {
        const double place = (message.tau - first) / std::max(1e-9, last - first) * static_cast<double>(windows);
        double& slot = least[std::min(windows - 1, static_cast<size_t>(std::max(0.0, place)))][way];
        slot = std::min(slot, message.delay_ns);
      }
    }
    double w = 0, wt = 0, wtt = 0, wm = 0, wtm = 0, narrowest = kNone;
    const double edge_prior = kDriftPrior * half_span_ns_;
    for (size_t i = 0; i < windows; ++i) {
      if (least[i][0] == kNone || least[i][1] == kNone) continue;
      const double middle = (least[i][0] - least[i][1]) / 2;
      const double half = std::max(kErrorLeastNs, (least[i][0] + least[i][1]) / 2);
      const double tau =
          windows == 1 ? (first + last) / 2 : first + (last - first) * (static_cast<double>(i) + 0.5) / kMessageWindows;
      const double weight = 3 / (half * half);
      narrowest = std::min(narrowest, half);
      w += weight;
      wt += weight * tau;
      wtt += weight * tau * tau;
      wm += weight * middle;
      wtm += weight * tau * middle;
    }
    if (w == 0) {  // never in the same window: the least of all there is, and what drift may add
      double there = kNone, back = kNone;
      for (const Crossing::Message& message : crossing.there) there = std::min(there, message.delay_ns);
      for (const Crossing::Message& message : crossing.back) back = std::min(back, message.delay_ns);
      const double half = std::max(kErrorLeastNs, std::abs(there + back) / 2) + edge_prior * (last - first);
      return {(there - back) / 2, 0, half * half / 3, edge_prior * edge_prior};
    }
    const double mean_tau = wt / w, mean = wm / w;
    const double along = wtt - wt * mean_tau;
    const double slope = (wtm - wt * mean) / (along + 1 / (edge_prior * edge_prior));
    Edge out;
    out.edge = slope;
    out.offset = mean - slope * mean_tau;
    out.edge_variance = 1 / (along + 1 / (edge_prior * edge_prior));
    // Messages that take longer there than back do so in every window: averaging does not help.
    out.offset_variance = narrowest * narrowest / 3 + mean_tau * mean_tau * out.edge_variance;
    return out;
  }

  std::vector<RankClock> clocks() {
    std::vector<std::vector<uint32_t>> members(groups_);
    for (uint32_t i = 0; i < ranks_.size(); ++i) members[group_[i]].push_back(i);
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    std::vector<RankClock> out(ranks_.size());
    for (size_t group = 0; group < members.size(); ++group) {
      const bool known = members[group].size() > 1;
      std::vector<double> offsets, edges;
      for (uint32_t i : members[group]) {
        offsets.push_back(estimates_[i].offset);
        edges.push_back(estimates_[i].edge);
      }
      const double offset = upper_median_of(std::move(offsets)), edge = upper_median_of(std::move(edges));
      for (uint32_t i : members[group]) {
        RankClock& clock = out[i];
        clock.rank = ranks_[i];
        if (!known) continue;
        const Estimate& estimate = estimates_[i];
        clock.known = true;
        clock.group = static_cast<int32_t>(group);
        // The axis is moved by -offset and turned by -edge; that is as seen by a clock with a drift of its own.
        Estimate moved = estimate;
        add(moved, -offset, -edge);
        clock.offset_ns = moved.offset;
        clock.drift_ppm = moved.edge / half_span_ns_ * 1e6;
        clock.error_ns =
            std::max(kErrorLeastNs, kErrorSigmas * std::sqrt(estimate.offset_variance + estimate.edge_variance));
        clock.barriers = barriers_.empty() ? 0 : barriers_[i];
      }
    }
    return out;
  }

  std::span<const MessagePair> messages_;
  std::vector<BarrierEnd> ends_;  // by communicator, operation, rank
  std::vector<double> corrected_;
  std::vector<Rank> ranks_;
  std::vector<Communicator> communicators_;
  int64_t reference_ = 0;
  double half_span_ns_ = 1e6;
  std::vector<Estimate> estimates_;
  std::vector<size_t> barriers_;
  std::vector<uint32_t> island_;  // of each rank: connected through communicators
  size_t islands_ = 0;
  struct BetweenIslands {  // a message; from and to are indexes of ranks
    uint32_t from;
    uint32_t to;
    int64_t sent_unix_ns;
    int64_t received_unix_ns;
  };
  std::vector<BetweenIslands> between_;
  std::vector<uint32_t> group_;  // and through messages
  size_t groups_ = 0;
};

}  // namespace

ClockAlignment ClockAlignment::estimate(std::span<const BarrierEnd> ends, std::span<const MessagePair> messages) {
  ClockAlignment out;
  Estimator estimator(ends, messages);
  if (estimator.empty()) return out;
  out.clocks_ = estimator.run();
  out.reference_unix_ns_ = estimator.reference();
  // A message that still arrives before it was sent: these clocks are off by at least that.
  for (const MessagePair& message : messages) {
    const double between = out.error_between_ns(message.from_rank, message.to_rank);
    if (!std::isfinite(between)) continue;
    // What is told from outside may be any number: compared only where a difference means something.
    if (!Estimator::usable(message)) continue;
    const double early = static_cast<double>(out.job_time(message.from_rank, message.sent_unix_ns) -
                                             out.job_time(message.to_rank, message.received_unix_ns));
    if (early <= between) continue;
    for (Rank rank : {message.from_rank, message.to_rank}) {
      RankClock& clock = *std::lower_bound(out.clocks_.begin(), out.clocks_.end(), rank,
                                           [](const RankClock& entry, Rank wanted) { return entry.rank < wanted; });
      clock.error_ns = std::max(clock.error_ns, early);
    }
  }
  return out;
}

const RankClock* ClockAlignment::clock(Rank rank) const {
  const auto found = std::lower_bound(clocks_.begin(), clocks_.end(), rank,
                                      [](const RankClock& clock, Rank wanted) { return clock.rank < wanted; });
  return found == clocks_.end() || found->rank != rank ? nullptr : &*found;
}

int64_t ClockAlignment::job_time(Rank rank, int64_t unix_ns) const {
  const RankClock* known = clock(rank);
  if (known == nullptr || !known->known) return unix_ns;
  const double since = static_cast<double>(unix_ns) - static_cast<double>(reference_unix_ns_);
  // The correction alone is rounded: a Unix time in nanoseconds does not fit a double.
  const double correction = (known->offset_ns + known->drift_ppm * 1e-6 * since) / (1 + known->drift_ppm * 1e-6);
  int64_t moved = 0;
  // Only nonsense from outside is that far from any clock.
  return __builtin_sub_overflow(unix_ns, static_cast<int64_t>(std::llround(correction)), &moved) ? unix_ns : moved;
}

double ClockAlignment::error_ns() const {
  double most = 0;
  for (const RankClock& clock : clocks_) {
    if (clock.known) most = std::max(most, clock.error_ns);
  }
  return most;
}

double ClockAlignment::error_between_ns(Rank a, Rank b) const {
  if (a == b) return 0;
  const RankClock* first = clock(a);
  const RankClock* second = clock(b);
  if (first == nullptr || second == nullptr || !first->known || !second->known || first->group != second->group)
    return std::numeric_limits<double>::infinity();
  return std::hypot(first->error_ns, second->error_ns);
}

}  // namespace lockstep
