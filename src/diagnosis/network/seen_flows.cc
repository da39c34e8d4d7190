#include "diagnosis/network/seen_flows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "diagnosis/flow_steps.h"

namespace lockstep {
namespace {

constexpr size_t kPastSteps = 8, kPastStepsMin = 3;
// A flow that takes 15 % longer than usual is within what healthy ones do from minute to minute.
const double kLogSlowMin = std::log(1.15);

struct Key {
  Rank from;
  CommId comm_id;
  int32_t peer = 0;
  auto operator<=>(const Key&) const = default;
};
struct Sum {
  double bytes = 0, wire_ns = 0;
  size_t steps = 0;
  double rate() const { return bytes / wire_ns; }
};

std::map<Key, Sum> sums_over(const JobWindow& window, const std::vector<StepNumber>& steps,
                             const std::vector<bool>& looked_at) {
  std::map<Key, Sum> sums;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (!frame.knows(slot) || slot >= looked_at.size() || !looked_at[slot]) continue;
      for (const FlowStep& flow : frame.rows[slot].summary.flows) {
        if (!flow.send || flow.bytes <= 0 || flow.wire_ns <= 0) continue;
        Sum& sum = sums[{window.rank_of(slot), flow.comm_id, flow.peer}];
        sum.bytes += static_cast<double>(flow.bytes);
        sum.wire_ns += static_cast<double>(flow.wire_ns);
        ++sum.steps;
      }
    }
  }
  return sums;
}

int size_class(const Sum& sum) {
  return static_cast<int>(std::lround(std::log2(std::max(1.0, sum.bytes / static_cast<double>(sum.steps)))));
}

// By size: the rate that the faster quarter reaches.
std::map<int, double> rates_of_like(const std::map<Key, Sum>& sums) {
  std::map<int, std::vector<double>> by_size;
  for (const auto& [key, sum] : sums) by_size[size_class(sum)].push_back(sum.rate());
  std::map<int, double> like;
  for (auto& [size, rates] : by_size) {
    const auto at = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() * 3 / 4);
    std::nth_element(rates.begin(), at, rates.end());
    like[size] = *at;
  }
  return like;
}

}  // namespace

std::vector<SeenFlow> see_flows(const JobWindow& window, const std::vector<StepNumber>& steps, StepNumber since,
                                const FlowSenders& senders) {
  if (steps.empty()) return {};
  std::vector<StepNumber> before;
  for (StepNumber number : window.complete_steps())
    if (number < since) before.push_back(number);
  before = last_steps_with_flows(window, before, kPastSteps);
  std::vector<bool> looked_at(window.slots());
  const size_t stride = std::max<size_t>(1, (window.slots() + senders.others_max - 1) / senders.others_max);
  for (size_t slot = 0; slot < looked_at.size(); slot += stride) looked_at[slot] = true;
  for (Rank rank : senders.ranks)
    if (const int32_t slot = window.slot_of(rank); slot >= 0) looked_at[static_cast<size_t>(slot)] = true;
  const std::map<Key, Sum> now = sums_over(window, steps, looked_at), past = sums_over(window, before, looked_at);
  const std::map<int, double> like = rates_of_like(now);
  std::vector<SeenFlow> flows;
  double worst = kLogSlowMin;
  for (const auto& [key, sum] : now) {
    SeenFlow flow{.from = key.from, .to = window.world_rank(key.comm_id, key.peer), .rate = sum.rate()};
    if (flow.to == kNoRank) continue;
    const auto known = past.find(key);
    flow.usual =
        known != past.end() && known->second.steps >= kPastStepsMin ? known->second.rate() : like.at(size_class(sum));
    worst = std::max(worst, std::log(flow.usual / flow.rate));
    flows.push_back(flow);
  }
  bool any = false;
  for (SeenFlow& flow : flows) {
    flow.slow = std::log(flow.usual / flow.rate) >= std::max(kLogSlowMin, worst / 2);
    any |= flow.slow;
  }
  if (!any) flows.clear();
  return flows;
}

}  // namespace lockstep
