#include "diagnosis/detectors/straggler/culprits.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "diagnosis/detectors/straggler/own_time.h"

namespace lockstep::straggler {
namespace {

// More than this share of a role late together: the work is shaped so.
constexpr double kStructuralShare = 1.0 / 3;
// Who waits in some group for so much of its lateness longer than its peers is a victim.
constexpr double kWaitPart = 0.5;
// Whose own GPU or input explains so much of it is none, whatever it waits for besides.
constexpr double kOwnFaultPart = 0.8;

// Groups of one size may be for different things: what is done in them tells them apart.
using GroupKind = std::tuple<int32_t, bool, int64_t>;
GroupKind kind_of(const CommStep& comm) {
  return {comm.size, comm.p2p, comm.count};
}

// A late rank in a step, and its peers there.
struct Beside {
  const StepSummary& own;
  std::vector<Peer> peers;
};

std::vector<Beside> beside_peers(const JobWindow& window, const LastSteps& last, const Late& entry) {
  // The newest steps tell who waits: before, it may all have been well.
  const std::vector<StepNumber> newest(last.steps.end() - static_cast<std::ptrdiff_t>(kStepsFresh), last.steps.end());
  const std::vector<StepNumber> steps = entry.begin() != kNoStep ? stretch_since(window, entry.begin())
                                        : entry.lasting          ? last.steps
                                                                 : newest;
  std::vector<Beside> found;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    if (frame.knows(entry.slot))
      found.push_back({frame.rows[entry.slot].summary, peers_in(window, frame, entry.rank, {entry.rank})});
  }
  return found;
}

// Its own GPU is behind, or its input late, and that explains its lateness.
bool has_own_fault(const std::vector<Beside>& steps, double late_ns) {
  const auto own_part = [](const StepSummary& step) {
    return static_cast<double>(step.queue_ns + step.phase_ns[static_cast<size_t>(Phase::kInput)]);
  };
  std::vector<double> more;
  for (const Beside& step : steps) {
    std::vector<double> of_peers;
    for (const Peer& peer : step.peers) of_peers.push_back(own_part(peer.row->summary));
    more.push_back(own_part(step.own) - median(std::move(of_peers)));
  }
  return !more.empty() && median(std::move(more)) >= kOwnFaultPart * late_ns;
}

// Waiting is not guilt. Where communication runs beside the own work, whoever waits in it for a late rank looks quicker
// than it is, and those who wait elsewhere for that rank (its tensor-parallel peers, its pipeline) look late in
// comparison. They give themselves away: in some of their groups they spend more time than their peers do, and who is
// really late spends less in all of them, unless something else makes it wait as well: then its own GPU or its input
// has to say that it is late.
bool waits_more(const std::vector<Beside>& steps, double late_ns) {
  std::map<GroupKind, std::vector<double>> more;  // per step
  for (const Beside& step : steps) {
    std::map<GroupKind, double> own;
    for (const CommStep& comm : step.own.comms) own[kind_of(comm)] += static_cast<double>(comm.gpu_ns);
    for (const auto& [kind, ns] : own) {
      std::vector<double> theirs;
      for (const Peer& peer : step.peers) {
        double sum = -1;
        for (const CommStep& comm : peer.row->summary.comms) {
          if (kind_of(comm) == kind) sum = std::max(sum, 0.0) + static_cast<double>(comm.gpu_ns);
        }
        if (sum >= 0) theirs.push_back(sum);
      }
      more[kind].push_back(ns - median(std::move(theirs)));
    }
  }
  // In most of the steps: where communication varies by more than that it tells nothing.
  return std::any_of(more.begin(), more.end(),
                     [&](auto& kind) { return quantile(std::move(kind.second), 0.25) >= kWaitPart * late_ns; });
}

// The groups in which it waits, or waits unseen for one who does: its own and, through those that send point to point (its
// pipeline), those of its peers there.
std::set<CommId> groups_waited_in(const JobWindow& window, const StepFrame& frame, size_t slot) {
  std::set<CommId> groups = small_groups(window, frame, slot);
  if (!frame.knows(slot)) return groups;
  for (const CommStep& comm : frame.rows[slot].summary.comms) {
    const auto group = window.comms().find(comm.comm_id);
    if (!comm.p2p || comm.size >= window.world_size() || group == window.comms().end()) continue;
    for (const auto& [place, rank] : group->second.world_rank)
      if (const int32_t member = window.slot_of(rank); member >= 0)
        groups.merge(small_groups(window, frame, static_cast<size_t>(member)));
  }
  return groups;
}

bool meet(const std::set<CommId>& some, const std::set<CommId>& others) {
  return std::any_of(some.begin(), some.end(), [&](CommId id) { return others.contains(id); });
}

}  // namespace

bool is_structural(size_t late, size_t all) {
  return late > 1 && static_cast<double>(late) >= kStructuralShare * static_cast<double>(all);
}

bool are_alike(const std::vector<Late>& late) {
  std::vector<double> sizes;
  for (const Late& entry : late) sizes.push_back(entry.ns);
  return !sizes.empty() && median(sizes) >= kAlikePart * *std::max_element(sizes.begin(), sizes.end());
}

