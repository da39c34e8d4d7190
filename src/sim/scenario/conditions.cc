#include "sim/scenario/conditions.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/fleet/random.h"
#include "sim/node/effects.h"

namespace lockstep::sim {

namespace {

// A checkpoint without an oddity of that name takes so many healthy steps.
constexpr double kPlainCheckpointSteps = 0.5;
// Of a host without memory so much goes into reclaiming while it launches; the rest delays the input.
constexpr double kReclaimShare = 0.7;
// A foreign process slows the reduction kernels less than the big ones.
constexpr double kForeignReduction = 0.5;
// A healthy step copies its input to the GPU in this share of the step; over a bad bus that takes longer.
constexpr double kCopyShare = 0.05;
// How much of a storm on a leaf the uplinks of the others feel.
constexpr double kStormSpread = 0.4;

uint64_t drawn_for(const Scenario& scenario, uint64_t what, StepNumber step, uint64_t which = 0) {
  return mix(mix(scenario.seed ^ what * 0x9E3779B97F4A7C15ull) ^
             mix(static_cast<uint64_t>(step.value()) << 24 ^ which));
}

}  // namespace

JobConditions::JobConditions(const Scenario& scenario, const JobPlan& plan, const JobShape& shape)
    : scenario_(scenario), plan_(plan), shape_(shape), over_(scenario.faults.size()), step_ns_(plan.step_ms * 1e6) {
  for (const ScenarioFault& fault : scenario.faults)
    fault_ranks_.push_back(fault.target.job == plan.job_id ? ranks_of(fault.target, shape) : std::vector<Rank>());
}

std::vector<RankConditions>& JobConditions::all(JobStep& out) const {
  if (out.conditions.ranks.empty()) out.conditions.ranks.resize(static_cast<size_t>(shape_.world_size()));
  return out.conditions.ranks;
}

RankConditions& JobConditions::rank(JobStep& out, Rank rank) const {
  return all(out)[index_of(rank)];
}

bool JobConditions::writes_checkpoint(StepNumber step) const {
  bool reported = false;
  for (const Oddity& oddity : scenario_.oddities) {
    if (oddity.kind != OddityKind::kCheckpoints || oddity.job != plan_.job_id) continue;
    reported = true;
    if ((step + 1) % oddity.every_steps == 0) return true;
  }
  if (reported) return false;
  for (const ScenarioFault& fault : scenario_.faults) {
    if (fault.cause == Cause::kCheckpoint && fault.target.job == plan_.job_id && (step + 1) % fault.period_steps == 0)
      return true;
  }
  return false;
}

JobStep JobConditions::at(StepNumber step) const {
  JobStep out;
  if (writes_checkpoint(step)) {
    out.conditions.checkpoint = true;
    bool reported = false;
    for (const Oddity& oddity : scenario_.oddities)
      reported |= oddity.kind == OddityKind::kCheckpoints && oddity.job == plan_.job_id;
    if (!reported) {
      for (RankConditions& each : all(out)) each.checkpoint_ns += kPlainCheckpointSteps * step_ns_;
    }
  }
  for (size_t i = 0; i < scenario_.oddities.size(); ++i) {
    if (scenario_.oddities[i].job == plan_.job_id) add_oddity(scenario_.oddities[i], i, step, out);
  }
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    if (fault_ranks_[i].empty() || over_[i]) continue;
    const double amount = amount_at(scenario_, i, step);
    if (amount > 0) add_fault(i, amount, step, out);
    add_drift(scenario_.faults[i], sign_at(scenario_, i, step), out);
  }
  for (const FalseSign& sign : scenario_.signs) {
    if (sign.of.target.job == plan_.job_id) add_drift(sign.of, sign_at(sign, step), out);
  }
  // What is long enough for agents to tell of is played as a stop.
  if (out.stop.stops.empty() && !out.conditions.ranks.empty()) {
    auto all_of = [&](double RankConditions::*member, StopKind kind) {
      const double length = out.conditions.ranks[0].*member;
      if (length < static_cast<double>(kReportedSilenceNs) || !out.stop.stops.empty()) return;
      for (const RankConditions& each : out.conditions.ranks) {
        if (each.*member != length) return;
      }
      out.stop.length_ns = static_cast<int64_t>(length);
      for (Rank each : all_ranks(shape_.world_size())) {
        out.stop.stops.push_back({each, kind});
        rank(out, each).*member = 0;
      }
    };
    all_of(&RankConditions::evaluation_ns, StopKind::kEvaluation);
    all_of(&RankConditions::checkpoint_ns, StopKind::kCheckpoint);
  }
  if (out.stop.stops.empty() && !out.conditions.ranks.empty()) {
    // One rank, or a few, hold up the others.
    auto longest = [&](double RankConditions::*member, StopKind kind) {
      double most = 0;
      for (const RankConditions& each : out.conditions.ranks) most = std::max(most, each.*member);
      if (most < static_cast<double>(kReportedSilenceNs) || !out.stop.stops.empty()) return;
      out.stop.length_ns = static_cast<int64_t>(most);
      for (Rank each : all_ranks(shape_.world_size())) {
        if (rank(out, each).*member < 0.8 * most) continue;
        out.stop.stops.push_back({each, kind});
        rank(out, each).*member = 0;
      }
    };
    longest(&RankConditions::pause_ns, StopKind::kStopped);
    longest(&RankConditions::checkpoint_ns, StopKind::kCheckpoint);
    longest(&RankConditions::compile_ns, StopKind::kCompile);
  }
  return out;
}

