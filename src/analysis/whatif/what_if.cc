#include "analysis/whatif/what_if.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "analysis/whatif/replay.h"
#include "analysis/whatif/shares.h"
#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Below this part of a step a loss is noise, and shares of it mean nothing.
constexpr double kLossMin = 0.002;

class Analysis {
 public:
  Analysis(const OpGraph& graph, const WhatIfOptions& options)
      : graph_(graph), options_(options), replayer_(graph), ideal_(ideal_lengths(graph)), mixed_(graph.size()) {}

  WhatIf run();

 private:
  // Mean step where `chosen` operations have the lengths `inside` and all others `outside`.
  template <typename Choice>
  double mixed(const std::vector<double>& inside, const std::vector<double>& outside, const Choice& chosen) {
    for (size_t op = 0; op < graph_.size(); ++op) mixed_[op] = chosen(op) ? inside[op] : outside[op];
    return replayer_.mean_step_s(mixed_);
  }
  template <typename Choice>
  double slowdown_of(const Choice& chosen) {
    return result_.ideal_s > 0 ? mixed(graph_.length_s, ideal_, chosen) / result_.ideal_s : 1;
  }
  template <typename Choice>
  double recovered_by(const Choice& chosen) {
    return result_.replayed_s - mixed(ideal_, graph_.length_s, chosen);
  }
  const Worker& worker_of(size_t op) const { return graph_.workers[static_cast<size_t>(graph_.worker[op])]; }
  double loss_s() const { return result_.recorded_s - result_.ideal_s; }
  double share_of(double recovered) const {
    const double loss = result_.replayed_s - result_.ideal_s;
    return loss > kLossMin * result_.ideal_s ? recovered / loss : kUnknown;
  }

  void whole();
  void by_type();
  void by_rank_and_stage();
  void by_worker();
  void by_cause();
  void correlate();

  const OpGraph& graph_;
  const WhatIfOptions& options_;
  Replayer replayer_;
  const std::vector<double> ideal_;
  std::vector<double> mixed_;
  WhatIf result_;
  std::vector<uint8_t> worst_;  // by worker
};

void Analysis::whole() {
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  result_.operations = graph_.size();
  result_.steps = graph_.steps.size();
  result_.gpus = graph_.gpus;
  for (const Worker& worker : graph_.workers) {
    result_.dp_ranks = std::max(result_.dp_ranks, worker.dp + 1);
    result_.stages = std::max(result_.stages, worker.stage + 1);
  }
  result_.recorded_s = mean(graph_.step_s);
  const std::vector<double> replayed = replayer_.run(graph_.length_s);
  const std::vector<double> ideal = replayer_.run(ideal_);
  result_.replayed_s = mean(replayed);
  result_.ideal_s = mean(ideal);
  result_.slowdown = result_.ideal_s > 0 ? result_.replayed_s / result_.ideal_s : 1;
  if (result_.recorded_s > 0)
    result_.replay_error = std::abs(result_.replayed_s - result_.recorded_s) / result_.recorded_s;
  for (size_t step = 0; step < replayed.size(); ++step) {
    if (graph_.step_s[step] > 0)
      result_.replay_error_worst =
          std::max(result_.replay_error_worst, std::abs(replayed[step] - graph_.step_s[step]) / graph_.step_s[step]);
    if (ideal[step] > 0) result_.slowest_step = std::max(result_.slowest_step, replayed[step] / ideal[step]);
  }
}

void Analysis::by_type() {
  std::vector<std::string> names;
  std::vector<size_t> name_of(graph_.types.size());
  std::vector<uint8_t> used(graph_.types.size(), 0);
  for (const uint16_t type : graph_.type) used[type] = 1;
  for (size_t type = 0; type < graph_.types.size(); ++type) {
    if (used[type] == 0) continue;
    const std::string& name = graph_.types[type].reported_as;
    const auto found = std::find(names.begin(), names.end(), name);
    name_of[type] = static_cast<size_t>(found - names.begin());
    if (found == names.end()) names.push_back(name);
  }
  std::vector<double> alone(names.size()), shares(names.size());
  for (size_t name = 0; name < names.size(); ++name) {
    const auto chosen = [&](size_t op) { return name_of[graph_.type[op]] == name; };
    alone[name] = recovered_by(chosen);
    result_.types.push_back({names[name], slowdown_of(chosen), alone[name], 0});
  }
  result_.types_unexplained = split_shares(loss_s(), result_.replayed_s - result_.ideal_s, alone, shares);
  for (size_t name = 0; name < names.size(); ++name) result_.types[name].share = shares[name];
  std::stable_sort(result_.types.begin(), result_.types.end(),
                   [](const Part& a, const Part& b) { return a.slowdown > b.slowdown; });
}

