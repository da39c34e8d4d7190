#include "diagnosis/detectors/slow_flows/slow_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/price.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"
#include "diagnosis/sequential/new_level.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// One, and two to compare it with.
constexpr size_t kAlikeMin = 3;
// Groups may differ by a sixth for good (where their members sit); what costs less of a step is nobody's concern.
const double kLogRatioMin = std::log(1.18);
constexpr double kSavedShareMin = 0.025;
constexpr int32_t kMembersMax = 1024;

using Alike = std::tuple<int32_t, int64_t, int>;  // size, operations, about as many bytes

// What a group inside a host did in one step.
struct GroupStep {
  Alike alike;
  int32_t told = 0;     // members that did
  double least_ns = 0;  // of any member
  double usual_ns = 0;  // of the groups alike; 0: too few
  double log_slower = 0;
};
struct GroupSteps {
  std::unordered_map<CommId, GroupStep> by_id;
};

bool is_inside_a_host(const JobWindow& window, CommId comm_id) {
  auto found = window.comms().find(comm_id);
  if (found == window.comms().end() || found->second.size < 2 || found->second.size > kMembersMax) return false;
  const auto& members = found->second.world_rank;
  const std::string host = members.empty() ? "" : window.host_of(members.begin()->second);
  return !host.empty() && std::all_of(members.begin(), members.end(),
                                      [&](const auto& member) { return window.host_of(member.second) == host; });
}

GroupSteps groups_of(const JobWindow& window, const StepFrame& frame) {
  GroupSteps groups;
  std::unordered_map<CommId, bool> inside;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms) {
      if (comm.p2p || comm.count <= 0 || comm.size < 2 || comm.shortest_ns <= 0) continue;
      auto [known, unasked] = inside.try_emplace(comm.comm_id, false);
      if (unasked) known->second = is_inside_a_host(window, comm.comm_id);
      if (!known->second) continue;
      auto [at, first] = groups.by_id.try_emplace(comm.comm_id);
      const auto here = static_cast<double>(comm.shortest_ns) * static_cast<double>(comm.count);
      const auto bytes = static_cast<double>(comm.bytes);
      at->second.alike = {comm.size, comm.count, bytes_class(bytes)};
      ++at->second.told;
      at->second.least_ns = first ? here : std::min(at->second.least_ns, here);
    }
  }
  // A member of which nothing is heard may be whom the others wait for.
  std::erase_if(groups.by_id, [](const auto& group) { return group.second.told < std::get<0>(group.second.alike); });
  std::map<Alike, std::vector<double>> times;
  for (const auto& [id, group] : groups.by_id) times[group.alike].push_back(group.least_ns);
  std::map<Alike, double> usual;
  for (auto& [alike, of_groups] : times)
    if (of_groups.size() >= kAlikeMin) usual[alike] = median(std::move(of_groups));
  for (auto& [id, group] : groups.by_id) {
    auto found = usual.find(group.alike);
    if (found == usual.end() || found->second <= 0) continue;
    group.usual_ns = found->second;
    group.log_slower = std::log(group.least_ns / group.usual_ns);
  }
  return groups;
}

const GroupSteps& groups_in(const JobWindow& window, StepNumber number) {
  const StepFrame& frame = *window.frame(number);
  return frame.derived<GroupSteps>([&] { return groups_of(window, frame); });
}

// A group that is slower than its like in the newest step, back to where it began to be.
struct SlowGroup {
  CommId comm_id;
  std::vector<StepNumber> steps;
  std::vector<double> log_slower;
  double least_ns = 0, usual_ns = 0;  // typically
  bool from_the_start = false;
};

