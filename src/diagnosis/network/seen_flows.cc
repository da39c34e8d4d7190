#include "diagnosis/network/seen_flows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/evenly.h"
#include "diagnosis/flow_steps.h"

namespace lockstep {
namespace {

constexpr size_t kPastSteps = 8, kPastStepsMin = 3;
// A flow that takes 15 % longer than usual is within what healthy ones do from minute to minute.
const double kLogSlowMin = std::log(1.15);
// Flows are added up of so many times as many as are kept, both directions counted: slow ones among them are few.
constexpr size_t kRoom = 4;

struct Key {
  Rank from, to;
  auto operator<=>(const Key&) const = default;
};
struct Sum {
  double bytes = 0, wire_ns = 0;
  size_t steps = 0;
  StepNumber newest = kNoStep;
  double rate() const { return bytes / wire_ns; }
};

bool is_between_hosts(const JobWindow& window, const Key& key) {
  const auto from = window.ranks().find(key.from), to = window.ranks().find(key.to);
  return from != window.ranks().end() && to != window.ranks().end() && from->second.host != to->second.host;
}

std::map<Key, Sum> sums_over(const JobWindow& window, const std::vector<StepNumber>& steps,
                             const std::vector<bool>& looked_at) {
  std::map<Key, Sum> sums;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (!frame.knows(slot) || slot >= looked_at.size() || !looked_at[slot]) continue;
      for (const FlowStep& flow : frame.rows[slot].summary.flows) {
        if (!flow.send || flow.bytes <= 0 || flow.wire_ns <= 0) continue;
        const Key key{window.rank_of(slot), window.world_rank(flow.comm_id, flow.peer)};
        if (key.to == kNoRank) continue;
        Sum& sum = sums[key];
        sum.bytes += static_cast<double>(flow.bytes);
        sum.wire_ns += static_cast<double>(flow.wire_ns);
        sum.steps += sum.newest == number ? 0 : 1;
        sum.newest = number;
      }
    }
  }
  std::erase_if(sums, [&](const auto& entry) { return !is_between_hosts(window, entry.first); });
  return sums;
}

// By slot. The newest step tells how many flows a rank has.
std::vector<bool> slots_of(const FlowSenders& senders, const JobWindow& window, const StepFrame& newest) {
  size_t flows = 1;
  for (const RankStep& row : newest.rows) flows += row.summary.flows.size();
  const size_t others =
      std::min(senders.others_max, std::max<size_t>(1, window.slots() * kRoom * senders.flows_max / flows));
  std::vector<bool> looked_at(window.slots());
  for (size_t slot : evenly(window.slots(), others)) looked_at[slot] = true;
  for (Rank rank : senders.ranks)
    if (const int32_t slot = window.slot_of(rank); slot >= 0) looked_at[static_cast<size_t>(slot)] = true;
  return looked_at;
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

// Half of what is left for slow ones, half for others: each needs the other beside it.
void thin_out(std::vector<SeenFlow>& flows, size_t flows_max) {
  if (flows.size() <= flows_max) return;
  const auto fast = std::stable_partition(flows.begin(), flows.end(), [](const SeenFlow& flow) { return flow.slow; });
  const auto slow_count = static_cast<size_t>(fast - flows.begin());
  std::vector<SeenFlow> kept;
  for (size_t at : evenly(slow_count, flows_max / 2)) kept.push_back(flows[at]);
  for (size_t at : evenly(flows.size() - slow_count, flows_max - kept.size())) kept.push_back(flows[slow_count + at]);
  flows = std::move(kept);
}

}  // namespace

std::vector<SeenFlow> see_flows(const JobWindow& window, const std::vector<StepNumber>& steps, StepNumber since,
                                const FlowSenders& senders) {
  if (steps.empty()) return {};
  std::vector<StepNumber> before;
  for (StepNumber number : window.complete_steps())
    if (number < since) before.push_back(number);
  before = last_steps_with_flows(window, before, kPastSteps);
  const std::vector<bool> looked_at = slots_of(senders, window, *window.frame(steps.back()));
  const std::map<Key, Sum> now = sums_over(window, steps, looked_at), past = sums_over(window, before, looked_at);
  const std::map<int, double> like = rates_of_like(now);
  std::vector<SeenFlow> flows;
  double worst = kLogSlowMin;
  for (const auto& [key, sum] : now) {
    SeenFlow flow{.from = key.from, .to = key.to, .rate = sum.rate()};
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
  thin_out(flows, senders.flows_max);
  return flows;
}

}  // namespace lockstep
