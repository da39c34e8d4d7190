// What depends on what: jobs and their ranks, GPUs, adapters, hosts, switches and links; from any of them outwards, and
// who else suffers where one of them is ill.
//
// Names: "job:llama", "rank:llama/5", "host:node-01", "gpu:GPU-...", "nic:node-01:mlx5_0", "leaf:leaf-1",
// "link:leaf-1:Ethernet49", "version:driver 570.124.06". A name without its kind is looked for in the topology, then
// among jobs.
// Edges: runs-on (rank, GPU), member-of (rank of a job, part of a host, GPU of an NVLink domain), carries (what goes
// between a GPU, its adapter and switches), mounts (a host, a storage server), shares (two jobs on one leaf), waits-for
// (a rank waited for another, so many seconds), changed-at (a host, an adapter, a GPU or a job has another version, or
// hangs elsewhere, since then). Waits and changes are of the time that is asked for (GraphHistory).
// Limits: kDepthMax, kNodesMax; of each node the kFanOutMax worst neighbours, of a rank the kWaitsShown longest waits
// each way, of a component its kChangesShown last changes; what is left out is counted at the node.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "fabric/changes.h"
#include "fabric/job_places.h"
#include "fabric/topology.h"
#include "fabric/wait_store.h"
#include "model/ids.h"

namespace lockstep::fabric {

// What is known to be ill, by the names above, with one line each: the worst come first.
using Troubles = std::unordered_map<std::string, std::string>;

struct GraphNode {
  std::string id;
  std::string kind;
  std::string name;
  std::string trouble;  // empty: none is known
  uint32_t depth = 0;   // from the focus
  size_t left_out = 0;  // neighbours that are not in the answer
};

struct GraphEdge {
  uint32_t from = 0, to = 0;  // numbers of nodes
  const char* kind = "";      // "runs-on", "member-of", "carries", "mounts", "shares", "waits-for", "changed-at"
  double weight = 1;          // links side by side; ranks of a job under a leaf; seconds that were waited
  std::string label;          // ports, the distance on PCIe, the component that is shared, what a version was before
  std::string known;          // how: "agent", "LLDP and file"
  int64_t at_unix_ns = 0;     // of a change; 0: it is none
};

struct Graph {
  std::vector<GraphNode> nodes;  // the focus first
  std::vector<GraphEdge> edges;
};

struct GraphQuestion {
  std::string focus;
  uint32_t depth = 2;
  size_t nodes_max = 200;
  int64_t at_unix_ns = 0;
};
inline constexpr uint32_t kDepthMax = 6;
inline constexpr size_t kNodesMax = 2'000;
inline constexpr size_t kFanOutMax = 32;
inline constexpr size_t kWaitsShown = 8;
inline constexpr size_t kChangesShown = 4;

// What was before `at_unix_ns`, as far back as is asked for.
struct GraphHistory {
  std::span<const Change> changes;   // newest first
  const WaitStore* waits = nullptr;  // nullptr: nobody keeps them
  int64_t waits_from_unix_ns = 0;
};

Result<Graph> find_graph(const Topology& topology, const JobPlaces& places, const Troubles& troubles,
                         const GraphQuestion& question, const GraphHistory& history = {});

struct AffectedJob {
  std::string job;
  int32_t ranks_hit = 0;
  int32_t ranks = 0;
  double share = 0;               // of what its ranks that are hit send between leaves; 1: all of it, or all they do
  std::vector<Rank> first_ranks;  // the lowest, kRanksShown of them
};

struct Affected {
  std::string component;
  std::string kind;
  std::vector<AffectedJob> jobs;  // most hit first
  size_t gpus = 0;                // that depend on it
  size_t hosts = 0;
  std::string note;  // what the share means here; empty: nothing to say
};
inline constexpr size_t kRanksShown = 16;

// Who depends on a component: ranks on a GPU or host, behind an adapter or leaf, on hosts that mount storage; of what
// several ranks share only in part (a spine, a link between switches) those of jobs that cross it, with the share of
// their traffic that does.
Result<Affected> find_affected(const Topology& topology, const JobPlaces& places, std::string_view component,
                               int64_t at_unix_ns);

// The switch behind a GPU's adapter; kNone: it has none, or it is not known.
NodeIndex leaf_of_gpu(const Topology& topology, NodeIndex gpu);

}  // namespace lockstep::fabric