SlowGroup slow_group(const JobWindow& window, const std::vector<StepNumber>& steps, CommId comm_id) {
  SlowGroup slow{.comm_id = comm_id};
  const double half = groups_in(window, steps.back()).by_id.at(comm_id).log_slower / 2;
  size_t begin = steps.size(), quick = 0;
  for (size_t i = steps.size(); i-- > 0 && quick < 2;) {
    const auto& by_id = groups_in(window, steps[i]).by_id;
    const auto found = by_id.find(comm_id);
    quick = found != by_id.end() && found->second.log_slower >= half ? 0 : quick + 1;
    if (quick == 0) begin = i;
  }
  std::vector<double> least, usual;
  for (size_t i = begin; i < steps.size(); ++i) {
    const auto& by_id = groups_in(window, steps[i]).by_id;
    const auto found = by_id.find(comm_id);
    if (found == by_id.end()) continue;
    slow.steps.push_back(steps[i]);
    slow.log_slower.push_back(found->second.log_slower);
    least.push_back(found->second.least_ns);
    usual.push_back(found->second.usual_ns);
  }
  slow.least_ns = median(std::move(least));
  slow.usual_ns = median(std::move(usual));
  slow.from_the_start = begin == 0 && steps.front() <= window.first_step() + JobWindow::kWarmUpSteps;
  return slow;
}

// How far groups alike are from their middle that are not slow now.
Usual usual_of_alike(const JobWindow& window, const std::vector<StepNumber>& steps, const Alike& alike,
                     const std::set<CommId>& slow) {
  std::vector<double> values;
  for (StepNumber number : steps) {
    for (const auto& [id, group] : groups_in(window, number).by_id)
      if (group.alike == alike && group.usual_ns > 0 && !slow.contains(id)) values.push_back(group.log_slower);
  }
  return usual_of(std::move(values));
}

void add_claims(const JobWindow& window, const SlowGroup& slow, double step_ns, double saved, Finding& finding) {
  const StepNumber from = slow.steps.front(), to = slow.steps.back();
  finding.chain.push_back(
      claim(ClaimKind::kPath, finding.component,
            format("Even the last to arrive in the collectives of %s spends %s there; in groups alike %s.",
                   group_name(window, slow.comm_id).c_str(), per_step(slow.least_ns).c_str(),
                   human_duration(slow.usual_ns).c_str()),
            {.value = slow.least_ns / 1e6, .unit = "ms", .peers = slow.usual_ns / 1e6}, from, to,
            Measure{.of = "transfer_ms", .steps = slow.steps, .comm_id = slow.comm_id}.query()));
  const Measure late{.of = "late_ms", .ranks = {finding.ranks.front()}, .steps = slow.steps};
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, finding.component,
            "Not a late rank and not the network: all its members are on one host, and their own times are "
            "like their peers'.",
            {.value = measured(window, late), .unit = "ms"}, from, to, late.query()));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("At the pace of its like a step would take %s instead of %s.",
                                       human_duration(step_ns - saved).c_str(), human_duration(step_ns).c_str()),
                                {.value = (step_ns - saved) / 1e6, .unit = "ms", .baseline = step_ns / 1e6}, from, to,
                                Measure{.of = "step_ms", .steps = slow.steps}.query()));
  finding.victim_groups.push_back(group_name(window, slow.comm_id));
  finding.next.push_back({"look at the host's NVLinks: state, replay and recovery counters, fabric manager",
                          "nvidia-smi nvlink --status; nvidia-smi nvlink -e"});
}

