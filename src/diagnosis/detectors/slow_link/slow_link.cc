#include "diagnosis/detectors/slow_link/slow_link.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/text.h"
#include "diagnosis/detectors/slow_flows/slow_flows.h"
#include "diagnosis/detectors/slow_link/starved_proxy.h"
#include "diagnosis/detectors/straggler/straggler.h"
#include "diagnosis/evidence.h"
#include "diagnosis/flow_steps.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/price.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"
#include "diagnosis/sequential/new_level.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr size_t kWindow = 12;
// Of a group in fewer steps nothing is told; of a flow, in fewer than this.
constexpr size_t kGroupStepsSeen = 4;
constexpr size_t kFlowStepsMin = 2;
constexpr double kRateRatioMax = 1 / kSlowTimes;
// On the wire for a fifth of the step and costing an eighth: below that, scheduling noise of small transfers looks
// alike.
constexpr double kWireShareMin = 0.20;
constexpr double kSavedShareMin = 0.12;
// And set apart: clearly below every comparable flow that does not share an end with it.
constexpr double kApartMax = 0.6;

// With fewer transfers in a step one of them is always a good part.
constexpr int64_t kTransfersMin = 4;

struct Flow {
  Rank from = kNoRank;
  Rank to = kNoRank;
  CommId comm_id;
  int32_t peer = -1;             // the receiver's rank in the communicator
  std::vector<StepNumber> step;  // in which it moved anything, and in each of them:
  std::vector<double> bytes_in;  // bytes
  std::vector<double> rate;      // bytes per ns
  std::vector<double> wire;      // ns
  std::vector<bool> stood;       // it was one transfer that took the time: a pause, not a slow link
  double bytes = 0;              // per step
  double typical_rate = 0;
  double typical_wire = 0;
};

// Groups of equals: one of them slow.
constexpr double kGroupRatioMin = 3;
// Processes that share a machine's cores make a group slow for a dozen steps and then another: what is wrong with a
// link stays. (Seen on healthy jobs of eight ranks on 16 cores.)
constexpr size_t kGroupWindow = 24;
constexpr size_t kGroupStepsMin = 20;
constexpr double kGroupSavedShareMin = 0.08;
constexpr double kGroupBytesMin = 4e6;  // per operation: below, latency and scheduling set the time
constexpr double kOtherGroupsRatio = 1.3;
constexpr size_t kGroupsMin = 3;  // one, and two to compare it with

struct Group {
  CommId comm_id;
  int32_t size = 0;
  double bytes = 0;
  double count = 0;
  std::vector<double> transfer;  // per step: shortest over members and operations, times operations
  double typical = 0;
};

bool alike(const Group& a, const Group& b) {
  return a.size == b.size && a.count == b.count && a.bytes < 1.1 * b.bytes && b.bytes < 1.1 * a.bytes;
}

bool share_member(const JobWindow& window, CommId a, CommId b) {
  for (const auto& [in_a, rank_a] : window.comms().at(a).world_rank) {
    for (const auto& [in_b, rank_b] : window.comms().at(b).world_rank) {
      if (rank_a == rank_b) return true;
    }
  }
  return false;
}

// Transfer time of the group over that of its like; 1 where there is nothing to compare with.
double slowness(const std::vector<Group>& groups, const Group& group) {
  std::vector<double> others;
  for (const Group& other : groups) {
    if (other.comm_id != group.comm_id && alike(other, group)) others.push_back(other.typical);
  }
  double usual = median(others);
  return others.size() + 1 >= kGroupsMin && usual > 0 ? group.typical / usual : 1;
}

// A communicator's collectives in one step: of its members the last that told, and the shortest of them all.
struct GroupStep {
  CommId comm_id;
  int32_t size = 0;
  double bytes = 0;
  double count = 0;
  double shortest = 0;  // over members and operations, times operations
  size_t reported = 0;  // members that told
};
struct GroupSteps {
  std::vector<GroupStep> groups;  // by comm_id
};

