#include "diagnosis/detectors/slow_flows/slow_flows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/detectors/slow_flows/slow_groups.h"
#include "diagnosis/detectors/slow_link/starved_proxy.h"
#include "diagnosis/evidence.h"
#include "diagnosis/flow_steps.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// The newest steps tell whether something is slow, the ones before since when.
constexpr size_t kWindow = 4;
constexpr size_t kStepsSuspect = 3;
// What has just begun and is plain to see: so many steps, slower by half at least, at so much of a step.
constexpr size_t kWindowPlain = 2;
const double kLogRatioPlain = std::log(1.5);
constexpr double kPlainShareMin = 0.03;
constexpr double kPlainShareSure = 0.08;
constexpr size_t kStepsSure = 5;
constexpr size_t kAlikeMin = 8;
// Slower by a sixth at least, and by so many standard deviations of its like.
const double kLogRatioMin = std::log(1.18);
constexpr double kSigmas = 6;
constexpr double kSavedShareMin = 0.025;
constexpr double kVoteShareMin = 0.001;
constexpr double kWorthOfWorst = 0.6;
constexpr double kHitsShare = 0.7;
// So many ranks are told one by one; what more have in common is no adapter.
constexpr size_t kRanksApartMax = 2;
constexpr size_t kRanksNamedMax = 64;
// A class in which more than this is slow has no like.
constexpr double kSlowShareMax = 0.5;
// Who hands on what has arrived so much longer than others holds up who sends to it.
constexpr double kHandingShareMin = 0.05;

struct Flow {
  uint32_t from = 0;  // slot
  Rank to = kNoRank;
  CommId comm_id;
  int32_t peer = 0;               // rank in the communicator
  double bytes = 0, wire_ns = 0;  // sums over the steps
  size_t steps = 0;
  double like_rate = 0;
  double rate() const { return bytes / wire_ns; }
  double wire_ns_per_step() const { return wire_ns / static_cast<double>(steps); }
  double saved_ns() const { return wire_ns_per_step() * (1 - rate() / like_rate); }
};

// What an equal amount usually takes: middle and spread of the logarithm.
struct UsualRate {
  double middle = 0, sigma = 0;
  size_t count = 0;
};

UsualRate usual_rate_of(std::vector<double> logs) {
  UsualRate usual{.count = logs.size()};
  usual.middle = median(logs);
  usual.sigma = spread_of(std::move(logs), usual.middle);
  return usual;
}

// The steps that are looked at, and what has to be seen in them.
struct Look {
  std::vector<StepNumber> steps;
  size_t steps_min = kStepsSuspect;
  double log_ratio_min = kLogRatioMin;
  double share_min = kSavedShareMin;
  double step_ns = 0;

  bool unusual(const UsualRate& usual, double log_slower) const {
    return usual.count >= kAlikeMin && log_slower >= std::max(log_ratio_min, kSigmas * usual.sigma);
  }
};

const FlowStep* same_flow(const std::vector<FlowStep>& flows, size_t hint, const Flow& flow) {
  auto is_it = [&](const FlowStep& one) { return one.send && one.comm_id == flow.comm_id && one.peer == flow.peer; };
  if (hint < flows.size() && is_it(flows[hint])) return &flows[hint];
  auto found = std::find_if(flows.begin(), flows.end(), is_it);
  return found == flows.end() ? nullptr : &*found;
}

