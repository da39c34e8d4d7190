// The shape of a simulated job and of the machines under it: how ranks are numbered, which groups they make, what hangs
// on what.
//
// Ranks are numbered tensor fastest, then context, then data, then pipeline; hosts are filled in rank order. Every
// group is therefore a row of equally spaced ranks, and nothing needs a list of members. The expert-parallel groups lie
// inside the ranks that share a stage and a tensor index (there are dp x cp of them); the gradients are reduced over
// all of those.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep::sim {

// Each GPU has its own adapter. A pod is hosts_per_leaf hosts. With rails, adapter i of every host of a pod hangs on
// leaf pod x gpus_per_host + i; without, all adapters of a pod hang on leaf `pod`. Every leaf has one link to every
// spine; which of them a flow between two leaves takes is a hash of it (ECMP), the same for as long as it lives.
struct Topology {
  int32_t gpus_per_host = 8;  // one NVLink domain
  int32_t hosts_per_leaf = 16;
  bool rails = true;
  int32_t spines = 4;
  double nvlink_gb_s = 400;  // of one GPU
  double nic_gb_s = 50;      // of one adapter
  bool switches = false;     // they report their ports, and the operator has a file that says how they are cabled

  int32_t leaf_of(int32_t host, int32_t gpu) const {
    const int32_t pod = host / hosts_per_leaf;
    return rails ? pod * gpus_per_host + gpu : pod;
  }
  int32_t leaves(int32_t hosts) const { return leaf_of(hosts - 1, gpus_per_host - 1) + 1; }
  // Which of its leaf's ports an adapter is on, from 0.
  int32_t leaf_port_of(int32_t host, int32_t gpu) const {
    return rails ? host % hosts_per_leaf : host % hosts_per_leaf * gpus_per_host + gpu;
  }
  int32_t leaf_ports() const { return rails ? hosts_per_leaf : hosts_per_leaf * gpus_per_host; }
  bool operator==(const Topology&) const = default;
};

enum class Schedule : uint8_t { kGpipe, kOneForwardOneBackward, kInterleaved };
const char* to_text(Schedule schedule);  // "gpipe", "1f1b", "interleaved"

// Whether the data-parallel ranks hold whole copies of the model, or shards of it (FSDP, ZeRO-3): then every layer is
// gathered before it computes, in forward and again in backward, and its gradients are scattered behind it.
enum class Sharding : uint8_t { kNone, kFull };
const char* to_text(Sharding sharding);  // "none", "full"

// How unevenly a healthy job runs.
struct JobNoise {
  double times = 1;            // of the usual jitter of kernels, transfers and input: 3 is 2.4 % from step to step
  bool heavy_tails = false;    // Student's t with three degrees of freedom in place of a bell, of the same width
  double rank_spread = 0.004;  // lasting differences between GPUs, standard deviation; never beyond three of them
  double shocks = 0;  // share of steps in which all ranks or all transfers are slowed together, 1 to 4 in a row
  bool operator==(const JobNoise&) const = default;
};

enum class Role : uint8_t { kTp, kCp, kEp, kPp, kDp, kWorld };
inline constexpr size_t kRoleCount = 6;
const char* to_text(Role role);  // "tp", "cp", "ep", "pp", "dp", "world"

// Ranks first, first + stride, ...; one member: there is no communicator.
struct Group {
  Rank first;
  int32_t stride = 1;
  int32_t size = 1;
  Rank member(int32_t i) const { return first + i * stride; }
};

struct JobShape {
  std::string job_id = "sim";
  int64_t attempt = 0;
  int32_t tp = 4;
  int32_t pp = 4;
  int32_t dp = 4;
  int32_t cp = 1;
  int32_t ep = 1;
  int32_t micro_batches = 8;
  Schedule schedule = Schedule::kGpipe;
  int32_t model_chunks = 1;     // per stage, for kInterleaved
  int32_t first_host = 0;       // host names start at this number: several jobs, several sets of hosts
  double step_ms = 250;         // a healthy step
  double overlap = 0;           // share of the gradient reduction that runs beside the backward pass; sharded: share
                                // of the layers whose transfers run beside the kernels
  double communication = 0.20;  // share of a healthy step that goes into transfers of all groups together
  Sharding sharding = Sharding::kNone;
  int32_t layers = 1;  // that are gathered one by one, for kFull
  JobNoise noise;
  double first_step_extra = 3, second_step_extra = 0.5;  // compilation, in steps
  double clock_error_us = 800;                           // of hosts, standard deviation
  Topology topology;
  uint64_t seed = 1;

  int32_t world_size() const { return tp * pp * dp * cp; }
  int32_t replicas() const { return dp * cp; }  // ranks of one stage and one tensor index
  int32_t stage_ranks() const { return tp * dp * cp; }
  int32_t stage_of(Rank rank) const { return rank.value() / stage_ranks(); }
  int32_t hosts() const { return (world_size() - 1) / topology.gpus_per_host + 1; }
  int32_t host_of(Rank rank) const { return rank.value() / topology.gpus_per_host; }  // of the job, from 0
  int32_t leaf_of(Rank rank) const {
    return topology.leaf_of(first_host + host_of(rank), rank % topology.gpus_per_host);
  }
  // The spine over which the flow goes; between two ranks of one leaf: none is used.
  int32_t spine_of(Rank from, Rank to) const;
  bool has(Role role) const;
  Group group(Role role, Rank rank) const;
  int32_t index_in(Role role, Rank rank) const;     // rank in the communicator
  int32_t group_index(Role role, Rank rank) const;  // which of the role's groups: 0 to groups(role) - 1
  int32_t groups(Role role) const;
};
inline constexpr int32_t kWorldSizeMax = 131'072;
inline constexpr int32_t kMicroBatchesMax = 4'096;
inline constexpr int32_t kLayersMax = 512;
inline constexpr int64_t kPassesMax = 64'000'000;  // ranks x micro-batches x model chunks x layers
// Whom a rank sends to on other hosts: neighbours in rings and pipelines, all of an exchange. They send to it as well.
std::vector<Rank> peers_on_other_hosts(const JobShape& shape, Rank rank);
// A flow between two ranks crosses the link of a leaf and a spine; -1: of any leaf.
bool crosses(const JobShape& shape, Rank from, Rank to, int32_t leaf, int32_t spine);

// What things are called, by their agents (LLDP) and by the switches themselves.
std::string leaf_name(int32_t leaf);
std::string spine_name(int32_t spine);
std::string leaf_port_name(int32_t port);
std::string uplink_name(int32_t spine);   // of a leaf
std::string downlink_name(int32_t leaf);  // of a spine

// A clear line where the numbers do not make a job.
Result<void> check(const JobShape& shape);

}  // namespace lockstep::sim
