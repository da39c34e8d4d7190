#include "diagnosis/words.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace lockstep {

std::string name_of(const JobWindow& window, int32_t rank) {
  auto found = window.ranks().find(rank);
  if (found == window.ranks().end() || found->second.host.empty()) return format("Rank %d", rank);
  return format("Rank %d (%s, GPU %d)", rank, found->second.host.c_str(), found->second.local_rank);
}

std::string group_name(const JobWindow& window, uint64_t comm_id) {
  auto found = window.comms().find(comm_id);
  if (found == window.comms().end()) return "a group";
  std::vector<int> ranks;
  for (const auto& [in_comm, world] : found->second.world_rank) ranks.push_back(world);
  if (found->second.size == window.world_size()) return format("all %d ranks", found->second.size);
  return format("group of %d (%s)", found->second.size, human_ranks(ranks, 6).c_str());
}

Claim claim(std::string kind, std::string subject, std::string text, double value, std::string unit, double baseline,
            double peers, int64_t from, int64_t to, std::string query) {
  return Claim{std::move(text), std::move(kind), std::move(subject), value, std::move(unit), baseline, peers, from, to,
               std::move(query)};
}

std::string rank_query(int32_t rank, int64_t from, int64_t to) {
  return format("/api/jobs/{job}/ranks/%d?from=%lld&to=%lld", rank, static_cast<long long>(from),
                static_cast<long long>(to));
}

std::string steps_query(int64_t from, int64_t to) {
  return format("/api/jobs/{job}/steps?from=%lld&to=%lld", static_cast<long long>(from), static_cast<long long>(to));
}

std::string per_step(double ns) {
  return human_duration(ns) + " a step";
}

std::string percent(double share) {
  return format(share < 0.0995 ? "%.1f %%" : "%.0f %%", share * 100);
}

double coverage_of(const JobWindow& window, size_t ranks) {
  return window.world_size() > 0 ? static_cast<double>(ranks) / window.world_size() : 1;
}

std::vector<int32_t> victims_of(const JobWindow& window, const std::vector<int32_t>& culprits) {
  // Ranks and communicators as one graph; who is in the same part of it as a culprit waits for it.
  std::map<int32_t, std::vector<const CommMembers*>> comms_of;
  for (const auto& [id, members] : window.comms()) {
    for (const auto& [in_comm, world] : members.world_rank) comms_of[world].push_back(&members);
  }
  std::set<int32_t> reached(culprits.begin(), culprits.end());
  std::set<const CommMembers*> seen;
  std::vector<int32_t> next(culprits);
  while (!next.empty()) {
    const int32_t rank = next.back();
    next.pop_back();
    for (const CommMembers* members : comms_of[rank]) {
      if (!seen.insert(members).second) continue;
      for (const auto& [in_comm, world] : members->world_rank) {
        if (reached.insert(world).second) next.push_back(world);
      }
    }
  }
  for (int32_t rank : culprits) reached.erase(rank);
  return {reached.begin(), reached.end()};
}

void add_wait_claims(const JobWindow& window, int32_t culprit, const std::vector<int64_t>& steps, Finding& finding) {
  if (steps.empty()) return;
  // Per communicator of the culprit: what its members spend in it against what the culprit does.
  std::map<uint64_t, std::pair<double, std::vector<double>>> time_in;
  double own_steps = 0;
  for (int64_t number : steps) {
    const auto* rows = window.step(number);
    if (rows == nullptr) continue;
    auto own = rows->find(culprit);
    if (own == rows->end()) continue;
    own_steps += 1;
    std::set<uint64_t> mine;
    for (const CommStep& comm : own->second.summary.comms) {
      time_in[comm.comm_id].first += static_cast<double>(comm.gpu_ns);
      mine.insert(comm.comm_id);
    }
    for (const auto& [rank, row] : *rows) {
      if (rank == culprit) continue;
      for (const CommStep& comm : row.summary.comms) {
        if (mine.contains(comm.comm_id)) time_in[comm.comm_id].second.push_back(static_cast<double>(comm.gpu_ns));
      }
    }
  }
  struct Wait {
    uint64_t comm_id;
    double own;
    double others;
  };
  std::vector<Wait> waits;
  for (auto& [id, times] : time_in) {
    auto members = window.comms().find(id);
    if (times.second.empty() || members == window.comms().end() || members->second.size < 2) continue;
    double own = times.first / own_steps;
    double others = 0;
    for (double time : times.second) others += time;
    others /= static_cast<double>(times.second.size());
    if (others > own) waits.push_back({id, own, others});
  }
  std::sort(waits.begin(), waits.end(),
            [](const Wait& a, const Wait& b) { return a.others - a.own > b.others - b.own; });
  for (size_t i = 0; i < waits.size() && i < 3; ++i) {
    const Wait& wait = waits[i];
    std::string group = group_name(window, wait.comm_id);
    finding.chain.push_back(claim(
        "waits_for", format("rank %d", culprit),
        format("In the collectives of %s the others spend %s, rank %d only %s: it arrives last and they wait for it.",
               group.c_str(), per_step(wait.others).c_str(), culprit, human_duration(wait.own).c_str()),
        (wait.others - wait.own) / 1e6, "ms", 0, wait.others / 1e6, steps.front(), steps.back(),
        rank_query(culprit, steps.front(), steps.back())));
    finding.victim_groups.push_back(group);
  }
  if (waits.empty()) {
    finding.chain.push_back(claim("waits_for", format("rank %d", culprit),
                                  format("%zu ranks share collectives with rank %d, directly or through others.",
                                         finding.victims.size(), culprit),
                                  0, "ms", 0, 0, steps.front(), steps.back(),
                                  steps_query(steps.front(), steps.back())));
  }
}

void add_network_exclusion(const JobWindow& window, int32_t culprit, const std::vector<int64_t>& steps,
                           Finding& finding) {
  double own_bytes = 0, own_wire = 0;
  std::vector<double> rates;
  std::map<int32_t, std::pair<double, double>> per_rank;
  for (int64_t number : steps) {
    const auto* rows = window.step(number);
    if (rows == nullptr) continue;
    for (const auto& [rank, row] : *rows) {
      for (const FlowStep& flow : row.summary.flows) {
        if (!flow.send) continue;
        per_rank[rank].first += static_cast<double>(flow.bytes);
        per_rank[rank].second += static_cast<double>(flow.wire_ns);
      }
    }
  }
  for (const auto& [rank, sums] : per_rank) {
    if (sums.second <= 0) continue;
    if (rank == culprit) {
      own_bytes = sums.first;
      own_wire = sums.second;
    } else {
      rates.push_back(sums.first / sums.second);
    }
  }
  if (own_wire <= 0 || rates.empty()) return;
  double own = own_bytes / own_wire;  // bytes per ns = GB/s
  double peers = median(rates);
  if (own < peers * 0.5) return;  // would contradict: then it is not an exclusion
  finding.chain.push_back(
      claim("exclusion", format("network of rank %d", culprit),
            format("Not the network: its links carry %.1f GB/s while sending, its peers' %.1f.", own, peers), own,
            "GB/s", 0, peers, steps.front(), steps.back(), rank_query(culprit, steps.front(), steps.back())));
}

}  // namespace lockstep
