// Which communicators are slow, and which of their members that accuses.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "diagnosis/detectors/slow_link/flow_rates.h"
#include "diagnosis/detectors/slow_link/group_times.h"
#include "diagnosis/window.h"

namespace lockstep::slow_link {

struct SlowGroup {
  Group group;
  double usual_ns = 0;  // what its like take
  // Its members, and how many times as slow as their like their slowest other group is; the slowest first.
  std::vector<std::pair<double, Rank>> suspects;
  bool stands_apart = false;  // the first of them is far slower than the second
  double saved_ns() const { return group.typical - usual_ns; }
};
// Groups of ranks that are late themselves are left out: they look slow for another reason.
std::vector<SlowGroup> slow_groups(const JobWindow& window, const ComparedSteps& compared, std::vector<Group> groups,
                                   const std::set<Rank>& late);

}  // namespace lockstep::slow_link
