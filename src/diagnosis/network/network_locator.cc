#include "diagnosis/network/network_locator.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/evenly.h"
#include "base/text.h"
#include "diagnosis/flow_steps.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/version_evidence.h"
#include "fabric/graph.h"
#include "fabric/path.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

using fabric::NodeIndex;
using fabric::NodeKind;
using fabric::Topology;

// The newest steps with flows tell which are slow; what stands still now and then shows in more of them.
constexpr size_t kSteps = 4, kStepsOfPauses = 16;
// In natural logarithms, as the scores: a port that stands out makes a component 50 times likelier, one that reports
// nothing odd five times less likely. A whole switch or host is ill less often than one of its ports.
constexpr double kPortOdd = 4, kPortClean = 1.6, kWhole = 1;
// Suspects nearer to the best than this cannot be told apart.
constexpr double kApart = 1;
// So many of the best are asked for their ports' numbers.
constexpr size_t kSuspectsMax = 64;
constexpr size_t kNamedMax = 4;

// Ways of flows, by what their ends hang on.
class Ways {
 public:
  Ways(const Topology& topology, const NetworkLocator::Moment& moment, const fabric::FlowObserver* observer)
      : topology_(topology), moment_(moment), observer_(observer) {}

  // Empty: not known, or not over the network. is_observed: whoever samples packets is asked for it. As long as this lives.
  FlowPath of(const SeenFlow& flow, bool is_observed) {
    FlowPath path{.slow = flow.slow};
    const End &from = end_of(flow.from), &to = end_of(flow.to);
    if (from.leaf == fabric::kNone || to.leaf == fabric::kNone || from.nic == to.nic) return path;
    for (const End* end : {&from, &to}) {
      path.crossed.push_back({{.node = end->nic}, 1, end == &to});
      path.crossed.push_back({{.node = topology_.nodes()[end->nic].parent}});
      if (from.leaf != to.leaf) path.crossed.push_back({{.node = end->leaf}});
    }
    if (from.leaf == to.leaf) {
      path.crossed.push_back({{.node = from.leaf}, 1, true});
      return path;
    }
    // Forwarding tables and sampled packets tell of one pair what they do not tell of its neighbours.
    const fabric::FlowObserver* const observer = is_observed ? observer_ : nullptr;
    const bool alone = topology_.has_forwarding() || observer != nullptr;
    const auto key = alone ? std::pair(from.gpu, to.gpu) : std::pair(from.leaf, to.leaf);
    const auto [between, is_new] = between_.try_emplace(key);
    if (is_new) between->second = find_between(from, to, alone, observer);
    path.between = &between->second;
    return path;
  }

  Rank rank_at(NodeIndex nic) const {
    for (const auto& [rank, end] : ends_)
      if (end.nic == nic) return rank;
    return kNoRank;
  }

 private:
  struct End {
    NodeIndex gpu = fabric::kNone, nic = fabric::kNone, leaf = fabric::kNone;
  };

  const End& end_of(Rank rank) {
    const auto [entry, is_new] = ends_.try_emplace(rank);
    End& end = entry->second;
    const auto identity = moment_.window.ranks().find(rank);
    if (!is_new || identity == moment_.window.ranks().end()) return end;
    std::optional<NodeIndex> gpu =
        identity->second.gpu_uuid.empty() ? std::nullopt : topology_.find(identity->second.gpu_uuid);
    if (!gpu) gpu = topology_.find_gpu(identity->second.host, identity->second.local_rank);
    if (!gpu || topology_.nodes()[*gpu].kind != NodeKind::kGpu) return end;
    const std::optional<Topology::Adapter> adapter = topology_.adapter_of(*gpu);
    const std::optional<fabric::LinkIndex> uplink = adapter ? topology_.uplink_of(adapter->nic) : std::nullopt;
    if (!uplink) return end;
    const NodeIndex leaf = topology_.other_end(*uplink, adapter->nic);
    if (fabric::is_switch(topology_.nodes()[leaf].kind)) end = {*gpu, adapter->nic, leaf};
    return end;
  }