void Analysis::by_rank_and_stage() {
  for (int32_t dp = 0; dp < result_.dp_ranks; ++dp)
    result_.dp_slowdown.push_back(slowdown_of([&](size_t op) { return worker_of(op).dp == dp; }));
  for (int32_t stage = 0; stage < result_.stages; ++stage)
    result_.stage_slowdown.push_back(slowdown_of([&](size_t op) { return worker_of(op).stage == stage; }));
}

void Analysis::by_worker() {
  const size_t count = graph_.workers.size();
  const bool grid = result_.dp_ranks > 0 && result_.stages > 0;
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> estimate(count, kUnknown), exact(count, kUnknown);
  const auto replay = [&](size_t worker) {
    exact[worker] = slowdown_of([&](size_t op) { return graph_.worker[op] == static_cast<int32_t>(worker); });
  };
  for (size_t worker = 0; worker < count; ++worker) {
    const Worker& one = graph_.workers[worker];
    if (grid)
      estimate[worker] = std::min(result_.dp_slowdown[static_cast<size_t>(one.dp)],
                                  result_.stage_slowdown[static_cast<size_t>(one.stage)]);
  }
  if (count <= options_.exact_workers_max || !grid) {
    // Without a grid there is nothing to choose by; the most that is done is bounded all the same.
    for (size_t worker = 0; worker < std::min(count, options_.exact_workers_max); ++worker) replay(worker);
  }
  const auto worse = [&](const std::vector<double>& by) {
    return [&](size_t a, size_t b) {
      const double x = std::isnan(by[a]) ? 0 : by[a], y = std::isnan(by[b]) ? 0 : by[b];
      return x != y ? x > y : graph_.workers[a].rank < graph_.workers[b].rank;
    };
  };
  std::sort(order.begin(), order.end(), worse(grid ? estimate : exact));
  const auto chosen = static_cast<size_t>(std::ceil(static_cast<double>(count) * kWorstWorkers - 1e-9));
  worst_.assign(count, 0);
  for (size_t i = 0; i < std::max<size_t>(1, chosen); ++i) {
    worst_[order[i]] = 1;
    result_.worst_ranks.push_back(graph_.workers[order[i]].rank);
  }
  if (count > options_.exact_workers_max && grid) {
    for (size_t i = 0; i < options_.exact_workers_max; ++i) replay(order[i]);
  }
  std::sort(order.begin(), order.end(), worse(exact));
  for (const size_t worker : order)
    result_.workers.push_back({graph_.workers[worker], exact[worker], grid ? estimate[worker] : exact[worker]});
}

void Analysis::by_cause() {
  // A cause is a choice of operations and what they would have taken without it. Where several choose an operation, the
  // first in this list counts when all are fixed together.
  struct Cause {
    std::string name;
    const std::vector<double>& fixed;
    std::vector<uint8_t> chosen;  // by operation
  };
  const std::vector<double> even = even_batches(graph_);
  std::vector<Cause> causes;
  const auto add = [&](std::string name, const std::vector<double>& fixed, const auto& chosen) {
    Cause& cause = causes.emplace_back(Cause{std::move(name), fixed, std::vector<uint8_t>(graph_.size())});
    for (size_t op = 0; op < graph_.size(); ++op) cause.chosen[op] = chosen(op) ? 1 : 0;
  };
  const std::vector<Rank>& ranks = result_.worst_ranks;
  add(ranks.size() == 1 ? format("worst worker (rank %d)", ranks[0].value())
                        : format("worst %zu workers (ranks %s)", ranks.size(), human_ranks(ranks, 4).c_str()),
      ideal_, [&](size_t op) { return worst_[static_cast<size_t>(graph_.worker[op])] != 0; });
  if (result_.stages > 1)
    add(format("last stage (%d)", result_.stages - 1), ideal_,
        [&](size_t op) { return worker_of(op).stage == result_.stages - 1; });
  if (std::any_of(graph_.batch.begin(), graph_.batch.end(), [](int32_t batch) { return batch >= 0; }))
    add("uneven micro-batches", even, [&](size_t op) { return graph_.batch[op] >= 0; });
  add("communication", ideal_, [&](size_t op) { return graph_.types[graph_.type[op]].communication; });

  std::vector<double> together = graph_.length_s, alone, shares(causes.size()), kept(graph_.size());
  for (auto cause = causes.rbegin(); cause != causes.rend(); ++cause) {
    for (size_t op = 0; op < graph_.size(); ++op) {
      if (cause->chosen[op] != 0) together[op] = cause->fixed[op];
    }
  }
  for (const Cause& cause : causes) {
    const auto chosen = [&](size_t op) { return cause.chosen[op] != 0; };
    alone.push_back(result_.replayed_s - mixed(cause.fixed, graph_.length_s, chosen));
    for (size_t op = 0; op < graph_.size(); ++op)
      kept[op] = ideal_[op] + (chosen(op) ? graph_.length_s[op] - cause.fixed[op] : 0);
    const double slowdown = result_.ideal_s > 0 ? replayer_.mean_step_s(kept) / result_.ideal_s : 1;
    result_.causes.push_back({cause.name, slowdown, alone.back(), 0});
  }
  // No more than the replay knows of: what is beyond its own loss lies between operations, where nothing is recorded.
  const double joint =
      std::min(result_.replayed_s - replayer_.mean_step_s(together), result_.replayed_s - result_.ideal_s);
  result_.causes_unexplained = split_shares(loss_s(), joint, alone, shares);
  for (size_t i = 0; i < causes.size(); ++i) result_.causes[i].share = shares[i];
  std::stable_sort(result_.causes.begin(), result_.causes.end(),
                   [](const Part& a, const Part& b) { return a.share > b.share; });
  result_.worst_workers_share = share_of(alone[0]);
  result_.last_stage_share = result_.stages > 1 ? share_of(alone[1]) : kUnknown;
}