std::set<size_t> take_victims(const JobWindow& window, const LastSteps& last, std::vector<Late>& late) {
  std::set<size_t> victims;
  for (size_t i = 0, asked = 0; i < late.size() && asked < kAskedMax; ++asked) {
    const std::vector<Beside> steps = beside_peers(window, last, late[i]);
    if (!has_own_fault(steps, late[i].ns) && waits_more(steps, late[i].ns)) {
      victims.insert(late[i].slot);
      late.erase(late.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return victims;
}

std::map<std::string, std::vector<Late>> late_hosts(const JobWindow& window, const std::vector<Late>& late,
                                                    const std::set<size_t>& victims,
                                                    const std::vector<double>& typical) {
  std::unordered_map<std::string_view, std::vector<Rank>> ranks_of;
  for (const auto& [rank, identity] : window.ranks()) ranks_of[identity.host].push_back(rank);
  std::map<std::string, std::vector<Late>> hosts;
  if (ranks_of.size() < 2) return hosts;
  for (const Late& entry : late) hosts[window.ranks().at(entry.rank).host].push_back(entry);
  for (auto host = hosts.begin(); host != hosts.end();) {
    std::vector<Late>& entries = host->second;
    const std::vector<Rank>& ranks = ranks_of[host->first];
    const Late worst =
        *std::max_element(entries.begin(), entries.end(), [](const Late& a, const Late& b) { return a.ns < b.ns; });
    std::erase_if(entries, [&](const Late& entry) { return entry.ns < kHostPart * worst.ns; });
    const StepNumber since = worst.begin();
    const std::vector<StepNumber> stretch = stretch_since(window, since);
    for (Rank rank : ranks) {
      const int32_t slot = window.slot_of(rank);
      if (slot < 0 || victims.contains(static_cast<size_t>(slot)) ||
          std::any_of(entries.begin(), entries.end(), [&](const Late& one) { return one.rank == rank; }))
        continue;
      const double ns = since == kNoStep ? typical[static_cast<size_t>(slot)]
                                         : typical_lateness(window, stretch, static_cast<size_t>(slot));
      if (ns >= kHostPart * worst.ns) entries.push_back({.rank = rank, .slot = static_cast<size_t>(slot), .ns = ns});
    }
    const bool together =
        entries.size() >= 2 && static_cast<double>(entries.size()) >= kHostShare * static_cast<double>(ranks.size());
    host = together ? std::next(host) : hosts.erase(host);
  }
  // More than a third of the hosts late: the work is shaped so. (Two of four may be two hosts.)
  const size_t hosts_max = std::max<size_t>(ranks_of.size() >= 4 ? 2 : 1, ranks_of.size() / 3);
  if (hosts.size() > hosts_max) hosts.clear();
  return hosts;
}

bool same_place_everywhere(const JobWindow& window, const StepFrame& frame, const std::vector<Late>& late) {
  constexpr size_t kGroupsMin = 3;
  if (late.size() < kGroupsMin || !are_alike(late)) return false;
  struct Places {
    std::set<CommId> groups, late_groups;
    std::set<int32_t> late_places;
  };
  std::map<std::pair<int32_t, bool>, Places> kinds;  // by size, and whether it sends point to point
  std::set<size_t> late_slots;
  for (const Late& entry : late) late_slots.insert(entry.slot);
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms) {
      if (comm.size < 2 || comm.size >= window.world_size()) continue;
      Places& places = kinds[{comm.size, comm.p2p}];
      places.groups.insert(comm.comm_id);
      if (!late_slots.contains(slot)) continue;
      places.late_groups.insert(comm.comm_id);
      places.late_places.insert(comm.rank_in_comm);
    }
  }
  return std::any_of(kinds.begin(), kinds.end(), [&](const auto& kind) {
    const Places& places = kind.second;
    return places.groups.size() >= kGroupsMin && places.late_places.size() == 1 &&
           late.size() == places.late_groups.size() && 2 * late.size() > places.groups.size();
  });
}

void take_structural(const LastSteps& last, const std::vector<double>& typical, std::vector<Late>& late) {
  const StepLateness& newest = *last.late.back();
  auto role_of = [&](size_t slot) { return slot < newest.role.size() ? newest.role[slot] : 0; };
  std::map<uint32_t, std::pair<size_t, size_t>> roles;  // late, all
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    if (!std::isnan(typical[slot])) ++roles[role_of(slot)].second;
  }
  for (const Late& entry : late) ++roles[role_of(entry.slot)].first;
  std::erase_if(late, [&](const Late& entry) {
    return is_structural(roles[role_of(entry.slot)].first, roles[role_of(entry.slot)].second);
  });
}

bool is_shadow(const JobWindow& window, const std::vector<Late>& late, const std::vector<Late>& later, double saved,
               const LastSteps& last) {
  if (saved >= kHiddenShare * last.step_ns) return false;
  const StepFrame& frame = *window.frame(last.steps.back());
  return std::all_of(late.begin(), late.end(), [&](const Late& entry) {
    if (entry.by_evidence_alone) return true;
    const bool guilty = has_own_fault(beside_peers(window, last, entry), entry.ns);
    const std::set<CommId> groups = guilty ? small_groups(window, frame, entry.slot)  // its lateness is its own
                                           : groups_waited_in(window, frame, entry.slot);
    return std::any_of(later.begin(), later.end(), [&](const Late& other) {
      return other.ns > entry.ns && other.slot != entry.slot && meet(groups, small_groups(window, frame, other.slot));
    });
  });
}

}  // namespace lockstep::straggler