  // Switches between the leaves and links between switches, each with its share.
  std::vector<CrossedComponent> find_between(const End& from, const End& to, bool alone,
                                             const fabric::FlowObserver* observer) const {
    fabric::PathQuestion question{.a = from.gpu, .b = to.gpu};
    if (alone) {
      question.flow = FlowKey{};
      question.from_unix_ns = moment_.since_unix_ns;
      question.to_unix_ns = moment_.now_unix_ns;
    }
    const fabric::FabricPath path = fabric::find_path(topology_, question, observer);
    std::map<std::pair<NetworkComponent, bool>, double> shares;
    for (const fabric::Hop& hop : path.hops) {
      if (hop.link != fabric::kNone) {
        const fabric::Link& link = topology_.links()[hop.link];
        if (fabric::is_switch(topology_.nodes()[link.a].kind) && fabric::is_switch(topology_.nodes()[link.b].kind))
          shares[{{.link = hop.link}, hop.node == link.b}] += hop.share;
      } else if (fabric::is_switch(topology_.nodes()[hop.node].kind) && hop.node != from.leaf && hop.node != to.leaf) {
        shares[{{.node = hop.node}, false}] += hop.share;
      }
    }
    std::vector<CrossedComponent> crossed;
    for (const auto& [way, share] : shares) crossed.push_back({way.first, std::min(1.0, share), way.second});
    return crossed;
  }

  const Topology& topology_;
  const NetworkLocator::Moment& moment_;
  const fabric::FlowObserver* observer_;
  std::map<Rank, End> ends_;
  std::map<std::pair<NodeIndex, NodeIndex>, std::vector<CrossedComponent>> between_;
};

std::string name_of(const Topology& topology, const NetworkComponent& component) {
  if (component.link == fabric::kNone) return topology.name(component.node);
  const fabric::Link& link = topology.links()[component.link];
  return topology.port_name(component.link, link.a) + " - " + topology.port_name(component.link, link.b);
}

// For people: "link leaf-3:up1 - spine-1:down3", "leaf leaf-3", "network adapter mlx5_0 of node-01".
std::string words_of(const Topology& topology, const NetworkComponent& component) {
  if (component.link != fabric::kNone) return "link " + name_of(topology, component);
  const fabric::Node& node = topology.nodes()[component.node];
  if (node.kind == NodeKind::kNic)
    return format("network adapter %s of %s", std::string(topology.text(node.name)).c_str(),
                  topology.name(node.parent).c_str());
  if (node.kind == NodeKind::kHost) return "network of host " + topology.name(component.node);
  return format("%s %s", to_text(node.kind), topology.name(component.node).c_str());
}

// As `lockstep fabric --affected` takes it. Of a link the port of its lower end.
std::string place_of(const Topology& topology, const NetworkComponent& component) {
  if (component.link == fabric::kNone)
    return format("%s:%s", to_text(topology.nodes()[component.node].kind), topology.name(component.node).c_str());
  const fabric::Link& link = topology.links()[component.link];
  const NodeIndex end = topology.nodes()[link.b].kind == NodeKind::kLeaf ? link.b : link.a;
  return "link:" + topology.port_name(component.link, end);
}

std::string affected_query(const std::string& place) {
  return "/api/fabric/affected?component=" + url_part(place);
}

bool is_whole(const Topology& topology, const NetworkComponent& component) {
  return component.link == fabric::kNone && topology.nodes()[component.node].kind != NodeKind::kNic;
}

struct Weighed {
  Suspect suspect;
  PortEvidence ports;
};

// Layer and cause as the network's side tells them.
struct Placed {
  Layer layer;
  Cause cause;
};

constexpr Placed kCongested{emits<Emitter::kNetwork, Layer::kSwitch>, emits<Emitter::kNetwork, Cause::kCongestion>};
constexpr Placed kStorm{emits<Emitter::kNetwork, Layer::kSwitch>, emits<Emitter::kNetwork, Cause::kPfcStorm>};