void Analysis::correlate() {
  struct Pair {
    double forward = kUnknown, backward = kUnknown;
  };
  std::map<std::tuple<int32_t, int32_t, int32_t>, Pair> pairs;  // by worker, step and micro-batch
  for (size_t op = 0; op < graph_.size(); ++op) {
    const OpRole role = graph_.types[graph_.type[op]].role;
    if (graph_.batch[op] < 0 || role == OpRole::kOther) continue;
    Pair& pair = pairs[{graph_.worker[op], graph_.step[op], graph_.batch[op]}];
    (role == OpRole::kForward ? pair.forward : pair.backward) = graph_.length_s[op];
  }
  double xx = 0, xy = 0, yy = 0;
  for (auto at = pairs.begin(); at != pairs.end();) {
    const int32_t worker = std::get<0>(at->first);
    double x = 0, y = 0, count = 0;
    auto end = at;
    for (; end != pairs.end() && std::get<0>(end->first) == worker; ++end) {
      if (std::isnan(end->second.forward + end->second.backward)) continue;
      x += end->second.forward;
      y += end->second.backward;
      ++count;
    }
    for (; at != end; ++at) {
      if (std::isnan(at->second.forward + at->second.backward)) continue;
      const double dx = at->second.forward - x / count, dy = at->second.backward - y / count;
      xx += dx * dx;
      xy += dx * dy;
      yy += dy * dy;
    }
  }
  result_.forward_backward_correlation = xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kUnknown;
}

WhatIf Analysis::run() {
  whole();
  by_type();
  by_rank_and_stage();
  by_worker();
  by_cause();
  correlate();
  return std::move(result_);
}

}  // namespace

WhatIf what_if(const OpGraph& graph, const WhatIfOptions& options) {
  return Analysis(graph, options).run();
}

std::string sentence_of(const WhatIf& result) {
  const double lost = result.recorded_s > 0 ? (result.recorded_s - result.ideal_s) / result.recorded_s : 0;
  if (lost < 0.03)
    return format("Steps are within %.1f %% of what the same work takes when evenly spread: nothing to win.",
                  std::max(0.0, lost) * 100);
  std::string text =
      format("%.0f %% of each step is lost: %s where the same work evenly spread takes %s.", lost * 100,
             human_duration(result.recorded_s * 1e9).c_str(), human_duration(result.ideal_s * 1e9).c_str());
  const auto most = result.causes.begin();  // by share
  if (result.replay_error > 0.05)
    return text + format(" The replay misses the recorded step by %.1f %%, so what follows is not to be relied on.",
                         result.replay_error * 100);
  if (most != result.causes.end() && most->share >= 0.5) {
    text += format(" Most of it (%.0f %%): %s.", most->share * 100, most->name.c_str());
  } else if (most != result.causes.end() && most->share >= 0.2) {
    text +=
        format(" No single cause has half of it; the largest are %s (%.0f %%)", most->name.c_str(), most->share * 100);
    for (const Part& part : result.causes) {
      if (&part != &*most && part.share >= 0.2)
        text += format(" and %s (%.0f %%)", part.name.c_str(), part.share * 100);
    }
    text += ".";
  } else {
    text += " No cause that is looked for explains it.";
  }
  if (result.forward_backward_correlation >= 0.9 && result.causes_unexplained < 0.9)
    text += " Micro-batches that are slow forward are slow backward too: their work differs (sequence lengths).";
  return text;
}

}  // namespace lockstep
