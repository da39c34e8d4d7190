// A node as the API shows it: what its agent, its GPUs and the ranks on it say, joined by host name and GPU.
//
// GPUs come from lockstep_gpu_info, who holds them from lockstep_job_gpu_info (docs/guide/attribution.md) and from the
// ranks themselves; a GPU that nobody holds is idle, and shown. Where no agent reads GPUs, they are those that ranks name.
// Everything is of the tenant whose stores the context has.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/context.h"
#include "base/json_writer.h"

namespace lockstep {

// Who holds a GPU, as the agent tells it. Any of them may be missing.
struct GpuHolder {
  std::string job_id;
  Rank rank = kNoRank;
  std::string user;
};

struct NodeGpu {
  std::string uuid;
  int64_t index = -1;  // on its host; -1: not known
  std::string model;
  bool is_lost = false;  // the driver no longer answers for it
  std::vector<GpuHolder> holders;
};

struct NodeRank {
  std::string job_id;
  RankInfo info;
};

struct NodeView {
  std::string host;
  std::optional<AgentInfo> agent;
  std::vector<NodeGpu> gpus;    // by index, then by uuid
  std::vector<NodeRank> ranks;  // by job and rank; those that have ended are not among them
  int64_t last_seen_unix_ns = 0;
  size_t verdicts_open = 0;  // by count_findings()
  size_t incidents_open = 0;

  // Of one that is silent nobody knows: none.
  size_t gpus_idle(int64_t now_unix_ns) const;
};

using Nodes = std::map<std::string, NodeView, std::less<>>;  // by host

// Every node that an agent, a rank or a GPU was heard of; with a host, that one alone, or none. jobs: all that there are.
Nodes nodes_of(const ApiContext& context, std::vector<JobInfo> jobs, const std::string& host = {});
void count_findings(Nodes& nodes, const ApiContext& context);

// Jobs on GPUs that agents say a user holds whose name contains this.
std::set<std::string> jobs_of_user(const ApiContext& context, const std::string& part);

// Where a GPU is, or was within a week; empty: nobody has told of it.
std::string host_of_gpu(const ApiContext& context, const std::string& gpu_uuid);

// "ok", "silent" (nothing was heard for kSilentAfterNs).
const char* state_of(const NodeView& node, int64_t now_unix_ns);

// "busy" (a rank or a process holds it), "idle", "lost"; "unknown" where its node is silent.
const char* state_of(const NodeGpu& gpu, const NodeView& node, int64_t now_unix_ns);

// What happened there since: one node, or where gpu_uuid is not empty that GPU alone. Each writes a list and how many there
// are of which it is a part, as members of the object that `json` is in.
struct PlaceAsked {
  std::string host;
  std::string gpu_uuid;
  int64_t since_unix_ns = 0;
};
void write_verdicts(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked);
void write_incidents(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked);
void write_events(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked);

}  // namespace lockstep