const std::vector<GroupStep>& groups_in(const JobWindow& window, StepNumber number) {
  return window.frame(number)
      ->derived<GroupSteps>([&] {
        std::map<CommId, GroupStep> by_id;
        for (const auto& [rank, row] : *window.step(number)) {
          for (const CommStep& comm : row.summary.comms) {
            if (comm.p2p || comm.count <= 0 || comm.size < 2 || comm.shortest_ns <= 0) continue;
            GroupStep& group = by_id[comm.comm_id];
            group.comm_id = comm.comm_id;
            group.size = comm.size;
            group.bytes = static_cast<double>(comm.bytes);
            group.count = static_cast<double>(comm.count);
            const double here = static_cast<double>(comm.shortest_ns * comm.count);
            group.shortest = group.reported == 0 ? here : std::min(group.shortest, here);
            ++group.reported;
          }
        }
        GroupSteps all;
        all.groups.reserve(by_id.size());
        for (const auto& [id, group] : by_id) all.groups.push_back(group);
        return all;
      })
      .groups;
}

std::vector<Group> groups_over(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::map<CommId, Group> by_id;
  for (StepNumber number : steps) {
    for (const GroupStep& step : groups_in(window, number)) {
      Group& group = by_id[step.comm_id];
      group.comm_id = step.comm_id;
      group.size = step.size;
      group.bytes = step.bytes;
      group.count = step.count;
      if (step.reported == static_cast<size_t>(step.size)) group.transfer.push_back(step.shortest);
    }
  }
  std::vector<Group> groups;
  for (auto& [id, group] : by_id) {
    if (group.transfer.size() < kGroupStepsSeen || !window.comms().contains(id)) continue;
    group.typical = median(group.transfer);
    groups.push_back(std::move(group));
  }
  return groups;
}

