// A job with made-up clocks, for tests and for bench/results/alignment.md: rank = (stage * dp + replica) * tp + shard.
// In every step each tp group, then each dp group leaves collectives together, give or take what is said below;
// neighbouring stages send each other a message both ways.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "analysis/clocks/clock_alignment.h"
#include "base/median.h"

namespace lockstep::testing {

struct ClockPlan {
  int32_t tp = 2, dp = 2, pp = 2;
  int64_t steps = 64;
  double step_s = 1;
  double offset_s = 2;       // clocks are off by up to so much, either way
  double drift_ppm = 50;     // and drift by up to so much
  double exit_us = 5;        // mean of how much too late a rank leaves (exponential)
  double ring_us = 4;        // and up to so much either way, always the same in one communicator
  double late_share = 0.02;  // of ends: far too late,
  double late_ms = 5;        // by up to so much
  double silent_share = 0;   // of ranks: send nothing
  double row_loss = 0;       // of rows of the others
  int32_t noisy_comms = 0;   // so many dp groups leave anything but together:
  double noisy_us = 500;
  bool world = false;  // one communicator of all ranks, once a step
  bool messages = true;
  double message_us = 15;    // a message takes so long at least,
  double message_late = 50;  // and mostly up to so much (us) more
  int messages_per_step = 4;
  bool summaries = true;      // one end per communicator and step, rounded to 1,024 ns; else ops_per_step ends
  int64_t ops_per_step = 20;  // of detail, in the last step only
  uint32_t seed = 1;

  int32_t ranks() const { return tp * dp * pp; }
};

class MadeUpClocks {
 public:
  static constexpr int64_t kStartNs = 1'800'000'000'000'000'000;

  explicit MadeUpClocks(const ClockPlan& plan) : plan_(plan), random_(plan.seed) {
    const size_t ranks = static_cast<size_t>(plan.ranks());
    for (size_t i = 0; i < ranks; ++i) {
      offset_ns_.push_back(either_way(plan.offset_s * 1e9));
      drift_.push_back(either_way(plan.drift_ppm * 1e-6));
      silent_.push_back(uniform(0, 1) < plan.silent_share);
    }
    make();
  }

  std::vector<BarrierEnd> ends;
  std::vector<MessagePair> messages;

  bool silent(Rank rank) const { return silent_[index_of(rank)]; }
  // What its clock shows at that moment after the start.
  int64_t shown(Rank rank, double ns) const {
    const size_t i = index_of(rank);
    return kStartNs + static_cast<int64_t>(std::llround(ns + offset_ns_[i] + drift_[i] * ns));
  }

  struct Judged {
    size_t ranks = 0;  // that are known
    size_t unknown = 0;
    double p50_us = 0, p99_us = 0, worst_us = 0;
    double bar_p50_us = 0, bar_worst_us = 0;
    double within = 0;  // share of ranks whose truth lies within the error bar
  };
  // Over the ranks of the group; the axis itself is free, so their median is taken for it.
  Judged judge(const ClockAlignment& alignment, int32_t group = 0) const {
    std::vector<double> worst(offset_ns_.size(), 0);
    std::vector<Rank> known;
    Judged out;
    for (Rank rank : all_ranks(plan_.ranks())) {
      const RankClock* clock = alignment.clock(rank);
      if (clock != nullptr && clock->known && clock->group == group) {
        known.push_back(rank);
      } else {
        ++out.unknown;
      }
    }
    out.ranks = known.size();
    if (known.empty()) return out;
    const double length = static_cast<double>(plan_.steps) * plan_.step_s * 1e9;
    for (double part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      std::vector<double> errors;
      for (Rank rank : known)
        errors.push_back(static_cast<double>(alignment.job_time(rank, shown(rank, part * length)) - kStartNs) -
                         part * length);
      const double axis = upper_median_of(errors);
      for (size_t i = 0; i < known.size(); ++i) {
        double& entry = worst[index_of(known[i])];
        entry = std::max(entry, std::abs(errors[i] - axis));
      }
    }
    std::vector<double> errors, bars;
    for (Rank rank : known) {
      const double error = worst[index_of(rank)], bar = alignment.clock(rank)->error_ns;
      errors.push_back(error / 1e3);
      bars.push_back(bar / 1e3);
      out.within += (error <= bar ? 1.0 : 0.0) / static_cast<double>(known.size());
    }
    std::sort(errors.begin(), errors.end());
    std::sort(bars.begin(), bars.end());
    out.p50_us = errors[errors.size() / 2];
    out.p99_us = errors[(errors.size() - 1) * 99 / 100];
    out.worst_us = errors.back();
    out.bar_p50_us = bars[bars.size() / 2];
    out.bar_worst_us = bars.back();
    return out;
  }