// A clock that drifts costs what it costs; all other signs are harmless until the fault is there.
void JobConditions::add_drift(const ScenarioFault& fault, double sign, JobStep& out) const {
  if (fault.cause != Cause::kSlowCompute || sign <= 0 || fault.target.rank >= Rank{shape_.world_size()}) return;
  rank(out, fault.target.rank).gpu *= 1 + drift_of(Character(node_seed(scenario_), fault), sign);
}

struct JobConditions::Effect {
  const JobConditions& job;
  const size_t index;  // of the fault
  const double amount;
  const StepNumber step;
  JobStep& out;
  const ScenarioFault& fault = job.scenario_.faults[index];
  const std::vector<Rank>& ranks = job.fault_ranks_[index];
  const double step_ns = job.step_ns_;

  template <typename Change>
  void each(const Change& change) {
    for (Rank hit : ranks) change(job.rank(out, hit));
  }
  // Takes this share of a healthy step more.
  void longer(double RankConditions::*part) {
    each([&](RankConditions& hit) { hit.*part += amount * step_ns; });
  }
  void slower(double RankConditions::*part) {
    each([&](RankConditions& hit) { hit.*part *= 1 + amount; });
  }
  void slower_network() {
    slower(&RankConditions::send);
    slower(&RankConditions::receive);
  }
  void foreign_process() {
    each([&](RankConditions& hit) {
      hit.gpu *= 1 + amount;
      hit.reduce *= 1 + kForeignReduction * amount;
    });
  }
  void bad_bus() {
    slower_network();
    each([&](RankConditions& hit) { hit.copy_ns += kCopyShare * amount * step_ns; });
  }
  void memory_pressure() {
    each([&](RankConditions& hit) {
      hit.host_ns += kReclaimShare * amount * step_ns;
      hit.input_ns += (1 - kReclaimShare) * amount * step_ns;
    });
  }
  void garbage_collection() {
    const uint64_t drawn = drawn_for(job.scenario_, 0x6C00 + index, step);
    job.rank(out, ranks[drawn % ranks.size()]).stall_ns += amount * step_ns * (0.8 + 0.4 * uniform(mix(drawn)));
  }
  void slow_storage() {
    for (Rank hit : ranks)
      job.rank(out, hit).input_ns +=
          amount * step_ns *
          (0.85 + 0.3 * uniform(drawn_for(job.scenario_, 0x5100 + index, step, static_cast<uint64_t>(hit.value()))));
  }
  void slower_links() {
    const Topology& topology = job.shape_.topology;
    const int32_t leaves = topology.leaves(job.shape_.first_host + job.shape_.hosts());
    for (int32_t leaf = 0; leaf < leaves; ++leaf) {
      if (fault.target.leaf < 0 || fault.target.leaf == leaf)
        out.conditions.links.push_back({leaf, fault.target.spine, 1 + amount});
    }
  }
  void pfc_storm() {
    out.conditions.leaves.emplace_back(fault.target.leaf, 1 + amount);
    const Topology& topology = job.shape_.topology;
    for (int32_t other = 0;
         other <= topology.leaf_of(job.shape_.first_host + job.shape_.hosts() - 1, topology.gpus_per_host - 1);
         ++other) {
      if (other != fault.target.leaf) out.conditions.uplinks.emplace_back(other, 1 + kStormSpread * amount);
    }
  }
  void uneven_sequences() {
    for (Rank hit : ranks) {
      const int32_t replica = job.shape_.index_in(Role::kDp, hit) / job.shape_.cp;
      const double drawn = uniform(drawn_for(job.scenario_, 0x5E00 + index, step, static_cast<uint64_t>(replica)));
      job.rank(out, hit).work *= 1 + amount * drawn * drawn;
    }
  }
  void cpu_contention() {
    if (fault.thread == ScenarioFault::Thread::kAll) return longer(&RankConditions::host_ns);
    slower(fault.thread == ScenarioFault::Thread::kProxy ? &RankConditions::proxy : &RankConditions::handing);
  }
  void nan_source() {
    each([&](RankConditions& hit) { hit.gradient_nan = true; });
    if (step > fault.from_step) out.conditions.loss_nan = true;
  }
  void stop(StopKind kind) {
    if (!out.stop.stops.empty()) return;
    for (Rank hit : ranks) out.stop.stops.push_back({hit, kind});
    out.stop.fault = static_cast<int32_t>(index);
    out.stop.length_ns = static_cast<int64_t>(static_cast<double>(fault.steps) * step_ns);
  }
};