// What is slow on one host, by its slowest group.
Finding finding_of(const JobWindow& window, const std::string& host, const SlowGroup& slow,
                   const std::vector<CommId>& all_slow) {
  Finding finding;
  finding.kind = emits<Emitter::kSlowFlows, VerdictKind::kSlow>;
  // Who is in the most of the slow groups.
  std::map<Rank, size_t> votes;
  size_t most = 0;
  for (CommId id : all_slow) {
    for (const auto& [in_comm, rank] : window.comms().at(id).world_rank) most = std::max(most, ++votes[rank]);
  }
  for (const auto& [rank, count] : votes)
    if (count == most) finding.ranks.push_back(rank);
  finding.layer = emits<Emitter::kSlowFlows, Layer::kNvlink>;
  finding.cause = emits<Emitter::kSlowFlows, Cause::kNvlinkDegraded>;
  finding.subject = "nvlink of host " + host;
  finding.component = "NVLinks of host " + host;
  finding.since_step = slow.steps.front();
  finding.through_step = slow.steps.back();
  const double step_ns = median(step_durations(window, slow.steps));
  const double saved =
      cost_of_a_step(window, finding.since_step, std::min(slow.least_ns - slow.usual_ns, step_ns), step_ns);
  finding.step_ns = static_cast<int64_t>(step_ns);
  finding.step_without_ns = static_cast<int64_t>(step_ns - saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.coverage = coverage_of(window, window.step(slow.steps.back())->size());
  finding.confidence = std::min(0.95, 0.5 + 0.04 * static_cast<double>(slow.steps.size()));
  finding.victims = victims_of(window, finding.ranks);
  finding.sentence = format(
      "The NVLinks of host %s (ranks %s) {are|were} slow: everybody {waits|waited} %s {when}: %s of the job.",
      host.c_str(), human_ranks(finding.ranks, 4).c_str(), per_step(saved).c_str(), percent(saved / step_ns).c_str());
  add_claims(window, slow, step_ns, saved, finding);
  return finding;
}

}  // namespace

int bytes_class(double bytes) {
  return static_cast<int>(std::lround(std::log2(std::max(1.0, bytes)) * 2));
}

std::vector<Finding> find_slow_groups(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::vector<StepNumber>& steps = window.steps_to_compare();
  if (steps.size() < 2) return {};
  const double step_ns = lateness(window, *window.frame(steps.back())).duration_ns;
  const GroupSteps& newest = groups_in(window, steps.back());
  std::set<CommId> slow;
  std::set<std::string> hosts, slow_hosts;
  for (const auto& [id, group] : newest.by_id) {
    const std::string host = window.host_of(window.comms().at(id).world_rank.begin()->second);
    hosts.insert(host);
    if (group.log_slower < kLogRatioMin || group.least_ns - group.usual_ns < kSavedShareMin * step_ns) continue;
    slow.insert(id);
    slow_hosts.insert(host);
  }
  // Most hosts alike are how the job is; and on one host alone it may be the host's processors as well.
  if (slow.empty() || hosts.size() < 2 || 3 * slow_hosts.size() > hosts.size() + 2) return {};
  const double head_start = nats_of_the_start(step_ns);
  const size_t streams = newest.by_id.size();
  std::map<Alike, Usual> usual;
  std::vector<Finding> findings;
  for (const std::string& host : slow_hosts) {
    std::vector<CommId> here;
    SlowGroup worst;
    double most = 0;
    for (CommId id : slow) {
      if (window.host_of(window.comms().at(id).world_rank.begin()->second) != host) continue;
      const Alike& alike = newest.by_id.at(id).alike;
      auto [of_alike, fresh] = usual.try_emplace(alike);
      if (fresh) of_alike->second = usual_of_alike(window, steps, alike, slow);
      SlowGroup group = slow_group(window, steps, id);
      const double nats = nats_of_level(of_alike->second, group.log_slower) + (group.from_the_start ? head_start : 0);
      if (nats < window.suspect_nats(streams) - witness_nats()) continue;
      here.push_back(id);
      if (nats <= most) continue;
      most = nats;
      worst = std::move(group);
    }
    if (here.empty() || worst.steps.size() < 2) continue;
    Finding finding = finding_of(window, host, worst, here);
    // What is far out of all noise for a step or two may be anything, and be over. Connections are set up in the first.
    const bool settled = window.complete_steps().size() >= 2;
    finding.sure = most >= window.sure_nats(streams) && worst.steps.size() >= kPlainSteps && settled;
    finding.sure_with_signals = most >= window.sure_nats(streams) - witness_nats() && settled;
    finding.only_with_signals = most < window.suspect_nats(streams);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace lockstep
