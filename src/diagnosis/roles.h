// Who is whose peer: ranks that do the same operations in a step, so that their own times may be compared.
//
// Ranks of one role are in communicators of the same sizes with the same number of operations and (within about 20 %)
// bytes of collectives; and in the same pipeline stage. A rank that is a stage of its own has no peer, and its lateness
// is not known; nor is that of one whose peers are not heard of, which is no stage of its own. Bytes of sends do not
// count: they follow the routing and the length of sequences. Where peers tell different tokens, or exchange different
// bytes, and their own times follow, that part of a rank's time is its work and not its lateness: packed sequences and
// routed experts are no fault of a GPU.
//
// Thread rule: Confined (what is computed is kept in the frame).
#pragma once

#include <map>
#include <unordered_map>

#include "diagnosis/window.h"

namespace lockstep {

// Which groups that send point to point are pipelines: by name or, where none is told, because their members do not all
// send and receive alike, as they would in an exchange among experts.
class Pipelines {
 public:
  Pipelines(const JobWindow& window, const StepFrame& frame);
  bool contains(CommId comm_id) const;
  // The place of a rank in its pipeline, its stage; -1: none is known.
  int32_t stage_of(const StepSummary& row) const;

 private:
  std::unordered_map<CommId, bool> pipeline_;
};

const StepLateness& lateness(const JobWindow& window, const StepFrame& frame);
// The rank's row is known, and it is a stage of its own.
bool is_alone(const JobWindow& window, const StepFrame& frame, size_t slot);
// What each of these steps took, of the median rank.
std::vector<double> step_durations(const JobWindow& window, const std::vector<StepNumber>& steps);
// How late a rank typically was in these steps; NaN: not known.
double typical_lateness(const JobWindow& window, const std::vector<StepNumber>& steps, size_t slot);
Latest largest_of(const std::vector<float>& ns_by_slot);  // NaN: not known
// The same for few ranks: by rank. Empty where the step says nothing.
std::map<Rank, double> lateness(const JobWindow& window, const RankRows& rows);

}  // namespace lockstep
