#include "diagnosis/detectors/hang/wait_graph.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep {
namespace {

bool is_other_operation(const OpStatus& op, const OpStatus& first) {
  return op.function != first.function || op.datatype != first.datatype ||
         (op.bytes != first.bytes && op.function == "AllReduce");
}

}  // namespace

WaitGraph::WaitGraph(const JobWindow& window, const HangInput& input, int64_t limit_ns)
    : window_(window), input_(input), limit_ns_(limit_ns) {
  note_where_everybody_stands();
  if (!anybody_waits()) return;
  for (const auto& [rank, status] : input_.status) {
    if (!is_asked(status)) continue;
    for (const CommStatus& comm : status.comms) {
      if (waits_in_collective(comm)) add_collective(rank, comm);
      if (waits_in_p2p(comm)) add_p2p(rank, comm);
    }
    if (waiting_.contains(rank)) {
      shortest_quiet_ns_ = std::min(shortest_quiet_ns_, status.quiet_ns);
      longest_quiet_ns_ = std::max(longest_quiet_ns_, status.quiet_ns);
    }
  }
  count_operations();
}

bool WaitGraph::is_asked(const RankStatus& status) const {
  return !status.finished && status.process_alive && status.quiet_ns >= limit_ns_;
}

void WaitGraph::note_where_everybody_stands() {
  for (const auto& [rank, status] : input_.status) {
    if (status.finished) continue;
    for (const CommStatus& comm : status.comms) {
      standing_[comm.comm_id][rank] = &comm;
      auto [least, fresh] = least_entered_.try_emplace(comm.comm_id, comm.collectives_enqueued);
      least->second = std::min(least->second, comm.collectives_enqueued);
    }
  }
}

// Where NCCL does not tell the end of an operation, it is surely in flight only while a member has not entered it.
bool WaitGraph::waits_in_collective(const CommStatus& comm) const {
  if (!comm.collective.is_open() || !comm.collective.end_not_seen) return comm.collective.is_open();
  return least_entered_.at(comm.comm_id) < comm.collective.ordinal;
}

bool WaitGraph::waits_in_p2p(const CommStatus& comm) {
  return comm.p2p.is_in_flight();
}

bool WaitGraph::anybody_waits() const {
  return std::any_of(input_.status.begin(), input_.status.end(), [&](const auto& entry) {
    const RankStatus& status = entry.second;
    return is_asked(status) && std::any_of(status.comms.begin(), status.comms.end(), [&](const CommStatus& comm) {
             return waits_in_collective(comm) || waits_in_p2p(comm);
           });
  });
}

// It left or died before, or nothing is known of it in this communicator: silent, or never came.
bool WaitGraph::has_not_entered(Rank rank, CommId comm_id, uint64_t ordinal) const {
  const std::map<Rank, const CommStatus*>& entered = standing_.at(comm_id);
  const auto where = entered.find(rank);
  const auto status = input_.status.find(rank);
  const bool reported = status != input_.status.end();
  const bool left = reported && status->second.finished;
  const bool died = reported && !status->second.process_alive &&
                    (where == entered.end() || where->second->collectives_completed < ordinal);
  return left || died || where == entered.end() || where->second->collectives_enqueued < ordinal;
}

WaitGraph::Missing& WaitGraph::missing_in(const CommMembers& members, const CommStatus& comm) {
  const uint64_t ordinal = comm.collective.ordinal;
  auto [at, fresh] = missing_.try_emplace({comm.comm_id, ordinal});
  Missing& found = at->second;
  if (!fresh) return found;
  const OpStatus* first = nullptr;
  for (const auto& [in_comm, other] : members.world_rank) {
    if (has_not_entered(other, comm.comm_id, ordinal)) {
      found.ranks.push_back(other);
      continue;
    }
    const OpStatus& op = standing_.at(comm.comm_id).at(other)->collective;
    if (!op.is_open() || op.ordinal != ordinal) continue;
    if (first == nullptr) first = &op;
    found.is_mismatch |= is_other_operation(op, *first);
  }
  std::sort(found.ranks.begin(), found.ranks.end());
  return found;
}