std::vector<Flow> flows_over(const JobWindow& window, const Look& look) {
  const std::vector<StepNumber>& steps = look.steps;
  std::vector<Flow> flows;
  const StepFrame& newest = *window.frame(steps.back());
  for (size_t slot = 0; slot < newest.rows.size(); ++slot) {
    if (!newest.knows(slot)) continue;
    const std::vector<FlowStep>& of_rank = newest.rows[slot].summary.flows;
    for (size_t i = 0; i < of_rank.size(); ++i) {
      if (!of_rank[i].send || of_rank[i].bytes <= 0 || of_rank[i].wire_ns <= 0) continue;
      Flow flow{.from = static_cast<uint32_t>(slot), .comm_id = of_rank[i].comm_id, .peer = of_rank[i].peer};
      for (StepNumber number : steps) {
        const StepFrame& frame = *window.frame(number);
        if (!frame.knows(slot)) continue;
        const FlowStep* step = same_flow(frame.rows[slot].summary.flows, i, flow);
        if (step == nullptr || step->wire_ns <= 0 || step->bytes <= 0) continue;
        flow.bytes += static_cast<double>(step->bytes);
        flow.wire_ns += static_cast<double>(step->wire_ns);
        ++flow.steps;
      }
      if (flow.steps >= look.steps_min) flows.push_back(flow);
    }
  }
  return flows;
}

void common(const JobWindow& window, const std::vector<StepNumber>& steps, double step_ns, double saved,
            Finding& finding) {
  finding.kind = emits<Emitter::kSlowFlows, VerdictKind::kSlow>;
  finding.since_step = steps.front();
  finding.through_step = steps.back();
  finding.step_ns = static_cast<int64_t>(step_ns);
  finding.step_without_ns = static_cast<int64_t>(step_ns - saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.coverage = coverage_of(window, window.step(steps.back())->size());
  finding.confidence = std::min(0.95, 0.5 + 0.04 * static_cast<double>(steps.size()));
  finding.victims = victims_of(window, finding.ranks);
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("At the pace of its like a step would take %s instead of %s.",
                                       human_duration(step_ns - saved).c_str(), human_duration(step_ns).c_str()),
                                {.value = (step_ns - saved) / 1e6, .unit = "ms", .baseline = step_ns / 1e6},
                                steps.front(), steps.back(), Measure{.of = "step_ms", .steps = steps}.query()));
}

// Back over the window, as long as the flow stays slow.
StepNumber slow_since(const JobWindow& window, const Flow& flow, double like_rate, StepNumber fallback) {
  StepNumber since = fallback;
  std::vector<StepNumber> all = window.complete_steps();
  const double half_way = (flow.rate() + like_rate) / 2;
  int misses = 0;
  for (auto at = all.rbegin(); at != all.rend() && misses < 3; ++at) {
    const StepFrame& frame = *window.frame(*at);
    const FlowStep* step = frame.knows(flow.from) ? same_flow(frame.rows[flow.from].summary.flows, 0, flow) : nullptr;
    if (step != nullptr && step->wire_ns > 0 &&
        static_cast<double>(step->bytes) / static_cast<double>(step->wire_ns) < half_way) {
      since = *at;
      misses = 0;
    } else {
      ++misses;
    }
  }
  return since;
}

bool slow_in_most(const JobWindow& window, const std::vector<StepNumber>& steps, const Flow& flow) {
  const double half_way = (flow.rate() + flow.like_rate) / 2;
  double slow = 0, all = 0;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    if (!frame.knows(flow.from)) continue;
    const FlowStep* step = same_flow(frame.rows[flow.from].summary.flows, 0, flow);
    if (step == nullptr || step->wire_ns <= 0) continue;
    all += 1;
    slow += static_cast<double>(step->bytes) / static_cast<double>(step->wire_ns) < half_way ? 1 : 0;
  }
  return slow >= kHitsShare * all;
}

// Who has the most slow flows, most of its own among them; sending counts a little more than receiving.
Rank most_accused(const JobWindow& window, const std::vector<const Flow*>& slow,
                  const std::unordered_map<Rank, size_t>& out, const std::unordered_map<Rank, size_t>& in) {
  std::map<Rank, std::pair<size_t, size_t>> touched;  // sending, receiving
  for (const Flow* flow : slow) {
    ++touched[window.rank_of(flow->from)].first;
    if (flow->to != kNoRank) ++touched[flow->to].second;
  }
  Rank most = kNoRank;
  double best = 0;
  for (const auto& entry : touched) {
    const Rank rank = entry.first;
    const auto& counts = entry.second;
    auto share = [&](size_t few, const std::unordered_map<Rank, size_t>& all) {
      auto found = all.find(rank);
      return found == all.end() || found->second == 0 ? 0.0
                                                      : static_cast<double>(few) / static_cast<double>(found->second);
    };
    const double score = static_cast<double>(counts.first + counts.second) + 0.6 * share(counts.first, out) +
                         0.5 * share(counts.second, in);
    if (score > best) {
      best = score;
      most = rank;
    }
  }
  return most;
}

