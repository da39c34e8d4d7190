#include "analysis/whatif/step_price.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "analysis/whatif/shares.h"
#include "base/median.h"

namespace lockstep {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15ull ^ (hash >> 29);
}

// The same for ranks whose communicators are alike. Bytes count by their power of two: batches differ a little.
uint64_t derived_role(const StepSummary& summary) {
  uint64_t role = 0;
  for (const CommStep& comm : summary.comms) {
    uint64_t one = mix(static_cast<uint64_t>(comm.size), comm.p2p ? 2 : 1);
    one = mix(one, static_cast<uint64_t>(comm.count));
    one = mix(one, static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(0, comm.bytes)))));
    role += one;  // in any order
  }
  return role | 1;
}

class Chains {
 public:
  explicit Chains(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0u); }
  uint32_t find(uint32_t one) {
    while (parent_[one] != one) one = parent_[one] = parent_[parent_[one]];
    return one;
  }
  void join(uint32_t a, uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<uint32_t> parent_;
};

struct Membership {
  uint64_t comm_id;
  bool p2p;
  uint32_t rank;  // index
  int64_t gpu_ns;
  std::tuple<int32_t, int64_t, int> shape;  // size, operations, power of two of the bytes
};

// What the ranks of each chain come to.
struct Chain {
  int64_t until = 0;
  int64_t most = 0;  // of busy
  int64_t sum = 0;
  int64_t removed = 0;   // by taking suspects out
  bool touched = false;  // a suspect is in it, or is met by it again and again
};

// What ranks are busy with, and what sends and receives took too long, by chain: a step with suspects taken out.
struct Fixed {
  std::vector<int64_t> busy_ns;
  std::vector<int64_t> messages_ns;
};

std::vector<Chain> chains_of(const StepGraph& graph, const Fixed& fixed) {
  const std::vector<int64_t>& busy_ns = fixed.busy_ns;
  std::vector<Chain> chains(graph.chains);
  for (size_t i = 0; i < chains.size(); ++i) chains[i].removed = fixed.messages_ns[i];
  for (size_t i = 0; i < busy_ns.size(); ++i) {
    Chain& chain = chains[graph.chain[i]];
    chain.until = std::max(chain.until, graph.until_ns[i]);
    chain.most = std::max(chain.most, busy_ns[i]);
    chain.sum += busy_ns[i];
    chain.removed += graph.busy_ns[i] - busy_ns[i];
  }
  return chains;
}

// How much of the other stages a pipeline waits for, as chains show it. suspected: by chain; these are asked only where
// there are no others.
double fill_share(const std::vector<Chain>& chains, const std::vector<uint8_t>& suspected) {
  std::vector<double> shares, all;
  for (size_t i = 0; i < chains.size(); ++i) {
    const Chain& chain = chains[i];
    if (chain.sum <= chain.most) continue;
    const double share = std::clamp(
        static_cast<double>(chain.until - chain.most) / static_cast<double>(chain.sum - chain.most), 0.0, 1.0);
    all.push_back(share);
    if (suspected[i] == 0) shares.push_back(share);
  }
  if (all.empty()) return 0;
  return median_of(shares.empty() ? std::move(all) : std::move(shares));
}

double last_chain(const std::vector<Chain>& chains, double k) {
  double last = 0;
  for (const Chain& chain : chains) {
    const auto until = static_cast<double>(chain.until);
    double value = until;
    if (chain.touched) {
      const auto most = static_cast<double>(chain.most);
      const double modelled = most + k * (static_cast<double>(chain.sum) - most);
      value = chain.removed > 0 ? std::max(modelled, until - static_cast<double>(chain.removed)) : modelled;
    }
    last = std::max(last, std::min(value, until));
  }
  return last;
}

}  // namespace

