#include "sim/fleet/job_shape.h"

#include <algorithm>

#include "base/text.h"
#include "model/step.h"
#include "sim/fleet/random.h"

namespace lockstep::sim {

const char* to_text(Schedule schedule) {
  static constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved"};
  return kNames[static_cast<size_t>(schedule)];
}

const char* to_text(Sharding sharding) {
  return sharding == Sharding::kFull ? "full" : "none";
}

const char* to_text(Role role) {
  static constexpr const char* kNames[kRoleCount] = {"tp", "cp", "ep", "pp", "dp", "world"};
  return kNames[static_cast<size_t>(role)];
}

Group JobShape::group(Role role, Rank rank) const {
  const int32_t at = index_in(role, rank);
  switch (role) {
    case Role::kTp:
      return {rank - at, 1, tp};
    case Role::kCp:
      return {rank - at * tp, tp, cp};
    case Role::kEp:
      return {rank - at * tp, tp, ep};
    case Role::kDp:
      return {rank - at * tp, tp, replicas()};
    case Role::kPp:
      return {rank - at * stage_ranks(), stage_ranks(), pp};
    case Role::kWorld:
      return {0_rank, 1, world_size()};
  }
  return {};
}

int32_t JobShape::index_in(Role role, Rank rank) const {
  const int32_t replica = rank.value() / tp % replicas();
  switch (role) {
    case Role::kTp:
      return rank % tp;
    case Role::kCp:
      return replica % cp;
    case Role::kEp:
      return replica % ep;
    case Role::kDp:
      return replica;
    case Role::kPp:
      return stage_of(rank);
    case Role::kWorld:
      return rank.value();
  }
  return 0;
}

int32_t JobShape::group_index(Role role, Rank rank) const {
  switch (role) {
    case Role::kTp:
      return rank.value() / tp;
    case Role::kCp:
      return rank.value() / (tp * cp) * tp + rank % tp;
    case Role::kEp:
      return rank.value() / (tp * ep) * tp + rank % tp;
    case Role::kDp:
      return stage_of(rank) * tp + rank % tp;
    case Role::kPp:
      return rank % stage_ranks();
    case Role::kWorld:
      return 0;
  }
  return 0;
}

int32_t JobShape::groups(Role role) const {
  switch (role) {
    case Role::kTp:
      return world_size() / tp;
    case Role::kCp:
      return world_size() / cp;
    case Role::kEp:
      return world_size() / ep;
    case Role::kDp:
      return world_size() / replicas();
    case Role::kPp:
      return world_size() / pp;
    case Role::kWorld:
      return 1;
  }
  return 0;
}

int32_t JobShape::spine_of(Rank from, Rank to) const {
  const auto pair = static_cast<uint64_t>(from.value()) << 32 | static_cast<uint64_t>(to.value());
  return static_cast<int32_t>(mix(mix(seed ^ 0xEC3Bull) ^ mix(pair)) % static_cast<uint64_t>(topology.spines));
}

bool crosses(const JobShape& shape, Rank from, Rank to, int32_t leaf, int32_t spine) {
  const int32_t one = shape.leaf_of(from), other = shape.leaf_of(to);
  return one != other && (leaf < 0 || one == leaf || other == leaf) && shape.spine_of(from, to) == spine;
}

std::vector<Rank> peers_on_other_hosts(const JobShape& shape, Rank rank) {
  std::vector<Rank> peers;
  auto add = [&](Rank peer) {
    if (shape.host_of(peer) != shape.host_of(rank) && std::find(peers.begin(), peers.end(), peer) == peers.end())
      peers.push_back(peer);
  };
  for (Role role : {Role::kTp, Role::kCp, Role::kEp, Role::kPp, Role::kDp}) {
    const Group group = shape.group(role, rank);
    const int32_t at = shape.index_in(role, rank);
    for (int32_t hop = 1; hop < group.size; ++hop) {
      if (role == Role::kEp || hop == 1 || hop == group.size - 1) add(group.member((at + hop) % group.size));
    }
  }
  return peers;
}

std::string leaf_name(int32_t leaf) {
  return format("leaf-%d", leaf);
}
std::string spine_name(int32_t spine) {
  return format("spine-%d", spine);
}
std::string leaf_port_name(int32_t port) {
  return format("Ethernet1/%d", port + 1);
}
std::string uplink_name(int32_t spine) {
  return format("up%d", spine);
}
std::string downlink_name(int32_t leaf) {
  return format("down%d", leaf);
}

bool JobShape::has(Role role) const {
  // Pure data parallelism needs no other group: there the gradients' collective already is the whole job's barrier.
  if (role == Role::kWorld) return replicas() < world_size();
  return group(role, 0_rank).size > 1;
}

Result<void> check(const JobShape& shape) {
  if (shape.job_id.empty() || shape.job_id.size() > kIdentityTextMax)
    return Error{format("the job's name must have 1 to %zu bytes", kIdentityTextMax)};
  for (int32_t number : {shape.tp, shape.pp, shape.dp, shape.cp, shape.ep, shape.topology.gpus_per_host,
                         shape.topology.hosts_per_leaf, shape.micro_batches, shape.model_chunks, shape.layers}) {
    if (number < 1) return Error{"tp, pp, dp, cp, ep, GPUs per host and micro-batches must be at least 1"};
  }
  int64_t world = 1;
  for (int32_t factor : {shape.tp, shape.pp, shape.dp, shape.cp}) {
    world *= factor;
    if (world > kWorldSizeMax) return Error{format("tp x pp x dp x cp makes more than %d ranks", kWorldSizeMax)};
  }
  if (shape.replicas() % shape.ep != 0)
    return Error{format("ep %d does not divide dp x cp = %d", shape.ep, shape.replicas())};
  if (shape.micro_batches > kMicroBatchesMax)
    return Error{format("%d micro-batches are too many (limit %d)", shape.micro_batches, kMicroBatchesMax)};
  if (shape.sharding == Sharding::kFull) {
    if (shape.pp > 1) return Error{"full sharding and pipeline stages together are not possible"};
    if (shape.replicas() < 2) return Error{"full sharding needs dp or cp of at least 2"};
    if (shape.layers > kLayersMax) return Error{format("more than %d layers are not possible", kLayersMax)};
  } else if (shape.layers != 1) {
    return Error{"layers needs full sharding"};
  }
  if (world * shape.micro_batches * shape.model_chunks * shape.layers > kPassesMax)
    return Error{
        format("%lld ranks x %d micro-batches x %d model chunks x %d layers are too much work (limit %lld "
               "million)",
               static_cast<long long>(world), shape.micro_batches, shape.model_chunks, shape.layers,
               static_cast<long long>(kPassesMax / 1'000'000))};
  if (shape.schedule == Schedule::kInterleaved) {
    if (shape.model_chunks < 2 || shape.pp < 2)
      return Error{"an interleaved schedule needs model_chunks and pp of at least 2"};
    if (shape.micro_batches % shape.pp != 0)
      return Error{format("an interleaved schedule needs micro_batches (%d) to be a multiple of pp (%d)",
                          shape.micro_batches, shape.pp)};
    if (shape.model_chunks > 64) return Error{"more than 64 model chunks per stage are not possible"};
  } else if (shape.model_chunks != 1) {
    return Error{"model_chunks needs the interleaved schedule"};
  }
  if (!(shape.step_ms >= 10 && shape.step_ms <= 600'000))
    return Error{format("a step of %g ms is not possible (10 ms to 10 min)", shape.step_ms)};
  return {};
}

}  // namespace lockstep::sim
