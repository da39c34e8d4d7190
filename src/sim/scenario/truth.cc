#include "sim/scenario/truth.h"

#include <algorithm>

#include "sim/fleet/fleet.h"
#include "sim/scenario/conditions.h"

namespace lockstep::sim {

namespace {

struct Label {
  VerdictKind kind;
  std::vector<Layer> layers;
  std::vector<Cause> causes;
};

// What telemetry lets one tell. Where two layers or causes look alike from a job and its nodes, both are right; the
// table is documented in docs/guide/scenarios.md.
Label label_of(Cause cause) {
  switch (cause) {
    case Cause::kSlowCompute:
    case Cause::kThrottleThermal:
    case Cause::kThrottlePower:
    case Cause::kEcc:
    case Cause::kForeignProcess:
      return {VerdictKind::kSlow, {Layer::kGpu}, {cause}};
    case Cause::kXid:
      return {VerdictKind::kHang, {Layer::kGpu}, {cause, Cause::kRankDead}};
    case Cause::kPcieDegraded:
      return {VerdictKind::kSlow, {Layer::kGpu, Layer::kNic, Layer::kHost}, {cause}};
    case Cause::kCpuContention:
    case Cause::kMemoryPressure:
    case Cause::kProcessPaused:
      return {VerdictKind::kSlow, {Layer::kHost}, {cause}};
    case Cause::kGc:
      return {VerdictKind::kSlow, {Layer::kSoftware, Layer::kHost}, {cause}};
    case Cause::kDataLoader:
      return {VerdictKind::kSlow, {Layer::kInput}, {cause, Cause::kStorage}};
    case Cause::kStorage:
      return {VerdictKind::kSlow, {Layer::kInput, Layer::kHost}, {cause, Cause::kDataLoader}};
    case Cause::kCheckpoint:
      return {VerdictKind::kSlow, {Layer::kInput, Layer::kHost, Layer::kSoftware}, {cause, Cause::kStorage}};
    case Cause::kNvlinkDegraded:
      return {VerdictKind::kSlow, {Layer::kNvlink}, {cause}};
    case Cause::kNicDegraded:
      return {VerdictKind::kSlow, {Layer::kNic, Layer::kLink}, {cause}};
    case Cause::kLinkFlap:
      return {VerdictKind::kSlow, {Layer::kLink, Layer::kNic}, {cause}};
    case Cause::kCongestion:
      return {VerdictKind::kSlow, {Layer::kSwitch, Layer::kLink}, {cause}};
    case Cause::kPfcStorm:
      return {VerdictKind::kSlow, {Layer::kSwitch, Layer::kLink}, {cause, Cause::kCongestion}};
    case Cause::kTcpFallback:
      return {VerdictKind::kInefficient, {Layer::kNic, Layer::kSoftware}, {cause}};
    case Cause::kStageImbalance:
    case Cause::kSequenceImbalance:
    case Cause::kExpertImbalance:
      return {VerdictKind::kSlow, {Layer::kWorkload}, {cause}};
    case Cause::kRankMissing:
    case Cause::kOpMismatch:
    case Cause::kDeadlock:
      return {VerdictKind::kHang, {Layer::kSoftware}, {cause}};
    case Cause::kRankDead:
      return {VerdictKind::kHang,
              {Layer::kHost, Layer::kSoftware},
              {cause, Cause::kMemoryPressure}};  // an OOM kill is told with some of them
    case Cause::kCodeRegression:
      return {VerdictKind::kInefficient, {Layer::kSoftware}, {cause}};
    case Cause::kNanSource:
      return {VerdictKind::kIncorrect, {Layer::kGpu, Layer::kSoftware, Layer::kWorkload, Layer::kUnknown}, {cause}};
    case Cause::kInOperationStall:  // not played
    case Cause::kLossSpike:
    case Cause::kLessWork:
    case Cause::kNone:
      break;
  }
  return {VerdictKind::kSlow, {}, {}};
}

// How much of a healthy step the fault adds while it acts, played: a delay may as well vanish in the bubble of a
// pipeline or behind another group. 1 where it stops everything.
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
  constexpr int kSteps = 2;
  for (int step = 0; step < kSteps; ++step) {
    StepConditions now = conditions.at(StepNumber{step}).conditions;
    with.play_under(now);
    without.play_under({});
  }
  return static_cast<double>(with.now_unix_ns() - without.now_unix_ns()) / static_cast<double>(without.now_unix_ns());
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
    Label label = label_of(fault.cause);
    const bool stopped = fault.cause == Cause::kProcessPaused && fault.steps == 0 && fault.shape == Shape::kConstant;
    Truth& truth = out.emplace_back();
    truth.job = fault.target.job;
    truth.kind = stopped ? VerdictKind::kHang : label.kind;
    truth.layers = std::move(label.layers);
    truth.causes = std::move(label.causes);
    truth.fault = i;
    truth.below_notice = cost_of(scenario, fault, *plan) < kNoticeShare;
    const JobShape shape = shape_of(scenario, *plan, 0, plan->dp);
    const Target& target = fault.target;
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