// Groups of ranks that are late themselves are left out: they look slow for another reason.
std::vector<Finding> find_slow_groups(const JobWindow& window, const std::vector<StepNumber>& steps,
                                      std::vector<Group> groups, const std::set<Rank>& late) {
  std::vector<double> durations;
  size_t ranks_seen = 0;
  for (StepNumber number : steps) {
    std::vector<double> of_ranks;
    for (const auto& [rank, row] : *window.step(number))
      of_ranks.push_back(static_cast<double>(row.summary.duration_ns));
    durations.push_back(median(of_ranks));
    ranks_seen = std::max(ranks_seen, of_ranks.size());
  }
  double step_ns = median(durations);
  std::erase_if(groups, [&](const Group& group) {
    const auto& members = window.comms().at(group.comm_id).world_rank;
    return std::any_of(members.begin(), members.end(), [&](const auto& one) { return late.contains(one.second); });
  });
  // Which member of a slow pair it is shows in small differences: look at all steps there are, once there is one.
  std::vector<Group> groups_long;
  std::vector<Finding> findings;
  for (const Group& group : groups) {
    if (group.bytes / group.count < kGroupBytesMin || slowness(groups, group) < kGroupRatioMin) continue;
    std::vector<double> others;
    bool apart = true;
    for (const Group& other : groups) {
      if (other.comm_id == group.comm_id || !alike(other, group)) continue;
      others.push_back(other.typical);
      if (!share_member(window, other.comm_id, group.comm_id) && group.typical * kApartMax < other.typical)
        apart = false;
    }
    double usual = median(others);
    double saved = group.typical - usual;
    size_t hits = static_cast<size_t>(std::count_if(group.transfer.begin(), group.transfer.end(),
                                                    [&](double ns) { return ns >= 0.7 * kGroupRatioMin * usual; }));
    if (!apart || saved < kGroupSavedShareMin * step_ns ||
        static_cast<double>(hits) < 0.7 * static_cast<double>(group.transfer.size()))
      continue;

    // Whose other groups are slow as well?
    if (groups_long.empty()) groups_long = groups_over(window, window.complete_steps());
    std::vector<std::pair<double, Rank>> suspects;
    for (const auto& [in_comm, rank] : window.comms().at(group.comm_id).world_rank) {
      double worst = 1;
      for (const Group& other : groups_long) {
        if (other.comm_id == group.comm_id) continue;
        for (const auto& [in_other, member] : window.comms().at(other.comm_id).world_rank) {
          if (member == rank) worst = std::max(worst, slowness(groups_long, other));
        }
      }
      suspects.emplace_back(worst, rank);
    }
    std::sort(suspects.rbegin(), suspects.rend());
    bool reported_apart = suspects.size() >= 2 && suspects[0].first >= kOtherGroupsRatio * suspects[1].first;
    if (!reported_apart && suspects.size() > 2) continue;  // somewhere in a large group: not enough to name anyone

    Finding finding;
    finding.kind = emits<Emitter::kSlowLink, VerdictKind::kSlow>;
    finding.layer = emits<Emitter::kSlowLink, Layer::kLink>;
    finding.cause = emits<Emitter::kSlowLink, Cause::kNicDegraded>;
    finding.subject = format("group-%llx", static_cast<unsigned long long>(group.comm_id.value()));
    for (const auto& [worst, rank] : suspects) {
      if (reported_apart && rank != suspects[0].second) continue;
      finding.ranks.push_back(rank);
    }
    std::sort(finding.ranks.begin(), finding.ranks.end());
    Rank first = finding.ranks.front();
    std::string name = group_name(window, group.comm_id);
    finding.component = reported_apart ? format("link of rank %d", first.value())
                                       : format("link between ranks %s", human_ranks(finding.ranks).c_str());
    // Where nothing tells the members apart there is one witness only: the machine may be busy, not the link slow.
    finding.sure_with_signals = group.transfer.size() >= kGroupStepsMin;
    finding.sure = finding.sure_with_signals && reported_apart;
    finding.since_step = steps.front();
    finding.through_step = steps.back();
    finding.step_ns = static_cast<int64_t>(step_ns);
    finding.step_without_ns = static_cast<int64_t>(step_ns - saved);
    finding.lost_ns_per_step = static_cast<int64_t>(saved);
    finding.victims = victims_of(window, finding.ranks);
    finding.victim_groups.push_back(name);
    finding.coverage = coverage_of(window, ranks_seen);
    finding.confidence = reported_apart ? 0.8 : 0.6;
    StepNumber from = steps.front(), to = steps.back();
    const std::string transfer_query = Measure{.of = "transfer_ms", .steps = steps, .comm_id = group.comm_id}.query();
    const std::string own_query = Measure{.of = "own_median_ms", .ranks = {first}, .steps = steps}.query();
    finding.chain.push_back(
        claim(ClaimKind::kWaitsFor, name,
              format("Nobody arrives late; even the last to arrive in the collectives of %s spends %s there.",
                     name.c_str(), per_step(group.typical).c_str()),
              {.value = group.typical / 1e6, .unit = "ms", .peers = usual / 1e6}, from, to, transfer_query));
    finding.chain.push_back(claim(ClaimKind::kPath, finding.component,
                                  format("The same transfer takes the other groups %s, this one %s.",
                                         human_duration(usual).c_str(), human_duration(group.typical).c_str()),
                                  {.value = group.typical / 1e6, .unit = "ms", .peers = usual / 1e6}, from, to,
                                  transfer_query));
    if (reported_apart) {
      finding.chain.push_back(
          claim(ClaimKind::kPath, finding.component,
                format("Its other groups are slow as well (%.1f times their like), its partner's are not (%.1f).",
                       suspects[0].first, suspects[1].first),
                {}, from, to, format("/api/jobs/{job}/ranks/%d", first.value())));
    }
    std::vector<double> own, peers;
    for (StepNumber number : steps) {
      for (const auto& [other, row] : *window.step(number))
        (other == first ? own : peers).push_back(static_cast<double>(row.own_ns()));
    }
    finding.chain.push_back(claim(ClaimKind::kSelfTime, format("rank %d", first.value()),
                                  format("Its own work takes %s, its peers' %s.", per_step(median(own)).c_str(),
                                         human_duration(median(peers)).c_str()),
                                  {.value = median(own) / 1e6, .unit = "ms", .peers = median(peers) / 1e6}, from, to,
                                  own_query));
    finding.chain.push_back(claim(ClaimKind::kExclusion, format("rank %d", first.value()),
                                  "Not its GPU and not its input: its own time is like its peers'.",
                                  {.value = median(own) / 1e6, .unit = "ms", .peers = median(peers) / 1e6}, from, to,
                                  own_query));
    finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                  format("At the other groups' pace a step would take %s instead of %s.",
                                         human_duration(step_ns - saved).c_str(), human_duration(step_ns).c_str()),
                                  {.value = (step_ns - saved) / 1e6, .unit = "ms", .baseline = step_ns / 1e6}, from, to,
                                  Measure{.of = "step_ms", .steps = steps}.query()));
    finding.alternatives.push_back(
        {format("another member of %s", name.c_str()), reported_apart ? 0.3 : 0.5,
         reported_apart ? "its other groups are as fast as their like" : "nothing tells the members apart",
         "NIC and switch port counters of the members"});
    finding.next.push_back({"check the NICs, cables and switch ports of the group: speed, errors, rate limits",
                            "ethtool DEV; ethtool -S DEV; tc -s qdisc show dev DEV"});
    finding.sentence =
        format("The %s {is|was} slow: %s {waits|waited} %s for its transfers {when}: %s of the job.",
               finding.component.c_str(), name.c_str(), per_step(saved).c_str(), percent(saved / step_ns).c_str());
    const Handlings handlings(window, steps);
    for (const auto& [in_comm, rank] : window.comms().at(group.comm_id).world_rank) {
      const Handling handling = handlings.of(rank);
      if (!handling.starved(saved)) continue;
      finding.ranks = {rank};
      blame_starved_proxy(window, steps, rank, handling, finding);
      break;
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

// What each sender moved to each receiver in these steps, step by step.
std::vector<Flow> measure_flows(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::map<std::tuple<Rank, int32_t, CommId>, Flow> by_key;  // sender, receiver's rank in the communicator
  for (StepNumber number : steps) {
    for (const auto& [rank, row] : *window.step(number)) {
      for (const FlowStep& step : row.summary.flows) {
        if (!step.send || step.bytes <= 0 || step.wire_ns <= 0) continue;
        Flow& flow = by_key[{rank, step.peer, step.comm_id}];
        flow.from = rank;
        flow.to = window.world_rank(step.comm_id, step.peer);
        flow.comm_id = step.comm_id;
        flow.peer = step.peer;
        flow.step.push_back(number);
        flow.bytes_in.push_back(static_cast<double>(step.bytes));
        flow.rate.push_back(static_cast<double>(step.bytes) / static_cast<double>(step.wire_ns));
        flow.wire.push_back(static_cast<double>(step.wire_ns));
        flow.stood.push_back(step.transfers >= kTransfersMin && 2 * step.wire_longest_ns >= step.wire_ns);
      }
    }
  }
  std::vector<Flow> flows;
  for (auto& [key, flow] : by_key) flows.push_back(std::move(flow));
  return flows;
}

// Of the same from that step on, with what is typical there. Flows of too few steps are left out.
std::vector<Flow> flows_since(const std::vector<Flow>& measured, StepNumber from, size_t steps_min) {
  std::vector<Flow> flows;
  for (const Flow& all : measured) {
    const auto before = std::lower_bound(all.step.begin(), all.step.end(), from) - all.step.begin();
    if (all.step.size() - static_cast<size_t>(before) < steps_min) continue;
    Flow& flow = flows.emplace_back(Flow{.from = all.from, .to = all.to, .comm_id = all.comm_id, .peer = all.peer});
    flow.rate.assign(all.rate.begin() + before, all.rate.end());
    flow.wire.assign(all.wire.begin() + before, all.wire.end());
    flow.stood.assign(all.stood.begin() + before, all.stood.end());
    flow.bytes =
        std::accumulate(all.bytes_in.begin() + before, all.bytes_in.end(), 0.0) / static_cast<double>(flow.rate.size());
    flow.typical_rate = median(flow.rate);
    flow.typical_wire = median(flow.wire);
  }
  return flows;
}

bool is_same(const Flow& a, const Flow& b) {
  return a.from == b.from && a.peer == b.peer && a.comm_id == b.comm_id;
}

// How sure it is that a flow is slower than its like since that step: in each step it is compared with what carries about
// as much there, and how these differ tells what is unusual. `slow`: flows that are accused as well.
double nats_of_flow(const std::vector<Flow>& measured, const Flow& flow, const std::vector<Flow>& slow,
                    StepNumber since) {
  std::vector<const Flow*> like;
  const Flow* itself = nullptr;
  for (const Flow& other : measured) {
    const double bytes = median(other.bytes_in);
    if (is_same(other, flow)) {
      itself = &other;
    } else if (bytes < 2 * flow.bytes && flow.bytes < 2 * bytes &&
               std::none_of(slow.begin(), slow.end(), [&](const Flow& one) { return is_same(one, other); })) {
      like.push_back(&other);
    }
  }
  if (itself == nullptr) return 0;
  std::map<StepNumber, std::vector<double>> rates;  // logarithms
  for (const Flow* other : like)
    for (size_t i = 0; i < other->step.size(); ++i) rates[other->step[i]].push_back(std::log(other->rate[i]));
  std::map<StepNumber, double> middle;
  std::vector<double> usual, slower;
  for (const auto& [step, logs] : rates) {
    middle[step] = median(logs);
    for (double log : logs) usual.push_back(middle[step] - log);
  }
  for (size_t i = 0; i < itself->step.size(); ++i) {
    const auto found = middle.find(itself->step[i]);
    if (itself->step[i] >= since && found != middle.end()) slower.push_back(found->second - std::log(itself->rate[i]));
  }
  return nats_of_level(usual_of(std::move(usual)), slower);
}

std::vector<Finding> find_slow_flows(const JobWindow& window, const std::vector<StepNumber>& steps,
                                     const std::vector<Flow>& measured);

}  // namespace