// Flows that are slow, and the ranks that have them in common.
struct Accused {
  std::vector<Rank> ranks;
  std::vector<const Flow*> flows;

  const Flow& worst() const {
    return **std::max_element(flows.begin(), flows.end(),
                              [](const Flow* a, const Flow* b) { return a->saved_ns() < b->saved_ns(); });
  }
};

// What they have in common, and what is said of it: one rank's link, one host's network, or the fabric.
std::string name_place(const JobWindow& window, const std::vector<Rank>& ranks, Finding& finding) {
  std::set<std::string> hosts;
  for (Rank rank : ranks) hosts.insert(window.host_of(rank));
  if (ranks.size() == 1) {
    finding.layer = emits<Emitter::kSlowFlows, Layer::kLink>;
    finding.cause = emits<Emitter::kSlowFlows, Cause::kNicDegraded>;
    finding.component = format("link of rank %d", ranks.front().value());
    std::string name = name_of(window, ranks.front());
    name[0] = 'r';
    return "The link of " + name;
  }
  if (hosts.size() == 1) {
    finding.layer = emits<Emitter::kSlowFlows, Layer::kNic>;
    finding.cause = emits<Emitter::kSlowFlows, Cause::kNicDegraded>;
    finding.subject = finding.component = "network of host " + *hosts.begin();
    return "The network of host " + *hosts.begin();
  }
  finding.layer = emits<Emitter::kSlowFlows, Layer::kSwitch>;
  finding.cause = emits<Emitter::kSlowFlows, Cause::kCongestion>;
  finding.subject = kInTheFabric;
  finding.component = format("switches between %zu hosts", hosts.size());
  return format("The fabric between %zu hosts (%s ...)", hosts.size(), hosts.begin()->c_str());
}

void add_claims(const JobWindow& window, const std::vector<StepNumber>& steps, const Accused& accused, double saved,
                Finding& finding) {
  const Flow& worst = accused.worst();
  const Rank first = window.rank_of(worst.from);
  const StepNumber from = steps.front(), to = steps.back();
  const auto flow_query = [&](const char* of) {
    return Measure{.of = of, .ranks = {first}, .steps = steps, .comm_id = worst.comm_id, .peer = worst.peer}.query();
  };
  finding.chain.push_back(
      claim(ClaimKind::kPath, finding.component,
            format("%zu flows move slower than their like: rank %d to rank %d at %.2f GB/s, flows alike at %.2f.",
                   accused.flows.size(), first.value(), worst.to.value(), worst.rate(), worst.like_rate),
            {.value = worst.rate(), .unit = "GB/s", .peers = worst.like_rate}, from, to, flow_query("sent_gb_s")));
  const double wire_ns = worst.wire_ns_per_step();
  const std::string group = group_name(window, worst.comm_id);
  finding.chain.push_back(
      claim(ClaimKind::kWaitsFor, finding.component,
            format("Nobody arrives late; the collectives of %s wait for these transfers, which are on the wire for %s.",
                   group.c_str(), per_step(wire_ns).c_str()),
            {.value = wire_ns / 1e6, .unit = "ms", .peers = (wire_ns - saved) / 1e6}, from, to, flow_query("wire_ms")));
  finding.victim_groups.push_back(group);
  const double late = typical_lateness(window, steps, worst.from);
  finding.chain.push_back(claim(ClaimKind::kExclusion, format("rank %d", first.value()),
                                format("Not its GPU and not its input: its own time differs from its peers' by %s.",
                                       human_duration(std::fabs(late)).c_str()),
                                {.value = late / 1e6, .unit = "ms"}, from, to,
                                Measure{.of = "late_ms", .ranks = {first}, .steps = steps}.query()));
  finding.next.push_back({"check the adapters, cables and switch ports on the way: speed, errors, ECN marks, pauses",
                          "ethtool -S DEV; rdma statistic show link DEV"});
  if (worst.to != kNoRank) finding.next.push_back(look_at_path(first, worst.to));
}

