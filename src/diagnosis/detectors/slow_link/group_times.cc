#include "diagnosis/detectors/slow_link/group_times.h"

#include <algorithm>
#include <map>

namespace lockstep::slow_link {
namespace {

// Of a group in fewer steps nothing is told.
constexpr size_t kGroupStepsSeen = 4;

// A communicator's collectives in one step: of its members the last that told, and the shortest of them all.
struct GroupStep {
  CommId comm_id;
  int32_t size = 0;
  double bytes = 0;
  double count = 0;
  double shortest = 0;  // over members and operations, times operations
  size_t reported = 0;  // members that told
};
struct GroupSteps {
  std::vector<GroupStep> groups;  // by comm_id
};

const std::vector<GroupStep>& groups_in(const JobWindow& window, StepNumber number) {
  return window.frame(number)
      ->derived<GroupSteps>([&] {
        std::map<CommId, GroupStep> by_id;
        for (const auto& [rank, row] : *window.step(number)) {
          for (const CommStep& comm : row.summary.comms) {
            if (comm.p2p || comm.count <= 0 || comm.size < 2 || comm.shortest_ns <= 0) continue;
            GroupStep& group = by_id[comm.comm_id];
            group.comm_id = comm.comm_id;
            group.size = comm.size;
            group.bytes = static_cast<double>(comm.bytes);
            group.count = static_cast<double>(comm.count);
            const double here = static_cast<double>(comm.shortest_ns * comm.count);
            group.shortest = group.reported == 0 ? here : std::min(group.shortest, here);
            ++group.reported;
          }
        }
        GroupSteps all;
        all.groups.reserve(by_id.size());
        for (const auto& [id, group] : by_id) all.groups.push_back(group);
        return all;
      })
      .groups;
}

}  // namespace

std::vector<Group> groups_over(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::map<CommId, Group> by_id;
  for (StepNumber number : steps) {
    for (const GroupStep& step : groups_in(window, number)) {
      Group& group = by_id[step.comm_id];
      group.comm_id = step.comm_id;
      group.size = step.size;
      group.bytes = step.bytes;
      group.count = step.count;
      if (step.reported == static_cast<size_t>(step.size)) group.transfer.push_back(step.shortest);
    }
  }
  std::vector<Group> groups;
  for (auto& [id, group] : by_id) {
    if (group.transfer.size() < kGroupStepsSeen || !window.comms().contains(id)) continue;
    group.typical = median(group.transfer);
    groups.push_back(std::move(group));
  }
  return groups;
}

bool are_alike(const Group& a, const Group& b) {
  return a.size == b.size && a.count == b.count && a.bytes < 1.1 * b.bytes && b.bytes < 1.1 * a.bytes;
}

bool share_member(const JobWindow& window, CommId a, CommId b) {
  for (const auto& [in_a, rank_a] : window.comms().at(a).world_rank) {
    for (const auto& [in_b, rank_b] : window.comms().at(b).world_rank) {
      if (rank_a == rank_b) return true;
    }
  }
  return false;
}

double slowness(const std::vector<Group>& groups, const Group& group) {
  std::vector<double> others;
  for (const Group& other : groups) {
    if (other.comm_id != group.comm_id && are_alike(other, group)) others.push_back(other.typical);
  }
  double usual = median(others);
  return others.size() + 1 >= kGroupsMin && usual > 0 ? group.typical / usual : 1;
}

}  // namespace lockstep::slow_link