 private:
  double uniform(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  double either_way(double most) { return uniform(-most, most); }
  double exponential(double mean) { return mean <= 0 ? 0 : std::exponential_distribution<double>(1 / mean)(random_); }

  struct Group {
    CommId comm_id;
    std::vector<Rank> ranks;
    std::vector<double> ring_ns;
    double exit_ns;
  };
  void add_group(std::vector<Rank> ranks, double exit_us) {
    if (ranks.size() < 2) return;
    Group group{CommId{0x1000 + groups_.size()}, std::move(ranks), {}, exit_us * 1e3};
    for (size_t i = 0; i < group.ranks.size(); ++i) group.ring_ns.push_back(either_way(plan_.ring_us * 1e3));
    groups_.push_back(std::move(group));
  }
  Rank rank_of(int32_t stage, int32_t replica, int32_t shard) const {
    return Rank{(stage * plan_.dp + replica) * plan_.tp + shard};
  }

  void leave(const Group& group, uint64_t key, double at_ns, const std::vector<bool>& lost, bool rounded) {
    for (size_t i = 0; i < group.ranks.size(); ++i) {
      double end = at_ns + exponential(group.exit_ns) + group.ring_ns[i];
      if (uniform(0, 1) < plan_.late_share) end += uniform(0, plan_.late_ms * 1e6);
      const Rank rank = group.ranks[i];
      if (silent_[index_of(rank)] || lost[index_of(rank)]) continue;
      int64_t shown_ns = shown(rank, end);
      if (rounded) shown_ns = (shown_ns + 512) / 1024 * 1024;
      ends.push_back({group.comm_id, key, rank, shown_ns, 200'000});
    }
  }

  void make() {
    for (int32_t stage = 0; stage < plan_.pp; ++stage) {
      for (int32_t replica = 0; replica < plan_.dp; ++replica) {
        std::vector<Rank> ranks;
        for (int32_t shard = 0; shard < plan_.tp; ++shard) ranks.push_back(rank_of(stage, replica, shard));
        add_group(std::move(ranks), plan_.exit_us);
      }
      for (int32_t shard = 0; shard < plan_.tp; ++shard) {
        std::vector<Rank> ranks;
        for (int32_t replica = 0; replica < plan_.dp; ++replica) ranks.push_back(rank_of(stage, replica, shard));
        const bool noisy = shard + stage * plan_.tp < plan_.noisy_comms;
        add_group(std::move(ranks), noisy ? plan_.noisy_us : plan_.exit_us);
      }
    }
    if (plan_.world) {
      std::vector<Rank> all;
      for (Rank rank : all_ranks(plan_.ranks())) all.push_back(rank);
      add_group(std::move(all), plan_.exit_us);
    }
    std::vector<bool> lost(offset_ns_.size(), false);
    for (StepNumber step = 0_step; step < StepNumber{plan_.steps}; ++step) {
      const double begin_ns = static_cast<double>(step.value()) * plan_.step_s * 1e9;
      for (size_t i = 0; i < lost.size(); ++i) lost[i] = plan_.row_loss > 0 && uniform(0, 1) < plan_.row_loss;
      if (plan_.summaries) {
        for (const Group& group : groups_)
          leave(group, kStepKey + static_cast<uint64_t>(step.value()),
                begin_ns + uniform(0.8, 1.0) * plan_.step_s * 1e9, lost, true);
      }
      if (step + 1 == StepNumber{plan_.steps}) detail(begin_ns, lost);
      if (plan_.messages) send(begin_ns);
    }
  }
  void detail(double begin_ns, const std::vector<bool>& lost) {
    if (plan_.summaries) return;
    for (int64_t op = 0; op < plan_.ops_per_step; ++op) {
      for (const Group& group : groups_) {
        const double part = (static_cast<double>(op) + 0.5) / static_cast<double>(plan_.ops_per_step);
        leave(group, static_cast<uint64_t>(op) + 1, begin_ns + part * plan_.step_s * 1e9, lost, false);
      }
    }
  }
  void send(double begin_ns) {
    for (int32_t stage = 0; stage + 1 < plan_.pp; ++stage) {
      for (int32_t replica = 0; replica < plan_.dp; ++replica) {
        for (int32_t shard = 0; shard < plan_.tp; ++shard) {
          for (int i = 0; i < plan_.messages_per_step * 2; ++i) {
            Rank from = rank_of(stage, replica, shard), to = rank_of(stage + 1, replica, shard);
            if (i % 2 == 1) std::swap(from, to);
            if (silent(from) || silent(to)) continue;
            const double sent = begin_ns + uniform(0, 0.7) * plan_.step_s * 1e9;
            const double received = sent + (plan_.message_us + uniform(0, plan_.message_late)) * 1e3;
            messages.push_back({from, to, shown(from, sent), shown(to, received)});
          }
        }
      }
    }
  }

  const ClockPlan plan_;
  std::mt19937 random_;
  std::vector<double> offset_ns_, drift_;
  std::vector<bool> silent_;
  std::vector<Group> groups_;
};

}  // namespace lockstep::testing