Finding finding_of(const JobWindow& window, const Look& look, Accused accused) {
  const std::vector<StepNumber>& steps = look.steps;
  const Flow& worst = accused.worst();
  const double step_ns = look.step_ns, saved = std::min(worst.saved_ns(), step_ns);
  Finding finding;
  std::vector<Rank>& ranks = accused.ranks;
  std::sort(ranks.begin(), ranks.end());
  const std::string who = name_place(window, ranks, finding);
  if (ranks.size() > kRanksNamedMax) ranks.resize(kRanksNamedMax);
  finding.ranks = ranks;
  add_claims(window, steps, accused, saved, finding);
  finding.sentence = format("%s {is|was} slow: everybody {waits|waited} %s {when}: %s of the job.", who.c_str(),
                            per_step(saved).c_str(), percent(saved / step_ns).c_str());
  common(window, steps, step_ns, saved, finding);
  finding.since_step = slow_since(window, worst, worst.like_rate, steps.front());
  finding.sure = enough_steps(static_cast<size_t>(finding.through_step - finding.since_step + 1), kStepsSure,
                              saved >= kPlainShareSure * step_ns && worst.rate() * 1.5 < worst.like_rate, step_ns);
  if (ranks.size() == 1) {
    const Handling handling = Handlings(window, steps).of(ranks.front());
    if (handling.starved(worst.wire_ns_per_step()))
      blame_starved_proxy(window, steps, ranks.front(), handling, finding);
  }
  return finding;
}

// A rank whose own time is long slows its transfers too (its GPU neither feeds nor drains them): that is not the link.
bool is_slowed_by_an_end(const JobWindow& window, const std::vector<StepNumber>& steps, const Flow& flow) {
  const auto is_late = [&](size_t slot) { return typical_lateness(window, steps, slot) > 0.5 * flow.saved_ns(); };
  if (is_late(flow.from)) return true;
  const int32_t to = flow.to != kNoRank ? window.slot_of(flow.to) : -1;
  return to >= 0 && is_late(static_cast<size_t>(to));
}

// Those that are slow beside their like, which each flow is told of.
std::vector<const Flow*> slow_flows_of(const JobWindow& window, const Look& look, std::vector<Flow>& flows) {
  const auto size_of = [](const Flow& flow) { return bytes_class(flow.bytes / static_cast<double>(flow.steps)); };
  std::map<int, std::vector<double>> rates;
  for (const Flow& flow : flows) rates[size_of(flow)].push_back(std::log(flow.rate()));
  std::map<int, UsualRate> usual;
  for (auto& [size, logs] : rates) usual[size] = usual_rate_of(std::move(logs));
  std::vector<const Flow*> slow;
  for (Flow& flow : flows) {
    const UsualRate& like = usual[size_of(flow)];
    flow.like_rate = std::exp(like.middle);
    if (!look.unusual(like, like.middle - std::log(flow.rate()))) continue;
    // A flow that costs next to nothing may still tell whose link it is.
    if (flow.saved_ns() < kVoteShareMin * look.step_ns) continue;
    flow.to = window.world_rank(flow.comm_id, flow.peer);
    if (is_slowed_by_an_end(window, look.steps, flow)) continue;
    // A transfer that stood still once makes a mean slow, not a link.
    if (slow_in_most(window, look.steps, flow)) slow.push_back(&flow);
  }
  return slow;
}