StepGraph step_graph_of(std::span<const SummarizedRank> rows) {
  StepGraph graph;
  std::vector<Membership> memberships;
  std::unordered_map<int32_t, bool> seen;
  std::vector<int64_t> comm_ns;
  for (const SummarizedRank& row : rows) {
    if (row.summary == nullptr || !seen.try_emplace(row.rank, true).second) continue;
    const StepSummary& summary = *row.summary;
    if (!summary.gpu_time_known()) {
      ++graph.unknown;
      continue;
    }
    const auto index = static_cast<uint32_t>(graph.rank.size());
    graph.rank.push_back(row.rank);
    graph.role.push_back(row.role == SummarizedRank::kDeriveRole ? derived_role(summary) : row.role);
    graph.own_ns.push_back(std::max<int64_t>(0, summary.self_ns));
    comm_ns.push_back(std::max<int64_t>(0, summary.comm_ns));
    int64_t& messages = graph.messages.emplace_back(0);
    for (const CommStep& comm : summary.comms) messages += comm.p2p ? comm.count : 0;
    graph.step_ns = std::max(graph.step_ns, summary.duration_ns);
    for (const CommStep& comm : summary.comms)
      memberships.push_back(
          {comm.comm_id,
           comm.p2p,
           index,
           std::max<int64_t>(0, comm.gpu_ns),
           {comm.size, comm.count, std::bit_width(static_cast<uint64_t>(std::max<int64_t>(0, comm.bytes)))}});
  }
  const size_t count = graph.rank.size();
  std::sort(memberships.begin(), memberships.end(), [](const Membership& a, const Membership& b) {
    return std::tie(a.comm_id, a.p2p, a.rank) < std::tie(b.comm_id, b.p2p, b.rank);
  });

  Chains chains(count);
  std::vector<int64_t> waiting(count, 0), messaging(count, 0);
  std::map<std::tuple<int32_t, int64_t, int, bool>, std::vector<uint32_t>> alike;
  graph.member_begin.push_back(0);
  for (size_t begin = 0; begin < memberships.size();) {
    size_t end = begin;
    int64_t shortest = memberships[begin].gpu_ns;
    for (; end < memberships.size() && memberships[end].comm_id == memberships[begin].comm_id &&
           memberships[end].p2p == memberships[begin].p2p;
         ++end)
      shortest = std::min(shortest, memberships[end].gpu_ns);
    const bool p2p = memberships[begin].p2p;
    for (size_t at = begin; at < end; ++at) {
      graph.member.push_back(memberships[at].rank);
      (p2p ? messaging : waiting)[memberships[at].rank] += memberships[at].gpu_ns - (p2p ? 0 : shortest);
      if (p2p) chains.join(memberships[at].rank, memberships[begin].rank);
    }
    const auto& [size, operations, bytes] = memberships[begin].shape;
    alike[{size, operations, bytes, p2p}].push_back(static_cast<uint32_t>(graph.groups.size()));
    graph.groups.push_back({memberships[begin].comm_id, p2p, operations, shortest, shortest});
    graph.member_begin.push_back(static_cast<uint32_t>(graph.member.size()));
    begin = end;
  }
  for (const auto& entry : alike) {
    std::vector<int64_t> transfers;
    for (const uint32_t group : entry.second) transfers.push_back(graph.groups[group].transfer_ns);
    const int64_t usual = upper_median_of(transfers);
    for (const uint32_t group : entry.second) graph.groups[group].usual_ns = usual;
  }
  std::vector<uint32_t> number(count, UINT32_MAX);
  for (uint32_t i = 0; i < count; ++i) {
    graph.until_ns.push_back(graph.own_ns[i] + std::max<int64_t>(0, comm_ns[i] - waiting[i]));
    graph.busy_ns.push_back(graph.own_ns[i] + std::max<int64_t>(0, comm_ns[i] - waiting[i] - messaging[i]));
    uint32_t& chain = number[chains.find(i)];
    if (chain == UINT32_MAX) chain = graph.chains++;
    graph.chain.push_back(chain);
  }
  return graph;
}