std::vector<Finding> find_slow_links(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  if (window.slots() >= kSlowFlowsRanksMin) return {};
  const std::vector<StepNumber>& all = window.steps_to_compare();
  const auto last = [&](size_t count) {
    return std::vector(all.end() - static_cast<long>(std::min(count, all.size())), all.end());
  };
  // What has just begun shows in the newest steps alone.
  std::vector<Finding> findings;
  const std::vector<StepNumber> with_flows = last_steps_with_flows(window, all, kWindow);
  const std::vector<Flow> measured = measure_flows(window, with_flows);
  for (size_t count = kWindow; findings.empty() && count >= kFlowStepsMin; count = count > 3 ? count / 2 : count - 1) {
    const size_t looked_at = std::min(count, with_flows.size());
    if (looked_at >= kFlowStepsMin)
      findings = find_slow_flows(window, {with_flows.end() - static_cast<std::ptrdiff_t>(looked_at), with_flows.end()},
                                 measured);
  }
  if (!findings.empty() || all.size() < kGroupStepsMin) return findings;
  const std::vector<StepNumber> newest = last(kGroupWindow);
  std::vector<Group> groups = groups_over(window, newest);
  if (groups.size() < kGroupsMin) return {};
  std::set<Rank> late;
  for (const Finding& finding : find_stragglers(window, explained))
    late.insert(finding.ranks.begin(), finding.ranks.end());
  return find_slow_groups(window, newest, std::move(groups), late);
}