// Takes the most accused until every slow flow has somebody.
std::vector<Accused> accuse(const JobWindow& window, std::vector<Flow>& flows, std::vector<const Flow*> slow) {
  std::unordered_map<Rank, size_t> out, in;
  for (Flow& flow : flows) {
    flow.to = window.world_rank(flow.comm_id, flow.peer);
    ++out[window.rank_of(flow.from)];
    if (flow.to != kNoRank) ++in[flow.to];
  }
  std::vector<Accused> accused;
  while (!slow.empty() && accused.size() < kRanksNamedMax) {
    const Rank rank = most_accused(window, slow, out, in);
    if (rank == kNoRank) break;
    std::vector<const Flow*> own, others;
    for (const Flow* flow : slow)
      (window.rank_of(flow->from) == rank || flow->to == rank ? own : others).push_back(flow);
    accused.push_back({{rank}, std::move(own)});
    slow = std::move(others);
  }
  return accused;
}

void find_flows_behind(const JobWindow& window, const Look& look, std::vector<Finding>& findings) {
  std::vector<Flow> flows = flows_over(window, look);
  std::vector<const Flow*> slow = slow_flows_of(window, look, flows);
  const bool costs = std::any_of(slow.begin(), slow.end(),
                                 [&](const Flow* flow) { return flow->saved_ns() >= look.share_min * look.step_ns; });
  if (!costs || static_cast<double>(slow.size()) > kSlowShareMax * static_cast<double>(flows.size())) return;
  std::vector<Accused> accused = accuse(window, flows, slow);
  if (accused.size() > kRanksApartMax) {
    Accused together{.flows = std::move(slow)};
    for (const Accused& one : accused) together.ranks.push_back(one.ranks.front());
    findings.push_back(finding_of(window, look, std::move(together)));
    return;
  }
  double most = 0;
  for (Accused& one : accused) {
    const double cost = std::max(0.0, one.worst().saved_ns());
    // What is left beside a much slower link is in its wake.
    if (cost < kWorthOfWorst * most) continue;
    most = std::max(most, cost);
    findings.push_back(finding_of(window, look, std::move(one)));
  }
}

// The longest that what came by one flow in a step waited to be handed on, by slot; below 0: the rank received nothing.
struct StepHanding {
  std::vector<double> longest_ns;
};

// Once for each step: the same steps are looked at again and again.
const StepHanding& handing_in(const StepFrame& frame) {
  return frame.derived<StepHanding>([&] {
    StepHanding made{.longest_ns = std::vector<double>(frame.rows.size(), -1)};
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (!frame.knows(slot)) continue;
      for (const FlowStep& flow : frame.rows[slot].summary.flows)
        if (!flow.send && flow.transfers > 0)
          made.longest_ns[slot] = std::max(made.longest_ns[slot], static_cast<double>(flow.wire_ns));
    }
    return made;
  });
}

std::optional<double> longest_handing_ns(const StepFrame& frame, size_t slot) {
  const std::vector<double>& longest = handing_in(frame).longest_ns;
  return slot < longest.size() && longest[slot] >= 0 ? std::optional(longest[slot]) : std::nullopt;
}

struct SlowReceiver {
  size_t slot = 0;
  double own_ns = 0;    // a step
  double peers_ns = 0;  // median
};

// One that is far behind all others; where two are it is something that they share.
std::optional<SlowReceiver> slow_receiver_in(const JobWindow& window, const Look& look) {
  std::vector<std::pair<double, size_t>> handing;  // of a step, by slot
  for (size_t slot = 0; slot < window.slots(); ++slot) {
    std::vector<double> of_steps;
    for (StepNumber number : look.steps)
      if (const std::optional<double> ns = longest_handing_ns(*window.frame(number), slot)) of_steps.push_back(*ns);
    if (of_steps.size() >= look.steps_min) handing.emplace_back(median(std::move(of_steps)), slot);
  }
  if (handing.size() < kAlikeMin) return std::nullopt;
  std::sort(handing.rbegin(), handing.rend());
  const SlowReceiver slow{handing[0].second, handing[0].first, handing[handing.size() / 2].first};
  const double saved = slow.own_ns - slow.peers_ns;
  const bool is_alone = slow.own_ns >= kSlowTimes * handing[1].first;
  const bool is_late = typical_lateness(window, look.steps, slow.slot) > 0.5 * saved;
  return is_alone && !is_late && saved >= kHandingShareMin * look.step_ns ? std::optional(slow) : std::nullopt;
}

