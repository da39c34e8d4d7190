#include "diagnosis/detectors/slow_link/slow_flow_rule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "diagnosis/flow_steps.h"
#include "diagnosis/price.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep::slow_link {
namespace {

constexpr double kRateRatioMax = 1 / kSlowTimes;
// On the wire for a fifth of the step and costing an eighth: below that, scheduling noise of small transfers looks
// alike.
constexpr double kWireShareMin = 0.20;
constexpr double kSavedShareMin = 0.12;

// What a flow is compared with.
struct Peers {
  std::vector<double> rates;
  double slowest_stranger = 0;  // of those that share no end with it; 0: there is none
};

Peers peers_of(const std::vector<Flow>& flows, const Flow& flow) {
  Peers peers;
  for (const Flow& other : flows) {
    const bool like = other.bytes < 2 * flow.bytes && flow.bytes < 2 * other.bytes;
    const bool itself = other.from == flow.from && other.to == flow.to && other.comm_id == flow.comm_id;
    if (!like || itself) continue;
    peers.rates.push_back(other.typical_rate);
    const bool stranger =
        other.from != flow.from && other.to != flow.to && other.from != flow.to && other.to != flow.from;
    if (stranger && (peers.slowest_stranger == 0 || other.typical_rate < peers.slowest_stranger))
      peers.slowest_stranger = other.typical_rate;
  }
  return peers;
}

bool is_slow_in_most(const SlowFlow& slow) {
  const Flow& flow = slow.flow;
  size_t hits = 0;
  for (size_t i = 0; i < flow.rate.size(); ++i)
    hits += flow.rate[i] <= 1.5 * kRateRatioMax * slow.peers_rate && (slow.hidden || !flow.stood[i]);
  return static_cast<double>(hits) >= 0.7 * static_cast<double>(flow.rate.size());
}

// Slow flows by their ends.
struct ByEnd {
  std::map<Rank, std::vector<SlowFlow>> sender, receiver, into_starved;

  // All slow flows of one sender are one finding; all slow flows into one rank (two or more) blame the receiver.
  // A flow that ends at a rank whose proxy is starved says nothing of its sender.
  ByEnd(const std::vector<SlowFlow>& slow, const Handlings& handlings) {
    const auto is_starved = [&](Rank rank, double wire_ns) {
      return rank != kNoRank && handlings.of(rank).starved(wire_ns);
    };
    for (const SlowFlow& entry : slow) {
      const Flow& flow = entry.flow;
      if (is_starved(flow.to, flow.typical_wire) && !is_starved(flow.from, flow.typical_wire)) {
        into_starved[flow.to].push_back(entry);
        continue;
      }
      sender[flow.from].push_back(entry);
      if (flow.to != kNoRank) receiver[flow.to].push_back(entry);
    }
  }
  std::set<Rank> slow_to(Rank from) const {
    std::set<Rank> receivers;
    if (auto found = sender.find(from); found != sender.end())
      for (const SlowFlow& entry : found->second) receivers.insert(entry.flow.to);
    return receivers;
  }
  // Two ranks that are slow to each other and to nobody else: which of the two it is their flows cannot tell.
  Rank only_partner(Rank rank) const {
    const std::set<Rank> receivers = slow_to(rank);
    if (receivers.size() != 1 || *receivers.begin() == kNoRank) return kNoRank;
    return slow_to(*receivers.begin()) == std::set<Rank>{rank} ? *receivers.begin() : kNoRank;
  }
};

// Weighs the flows of one end after the other.
class Scales {
 public:
  Scales(const JobWindow& window, const ComparedSteps& compared, const std::vector<SlowFlow>& slow,
         const std::vector<Flow>& measured)
      : window_(window),
        compared_(compared),
        measured_(measured),
        with_flows_(last_steps_with_flows(window, window.steps_to_compare(), JobWindow::kStepsMax)) {
    for (const SlowFlow& entry : slow) accused_.push_back(entry.flow);
    for (StepNumber number : compared.steps)
      for (const auto& [rank, ns] : lateness(window, *window.step(number))) late_[rank].push_back(ns);
  }
  std::optional<SlowEnd> weigh(BlamedEnd end);

 private:
  // Back over the window, as long as the flows stay slow. `before_ns`: what a step took while they were not; 0: not
  // known.
  struct Since {
    StepNumber step;
    double before_ns = 0;
  };
  Since slow_since(const std::vector<SlowFlow>& flows) const;

