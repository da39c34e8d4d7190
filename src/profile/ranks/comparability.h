// Whether two runs can be compared at all (compare.h says what forbids it), and what differs without forbidding it.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "profile/ranks/run_summary.h"

namespace lockstep::profile {

struct Comparability {
  std::vector<std::string> not_comparable;  // one line each; empty: they can be compared
  std::vector<std::string> notes;
};

Comparability comparability_of(const RunSummary& before, const RunSummary& after);

}  // namespace lockstep::profile