Placed placed_of(const Topology& topology, const Weighed& weighed, const Finding& finding) {
  const NetworkComponent& component = weighed.suspect.component;
  const std::string_view odd = weighed.ports.odd ? std::string_view(weighed.ports.odd->meaning) : "";
  const bool is_adapter = component.link == fabric::kNone && (topology.nodes()[component.node].kind == NodeKind::kNic ||
                                                              topology.nodes()[component.node].kind == NodeKind::kHost);
  if (is_adapter) {
    // The node's own signals know better why; that its cable damages packets only the switch sees.
    if (odd == "errors" && finding.cause == Cause::kNicDegraded)
      return {emits<Emitter::kNetwork, Layer::kLink>, emits<Emitter::kNetwork, Cause::kNicDegraded>};
    if (finding.layer != Layer::kSwitch) return {finding.layer, finding.cause};
    return {emits<Emitter::kNetwork, Layer::kNic>, emits<Emitter::kNetwork, Cause::kNicDegraded>};
  }
  if (odd == "ecn" || odd == "drops" || odd == "queue") return kCongested;
  if (odd == "pause") return kStorm;
  const bool is_switch = component.link == fabric::kNone;
  if (odd == "up" && is_switch)
    return {emits<Emitter::kNetwork, Layer::kSwitch>, emits<Emitter::kNetwork, Cause::kSwitchDown>};
  // Until ports tell, what the adapters saw of it does.
  if (odd.empty() && finding.cause == Cause::kPfcStorm) return kStorm;
  if (odd.empty() && is_switch && finding.cause == Cause::kLinkFlap)
    return {emits<Emitter::kNetwork, Layer::kSwitch>, emits<Emitter::kNetwork, Cause::kSwitchDown>};
  if (odd.empty() && (is_switch || (finding.cause == Cause::kCongestion && finding.by_signals))) return kCongested;
  return {is_switch ? emits<Emitter::kNetwork, Layer::kSwitch> : emits<Emitter::kNetwork, Layer::kLink>,
          emits<Emitter::kNetwork, Cause::kLinkDegraded>};
}

// "lockstep_port_fcs_errors_total{direction="in",port="up2",switch="leaf-3"}"; a switch may be called anything.
std::string series_of(const fabric::HopValue& value) {
  std::string series = value.metric + "{";
  for (const auto& [name, text] : value.labels)
    series += (series.back() == '{' ? "" : ",") + name + "=" + in_label_quotes(text);
  return series + "}";
}