  const JobWindow& window_;
  const ComparedSteps& compared_;
  const std::vector<Flow>& measured_;
  const std::vector<StepNumber> with_flows_;
  std::vector<Flow> accused_;
  std::map<Rank, std::vector<double>> late_;
};

enum class Seen { kNot, kQuick, kSlow };

// What a step says of a flow that is slow now.
Seen seen_in(const JobWindow& window, StepNumber number, const SlowFlow& slow) {
  const auto& rows = *window.step(number);
  const auto row = rows.find(slow.flow.from);
  if (row == rows.end()) return Seen::kNot;
  const double between = std::sqrt(slow.flow.typical_rate * slow.peers_rate);
  Seen seen = Seen::kNot;
  for (const FlowStep& step : row->second.summary.flows) {
    const bool same = step.send && step.comm_id == slow.flow.comm_id &&
                      window.world_rank(step.comm_id, step.peer) == slow.flow.to && step.wire_ns > 0 &&
                      2 * static_cast<double>(step.bytes) >= slow.flow.bytes;
    if (!same) continue;
    if (static_cast<double>(step.bytes) / static_cast<double>(step.wire_ns) <= between) return Seen::kSlow;
    seen = Seen::kQuick;
  }
  return seen;
}

Scales::Since Scales::slow_since(const std::vector<SlowFlow>& flows) const {
  Since since{.step = compared_.steps.front()};
  for (auto at = with_flows_.rbegin(); at != with_flows_.rend(); ++at) {
    Seen seen = Seen::kNot;
    for (const SlowFlow& entry : flows) seen = std::max(seen, seen_in(window_, *at, entry));
    if (seen == Seen::kSlow) since.step = *at;
    if (seen != Seen::kQuick) continue;
    since.before_ns = window_.step_ns_before(*at + 1);
    break;
  }
  return since;
}

std::optional<SlowEnd> Scales::weigh(BlamedEnd end) {
  const std::vector<SlowFlow>& flows = end.flows;
  const SlowFlow* worst = &flows.front();
  size_t steps_seen = 0;
  for (const SlowFlow& entry : flows) {
    if (entry.flow.typical_wire > worst->flow.typical_wire) worst = &entry;
    steps_seen = std::max(steps_seen, entry.flow.rate.size());
  }
  const double wire = worst->flow.typical_wire, step_ns = compared_.step_ns;
  // A rank whose own time is long slows its transfers too (its GPU does not feed them): that is not the link.
  if (median(late_[end.rank]) > 0.5 * wire) return std::nullopt;
  const Since since = slow_since(flows);
  double nats = 0;
  for (const SlowFlow& entry : flows) nats = std::max(nats, nats_of_flow(measured_, entry.flow, accused_, since.step));
  if (since.step <= window_.first_step() + JobWindow::kWarmUpSteps) nats += nats_of_the_start(step_ns);
  if (nats < window_.suspect_nats() - witness_nats()) return std::nullopt;
  double saved = std::min(wire * (1 - worst->flow.typical_rate / worst->peers_rate), step_ns);
  if (std::all_of(flows.begin(), flows.end(), [](const SlowFlow& entry) { return entry.hidden; })) {
    // Then it counts only if steps have become longer together with it.
    saved = since.before_ns > 0 ? step_ns - since.before_ns : 0;
  }
  if (saved < kSavedShareMin * step_ns) return std::nullopt;
  SlowEnd slow{.worst = *worst,
               .since = since.step,
               .saved_ns = cost_of_a_step(window_, since.step, saved, step_ns),
               .nats = nats,
               .steps_seen = steps_seen};
  slow.end = std::move(end);
  return slow;
}

}  // namespace

std::vector<SlowFlow> slow_flows_in(const JobWindow& window, const ComparedSteps& compared,
                                    const std::vector<Flow>& flows) {
  const StepFrame& newest = *window.frame(compared.steps.back());
  std::vector<SlowFlow> slow;
  for (const Flow& flow : flows) {
    Peers peers = peers_of(flows, flow);
    if (peers.rates.size() < 2) continue;
    const double peers_rate = median(std::move(peers.rates));
    if (flow.typical_rate > kRateRatioMax * peers_rate) continue;
    if (peers.slowest_stranger > 0 && flow.typical_rate > kApartMax * peers.slowest_stranger) continue;
    // A pipeline waits for each transfer in turn; elsewhere little time on the wire is little time lost.
    const bool hidden = flow.typical_wire < kWireShareMin * compared.step_ns;
    if (hidden && !is_alone(window, newest, static_cast<size_t>(window.slot_of(flow.from)))) continue;
    SlowFlow candidate{flow, peers_rate, hidden};
    if (is_slow_in_most(candidate)) slow.push_back(std::move(candidate));
  }
  if (slow.size() * 2 > flows.size()) return {};  // who is slow where most are?
  return slow;
}

std::vector<BlamedEnd> blamed_ends(const std::vector<SlowFlow>& slow, const Handlings& handlings) {
  const ByEnd by(slow, handlings);
  std::vector<BlamedEnd> ends;
  for (const auto& [rank, flows] : by.into_starved)
    if (!by.sender.contains(rank) && !by.receiver.contains(rank))
      ends.push_back({.rank = rank, .receiving = true, .flows = flows});
  std::set<Rank> receivers;
  for (const auto& [rank, flows] : by.receiver) {
    std::set<Rank> senders;
    for (const SlowFlow& entry : flows) senders.insert(entry.flow.from);
    if (senders.size() < 2) continue;
    receivers.insert(rank);
    ends.push_back({.rank = rank, .receiving = true, .flows = flows});
  }
  for (const auto& [rank, flows] : by.sender) {
    if (receivers.contains(rank)) continue;  // both ways
    const Rank partner = by.only_partner(rank);
    if (partner != kNoRank && partner < rank) continue;  // told of as a pair
    const bool blamed = std::all_of(flows.begin(), flows.end(),
                                    [&](const SlowFlow& entry) { return receivers.contains(entry.flow.to); });
    if (!blamed) ends.push_back({.rank = rank, .partner = partner, .flows = flows});
  }
  return ends;
}

std::vector<SlowEnd> slow_ends(const JobWindow& window, const ComparedSteps& compared,
                               const std::vector<SlowFlow>& slow, std::vector<BlamedEnd> ends,
                               const std::vector<Flow>& measured) {
  Scales scales(window, compared, slow, measured);
  std::vector<SlowEnd> found;
  for (BlamedEnd& end : ends)
    if (std::optional<SlowEnd> one = scales.weigh(std::move(end))) found.push_back(std::move(*one));
  return found;
}

}  // namespace lockstep::slow_link
