// What a scenario does to a job in one step: faults and oddities turned into the physics' terms.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/fleet/fleet.h"
#include "sim/scenario/scenario.h"

namespace lockstep::sim {

// Where a job stands still for so long that agents tell of it, and for how long.
struct LongStop {
  std::vector<Stop> stops;
  int64_t length_ns = 0;  // 0: until the operator or the end of the run
  int32_t fault = -1;     // by which; -1: an oddity, or a fault that is only long
};

struct JobStep {
  StepConditions conditions;  // without stops
  LongStop stop;              // no stops: the step runs through
};

// Faults of one job of a scenario, with the ranks that they hit in the job's present shape.
class JobConditions {
 public:
  JobConditions(const Scenario& scenario, const JobPlan& plan, const JobShape& shape);

  JobStep at(StepNumber step) const;
  // The ranks of each fault of the scenario; empty for those of other jobs.
  const std::vector<std::vector<Rank>>& fault_ranks() const { return fault_ranks_; }
  // A hang that was released or restarted does not come again.
  void over(size_t fault) { over_[fault] = true; }

 private:
  struct Effect;  // of one fault on one step
  struct OddityEffect;
  void add_fault(size_t index, double amount, StepNumber step, JobStep& out) const;
  void add_drift(const ScenarioFault& fault, double sign, JobStep& out) const;
  void add_oddity(const Oddity& oddity, size_t index, StepNumber step, JobStep& out) const;
  bool writes_checkpoint(StepNumber step) const;
  RankConditions& rank(JobStep& out, Rank rank) const;
  std::vector<RankConditions>& all(JobStep& out) const;

  const Scenario& scenario_;
  const JobPlan& plan_;
  const JobShape& shape_;
  std::vector<std::vector<Rank>> fault_ranks_;
  std::vector<bool> over_;
  double step_ns_ = 0;
};

// Stretches of silence from here on are told by agents.
inline constexpr int64_t kReportedSilenceNs = 2'500'000'000;

}  // namespace lockstep::sim
