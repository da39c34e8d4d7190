#include "diagnosis/detectors/slow_link/slow_group_rule.h"

#include <algorithm>
#include <optional>

namespace lockstep::slow_link {
namespace {

constexpr double kGroupRatioMin = 3;
constexpr double kGroupSavedShareMin = 0.08;
constexpr double kGroupBytesMin = 4e6;  // per operation: below, latency and scheduling set the time
constexpr double kOtherGroupsRatio = 1.3;

// The group beside its like; nothing where it does not stand out.
std::optional<SlowGroup> slow_group(const JobWindow& window, const ComparedSteps& compared,
                                    const std::vector<Group>& groups, const Group& group) {
  if (group.bytes / group.count < kGroupBytesMin || slowness(groups, group) < kGroupRatioMin) return std::nullopt;
  std::vector<double> others;
  bool apart = true;
  for (const Group& other : groups) {
    if (other.comm_id == group.comm_id || !are_alike(other, group)) continue;
    others.push_back(other.typical);
    if (!share_member(window, other.comm_id, group.comm_id) && group.typical * kApartMax < other.typical) apart = false;
  }
  const double usual = median(std::move(others));
  const auto hits = std::count_if(group.transfer.begin(), group.transfer.end(),
                                  [&](double ns) { return ns >= 0.7 * kGroupRatioMin * usual; });
  SlowGroup slow{.group = group, .usual_ns = usual};
  if (!apart || slow.saved_ns() < kGroupSavedShareMin * compared.step_ns ||
      static_cast<double>(hits) < 0.7 * static_cast<double>(group.transfer.size()))
    return std::nullopt;
  return slow;
}

// Whose other groups are slow as well?
std::vector<std::pair<double, Rank>> suspects_of(const JobWindow& window, const std::vector<Group>& groups,
                                                 CommId comm_id) {
  std::vector<std::pair<double, Rank>> suspects;
  for (const auto& [in_comm, rank] : window.comms().at(comm_id).world_rank) {
    double worst = 1;
    for (const Group& other : groups) {
      if (other.comm_id == comm_id) continue;
      for (const auto& [in_other, member] : window.comms().at(other.comm_id).world_rank) {
        if (member == rank) worst = std::max(worst, slowness(groups, other));
      }
    }
    suspects.emplace_back(worst, rank);
  }
  std::sort(suspects.rbegin(), suspects.rend());
  return suspects;
}

}  // namespace

std::vector<SlowGroup> slow_groups(const JobWindow& window, const ComparedSteps& compared, std::vector<Group> groups,
                                   const std::set<Rank>& late) {
  std::erase_if(groups, [&](const Group& group) {
    const auto& members = window.comms().at(group.comm_id).world_rank;
    return std::any_of(members.begin(), members.end(), [&](const auto& one) { return late.contains(one.second); });
  });
  // Which member of a slow pair it is shows in small differences: look at all steps there are, once there is one.
  std::vector<Group> groups_long;
  std::vector<SlowGroup> found;
  for (const Group& group : groups) {
    std::optional<SlowGroup> slow = slow_group(window, compared, groups, group);
    if (!slow) continue;
    if (groups_long.empty()) groups_long = groups_over(window, window.complete_steps());
    slow->suspects = suspects_of(window, groups_long, group.comm_id);
    const std::vector<std::pair<double, Rank>>& suspects = slow->suspects;
    slow->stands_apart = suspects.size() >= 2 && suspects[0].first >= kOtherGroupsRatio * suspects[1].first;
    // Somewhere in a large group: not enough to name anyone.
    if (slow->stands_apart || suspects.size() <= 2) found.push_back(std::move(*slow));
  }
  return found;
}

}  // namespace lockstep::slow_link