void JobConditions::add_fault(size_t index, double amount, StepNumber step, JobStep& out) const {
  Effect effect{.job = *this, .index = index, .amount = amount, .step = step, .out = out};
  const ScenarioFault& fault = effect.fault;
  switch (fault.cause) {
    case Cause::kSlowCompute:
    case Cause::kThrottleThermal:
    case Cause::kThrottlePower:
    case Cause::kEcc:
    case Cause::kStageImbalance:
    case Cause::kCodeRegression:
      return effect.slower(&RankConditions::gpu);
    case Cause::kForeignProcess:
      return effect.foreign_process();
    case Cause::kPcieDegraded:
      return effect.bad_bus();
    case Cause::kCpuContention:
      return effect.cpu_contention();
    case Cause::kMemoryPressure:
      return effect.memory_pressure();
    case Cause::kProcessPaused:
      if (fault.steps == 0 && fault.shape == Shape::kConstant) return effect.stop(StopKind::kStopped);
      return effect.longer(&RankConditions::pause_ns);
    case Cause::kGc:
      return effect.garbage_collection();
    case Cause::kDataLoader:
      return effect.longer(&RankConditions::input_ns);
    case Cause::kStorage:
      return effect.slow_storage();
    case Cause::kCheckpoint:
      if (out.conditions.checkpoint) effect.longer(&RankConditions::checkpoint_ns);
      return;
    case Cause::kNvlinkDegraded:
      return effect.slower(&RankConditions::nvlink);
    case Cause::kNicDegraded:
    case Cause::kTcpFallback:
      return effect.slower_network();
    case Cause::kLinkFlap:
      return effect.longer(&RankConditions::flap_ns);
    case Cause::kCongestion:
    case Cause::kLinkDegraded:
      if (fault.target.spine >= 0) return effect.slower_links();
      out.conditions.uplinks.emplace_back(fault.target.leaf, 1 + amount);
      return;
    case Cause::kSwitchDown:  // what was on it takes another rail, where there is traffic already
      out.conditions.leaves.emplace_back(fault.target.leaf, 1 + amount);
      return;
    case Cause::kPfcStorm:
      return effect.pfc_storm();
    case Cause::kSequenceImbalance:
      return effect.uneven_sequences();
    case Cause::kExpertImbalance:
      return effect.slower(&RankConditions::expert);
    case Cause::kNanSource:
      return effect.nan_source();
    case Cause::kRankMissing:
      return effect.stop(StopKind::kMissing);
    case Cause::kOpMismatch:
      return effect.stop(StopKind::kMismatch);
    case Cause::kDeadlock:
      return effect.stop(StopKind::kDeadlock);
    case Cause::kXid:
    case Cause::kRankDead:
      return effect.stop(StopKind::kDead);
    // Not played.
    case Cause::kInOperationStall:
    case Cause::kLossSpike:
    case Cause::kLessWork:
    case Cause::kNone:
      return;
  }
}

struct JobConditions::OddityEffect {
  const JobConditions& job;
  const Oddity& oddity;
  const StepNumber step;
  const uint64_t drawn;
  JobStep& out;
  const JobShape& shape = job.shape_;
  // The share of a step, or of whatever it is about, that the oddity takes.
  const double amount = oddity.amount;
  const double amount_ns = oddity.amount * job.step_ns_;

