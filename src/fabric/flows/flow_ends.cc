#include "fabric/flows/flow_ends.h"

#include <algorithm>

namespace lockstep::fabric {

FlowEnds::FlowEnds(const Topology& topology, const JobPlaces& places, int64_t at_unix_ns)
    : topology_(topology), ranks_(topology, places, at_unix_ns) {
  for (NodeIndex i = 0; i < topology.nodes().size(); ++i) {
    const Node& node = topology.nodes()[i];
    if (node.address == kNoText) continue;
    const std::optional<IpAddress> address = parse_ip(topology.text(node.address));
    if (!address) continue;
    const auto [entry, is_new] = by_address_.emplace(*address, i);
    if (!is_new) entry->second = kNone;
  }
  for (uint32_t i = 0; i < ranks_.ranks.size(); ++i) {
    const RankAt& rank = ranks_.ranks[i];
    if (rank.host != kNone) ranks_of_[rank.host].push_back(i);
    const std::optional<Topology::Adapter> nearest = rank.gpu == kNone ? std::nullopt : topology.adapter_of(rank.gpu);
    if (!nearest) continue;
    for (const LinkIndex link : topology.links_of(rank.gpu)) {
      const Link& one = topology.links()[link];
      if (one.kind == LinkKind::kPcie && one.distance == topology.links()[nearest->link].distance)
        ranks_of_[topology.other_end(link, rank.gpu)].push_back(i);
    }
  }
}

NodeIndex FlowEnds::find(const IpAddress& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? kNone : found->second;
}

std::span<const uint32_t> FlowEnds::indices_behind(NodeIndex node) const {
  auto found = ranks_of_.find(node);
  if (found == ranks_of_.end()) found = ranks_of_.find(topology_.nodes()[node].parent);
  return found == ranks_of_.end() ? std::span<const uint32_t>() : found->second;
}

std::vector<FlowEnds::JobRanks> FlowEnds::ranks_behind(NodeIndex node) const {
  std::vector<JobRanks> jobs;
  for (const uint32_t index : indices_behind(node)) {
    const RankAt& rank = ranks_.ranks[index];
    if (jobs.empty() || jobs.back().job != ranks_.jobs[rank.job]) jobs.push_back({ranks_.jobs[rank.job], {}});
    jobs.back().ranks.push_back(rank.rank);
  }
  return jobs;
}

std::vector<IpAddress> FlowEnds::addresses_of(std::string_view job) const {
  const uint32_t wanted = ranks_.find_job(job);
  std::vector<IpAddress> addresses;
  if (wanted == kNone) return addresses;
  for (const auto& [address, node] : by_address_) {
    if (node == kNone) continue;
    const std::span<const uint32_t> ranks = indices_behind(node);
    if (std::any_of(ranks.begin(), ranks.end(), [&](uint32_t i) { return ranks_.ranks[i].job == wanted; }))
      addresses.push_back(address);
  }
  return addresses;
}

}  // namespace lockstep::fabric
