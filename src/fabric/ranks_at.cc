#include "fabric/ranks_at.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::fabric {
namespace {

// By its UUID; else by its number in the host.
NodeIndex gpu_of(const Topology& topology, NodeIndex host, const JobPlaces::View& view) {
  NodeIndex gpu = kNone;
  for (const NodeIndex child : topology.children(host)) {
    const Node& node = topology.nodes()[child];
    if (node.kind != NodeKind::kGpu) continue;
    if (!view.gpu_uuid.empty() && topology.text(node.name) == view.gpu_uuid) return child;
    if (gpu == kNone && node.index == view.local_rank) gpu = child;
  }
  return gpu;
}

}  // namespace

RanksAt::RanksAt(const Topology& topology, const JobPlaces& places, int64_t at_unix_ns) {
  std::string host_name;
  NodeIndex host = kNone;
  places.visit("", at_unix_ns, [&](const JobPlaces::View& view) {
    if (jobs.empty() || jobs.back() != view.job) {
      jobs.emplace_back(view.job);
      begin.push_back(static_cast<uint32_t>(ranks.size()));
    }
    // Ranks of a host mostly come one after the other.
    if (host_name != view.host || host == kNone) {
      host_name = view.host;
      host = topology.find(view.host).value_or(kNone);
      if (host != kNone && topology.nodes()[host].kind != NodeKind::kHost) host = kNone;
    }
    ranks.push_back({static_cast<uint32_t>(jobs.size() - 1), view.rank, host,
                     host == kNone ? kNone : gpu_of(topology, host, view)});
  });
}

uint32_t RanksAt::find_job(std::string_view name) const {
  const auto found = std::find(jobs.begin(), jobs.end(), name);
  return found == jobs.end() ? kNone : static_cast<uint32_t>(found - jobs.begin());
}

uint32_t RanksAt::find_rank(std::string_view name) const {
  const size_t slash = name.rfind('/');
  const std::optional<int64_t> number =
      slash == std::string_view::npos ? std::nullopt : parse_int(name.substr(slash + 1));
  const uint32_t job = number ? find_job(name.substr(0, slash)) : kNone;
  if (job == kNone) return kNone;
  for (uint32_t i = begin[job]; i < end(job); ++i)
    if (ranks[i].rank.value() == *number) return i;
  return kNone;
}

}  // namespace lockstep::fabric