// Every wire is as fast as ever: no flow is slow, and yet all wait for the one that does not take what arrives.
void find_slow_receiver(const JobWindow& window, const Look& look, std::vector<Finding>& findings) {
  const std::optional<SlowReceiver> slow = slow_receiver_in(window, look);
  if (!slow) return;
  const Rank rank = window.rank_of(slow->slot);
  const Handling handling = Handlings(window, look.steps).of(rank);
  const double saved = std::min(slow->own_ns - slow->peers_ns, look.step_ns);
  if (!handling.starved(saved)) return;
  Finding finding;
  finding.ranks = {rank};
  const double late = typical_lateness(window, look.steps, slow->slot);
  finding.chain.push_back(claim(ClaimKind::kExclusion, format("rank %d", rank.value()),
                                format("Not its GPU and not its input: its own time differs from its peers' by %s.",
                                       human_duration(std::fabs(late)).c_str()),
                                {.value = late / 1e6, .unit = "ms"}, look.steps.front(), look.steps.back(),
                                Measure{.of = "late_ms", .ranks = {rank}, .steps = look.steps}.query()));
  common(window, look.steps, look.step_ns, saved, finding);
  const std::vector<StepNumber> all = window.complete_steps();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    const std::optional<double> ns = longest_handing_ns(*window.frame(*at), slow->slot);
    if (ns && *ns < (slow->own_ns + slow->peers_ns) / 2) break;
    if (ns) finding.since_step = *at;
  }
  finding.sure = enough_steps(static_cast<size_t>(finding.through_step - finding.since_step + 1), kStepsSure,
                              saved >= kPlainShareSure * look.step_ns, look.step_ns);
  blame_starved_proxy(window, look.steps, rank, handling, finding);
  findings.push_back(std::move(finding));
}

}  // namespace

std::vector<Finding> find_slow_flows_of_large_jobs(const JobWindow& window, const std::vector<AttributedRange>&) {
  if (window.slots() < kSlowFlowsRanksMin) return {};
  const std::vector<StepNumber> all = window.complete_steps();
  const auto last = [&](size_t count) {
    return std::vector<StepNumber>(all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end());
  };
  if (all.size() < kStepsSuspect) return {};
  auto look_at = [&](std::vector<StepNumber> steps) {
    Look look{.steps = std::move(steps)};
    std::vector<double> durations;
    for (StepNumber number : look.steps) durations.push_back(lateness(window, *window.frame(number)).duration_ns);
    look.step_ns = median(durations);
    return look;
  };
  auto plain = [&](std::vector<StepNumber> steps) {
    Look look = look_at(std::move(steps));
    look.steps_min = kWindowPlain;
    look.log_ratio_min = kLogRatioPlain;
    look.share_min = kPlainShareMin;
    return look;
  };
  std::vector<Finding> findings;
  const double step_ns = look_at(last(kWindow)).step_ns;
  if (step_ns <= 0) return findings;
  if (const std::vector<StepNumber> seen = last_steps_with_flows(window, all, kWindow); !seen.empty()) {
    find_flows_behind(window, look_at(seen), findings);
    if (findings.empty()) find_flows_behind(window, plain(last_steps_with_flows(window, all, kWindowPlain)), findings);
    if (findings.empty()) find_slow_receiver(window, look_at(seen), findings);
  }
  return findings;
}

std::vector<Finding> find_slow_flows_and_groups(const JobWindow& window,
                                                const std::vector<AttributedRange>& explained) {
  std::vector<Finding> findings = find_slow_flows_of_large_jobs(window, explained);
  for (Finding& finding : find_slow_groups(window, explained)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace lockstep