// "42 /s" of lockstep_port_fcs_errors_total in, "0" at its siblings.
Claim claim_of(const PortEvidence& ports, const Finding& finding, int64_t now_unix_ns) {
  const fabric::HopValue& odd = *ports.odd;
  const std::string query = odd.is_rate ? "sum(rate(" + series_of(odd) + "[1m]))" : "sum(" + series_of(odd) + ")";
  return claim(
      ClaimKind::kCounter, ports.switch_name + ":" + ports.port,
      format("Port %s of %s: %s %.3g%s, %.3g at its siblings (%s).", ports.port.c_str(), ports.switch_name.c_str(),
             odd.meaning.c_str(), odd.value, odd.is_rate ? "/s" : "", odd.siblings.value_or(0), odd.metric.c_str()),
      {.value = odd.value, .unit = odd.is_rate ? "/s" : "", .peers = odd.siblings.value_or(0)}, finding.since_step,
      finding.through_step,
      format("/prometheus/api/v1/query?query=%s&time=%lld", url_part(query).c_str(),
             static_cast<long long>(now_unix_ns / 1'000'000'000)));
}

void add_paths(Ways& ways, const std::vector<SeenFlow>& flows, std::vector<FlowPath>& paths) {
  const auto slow =
      static_cast<size_t>(std::count_if(flows.begin(), flows.end(), [](const SeenFlow& flow) { return flow.slow; }));
  const std::vector<size_t> observed = evenly(slow, NetworkLocator::kPairsObserved);
  size_t at = 0;  // of the slow ones
  for (const SeenFlow& flow : flows) {
    const bool is_observed = flow.slow && std::binary_search(observed.begin(), observed.end(), at);
    at += flow.slow ? 1 : 0;
    if (FlowPath path = ways.of(flow, is_observed); !path.crossed.empty()) paths.push_back(std::move(path));
  }
}

bool is_in_the_network(const Finding& finding) {
  return finding.kind == VerdictKind::kSlow &&
         (finding.layer == Layer::kLink || finding.layer == Layer::kNic || finding.layer == Layer::kSwitch);
}

}  // namespace

struct NetworkLocator::Question {
  const Moment& moment;
  const Finding& finding;
  const Topology& topology;
  std::vector<FlowPath> paths;
  std::vector<Weighed> weighed;         // the best first
  std::vector<NetworkComponent> named;  // that cannot be told apart; mostly one
};

NetworkLocator::Located NetworkLocator::search(const Moment& moment, const Finding& finding) const {
  Located located{.looked_unix_ns = moment.now_unix_ns};
  const std::shared_ptr<const Topology> topology = view_.fabric->topology.topology();
  if (topology == nullptr || topology->count(NodeKind::kNic) == 0) return located;
  std::vector<StepNumber> steps;
  for (StepNumber number : moment.window.complete_steps())
    if (number >= finding.since_step) steps.push_back(number);
  steps = last_steps_with_flows(moment.window, steps, finding.cause == Cause::kLinkFlap ? kStepsOfPauses : kSteps);
  Ways ways(*topology, moment, view_.fabric->observer);
  Question question{moment, finding, *topology, {}, {}, {}};
  add_paths(ways, see_flows(moment.window, steps, finding.since_step, {finding.ranks, kRanksMax, kFlowsMax}),
            question.paths);
  weigh(question);
  if (question.weighed.empty()) return located;
  const Weighed& best = question.weighed.front();
  for (const Weighed& one : question.weighed)
    if (one.suspect.score > best.suspect.score - kApart) question.named.push_back(one.suspect.component);
  const Placed placed = placed_of(*topology, best, finding);
  located.layer = placed.layer;
  located.cause = placed.cause;
  if (question.named.size() == 1) {
    located.component = words_of(*topology, best.suspect.component);
    located.place = place_of(*topology, best.suspect.component);
    if (best.suspect.component.link == fabric::kNone) located.rank = ways.rank_at(best.suspect.component.node);
  } else {
    located.component = format("one of %zu: ", question.named.size());
    for (size_t i = 0; i < std::min(question.named.size(), kNamedMax); ++i)
      located.component += (i > 0 ? ", " : "") + words_of(*topology, question.named[i]);
    if (question.named.size() > kNamedMax) located.component += ", ...";
  }
  located.in_the_fabric = std::none_of(question.named.begin(), question.named.end(), [&](const NetworkComponent& one) {
    return one.link == fabric::kNone && !fabric::is_switch(topology->nodes()[one.node].kind);
  });
  add_flow_claims(question, located);
  add_changes(question, located);
  add_affected(question, located);
  return located;
}

// By its flows, then with what ports say of those that flows leave open.
void NetworkLocator::weigh(Question& question) const {
  const Topology& topology = question.topology;
  std::vector<Suspect> suspects = rank_suspects(question.paths);
  for (Suspect& suspect : suspects) suspect.score -= is_whole(topology, suspect.component) ? kWhole : 0;
  std::stable_sort(suspects.begin(), suspects.end(),
                   [](const Suspect& a, const Suspect& b) { return a.score > b.score; });
  std::optional<PortReadings> ports;
  if (view_.metrics != nullptr) ports.emplace(*view_.metrics, topology, question.moment.now_unix_ns);
  bool any_reported = false;
  for (const Suspect& suspect : suspects) {
    Weighed& one = question.weighed.emplace_back(Weighed{suspect, {}});
    // What no port can bring back is not asked for. Who is not counts as clean: it does not come before those who are.
    const bool is_open = suspect.score >= suspects.front().score - kPortOdd - kPortClean;
    const bool is_asked = ports && is_open && question.weighed.size() <= kSuspectsMax;
    if (is_asked) one.ports = ports->of(suspect.component);
    any_reported |= one.ports.reported;
    one.suspect.score += one.ports.odd ? kPortOdd : (is_asked ? one.ports.reported : any_reported) ? -kPortClean : 0;
  }
  std::stable_sort(question.weighed.begin(), question.weighed.end(),
                   [](const Weighed& a, const Weighed& b) { return a.suspect.score > b.suspect.score; });
}

// What its flows and its port say, what is cleared, and what else it could be.
void NetworkLocator::add_flow_claims(const Question& question, Located& located) {
  const Topology& topology = question.topology;
  const Finding& finding = question.finding;
  const Weighed& best = question.weighed.front();
  const auto slow = static_cast<size_t>(
      std::count_if(question.paths.begin(), question.paths.end(), [](const FlowPath& path) { return path.slow; }));
  located.claims.push_back(
      claim(ClaimKind::kPath, located.component,
            format("%zu of %zu slow flows may cross %s, and %zu of %zu others.", best.suspect.slow_crossing, slow,
                   words_of(topology, best.suspect.component).c_str(), best.suspect.fast_crossing,
                   question.paths.size() - slow),
            {}, finding.since_step, finding.through_step, affected_query(place_of(topology, best.suspect.component))));
  if (best.ports.odd) located.claims.push_back(claim_of(best.ports, finding, question.moment.now_unix_ns));
  // The switch that most of these flows cross, and that is cleared by the fast ones.
  const auto cleared = std::find_if(question.weighed.begin(), question.weighed.end(), [&](const Weighed& one) {
    const NetworkComponent& component = one.suspect.component;
    return component.link == fabric::kNone && fabric::is_switch(topology.nodes()[component.node].kind) &&
           one.suspect.fast_crossing > 0 && one.suspect.score < best.suspect.score - kApart;
  });
  if (cleared != question.weighed.end())
    located.claims.push_back(claim(
        ClaimKind::kExclusion, name_of(topology, cleared->suspect.component),
        format("Not %s as a whole: %zu flows that may cross it are as fast as before.",
               words_of(topology, cleared->suspect.component).c_str(), cleared->suspect.fast_crossing),
        {}, finding.since_step, finding.through_step, affected_query(place_of(topology, cleared->suspect.component))));
  constexpr size_t kAlternativesMax = 3;
  for (size_t i = 1; i < std::min(question.weighed.size(), kAlternativesMax + 1); ++i) {
    const Weighed& one = question.weighed[i];
    const double odds = std::exp(std::min(0.0, one.suspect.score - best.suspect.score));
    located.alternatives.push_back(
        {words_of(topology, one.suspect.component), std::round(100 * odds) / 100,
         one.suspect.fast_crossing > best.suspect.fast_crossing
             ? format("%zu flows that may cross it are as fast as before", one.suspect.fast_crossing)
         : one.ports.reported && !one.ports.odd ? "its ports report nothing odd"
                                                : "fewer of the slow flows cross it",
         "counters of its ports, or packets of these flows sampled on them"});
  }
}

// What agents saw change at it, or at its ends, shortly before.
void NetworkLocator::add_changes(const Question& question, Located& located) const {
  std::set<std::string> names;
  for (const NetworkComponent& component : question.named) {
    if (component.link == fabric::kNone) {
      names.insert(question.topology.name(component.node));
      continue;
    }
    const fabric::Link& link = question.topology.links()[component.link];
    for (const NodeIndex end : {link.a, link.b}) names.insert(question.topology.port_name(component.link, end));
  }
  constexpr size_t kChangesAsked = 100, kChangesSaid = 2;
  size_t said = 0;
  for (const fabric::TopologyChange& change : view_.fabric->topology.changes(kChangesAsked)) {
    const int64_t before_ns = question.moment.since_unix_ns - change.time_unix_ns;
    if (before_ns > kChangeBeforeNs || before_ns < -kChangeBeforeNs || said == kChangesSaid) continue;
    auto is_about = [&](const std::string& text) {
      return std::any_of(names.begin(), names.end(),
                         [&](const std::string& name) { return text == name || text.starts_with(name + ":"); });
    };
    if (!is_about(change.subject) && !is_about(change.before) && !is_about(change.after)) continue;
    ++said;
    located.claims.push_back(change_claim(fabric::as_change(change), question.moment.since_unix_ns, question.finding));
  }
}

// Who else suffers from it.
void NetworkLocator::add_affected(const Question& question, Located& located) const {
  if (located.place.empty()) {
    located.next.push_back(
        {"compare the counters of these ports: errors, ECN marks, drops, pauses", "lockstep fabric"});
    return;
  }
  const Result<fabric::Affected> affected =
      fabric::find_affected(question.topology, view_.fabric->places, located.place, question.moment.now_unix_ns);
  std::string action = "see who else depends on it";
  if (affected.ok()) {
    std::string others;
    size_t count = 0;
    for (const fabric::AffectedJob& job : affected->jobs) {
      if (job.job == question.moment.job_id || ++count > 3) continue;
      others += format("%s%s (%d ranks)", others.empty() ? "" : ", ", as_one_line(job.job).c_str(), job.ranks_hit);
    }
    action = others.empty() ? "no other job depends on it; see which ranks of this one do"
                            : "it is shared with " + others + (count > 3 ? ", ..." : "") + ": see who depends on it";
  }
  located.next.push_back({std::move(action), "lockstep fabric --affected " + shell_word(located.place)});
}

void NetworkLocator::apply(const Located& located, const JobWindow& window, Finding& finding) {
  if (located.component.empty()) return;
  if (located.rank != kNoRank && finding.ranks != std::vector{located.rank}) {
    // The same verdict as before, whoever is named now.
    if (finding.subject.empty()) {
      for (Rank rank : finding.ranks)
        finding.subject += format("%s%d", finding.subject.empty() ? "" : "/", rank.value());
    }
    finding.ranks = {located.rank};
    finding.victims = victims_of(window, finding.ranks);
  }
  // Whose flows meet it changes from step to step: between the switches it is one trouble.
  if (located.in_the_fabric) finding.subject = kInTheFabric;
  finding.place = located.place;
  finding.component = located.component;
  finding.layer = located.layer;
  finding.cause = located.cause;
  finding.sentence = format(
      "%s {is|was} slow: everybody {waits|waited} %s {when}: %s of the job.", located.component.c_str(),
      per_step(static_cast<double>(finding.lost_ns_per_step)).c_str(),
      percent(static_cast<double>(finding.lost_ns_per_step) / std::max(1.0, static_cast<double>(finding.step_ns)))
          .c_str());
  finding.sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(finding.sentence[0])));
  const auto at = std::find_if(finding.chain.begin(), finding.chain.end(),
                               [](const Claim& one) { return one.kind == ClaimKind::kCounterfactual; });
  finding.chain.insert(at, located.claims.begin(), located.claims.end());
  finding.alternatives.insert(finding.alternatives.begin(), located.alternatives.begin(), located.alternatives.end());
  finding.next.insert(finding.next.end(), located.next.begin(), located.next.end());
}

void NetworkLocator::locate(const Moment& moment, Finding& finding) const {
  if (view_.fabric == nullptr || !is_in_the_network(finding)) return;
  std::string key = moment.job_id + "\n" + finding.subject;
  for (Rank rank : finding.ranks) key += format("/%d", rank.value());
  {
    MutexLock lock(mutex_);
    const auto known = known_.find(key);
    const int64_t age_ns = known == known_.end() ? kLookAgainNs : moment.now_unix_ns - known->second.looked_unix_ns;
    if (age_ns >= 0 && age_ns < kLookAgainNs) {  // below 0: the clock was set back
      apply(known->second, moment.window, finding);
      return;
    }
  }
  Located located = search(moment, finding);
  apply(located, moment.window, finding);
  MutexLock lock(mutex_);
  if (known_.size() >= kFindingsMax && !known_.contains(key))
    known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
      return a.second.looked_unix_ns < b.second.looked_unix_ns;
    }));
  known_[key] = std::move(located);
}

}  // namespace lockstep
