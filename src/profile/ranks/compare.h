// Two profiles side by side: before and after a change, one run and another. Whether they can be compared at all, by how
// much a step differs, and in which kernels and gaps.
//
// Everything is per step and the median over ranks, so that runs with other numbers of profiled steps compare.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "profile/analysis.h"

namespace lockstep::profile {

struct GapDifference {
  std::string what;
  double before_ns = 0;  // per step
  double after_ns = 0;
};

struct ProfileComparison {
  std::vector<std::string> not_comparable;  // why they cannot be compared; empty: they can
  std::vector<std::string> notes;           // what differs, and does not forbid it
  double before_ns = 0;                     // a step
  double after_ns = 0;
  double noise_ns = 0;  // of a step, from how its steps differ from each other
  double busy_before_ns = 0, busy_after_ns = 0;
  double idle_before_ns = 0, idle_after_ns = 0;
  double exposed_before_ns = 0, exposed_after_ns = 0;  // communication
  std::vector<KernelDifference> kernels;               // own: after, peers: before; largest change first
  std::vector<GapDifference> gaps;                     // largest change first
  std::string sentence;

  bool is_comparable() const { return not_comparable.empty(); }
  double change() const { return before_ns > 0 ? after_ns / before_ns - 1 : 0; }  // 0.03: 3 % slower
};

ProfileComparison compare(const ProfileAnalysis& before, const ProfileAnalysis& after);

std::string comparison_json(const ProfileComparison& comparison, size_t kernels_max = 50);

}  // namespace lockstep::profile
