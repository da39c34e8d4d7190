// What diagnosis looks at: the last steps of one job, every rank's summary side by side, and who is in which
// communicator.
//
// Ranks are compared by logical step and by what they did between shared barriers, never by wall clock. A rank's step
// with missing GPU times (records lost, operations NCCL tells no times of) is unknown: its own time would be taken for
// too long and its communication for too short. Such rows are kept apart here, so that whoever compares ranks finds
// them no more than those of a silent rank.
// Thread rule: Confined (one per job, guarded by the engine).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/events.h"
#include "model/step.h"

namespace lockstep {

struct CommMembers {
  int32_t size = 0;
  std::map<int32_t, int32_t> world_rank;  // rank in communicator -> rank in job
};

// One rank in one step, with what detectors derive from the summary.
struct RankStep {
  StepSummary summary;
  // The rank's own time in the step: self minus what it said was checkpointing or evaluation.
  int64_t own_ns() const;
};

class JobWindow {
 public:
  static constexpr size_t kStepsMax = 128;
  // Compilation, allocator and connection set-up make the first steps of any job slow on random ranks.
  static constexpr int64_t kWarmUpSteps = 2;

  // A step number this far from where most ranks are is not taken at face value.
  static constexpr int64_t kFarSteps = 100'000;
  static constexpr int kFarRowsMax = 64;

  void add_rank(const Identity& identity);
  void add_comm(const Identity& identity, const CommInit& comm);
  void add_step(const Identity& identity, const StepSummary& summary);

  // Numbers of the steps that are complete (every rank that reports has sent it, or later steps have overtaken it), in
  // order, without warm-up and without those that are unknown for every rank.
  std::vector<int64_t> complete_steps() const;
  // The ranks whose GPU times are known; nullptr: no such step.
  const std::map<int32_t, RankStep>* step(int64_t number) const;
  // The others that sent it: of their numbers only what the host told holds (duration, phases).
  const std::map<int32_t, RankStep>* unknown(int64_t number) const;
  // How many steps behind `after` are unknown: for every rank that sent them; for at least one of these ranks.
  int64_t unknown_steps(int64_t after) const;
  int64_t unknown_steps(int64_t after, const std::vector<int32_t>& ranks) const;
  int64_t newest_step() const;
  int64_t first_step() const { return first_step_; }

  const std::map<int32_t, Identity>& ranks() const { return ranks_; }
  int32_t world_size() const { return world_size_; }
  // World rank of a member; -1: not known.
  int32_t world_rank(uint64_t comm_id, int32_t rank_in_comm) const;
  const std::map<uint64_t, CommMembers>& comms() const { return comms_; }

 private:
  int64_t typical_newest() const;  // median over ranks of the newest step; -1: none
  int far_rows_ = 0;
  struct StepRows {
    std::map<int32_t, RankStep> known;
    std::map<int32_t, RankStep> unknown;
  };
  std::map<int64_t, StepRows> steps_;
  std::map<int32_t, Identity> ranks_;
  std::map<int32_t, int64_t> newest_of_rank_;
  std::map<uint64_t, CommMembers> comms_;
  int32_t world_size_ = 0;
  int64_t first_step_ = -1;
};

// Medians over small vectors, by value: they are sorted inside.
double median(std::vector<double> values);
double lower_median(std::vector<double> values);
double quantile(std::vector<double> values, double q);

}  // namespace lockstep