void WaitGraph::add_collective(Rank rank, const CommStatus& comm) {
  if (!waiting_.contains(rank) || comm.collective.since_unix_ns < waiting_[rank].op.since_unix_ns)
    waiting_[rank] = {comm.comm_id, comm.collective};
  const auto members = window_.comms().find(comm.comm_id);
  if (members == window_.comms().end()) return;
  Missing& group = missing_in(members->second, comm);
  if (group.is_mismatch) mismatched_.insert(comm.comm_id);
  if (!group.ranks.empty()) edges_[rank].groups.push_back(&group);
}

void WaitGraph::add_p2p(Rank rank, const CommStatus& comm) {
  const Rank peer = window_.world_rank(comm.comm_id, comm.p2p.peer);
  if (!waiting_.contains(rank)) waiting_[rank] = {comm.comm_id, comm.p2p};
  if (peer == kNoRank || peer == rank) return;
  const std::map<Rank, const CommStatus*>& members = standing_.at(comm.comm_id);
  const auto where = members.find(peer);
  const bool meets =
      where != members.end() && where->second->p2p.is_open() && where->second->p2p.peer == comm.rank_in_comm;
  if (!meets) edges_[rank].peers.insert(peer);
}

bool WaitGraph::waits_for(Rank rank, Rank other) const {
  const auto edges = edges_.find(rank);
  if (edges == edges_.end()) return false;
  const std::vector<Missing*>& groups = edges->second.groups;
  return edges->second.peers.contains(other) || std::any_of(groups.begin(), groups.end(), [&](const Missing* group) {
           return std::binary_search(group->ranks.begin(), group->ranks.end(), other);
         });
}

void WaitGraph::count_operations() {
  for (const auto& [rank, op] : waiting_) {
    auto& entry = operations_[format("%llx/%s/%llu", static_cast<unsigned long long>(op.comm_id.value()),
                                     op.op.function.c_str(), static_cast<unsigned long long>(op.op.ordinal))];
    ++entry.first;
    entry.second = op;
  }
}

const WaitingOp& WaitGraph::most_common_operation() const {
  return std::max_element(operations_.begin(), operations_.end(),
                          [](const auto& a, const auto& b) { return a.second.first < b.second.first; })
      ->second.second;
}

WaitGraph::Ends WaitGraph::walk() {
  Ends found;
  for (const auto& [rank, op] : waiting_) {
    std::vector<Rank> path;
    walk_from(rank, path, found);
  }
  return found;
}

void WaitGraph::walk_from(Rank rank, std::vector<Rank>& path, Ends& found) {
  const auto again = std::find(path.begin(), path.end(), rank);
  if (again != path.end()) {
    if (found.circle.empty()) found.circle.assign(again, path.end());
    return;
  }
  if (!walked_.insert(rank).second) return;
  const auto edges = edges_.find(rank);
  if (edges == edges_.end()) {
    if (!waiting_.contains(rank)) found.ranks.insert(rank);
    return;
  }
  path.push_back(rank);
  for (Missing* group : edges->second.groups) walk_group(*group, path, found);
  for (Rank next : edges->second.peers) walk_from(next, path, found);
  path.pop_back();
}

// Whoever else waits for the same ranks has been there, or is on the way: then only a circle is news.
void WaitGraph::walk_group(Missing& group, std::vector<Rank>& path, Ends& found) {
  if (group.walk == Missing::kNew) {
    group.walk = Missing::kOnTheWay;
    for (Rank next : group.ranks) walk_from(next, path, found);
    group.walk = Missing::kDone;
    return;
  }
  if (group.walk != Missing::kOnTheWay || !found.circle.empty()) return;
  auto circled = path.end();
  for (auto at = path.begin(); at != path.end(); ++at) {
    if ((circled == path.end() || *at < *circled) && std::binary_search(group.ranks.begin(), group.ranks.end(), *at))
      circled = at;
  }
  if (circled != path.end()) found.circle.assign(circled, path.end());
}

}  // namespace lockstep