namespace {

std::vector<Finding> find_slow_flows(const JobWindow& window, const std::vector<StepNumber>& steps,
                                     const std::vector<Flow>& measured) {
  std::vector<double> durations;
  size_t ranks_seen = 0;
  for (StepNumber number : steps) {
    const auto& rows = *window.step(number);
    ranks_seen = std::max(ranks_seen, rows.size());
    std::vector<double> of_ranks;
    for (const auto& [rank, row] : rows) of_ranks.push_back(static_cast<double>(row.summary.duration_ns));
    durations.push_back(median(of_ranks));
  }
  double step_ns = median(durations);
  if (step_ns <= 0) return {};
  const std::vector<Flow> flows = flows_since(measured, steps.front(), std::min(steps.size(), kPlainSteps));

  const StepFrame& newest = *window.frame(steps.back());
  struct Slow {
    Flow flow;
    double peers_rate;
    bool hidden;  // little of it shows on the wire: the rest is in the system's buffers, or many short waits in a chain
  };
  std::vector<Slow> slow;
  for (const Flow& flow : flows) {
    std::vector<double> rates;
    double slowest_stranger = 0;
    for (const Flow& other : flows) {
      bool like = other.bytes < 2 * flow.bytes && flow.bytes < 2 * other.bytes;
      bool itself = other.from == flow.from && other.to == flow.to && other.comm_id == flow.comm_id;
      if (!like || itself) continue;
      rates.push_back(other.typical_rate);
      const bool stranger =
          other.from != flow.from && other.to != flow.to && other.from != flow.to && other.to != flow.from;
      if (stranger && (slowest_stranger == 0 || other.typical_rate < slowest_stranger))
        slowest_stranger = other.typical_rate;
    }
    if (rates.size() < 2) continue;
    double peers_rate = median(rates);
    if (flow.typical_rate > kRateRatioMax * peers_rate) continue;
    if (slowest_stranger > 0 && flow.typical_rate > kApartMax * slowest_stranger) continue;
    const bool hidden = flow.typical_wire < kWireShareMin * step_ns;
    // A pipeline waits for each transfer in turn; elsewhere little time on the wire is little time lost.
    if (hidden && !is_alone(window, newest, static_cast<size_t>(window.slot_of(flow.from)))) continue;
    size_t hits = 0;
    for (size_t i = 0; i < flow.rate.size(); ++i)
      hits += flow.rate[i] <= 1.5 * kRateRatioMax * peers_rate && (hidden || !flow.stood[i]);
    if (static_cast<double>(hits) < 0.7 * static_cast<double>(flow.rate.size())) continue;
    slow.push_back({flow, peers_rate, hidden});
  }
  if (slow.empty() || slow.size() * 2 > flows.size()) return {};

  std::vector<Flow> accused;
  for (const Slow& entry : slow) accused.push_back(entry.flow);

  // A rank whose own time is long slows its transfers too (its GPU does not feed them): that is not the link.
  std::map<Rank, std::vector<double>> late;
  for (StepNumber number : steps) {
    for (const auto& [rank, ns] : lateness(window, *window.step(number))) late[rank].push_back(ns);
  }

  // All slow flows of one sender are one finding; all slow flows into one rank (two or more) blame the receiver.
  // A flow that ends at a rank whose proxy is starved says nothing of its sender.
  std::map<Rank, std::vector<Slow>> by_sender, by_receiver, into_starved;
  const Handlings handlings(window, steps);
  auto is_starved = [&](Rank rank, double wire_ns) { return rank != kNoRank && handlings.of(rank).starved(wire_ns); };
  for (const Slow& entry : slow) {
    if (is_starved(entry.flow.to, entry.flow.typical_wire) && !is_starved(entry.flow.from, entry.flow.typical_wire)) {
      into_starved[entry.flow.to].push_back(entry);
      continue;
    }
    by_sender[entry.flow.from].push_back(entry);
    if (entry.flow.to != kNoRank) by_receiver[entry.flow.to].push_back(entry);
  }
  // Two ranks that are slow to each other and to nobody else: which of the two it is their flows cannot tell.
  auto only_partner = [&](Rank rank) {
    auto slow_to = [&](Rank sender) {
      std::set<Rank> receivers;
      if (auto found = by_sender.find(sender); found != by_sender.end())
        for (const Slow& entry : found->second) receivers.insert(entry.flow.to);
      return receivers;
    };
    const std::set<Rank> receivers = slow_to(rank);
    if (receivers.size() != 1 || *receivers.begin() == kNoRank) return kNoRank;
    return slow_to(*receivers.begin()) == std::set<Rank>{rank} ? *receivers.begin() : kNoRank;
  };
  std::vector<Finding> findings;
  std::set<Rank> receivers_blamed;
  const std::vector<StepNumber> with_flows =
      last_steps_with_flows(window, window.steps_to_compare(), JobWindow::kStepsMax);
  // Back over the window, as long as the flows stay slow. `before_ns`: what a step took while they were not; 0: not known.
  struct Since {
    StepNumber step;
    double before_ns = 0;
  };
  auto slow_since = [&](const std::vector<Slow>& entries) {
    Since since{.step = steps.front()};
    for (auto at = with_flows.rbegin(); at != with_flows.rend(); ++at) {
      const auto& rows = *window.step(*at);
      bool still = false, reported = false;
      for (const Slow& entry : entries) {
        auto row = rows.find(entry.flow.from);
        if (row == rows.end()) continue;
        for (const FlowStep& step : row->second.summary.flows) {
          if (step.send && step.comm_id == entry.flow.comm_id &&
              window.world_rank(step.comm_id, step.peer) == entry.flow.to && step.wire_ns > 0 &&
              2 * static_cast<double>(step.bytes) >= entry.flow.bytes) {
            reported = true;
            still |= static_cast<double>(step.bytes) / static_cast<double>(step.wire_ns) <=
                     std::sqrt(entry.flow.typical_rate * entry.peers_rate);
          }
        }
      }
      if (still) since.step = *at;
      if (!reported || still) continue;
      since.before_ns = window.step_ns_before(*at + 1);
      break;
    }
    return since;
  };
  auto report = [&](Rank rank, const std::vector<Slow>& entries, bool receiving) {
    double worst_rate = 0, peers_rate = 0, wire = 0;
    const Flow* worst = nullptr;
    std::vector<Rank> others;
    size_t seen = 0;
    for (const Slow& entry : entries) {
      if (entry.flow.typical_wire > wire) {
        worst = &entry.flow;
        wire = entry.flow.typical_wire;
        worst_rate = entry.flow.typical_rate;
        peers_rate = entry.peers_rate;
      }
      Rank other = receiving ? entry.flow.from : entry.flow.to;
      if (other != kNoRank) others.push_back(other);
      seen = std::max(seen, entry.flow.rate.size());
    }
    double late_ns = median(late[rank]);
    if (late_ns > 0.5 * wire) return;
    const Since since = slow_since(entries);
    double nats = 0;
    for (const Slow& entry : entries) nats = std::max(nats, nats_of_flow(measured, entry.flow, accused, since.step));
    if (since.step <= window.first_step() + JobWindow::kWarmUpSteps) nats += nats_of_the_start(step_ns);
    if (nats < window.suspect_nats() - witness_nats()) return;
    double saved = std::min(wire * (1 - worst_rate / peers_rate), step_ns);
    if (std::all_of(entries.begin(), entries.end(), [](const Slow& entry) { return entry.hidden; })) {
      // Then it counts only if steps have become longer together with it.
      saved = since.before_ns > 0 ? step_ns - since.before_ns : 0;
    }
    if (saved < kSavedShareMin * step_ns) return;
    saved = cost_of_a_step(window, since.step, saved, step_ns);
    Finding finding;
    finding.kind = emits<Emitter::kSlowLink, VerdictKind::kSlow>;
    finding.ranks = {rank};
    finding.layer = emits<Emitter::kSlowLink, Layer::kLink>;
    finding.cause = emits<Emitter::kSlowLink, Cause::kNicDegraded>;
    finding.component = receiving ? format("link into rank %d from rank %s", rank.value(), human_ranks(others).c_str())
                                  : format("link from rank %d to rank %s", rank.value(), human_ranks(others).c_str());
    const Rank partner = receiving ? kNoRank : only_partner(rank);
    if (partner != kNoRank) {
      finding.ranks = {std::min(rank, partner), std::max(rank, partner)};
      finding.component = format("link between ranks %s", human_ranks(finding.ranks).c_str());
      finding.subject = finding.component;
    }
    // What is far out of all noise for a step or two may be anything, and be over. Connections are set up in the first.
    const bool settled = window.complete_steps().size() >= kFlowStepsMin;
    finding.sure = nats >= window.sure_nats() && seen >= kPlainSteps && settled;
    finding.sure_with_signals = nats >= window.sure_nats() - witness_nats() && settled;
    finding.only_with_signals = nats < window.suspect_nats();
    finding.since_step = since.step;
    finding.through_step = steps.back();
    finding.step_ns = static_cast<int64_t>(step_ns);
    finding.step_without_ns = static_cast<int64_t>(step_ns - saved);
    finding.lost_ns_per_step = static_cast<int64_t>(saved);
    finding.victims = victims_of(window, finding.ranks);
    finding.coverage = coverage_of(window, ranks_seen);
    finding.confidence = std::min(0.95, 0.5 + 0.05 * static_cast<double>(seen));
    std::string subject = format("rank %d", rank.value());
    const std::string query = Measure{.of = "own_median_ms", .ranks = {rank}, .steps = steps}.query();
    const auto flow_query = [&](const char* of) {
      return Measure{.of = of, .ranks = {worst->from}, .steps = steps, .comm_id = worst->comm_id, .peer = worst->peer}
          .query();
    };
    finding.chain.push_back(claim(
        ClaimKind::kWaitsFor, subject,
        format("Nobody arrives late; all ranks spend equally long in the collectives of %s, waiting for its transfers.",
               group_name(window, entries.front().flow.comm_id).c_str()),
        {.value = wire / 1e6, .unit = "ms"}, steps.front(), steps.back(), flow_query("wire_median_ms")));
    finding.victim_groups.push_back(group_name(window, entries.front().flow.comm_id));
    finding.chain.push_back(
        claim(ClaimKind::kPath, finding.component,
              format("Its transfers move at %.2f GB/s, comparable ones at %.2f, and are on the wire for %s.",
                     worst_rate, peers_rate, per_step(wire).c_str()),
              {.value = worst_rate, .unit = "GB/s", .peers = peers_rate}, steps.front(), steps.back(),
              flow_query("flow_gb_s")));
    std::vector<double> own, peers;
    for (StepNumber number : steps) {
      for (const auto& [other, row] : *window.step(number))
        (other == rank ? own : peers).push_back(static_cast<double>(row.own_ns()));
    }
    finding.chain.push_back(claim(ClaimKind::kSelfTime, subject,
                                  format("Its own work takes %s, its peers' %s.", per_step(median(own)).c_str(),
                                         human_duration(median(peers)).c_str()),
                                  {.value = median(own) / 1e6, .unit = "ms", .peers = median(peers) / 1e6},
                                  steps.front(), steps.back(), query));
    finding.chain.push_back(claim(
        ClaimKind::kExclusion, subject,
        format("Not its GPU and not its input: its own time is like its peers' (%s, they %s).",
               human_duration(median(own)).c_str(), human_duration(median(peers)).c_str()),
        {.value = median(own) / 1e6, .unit = "ms", .peers = median(peers) / 1e6}, steps.front(), steps.back(), query));
    finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                  format("At its peers' rate a step would take %s instead of %s.",
                                         human_duration(step_ns - saved).c_str(), human_duration(step_ns).c_str()),
                                  {.value = (step_ns - saved) / 1e6, .unit = "ms", .baseline = step_ns / 1e6},
                                  steps.front(), steps.back(), Measure{.of = "step_ms", .steps = steps}.query()));
    finding.alternatives.push_back({format("receiving side of rank %s", human_ranks(others).c_str()), 0.3,
                                    "a slow receiver would be seen as waiting for its credit, not as time on the wire",
                                    "NIC and switch port counters of both ends"});
    finding.next.push_back({"check the NIC, its cable and its switch port: speed, errors, rate limits",
                            "ethtool DEV; ethtool -S DEV; tc -s qdisc show dev DEV"});
    if (!others.empty()) finding.next.push_back(look_at_path(rank, others.front()));
    std::string name = name_of(window, rank);
    name[0] = 'r';
    finding.sentence =
        format("The %s {is|was} slow: all %d ranks {wait|waited} %s {when}: %s of the job.",
               partner != kNoRank ? finding.component.c_str() : format("link of %s", name.c_str()).c_str(),
               window.world_size(), per_step(saved).c_str(), percent(saved / step_ns).c_str());
    if (const Handling handling = handlings.of(rank); handling.starved(wire))
      blame_starved_proxy(window, steps, rank, handling, finding);
    findings.push_back(std::move(finding));
  };
  for (const auto& [rank, entries] : into_starved)
    if (!by_sender.contains(rank) && !by_receiver.contains(rank)) report(rank, entries, true);
  for (const auto& [rank, entries] : by_receiver) {
    std::set<Rank> senders;
    for (const Slow& entry : entries) senders.insert(entry.flow.from);
    if (senders.size() >= 2) {
      receivers_blamed.insert(rank);
      report(rank, entries, true);
    }
  }
  for (const auto& [rank, entries] : by_sender) {
    if (receivers_blamed.contains(rank)) continue;                                                // both ways
    if (const Rank partner = only_partner(rank); partner != kNoRank && partner < rank) continue;  // told of as a pair
    bool blamed = std::all_of(entries.begin(), entries.end(),
                              [&](const Slow& entry) { return receivers_blamed.contains(entry.flow.to); });
    if (!blamed) report(rank, entries, false);
  }
  return findings;
}

}  // namespace

}  // namespace lockstep