  bool is_due() const { return (step + 1) % oddity.every_steps == 0; }
  double turns() const { return static_cast<double>(step.value()) / static_cast<double>(oddity.every_steps); }
  RankConditions& of(Rank rank) const { return job.rank(out, rank); }
  RankConditions& of_a_drawn_rank() const {
    return of(rank_at(mix(drawn) % static_cast<uint64_t>(shape.world_size())));
  }

  void packing() const {
    for (Rank each : all_ranks(shape.world_size())) {
      const int32_t replica = shape.index_in(Role::kDp, each) / shape.cp;
      const double length = 1 + amount * (2 * uniform(mix(drawn ^ mix(static_cast<uint64_t>(replica)))) - 1);
      of(each).work *= 0.8 * length + 0.2 * length * length;
    }
  }
  void expert_skew() const {
    for (Rank each : all_ranks(shape.world_size())) {
      const auto expert = static_cast<uint64_t>(shape.index_in(Role::kEp, each));
      const double turn = turns() + uniform(mix(job.scenario_.seed ^ mix(0xE0 + expert)));
      of(each).expert *= std::exp(amount * std::sin(2 * std::numbers::pi * turn));
    }
  }
  void uneven_stage() const {
    for (Rank each{(shape.pp - 1) * shape.stage_ranks()}; each < Rank{shape.world_size()}; ++each)
      of(each).gpu *= 1 + amount;
  }
  void compile() const {
    if (step < 2_step) {
      const double size_ns = amount_ns * (step == 0_step ? 1 : 0.3);
      for (Rank each : all_ranks(shape.world_size())) {
        const uint64_t own = mix(drawn ^ mix(static_cast<uint64_t>(each.value())));
        if (own % 2 == 0) of(each).compile_ns += size_ns * (0.5 + 0.5 * uniform(mix(own)));
      }
    } else if (step < StepNumber{oddity.every_steps} && drawn % 10 == 0) {  // a shape that was not seen before
      of_a_drawn_rank().compile_ns += 0.3 * amount * job.step_ns_;
    }
  }
  // All ranks at once, every so many steps.
  void in_turns(double RankConditions::*part) const {
    if (!is_due()) return;
    for (RankConditions& each : job.all(out)) each.*part += amount_ns;
  }
  void garbage() const {
    if (drawn % static_cast<uint64_t>(oddity.every_steps) == 0)
      of_a_drawn_rank().stall_ns += amount_ns * (0.5 + uniform(mix(drawn ^ 1)));
  }
  void warm_up() const {
    const double more =
        amount * std::exp(-3 * static_cast<double>(step.value()) / static_cast<double>(oddity.every_steps));
    if (more < 1e-4) return;
    for (RankConditions& each : job.all(out)) each.gpu *= 1 + more;
  }
  void daily_heat() const {
    const double more = amount * 0.5 * (1 - std::cos(2 * std::numbers::pi * turns()));
    for (RankConditions& each : job.all(out)) each.gpu *= 1 + more;
  }
};

void JobConditions::add_oddity(const Oddity& oddity, size_t index, StepNumber step, JobStep& out) const {
  const OddityEffect effect{
      .job = *this, .oddity = oddity, .step = step, .drawn = drawn_for(scenario_, 0x0DD0 + index, step), .out = out};
  switch (oddity.kind) {
    case OddityKind::kPacking:
      return effect.packing();
    case OddityKind::kExpertSkew:
      return effect.expert_skew();
    case OddityKind::kStageUneven:
      return effect.uneven_stage();
    case OddityKind::kCompile:
      return effect.compile();
    case OddityKind::kEvaluation:
      return effect.in_turns(&RankConditions::evaluation_ns);
    case OddityKind::kCheckpoints:
      return effect.in_turns(&RankConditions::checkpoint_ns);
    case OddityKind::kGarbage:
      return effect.garbage();
    case OddityKind::kResize:
      return;  // between steps
    case OddityKind::kWarmUp:
      return effect.warm_up();
    case OddityKind::kDailyHeat:
      return effect.daily_heat();
    case OddityKind::kMasterRank:
      effect.of(0_rank).log_ns += effect.amount_ns;
      return;
  }
}

}  // namespace lockstep::sim
