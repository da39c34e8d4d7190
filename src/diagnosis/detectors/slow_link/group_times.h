// How long the collectives of each communicator take when everybody is there: the measure of slow groups.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "diagnosis/window.h"

namespace lockstep::slow_link {

inline constexpr size_t kGroupsMin = 3;  // one, and two to compare it with

struct Group {
  CommId comm_id;
  int32_t size = 0;
  double bytes = 0;
  double count = 0;
  std::vector<double> transfer;  // per step: shortest over members and operations, times operations
  double typical = 0;
};
std::vector<Group> groups_over(const JobWindow& window, const std::vector<StepNumber>& steps);

// They do the same, so they should take the same.
bool are_alike(const Group& a, const Group& b);
bool share_member(const JobWindow& window, CommId a, CommId b);
// Transfer time of the group over that of its like; 1 where there is nothing to compare with.
double slowness(const std::vector<Group>& groups, const Group& group);

}  // namespace lockstep::slow_link