StepPrice price(const StepGraph& graph, std::span<const Suspect> suspects, int64_t baseline_ns) {
  StepPrice result;
  result.step_ns = graph.step_ns;
  result.baseline_ns = baseline_ns;
  result.recovered_ns.assign(suspects.size(), 0);
  result.shares.assign(suspects.size(), 0);
  const size_t count = graph.rank.size();
  if (count == 0) return result;

  std::unordered_map<int32_t, uint32_t> index_of;
  index_of.reserve(count);
  for (uint32_t i = 0; i < count; ++i) index_of.emplace(graph.rank[i], i);
  std::vector<uint8_t> suspected(count, 0);
  for (const Suspect& suspect : suspects) {
    if (suspect.kind != Suspect::Kind::kOwn) continue;
    for (const int32_t rank : suspect.ranks) {
      if (const auto found = index_of.find(rank); found != index_of.end()) suspected[found->second] = 1;
    }
  }
  // The groups of a suspect: few are asked for, so they are found by going through all memberships once.
  std::unordered_map<uint32_t, std::vector<uint32_t>> groups_of_suspect;
  for (uint32_t group = 0; group < graph.groups.size(); ++group) {
    if (graph.groups[group].p2p) continue;
    for (uint32_t at = graph.member_begin[group]; at < graph.member_begin[group + 1]; ++at) {
      if (suspected[graph.member[at]] != 0) groups_of_suspect[graph.member[at]].push_back(group);
    }
  }
  const auto groups_of = [&](uint32_t i) -> std::span<const uint32_t> { return groups_of_suspect[i]; };
  // What own time should be, of the roles that have suspects.
  std::unordered_map<uint64_t, std::vector<int64_t>> peers;
  std::vector<int64_t> everybody;
  for (size_t i = 0; i < count; ++i) {
    if (suspected[i] != 0) peers.try_emplace(graph.role[i]);
  }
  for (size_t i = 0; i < count; ++i) {
    if (suspected[i] != 0) continue;
    everybody.push_back(graph.own_ns[i]);
    if (const auto found = peers.find(graph.role[i]); found != peers.end()) found->second.push_back(graph.own_ns[i]);
  }
  std::unordered_map<uint64_t, int64_t> usual_own;
  for (const auto& [role, values] : peers) usual_own[role] = upper_median_of(values.empty() ? everybody : values);

  // Takes a suspect's excess off what ranks are busy with. Nobody is slowed down: a suspect that is faster than its
  // peers costs nothing.
  const auto fix = [&](const Suspect& suspect, Fixed& fixed) {
    std::vector<int64_t>& busy_ns = fixed.busy_ns;
    if (suspect.kind == Suspect::Kind::kOwn) {
      for (const int32_t rank : suspect.ranks) {
        const auto found = index_of.find(rank);
        if (found == index_of.end()) continue;
        const uint32_t i = found->second;
        const int64_t usual = everybody.empty() ? graph.own_ns[i] : usual_own[graph.role[i]];
        busy_ns[i] -= std::clamp<int64_t>(graph.own_ns[i] - usual, 0, busy_ns[i]);
      }
      return;
    }
    for (size_t group = 0; group < graph.groups.size(); ++group) {
      if (graph.groups[group].comm_id != suspect.comm_id) continue;
      const int64_t usual = suspect.usual_ns >= 0 ? suspect.usual_ns : graph.groups[group].usual_ns;
      const int64_t excess = std::max<int64_t>(0, graph.groups[group].transfer_ns - usual);
      if (graph.groups[group].p2p) {  // all its members are of one chain
        fixed.messages_ns[graph.chain[graph.member[graph.member_begin[group]]]] += excess;
        continue;
      }
      for (uint32_t at = graph.member_begin[group]; at < graph.member_begin[group + 1]; ++at) {
        int64_t& busy = busy_ns[graph.member[at]];
        busy -= std::min(excess, busy);
      }
    }
  };
  // Chains that suspects are in, and those that wait for them in between.
  const auto touch = [&](const Suspect& suspect, std::vector<uint8_t>& chains) {
    const auto by_rank = [&](uint32_t i) { chains[graph.chain[i]] = 1; };
    if (suspect.kind == Suspect::Kind::kOwn) {
      for (const int32_t rank : suspect.ranks) {
        const auto found = index_of.find(rank);
        if (found == index_of.end()) continue;
        by_rank(found->second);
        const int64_t messages = graph.messages[found->second];
        if (messages == 0) continue;
        for (const uint32_t group : groups_of(found->second)) {
          if (graph.groups[group].operations < messages) continue;
          for (uint32_t at = graph.member_begin[group]; at < graph.member_begin[group + 1]; ++at)
            by_rank(graph.member[at]);
        }
      }
      return;
    }
    for (size_t group = 0; group < graph.groups.size(); ++group) {
      if (graph.groups[group].comm_id != suspect.comm_id) continue;
      for (uint32_t at = graph.member_begin[group]; at < graph.member_begin[group + 1]; ++at) by_rank(graph.member[at]);
    }
  };
  std::vector<uint8_t> touched_by_any(graph.chains, 0);
  for (const Suspect& suspect : suspects) touch(suspect, touched_by_any);
  const Fixed nothing{graph.busy_ns, std::vector<int64_t>(graph.chains, 0)};
  const std::vector<Chain> as_it_was = chains_of(graph, nothing);
  const double k = fill_share(as_it_was, touched_by_any);
  const double before = last_chain(as_it_was, k);
  const auto recovered = [&](const Fixed& fixed, const std::vector<uint8_t>& touched) {
    std::vector<Chain> chains = chains_of(graph, fixed);
    bool any = false;
    for (size_t i = 0; i < chains.size(); ++i) {
      chains[i].touched = touched[i] != 0;
      any = any || chains[i].removed > 0;
    }
    // A suspect of whom nothing can be taken costs nothing, whatever the model makes of its chain.
    return any ? std::max<int64_t>(0, static_cast<int64_t>(before - last_chain(chains, k))) : 0;
  };
  Fixed one, all = nothing;
  std::vector<double> alone;
  for (size_t i = 0; i < suspects.size(); ++i) {
    one = nothing;
    fix(suspects[i], one);
    fix(suspects[i], all);
    std::vector<uint8_t> touched(graph.chains, 0);
    touch(suspects[i], touched);
    result.recovered_ns[i] = recovered(one, touched);
    alone.push_back(static_cast<double>(result.recovered_ns[i]));
  }
  result.joint_ns = recovered(all, touched_by_any);
  // Suspects that hide each other (two equally slow ranks) recover nothing alone and much together: each then counts
  // with what it takes off its own ranks.
  if (std::accumulate(alone.begin(), alone.end(), 0.0) <= 0 && result.joint_ns > 0) {
    for (size_t i = 0; i < suspects.size(); ++i) {
      one = nothing;
      fix(suspects[i], one);
      int64_t most = 0;
      for (size_t rank = 0; rank < count; ++rank) most = std::max(most, graph.busy_ns[rank] - one.busy_ns[rank]);
      for (const int64_t messages : one.messages_ns) most = std::max(most, messages);
      alone[i] = static_cast<double>(most);
    }
  }
  result.unexplained = split_shares(static_cast<double>(graph.step_ns - baseline_ns),
                                    static_cast<double>(result.joint_ns), alone, result.shares);
  return result;
}

}  // namespace lockstep
