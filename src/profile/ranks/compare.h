// Two profiles side by side: before and after a change, one run and another. Whether they can be compared at all, by how
// much a step differs, and in which kernels, shapes and gaps.
//
// Not comparable: what differs would not be the program's doing. Other GPUs, another number of ranks, other versions of
// the framework and its libraries (the first two numbers of them), other shapes given to the same calls (another batch or
// model), steps marked in one only, or so many other calls that it is another program. As far as the traces say: what
// they do not say forbids nothing.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "profile/ranks/run_summary.h"

namespace lockstep::profile {

// How much a thing takes of a step, in both runs.
struct Difference {
  double before_ns = 0;
  double after_ns = 0;
  double before_count = 0;
  double after_count = 0;
  double extra_ns() const { return after_ns - before_ns; }
};

struct ShapeDifference : Difference {
  std::string shape;
};

struct KernelDelta : Difference {
  std::string name;
  std::string op;
  KernelClass kernel_class = KernelClass::kCompute;
  std::vector<ShapeDifference> shapes;  // largest change first; empty: not recorded in both runs
};

struct GapDifference : Difference {
  std::string what;
  GapCause cause = GapCause::kHost;
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
  std::vector<KernelDelta> kernels;                    // largest change first
  std::vector<GapDifference> gaps;                     // largest change first
  std::array<Difference, kGapCauses> gap_causes;       // all gaps, by GapCause
  std::string sentence;

  bool is_comparable() const { return not_comparable.empty(); }
  // No more than steps differ from each other by chance; of single steps that is not known, and 0.
  bool is_within_noise() const { return std::fabs(after_ns - before_ns) <= 2 * noise_ns; }
  double change() const { return before_ns > 0 ? after_ns / before_ns - 1 : 0; }  // 0.03: 3 % slower
};

enum class Unlike : uint8_t { kRefused, kCompared };  // what is said of runs that cannot be compared

ProfileComparison compare(const RunSummary& before, const RunSummary& after, Unlike unlike = Unlike::kRefused);
ProfileComparison compare(const ProfileAnalysis& before, const ProfileAnalysis& after);

std::string comparison_json(const ProfileComparison& comparison, size_t kernels_max = 50);

}  // namespace lockstep::profile
