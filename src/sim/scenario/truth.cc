#include "sim/scenario/truth.h"

#include <algorithm>

#include "sim/fleet/fleet.h"
#include "sim/node/effects.h"
#include "sim/node/nic_model.h"
#include "sim/scenario/conditions.h"

namespace lockstep::sim {

namespace {

struct Label {
  VerdictKind kind;
  Layer layer;
  std::vector<Cause> causes;  // any of these: the table of docs/guide/scenarios.md
};

// Exactly one layer for each cause, with the way in which this fault shows itself; what cannot be told apart is in
// kAlike alone.
Label label_of(const ScenarioFault& fault, const Character& character) {
  const Cause cause = fault.cause;
  switch (cause) {
    case Cause::kSlowCompute:
    case Cause::kThrottleThermal:
    case Cause::kThrottlePower:
    case Cause::kEcc:
    case Cause::kForeignProcess:
      return {VerdictKind::kSlow, Layer::kGpu, {cause}};
    case Cause::kXid:
      return {VerdictKind::kHang, Layer::kGpu, {cause, Cause::kRankDead}};
    case Cause::kPcieDegraded:
      return {VerdictKind::kSlow, on_adapter_side(character) ? Layer::kNic : Layer::kGpu, {cause}};
    case Cause::kCpuContention:
    case Cause::kMemoryPressure:
    case Cause::kProcessPaused:
      return {VerdictKind::kSlow, Layer::kHost, {cause}};
    case Cause::kGc:
      return {VerdictKind::kSlow, Layer::kSoftware, {cause}};
    case Cause::kDataLoader:
      return {VerdictKind::kSlow, Layer::kInput, {cause, Cause::kStorage}};
    case Cause::kStorage:
      return {VerdictKind::kSlow, Layer::kInput, {cause, Cause::kDataLoader}};
    case Cause::kCheckpoint:
      // All of them: what they write to. One rank or host alone: the storage answers the others in time.
      return {VerdictKind::kSlow,
              fault.target.rank != kNoRank || fault.target.host >= 0 ? Layer::kHost : Layer::kInput,
              {cause, Cause::kStorage}};
    case Cause::kNvlinkDegraded:
      return {VerdictKind::kSlow, Layer::kNvlink, {cause}};
    case Cause::kNicDegraded:
      return {VerdictKind::kSlow, Layer::kNic, {cause}};
    case Cause::kLinkFlap:
      return {VerdictKind::kSlow, Layer::kLink, {cause}};
    case Cause::kCongestion:  // of one link as of a whole switch: nothing is broken, too much goes there
      return {VerdictKind::kSlow, Layer::kSwitch, {cause}};
    case Cause::kPfcStorm:
      return {VerdictKind::kSlow, Layer::kSwitch, {cause, Cause::kCongestion}};
    case Cause::kLinkDegraded:
      return {VerdictKind::kSlow, Layer::kLink, {cause}};
    case Cause::kSwitchDown:
      return {VerdictKind::kSlow, Layer::kSwitch, {cause}};
    case Cause::kTcpFallback:
      return {VerdictKind::kInefficient, Layer::kSoftware, {cause}};
    case Cause::kStageImbalance:
    case Cause::kSequenceImbalance:
    case Cause::kExpertImbalance:
      return {VerdictKind::kSlow, Layer::kWorkload, {cause}};
    case Cause::kRankMissing:
    case Cause::kOpMismatch:
    case Cause::kDeadlock:
      return {VerdictKind::kHang, Layer::kSoftware, {cause}};
    case Cause::kRankDead:
      // An OOM kill is told with some of them.
      return {VerdictKind::kHang, Layer::kHost, {cause, Cause::kMemoryPressure}};
    case Cause::kCodeRegression:
      return {VerdictKind::kInefficient, Layer::kSoftware, {cause}};
    case Cause::kNanSource:  // a number that is none does not say whose mistake it is
      return {VerdictKind::kIncorrect, Layer::kUnknown, {cause}};
    case Cause::kInOperationStall:  // not played
    case Cause::kLossSpike:
    case Cause::kLessWork:
    case Cause::kNone:
      break;
  }
  return {VerdictKind::kSlow, Layer::kUnknown, {}};
}

bool always(const Scenario&, const Character&) {
  return true;
}
bool without_node_metrics(const Scenario& scenario, const Character&) {
  return scenario.telemetry.no_metrics > 0;
}
bool not_killed_for_memory(const Scenario&, const Character& character) {
  return !killed_for_memory(character);
}

// The exceptions, all of them: a second layer is right where nothing that reaches a server tells it from the first.
struct Alike {
  Cause cause;
  Layer layer;
  bool (*when)(const Scenario& scenario, const Character& character);
};
constexpr Alike kAlike[] = {
    // Adapter, transceiver and cable: retransmissions, symbol errors and a rate that halves are all counted at the one
    // port of the rank; nothing is heard of the port at the other end.
    {Cause::kNicDegraded, Layer::kLink, always},
    // Lanes and replays say whose bus it is. Without them all that is seen is a slow adapter and slow copies.
    {Cause::kPcieDegraded, Layer::kGpu, without_node_metrics},
    {Cause::kPcieDegraded, Layer::kNic, without_node_metrics},
    // A process that is gone, without an exit status and without an OOM kill in the kernel's log: it may have left by
    // itself or have been killed.
    {Cause::kRankDead, Layer::kSoftware, not_killed_for_memory},
};

constexpr int64_t kCostRankSteps = 4096;

// How much of a healthy step the fault adds while it acts, played: a delay may as well vanish in the bubble of a
// pipeline, behind another group or in the noise of the others. 1 where it stops everything.
double cost_of(const Scenario& scenario, const ScenarioFault& fault, const JobPlan& plan) {
  switch (fault.cause) {
    case Cause::kGc:
    case Cause::kCheckpoint:
    case Cause::kProcessPaused:
    case Cause::kLinkFlap:
      return fault.severity;  // once in a step, and all wait for it
    case Cause::kNanSource:
      return 1;
    default:
      if (is_hang(fault.cause)) return 1;
  }
  Scenario alone = scenario;
  alone.oddities.clear();
  alone.faults = {fault};
  alone.faults[0].from_step = 0_step;
  alone.faults[0].steps = 0;
  alone.faults[0].shape = Shape::kConstant;
  const JobShape shape = shape_of(alone, plan, 0, plan.dp);
  const JobConditions conditions(alone, plan, shape);
  Fleet with(shape, 0), without(shape, 0);
  // What a fault costs hangs on who else is late in the same step, so a few steps are needed; a large job has chance
  // enough in two.
  const int64_t steps = std::clamp<int64_t>(kCostRankSteps / shape.world_size(), 2, 24);
  for (StepNumber step = 0_step; step < StepNumber{steps}; ++step) {
    with.play_under(conditions.at(step).conditions);
    without.play_under({});
  }
  return static_cast<double>(with.now_unix_ns() - without.now_unix_ns()) / static_cast<double>(without.now_unix_ns());
}

// Where a fault is in the network. An adapter and its cable are one place: their counters are those of one port.
std::vector<std::string> places_of(const ScenarioFault& fault, const JobShape& shape) {
  const Target& target = fault.target;
  switch (fault.cause) {
    case Cause::kNicDegraded:
    case Cause::kLinkFlap: {
      const int32_t host = shape.first_host + shape.host_of(target.rank);
      const int32_t gpu = target.rank % shape.topology.gpus_per_host;
      return {"nic:" + identity_of(shape, target.rank).host + ":" + nic_device(gpu),
              "link:" + leaf_name(shape.leaf_of(target.rank)) + ":" +
                  leaf_port_name(shape.topology.leaf_port_of(host, gpu))};
    }
    case Cause::kCongestion:
    case Cause::kPfcStorm:
    case Cause::kLinkDegraded:
    case Cause::kSwitchDown:
      if (is_link(target)) return {"link:" + leaf_name(target.leaf) + ":" + uplink_name(target.spine)};
      return {target.spine >= 0 ? "spine:" + spine_name(target.spine) : "leaf:" + leaf_name(target.leaf)};
    default:
      return {};
  }
}

// Less than this of a step is everyday noise between ranks.
constexpr double kNoticeShare = 0.04;

}  // namespace

std::vector<Truth> truths(const Scenario& scenario) {
  std::vector<Truth> out;
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const ScenarioFault& fault = scenario.faults[i];
    const JobPlan* plan = find_job(scenario, fault.target.job);
    if (plan == nullptr) continue;
    const Character character(node_seed(scenario), fault);
    Label label = label_of(fault, character);
    const bool stopped = fault.cause == Cause::kProcessPaused && fault.steps == 0 && fault.shape == Shape::kConstant;
    Truth& truth = out.emplace_back();
    truth.job = fault.target.job;
    truth.kind = stopped ? VerdictKind::kHang : label.kind;
    truth.layers = {label.layer};
    for (const Alike& alike : kAlike) {
      if (alike.cause == fault.cause && alike.layer != label.layer && alike.when(scenario, character))
        truth.layers.push_back(alike.layer);
    }
    truth.causes = std::move(label.causes);
    truth.fault = i;
    truth.cost = cost_of(scenario, fault, *plan);
    truth.below_notice = truth.cost < kNoticeShare;
    const JobShape shape = shape_of(scenario, *plan, 0, plan->dp);
    const Target& target = fault.target;
    if (scenario.topology.switches) truth.places = places_of(fault, shape);
    if (target.rank != kNoRank || target.host >= 0 || target.stage >= 0 || target.expert >= 0)
      truth.ranks = ranks_of(target, shape);
    if (fault.cause == Cause::kNvlinkDegraded) {
      // The link has two ends, and in a ring all of its group wait alike.
      const Group group = shape.group(shape.has(Role::kTp) ? Role::kTp : Role::kDp, target.rank);
      truth.ranks.clear();
      for (int32_t member = 0; member < group.size; ++member) truth.ranks.push_back(group.member(member));
    }
    if (fault.cause == Cause::kDeadlock) {
      // A circle has no first: the rank that went another way and those of its gradient group that wait for it.
      const Group group = shape.group(Role::kDp, target.rank);
      truth.ranks.clear();
      for (int32_t member = 0; member < group.size; ++member) truth.ranks.push_back(group.member(member));
    }
    // Where all that the rank sends out goes to one peer, the two adapters see the same: only counters tell whose it is.
    if (fault.cause == Cause::kNicDegraded &&
        (scenario.telemetry.no_metrics > 0 || (scenario.telemetry.guilty_agent_lost && i == 0))) {
      const std::vector<Rank> peers = peers_on_other_hosts(shape, target.rank);
      if (peers.size() == 1) truth.ranks.push_back(peers.front());
    }
    // Nobody hears of the culprit's host: that it is a silent one can be told; which of its ranks, and why, cannot.
    if (scenario.telemetry.guilty_agent_lost && i == 0) {
      truth.layers.push_back(Layer::kUnknown);
      if (truth.ranks.size() == 1) {
        const Rank culprit = truth.ranks.front();
        for (int32_t rank = 0; rank < plan->world_size(); ++rank)
          if (Rank{rank} != culprit && shape.host_of(Rank{rank}) == shape.host_of(culprit))
            truth.ranks.push_back(Rank{rank});
      }
    }
  }
  return out;
}

bool allowed(const Scenario& scenario, const std::string& job, std::optional<Layer> layer) {
  if (layer != Layer::kWorkload) return false;
  return std::any_of(scenario.oddities.begin(), scenario.oddities.end(), [&](const Oddity& oddity) {
    return oddity.job == job && (oddity.kind == OddityKind::kPacking || oddity.kind == OddityKind::kExpertSkew ||
                                 oddity.kind == OddityKind::kStageUneven);
  });
}

}  // namespace lockstep::sim
