// Fleet: what happens inside a step. Ranks are advanced pass by pass in an order in which everything that a pass needs
// has happened before, so one sweep over all passes plays the step; a stop is a sweep in which some ranks do not go on.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/fleet/fleet.h"
#include "sim/fleet/fleet_internal.h"
#include "sim/fleet/random.h"

namespace lockstep::sim {

// From shares of a step to lengths of kernels and bytes of transfers.
void Fleet::size_up() {
  const double step_ns = healthy_step_ns();
  double weights = 0;
  for (size_t role = 0; role < kRoleCount; ++role) weights += has(role_at(role)) ? kWeights[role] : 0;
  const double passes =
      slots(shape_.schedule, shape_.pp, shape_.micro_batches, shape_.model_chunks) * shape_.model_chunks;
  input_ns_ = step_ns * kInputShare;
  optimizer_ns_ = step_ns * kOptimizerShare;
  double inside_ns = 0;    // transfers within a forward pass
  double overhead_ns = 0;  // of any pass
  auto add_overhead = [&](double operations) {
    overhead_ns += operations * static_cast<double>(kLaunchNs + kPickupNs + kLatencyNs);
  };
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Role role = role_at(i);
    if (!has(role) || role == Role::kWorld) continue;
    Transfer& transfer = transfers_[i];
    const Group group = shape_.group(role, 0_rank);
    transfer.crosses = shape_.host_of(group.first) != shape_.host_of(group.member(group.size - 1));
    const double bytes_per_ns =
        transfer.crosses ? shape_.topology.nic_gb_s * kNicReached : shape_.topology.nvlink_gb_s * kNvlinkReached;
    const double share_ns = step_ns * shape_.communication * kWeights[i] / weights;
    // A forward pass has half of what a backward one has, but of messages between stages both have one. A sharded job
    // gathers every layer twice and scatters it once.
    const bool sharded = shape_.sharding == Sharding::kFull && role == Role::kDp;
    transfer.wire_ns = sharded             ? share_ns / (3.0 * shape_.micro_batches * shape_.layers)
                       : role == Role::kDp ? share_ns
                                           : share_ns / passes / (role == Role::kPp ? 2 : 3);
    if (role == Role::kEp) transfer.wire_ns /= 2;  // there and back
    // A ring in two directions carries bytes * (n - 1) / n per edge and direction; so does an exchange.
    const double n = group.size;
    transfer.bytes = static_cast<int64_t>(transfer.wire_ns * bytes_per_ns * (role == Role::kPp ? 1 : n / (n - 1)));
    if (role == Role::kDp) continue;
    inside_ns += transfer.wire_ns * (role == Role::kEp ? 2 : role == Role::kPp ? 2.0 / 3 : 1);
    add_overhead((role == Role::kEp || role == Role::kPp ? 2 : 1) * shape_.layers);
  }
  if (shape_.sharding == Sharding::kFull) {
    forward_ns_ = sharded_forward_ns((inside_ns + overhead_ns) / shape_.layers);
    return;
  }
  add_overhead(0.5);
  const double gradients_ns = has(Role::kDp) ? transfers_[static_cast<size_t>(Role::kDp)].wire_ns : 0;
  const double pass_ns =
      (step_ns - input_ns_ - optimizer_ns_ - gradients_ns * (1 - shape_.overlap)) / passes;  // both ways
  forward_ns_ = std::max(0.1 * pass_ns, (pass_ns - 2 * overhead_ns) / 3 - inside_ns);
  if (has(Role::kDp) && shape_.overlap > 0) {
    const double beside_ns = 1.15 * (gradients_ns * shape_.overlap + static_cast<double>(kLatencyNs));
    const auto backward = shape_.micro_batches * shape_.model_chunks;
    reduction_after_ =
        std::clamp(backward - static_cast<int32_t>(std::ceil(beside_ns / (pass_ns * 2 / 3))), 1, backward);
  }
}

// How long the kernels of a forward pass may take so that a step without noise has the length asked for: what a layer
// does not hide is not known before all of them have been laid out. main_ns: transfers of a layer on the main stream.
double Fleet::sharded_forward_ns(double main_ns) const {
  const double transfer_ns =
      transfers_[static_cast<size_t>(Role::kDp)].wire_ns + static_cast<double>(kLatencyNs + kPickupNs);
  const double wanted_ns = healthy_step_ns() - input_ns_ - optimizer_ns_ -
                           (has(Role::kWorld) ? 2 : 1) * static_cast<double>(kLatencyNs + kLaunchNs + kPickupNs);
  auto laid_out = [&](double layer_ns) {
    double gpu = 0, stream = 0, gathered = 0;
    auto transfer = [&] { stream = std::max(gpu, stream) + transfer_ns; };
    for (int32_t pass = 0; pass < 2 * shape_.micro_batches; ++pass) {
      const bool forward = pass % 2 == 0;
      for (int32_t layer = 0; layer < shape_.layers; ++layer) {
        if (layer == 0 || !beside_kernels(layer)) {
          transfer();
          gathered = stream;
        }
        gpu = std::max(gpu, gathered);
        if (layer + 1 < shape_.layers && beside_kernels(layer + 1)) {
          transfer();
          gathered = stream;
        }
        gpu += (forward ? 1 : 2) * (layer_ns + main_ns);
        if (forward) continue;
        transfer();
        if (!beside_kernels(layer)) gpu = stream;
      }
    }
    return std::max(gpu, stream);
  };
  const double most_ns = wanted_ns / (3.0 * shape_.micro_batches * shape_.layers);
  double low = 0.1 * most_ns, high = most_ns;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (laid_out(middle) < wanted_ns ? low : high) = middle;
  }
  return low * shape_.layers;
}

bool Fleet::sends_gradients_out(Rank rank) const {
  if (!has(Role::kDp)) return false;
  const Group group = shape_.group(Role::kDp, rank);
  const int32_t at = shape_.index_in(Role::kDp, rank);
  for (int32_t hop : {1, group.size - 1}) {
    if (shape_.host_of(group.member((at + hop) % group.size)) != shape_.host_of(rank)) return true;
  }
  return false;
}

uint64_t Fleet::draw(uint64_t what, uint64_t which) const {
  return mix(step_seed_ ^ (what * 0xD6E8FEB86659FD93ull + which * 0xA0761D6478BD642Full));
}

double Fleet::wire_noise(Role role, int32_t group_index) {
  const uint32_t operation = drawn_[static_cast<size_t>(role)][static_cast<size_t>(group_index)]++;
  return wire_shock_ * tailed_jitter(kWireSigma, draw(kForWire + static_cast<uint64_t>(role),
                                                      static_cast<uint64_t>(group_index) << 24 ^ operation));
}

double Fleet::jitter(double sigma, uint64_t drawn) const {
  return std::max(kFactorLeast, 1 + sigma * shape_.noise.times * bell(drawn));
}

double Fleet::tailed_jitter(double sigma, uint64_t drawn) const {
  return shape_.noise.heavy_tails ? std::max(kFactorLeast, 1 + sigma * shape_.noise.times * heavy(drawn))
                                  : jitter(sigma, drawn);
}

double Fleet::edge_bytes_per_ns(Rank from, Rank to) const {
  return shape_.host_of(from) == shape_.host_of(to) ? shape_.topology.nvlink_gb_s * kNvlinkReached
                                                    : shape_.topology.nic_gb_s * kNicReached;
}

double Fleet::edge_factor(Rank from, Rank to) const {
  if (!network_disturbed_) return 1;
  const RankConditions &left = conditions(from), &right = conditions(to);
  if (shape_.host_of(from) == shape_.host_of(to)) return std::max(left.nvlink, right.nvlink);
  double factor = std::max(left.send, right.receive) * left.proxy;
  if (!uplink_.empty()) {
    const auto one = static_cast<size_t>(shape_.leaf_of(from)), other = static_cast<size_t>(shape_.leaf_of(to));
    factor *= std::max(leaf_[one], leaf_[other]);
    if (one == other) return factor;
    factor *= std::max(uplink_[one], uplink_[other]);
    const auto spine = static_cast<size_t>(shape_.spine_of(from, to));
    const auto spines = static_cast<size_t>(shape_.topology.spines);
    factor *= std::max(link_[one * spines + spine], link_[other * spines + spine]);
  }
  return factor;
}

// What of this step's conditions touches transfers and gradients.
void Fleet::note_disturbances() {
  network_disturbed_ = fabric_disturbed();
  gradients_stand_ = experts_uneven_ = false;
  gradients_nan_ = conditions_.loss_nan;
  for (const RankConditions& rank : conditions_.ranks) {
    network_disturbed_ |= rank.send != 1 || rank.receive != 1 || rank.nvlink != 1 || rank.reduce != 1 ||
                          rank.proxy != 1 || rank.handing != 1;
    gradients_stand_ |= rank.flap_ns > 0 || rank.pause_ns > 0;
    experts_uneven_ |= rank.expert != 1;
    gradients_nan_ |= rank.gradient_nan;
  }
}

bool Fleet::fabric_disturbed() const {
  return !conditions_.uplinks.empty() || !conditions_.leaves.empty() || !conditions_.links.empty();
}

// What each rank's experts get of the tokens of their group.
void Fleet::share_experts() {
  std::vector<double> sums(slow_[static_cast<size_t>(Role::kEp)].size(), 0);
  auto sum_of = [&](Rank rank) -> double& { return sums[static_cast<size_t>(shape_.group_index(Role::kEp, rank))]; };
  for (Rank rank : all_ranks(shape_.world_size())) sum_of(rank) += conditions(rank).expert;
  expert_share_.resize(state_.ranks.size());
  for (Rank rank : all_ranks(shape_.world_size()))
    expert_share_[index_of(rank)] = conditions(rank).expert * shape_.ep / sum_of(rank);
}

// How much longer it takes over each leaf, uplink and link.
void Fleet::set_fabric() {
  uplink_.clear();
  leaf_.clear();
  link_.clear();
  if (!fabric_disturbed()) return;
  const int32_t leaves = shape_.topology.leaves(shape_.first_host + shape_.hosts());
  const int32_t spines = shape_.topology.spines;
  link_.assign(static_cast<size_t>(leaves) * static_cast<size_t>(spines), 1);
  for (const LinkConditions& link : conditions_.links) {
    if (link.leaf < leaves && link.spine < spines)
      link_[static_cast<size_t>(link.leaf * spines + link.spine)] *= link.factor;
  }
  uplink_.assign(static_cast<size_t>(leaves), 1);
  leaf_.assign(static_cast<size_t>(leaves), 1);
  for (auto [leaf, factor] : conditions_.uplinks) {
    if (leaf < leaves) uplink_[static_cast<size_t>(leaf)] *= factor;
  }
  for (auto [leaf, factor] : conditions_.leaves) {
    if (leaf < leaves) leaf_[static_cast<size_t>(leaf)] *= factor;
  }
}

// How much longer than on a healthy wire each group's transfers take, and because of whom.
void Fleet::slow_groups(Role role) {
  const auto i = static_cast<size_t>(role);
  const double usual =
      transfers_[i].crosses ? shape_.topology.nic_gb_s * kNicReached : shape_.topology.nvlink_gb_s * kNvlinkReached;
  std::fill(slow_[i].begin(), slow_[i].end(), 0.0);
  std::vector<double> reduce(slow_[i].size(), 1.0), worst(slow_[i].size(), 1.0);
  std::fill(blocker_[i].begin(), blocker_[i].end(), -1);
  for (Rank rank : all_ranks(shape_.world_size())) {
    const Group group = shape_.group(role, rank);
    const int32_t at = shape_.index_in(role, rank);
    const auto index = static_cast<size_t>(shape_.group_index(role, rank));
    double worst_here = conditions(rank).reduce;
    reduce[index] = std::max(reduce[index], worst_here);
    // A ring uses the two edges beside a member; an exchange uses all, of which the member's own rate is what counts.
    for (int32_t hop : {1, group.size - 1}) {
      const Rank peer = group.member((at + hop) % group.size);
      const double factor = edge_factor(rank, peer);
      // Inside a host no thread hands anything on. Who is slow to do so holds up the others, and no wire is slower.
      const bool crosses = shape_.host_of(rank) != shape_.host_of(peer);
      worst_here = std::max({worst_here, factor, crosses ? conditions(rank).handing : 1.0});
      const double taken = crosses ? std::max(factor, conditions(peer).handing) : factor;
      slow_[i][index] = std::max(slow_[i][index], usual / edge_bytes_per_ns(rank, peer) * taken);
    }
    if (worst_here > worst[index] * 1.001) {
      worst[index] = worst_here;
      blocker_[i][index] = at;
    }
  }
  for (size_t index = 0; index < slow_[i].size(); ++index) slow_[i][index] *= reduce[index];
}

void Fleet::set_network() {
  const bool was_disturbed = network_disturbed_;
  note_disturbances();
  if (experts_uneven_ && has(Role::kEp)) share_experts();
  if (!network_disturbed_ && !was_disturbed) return;
  set_fabric();
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Role role = role_at(i);
    if (has(role) && role != Role::kPp && role != Role::kWorld) slow_groups(role);
  }
}

void Fleet::enter_phase(Rank rank, Phase phase) {
  RankState& state = state_.ranks[index_of(rank)];
  if (state.phase == phase) return;
  const int64_t now = std::max(state.host_ns, state.gpu_ns);
  state.phase_ns[static_cast<size_t>(state.phase)] += now - state.phase_since_ns;
  if (with_detail_ && state.phase != Phase::kOther)
    details_[index_of(rank)].phases.push_back({state.phase, "", state.phase_since_ns, now - state.phase_since_ns});
  state.phase = phase;
  state.phase_since_ns = now;
}

void Fleet::compute(Rank rank, double ns) {
  RankState& state = state_.ranks[index_of(rank)];
  state.host_ns += kLaunchNs;
  const auto length_ns = static_cast<int64_t>(ns);
  state.gpu_ns = std::max(state.gpu_ns, state.host_ns + kPickupNs) + length_ns;
  state.compute_ns += length_ns;
}

void Fleet::count(Rank rank, const Operation& operation) {
  const Role role = operation.role;
  Traffic& traffic = state_.traffic[slot(rank, role)];
  const int64_t gpu_ns = operation.end_ns - operation.start_ns;
  if (traffic.count == 0) {
    traffic.shortest_ns = gpu_ns;
    traffic.first_start_ns = operation.start_ns;
  }
  traffic.count += operation.operations;
  traffic.bytes += operation.bytes;
  traffic.gpu_ns += gpu_ns;
  traffic.shortest_ns = std::min(traffic.shortest_ns, gpu_ns);
  traffic.longest_ns = std::max(traffic.longest_ns, gpu_ns);
  traffic.last_end_ns = std::max(traffic.last_end_ns, operation.end_ns);
  traffic.queue_ns += operation.start_ns - operation.enqueued_ns;

  Progress& progress = state_.progress[slot(rank, role)];
  progress.enqueued += static_cast<uint64_t>(operation.operations);
  progress.seq = is_p2p(role) ? operation.seq : progress.enqueued - 1;
  progress.function = operation.function;
  progress.bytes = operation.bytes;
  progress.peer = operation.peer;
  progress.since_ns = operation.enqueued_ns;
  if (!with_detail_) return;
  const Group group = shape_.group(role, rank);
  details_[index_of(rank)].ops.push_back({.comm_id = comm_id(role, group),
                                          .comm_size = group.size,
                                          .rank_in_comm = shape_.index_in(role, rank),
                                          .p2p = is_p2p(role),
                                          .function = role == Role::kEp ? "AlltoAll" : to_text(operation.function),
                                          .datatype = is_p2p(role) ? "bfloat16" : "float32",
                                          .seq = progress.seq,
                                          .ordinal = progress.enqueued,
                                          .peer = operation.peer,
                                          .bytes = operation.bytes,
                                          .enqueued_unix_ns = operation.enqueued_ns,
                                          .start_unix_ns = operation.start_ns,
                                          .duration_ns = gpu_ns,
                                          .timed = true});
}

void Fleet::record(Rank rank, const Operation& operation) {
  count(rank, operation);
  const int64_t enqueued_ns = operation.enqueued_ns, start_ns = operation.start_ns, end_ns = operation.end_ns;
  RankState& state = state_.ranks[index_of(rank)];
  state.comm_ns += end_ns - start_ns;
  if (state.beside_to_ns > start_ns)
    state.beside_shared_ns +=
        std::max<int64_t>(0, std::min(end_ns, state.beside_to_ns) - std::max(start_ns, state.beside_from_ns));
  state.queue_ns += start_ns - enqueued_ns;  // the host waits at each operation, so no two of these overlap
  for (auto [from, to] : state.stream_last) {
    state.beside_shared_ns += std::max<int64_t>(0, std::min(end_ns, to) - std::max(start_ns, from));
    // While something is on the wire, nothing counts as queued.
    state.queue_ns -= std::max<int64_t>(0, std::min(start_ns, to) - std::max(enqueued_ns, from));
  }
  // No callback from enqueue to GPU start, nor while the operation waits for others.
  note_quiet(state, enqueued_ns, start_ns - enqueued_ns);
  note_quiet(state, start_ns, operation.silent_ns);
  state.gpu_ns = end_ns;
  state.host_ns = end_ns;
}

void Fleet::note_quiet(RankState& state, int64_t from_ns, int64_t length_ns) const {
  if (length_ns <= state.quiet_ns) return;
  state.quiet_ns = length_ns;
  state.quiet_from_ns = from_ns;
}

bool Fleet::any_stuck(const Group& group) const {
  for (int32_t i = 0; i < group.size; ++i) {
    if (stuck_[index_of(group.member(i))]) return true;
  }
  return false;
}

// The rank enters an operation that will not end.
void Fleet::wait_in(Rank rank, Role role, Function function, int64_t bytes, int32_t peer) {
  RankState& state = state_.ranks[index_of(rank)];
  Progress& progress = state_.progress[slot(rank, role)];
  state.host_ns += kLaunchNs;
  state.gpu_ns = std::max(state.gpu_ns, state.host_ns + kPickupNs);
  progress.since_ns = state.host_ns;
  progress.seq = is_p2p(role) ? progress.seq + 1 : progress.enqueued;
  ++progress.enqueued;
  progress.in_flight = 1;
  progress.function = function;
  progress.bytes = bytes;
  progress.peer = peer;
  stuck_[index_of(rank)] = 1;
}

void Fleet::collectives(Role role, Rank first_rank, Rank end_rank, int64_t bytes, double wire_ns, Function function) {
  const Group shape = shape_.group(role, first_rank);
  for (Rank block = first_rank; block < end_rank; block += shape.stride * shape.size) {
    for (Rank first = block; first < block + shape.stride; ++first) {
      const int32_t index = shape_.group_index(role, first);
      collective(role, {first, shape.stride, shape.size}, index, bytes, wire_ns, function);
    }
  }
}

void Fleet::collective(Role role, const Group& group, int32_t group_index, int64_t bytes, double wire_ns,
                       Function function, bool beside) {
  if (stopping_ && any_stuck(group)) {
    for (int32_t i = 0; i < group.size; ++i) {
      const Rank rank = group.member(i);
      if (stuck_[index_of(rank)]) continue;
      wait_in(rank, role, function, bytes, -1);
      if (!beside) continue;
      // It goes on meanwhile, and waits for this when its backward passes are over.
      stuck_[index_of(rank)] = 0;
      state_.ranks[index_of(rank)].beside_to_ns = kNever;
    }
    return;
  }
  const auto n = static_cast<size_t>(group.size);
  const int64_t last_arrival = gather_arrivals(group, false);
  const double noise = wire_noise(role, group_index);
  const double slow = role == Role::kWorld ? 1 : slow_[static_cast<size_t>(role)][static_cast<size_t>(group_index)];
  int64_t end = last_arrival + kLatencyNs + static_cast<int64_t>(wire_ns * slow * noise);
  // A sharded job's stand still is in its layers' gradients, not in their norm.
  const bool stands = gradients_stand_ && role == Role::kDp && !beside && shape_.sharding == Sharding::kNone;
  if (stands) end += stand_ns(group);
  const bool crosses = shape_.host_of(group.first) != shape_.host_of(group.member(group.size - 1));
  if (crosses && role != Role::kWorld && bytes >= kChunkBytes) {
    const auto edge_bytes = bytes * (group.size - 1) / group.size;
    ring_flows(role, group, group_index, edge_bytes, noise, end, stands);
  }
  for (size_t i = 0; i < n; ++i) {
    const Rank rank = group.member(static_cast<int32_t>(i));
    // Inside a host there is no proxy and so no callback until the end.
    const Operation operation{.role = role,
                              .function = function,
                              .bytes = bytes,
                              .enqueued_ns = enqueued_[i],
                              .start_ns = arrival_[i],
                              .end_ns = end,
                              .silent_ns = (crosses ? last_arrival : end) - arrival_[i]};
    if (beside) {
      RankState& state = state_.ranks[index_of(rank)];
      state.beside_from_ns = arrival_[i];
      state.beside_to_ns = end;
      count(rank, operation);
      continue;
    }
    record(rank, operation);
  }
}

int64_t Fleet::gather_arrivals(const Group& group, bool on_stream) {
  const auto n = static_cast<size_t>(group.size);
  if (arrival_.size() < n) {
    arrival_.resize(n);
    enqueued_.resize(n);
  }
  int64_t last_arrival = 0;
  for (size_t i = 0; i < n; ++i) {
    const RankState& state = state_.ranks[index_of(group.member(static_cast<int32_t>(i)))];
    enqueued_[i] = state.host_ns + kLaunchNs;
    arrival_[i] = std::max({state.gpu_ns, on_stream ? state.stream_ns : 0, enqueued_[i] + kPickupNs});
    last_arrival = std::max(last_arrival, arrival_[i]);
  }
  return last_arrival;
}

int64_t Fleet::stand_ns(const Group& group) const {
  double stand_ns = 0;
  for (int32_t i = 0; i < group.size; ++i) {
    const Rank rank = group.member(i);
    stand_ns = std::max({stand_ns, flaps_ns(rank), pauses_in_transfer(rank) ? conditions(rank).pause_ns : 0.0});
  }
  return static_cast<int64_t>(stand_ns);
}

// A layer's parameters or gradients on the second stream of a sharded job. Its transfers follow one another, so they
// start when the one before has ended and the kernels that they need have; the host has enqueued them long before.
void Fleet::stream_collective(const Group& group, int32_t group_index, Function function, bool waited_for,
                              bool stands) {
  const Transfer& transfer = transfers_[static_cast<size_t>(Role::kDp)];
  if (stopping_ && any_stuck(group)) {
    for (int32_t i = 0; i < group.size; ++i) {
      if (!stuck_[index_of(group.member(i))]) wait_in(group.member(i), Role::kDp, function, transfer.bytes, -1);
    }
    return;
  }
  const int64_t last_arrival = gather_arrivals(group, true);
  const double noise = wire_noise(Role::kDp, group_index);
  const double slow = slow_[static_cast<size_t>(Role::kDp)][static_cast<size_t>(group_index)];
  const bool stand = stands && gradients_stand_;
  const int64_t end =
      last_arrival + kLatencyNs + static_cast<int64_t>(transfer.wire_ns * slow * noise) + (stand ? stand_ns(group) : 0);
  const bool crosses = shape_.host_of(group.first) != shape_.host_of(group.member(group.size - 1));
  if (crosses && transfer.bytes >= kChunkBytes)
    ring_flows(Role::kDp, group, group_index, transfer.bytes * (group.size - 1) / group.size, noise, end, stand);
  for (int32_t i = 0; i < group.size; ++i) {
    const Rank rank = group.member(i);
    RankState& state = state_.ranks[index_of(rank)];
    const int64_t enqueued = enqueued_[static_cast<size_t>(i)], arrival = arrival_[static_cast<size_t>(i)];
    count(rank, {.role = Role::kDp,
                 .function = function,
                 .bytes = transfer.bytes,
                 .enqueued_ns = enqueued,
                 .start_ns = arrival,
                 .end_ns = end});
    // Enqueued, not begun, and nothing else is on the wire: the kernels before it keep it.
    state.queue_ns += std::max<int64_t>(0, arrival - std::max(enqueued, state.stream_ns));
    note_quiet(state, arrival, (crosses ? last_arrival : end) - arrival);
    state.host_ns += kLaunchNs;
    state.stream_ns = end;
    state.stream_busy_ns += end - arrival;
    state.stream_last[state.stream_count++ % state.stream_last.size()] = {arrival, end};
    if (function == Function::kAllGather) state.gathered_ns = end;
    if (waited_for && end > state.gpu_ns) {
      state.exposed_ns += end - std::max(state.gpu_ns, enqueued);
      state.gpu_ns = end;
    }
  }
}

// A pause that happens to fall into the transfer of the gradients; else it falls into a pass.
bool Fleet::pauses_in_transfer(Rank rank) const {
  return conditions(rank).pause_ns > 0 && sends_gradients_out(rank) &&
         draw(kForPause, static_cast<uint64_t>(rank.value())) % 2 == 0;
}

// A link that flaps holds up the gradients, or a message where no gradients go over it.
double Fleet::flaps_ns(Rank rank) const {
  return conditions(rank).flap_ns > 0 && sends_gradients_out(rank) ? conditions(rank).flap_ns : 0;
}

// What a receive counts as time on the wire is the flush into GPU memory alone, unless the proxy thread that does it
// gets no CPU: then what has arrived waits for the thread as long as what is to be sent does.
double Fleet::handed_on_ns(Rank rank, int64_t bytes, double noise) const {
  const double slower = std::max(conditions(rank).proxy, conditions(rank).handing);
  if (slower <= 1) return kFlushNs;
  return kFlushNs + (slower - 1) * static_cast<double>(bytes) / (shape_.topology.nic_gb_s * kNicReached) * noise;
}

// A sender is on the wire for its bytes at its own rate, however long the collective lasts. The rest of the time it
// waits: for the peer's credit where the peer is what holds up the ring, else for its own GPU, which waits for data.
// Its proxy is there from the enqueue on, so an arrival later than that is a wait for the own GPU as well.
void Fleet::ring_flows(Role role, const Group& group, int32_t group_index, int64_t edge_bytes, double noise,
                       int64_t end_ns, bool stands) {
  const auto n = static_cast<size_t>(group.size);
  const auto last =
      static_cast<size_t>(std::max_element(arrival_.begin(), arrival_.begin() + group.size) - arrival_.begin());
  const int64_t last_arrival = arrival_[last];
  const int32_t known = blocker_[static_cast<size_t>(role)][static_cast<size_t>(group_index)];
  const size_t blocker = known >= 0 ? static_cast<size_t>(known) : last;
  for (size_t i = 0; i < n; ++i) {
    const Rank self = group.member(static_cast<int32_t>(i));
    RingFlows& flows = state_.flows[static_cast<size_t>(role)][index_of(self)];
    const auto inside_ns = static_cast<double>(end_ns - arrival_[i]);
    const auto queue_ns = static_cast<double>(arrival_[i] - enqueued_[i]);
    const double paused_ns = stands && pauses_in_transfer(self) ? conditions(self).pause_ns : 0;
    for (size_t direction = 0; direction < 2; ++direction) {
      const size_t hop = direction == 0 ? 1 : n - 1;
      const size_t next = (i + hop) % n, previous = (i + n - hop) % n;
      // Of two members each is both next and previous of the other: one flow each way.
      const size_t send_slot = n == 2 ? 0 : direction, receive_slot = n == 2 ? 2 : 3 - direction;
      if (const Rank peer = group.member(static_cast<int32_t>(next)); shape_.host_of(peer) != shape_.host_of(self)) {
        double wire_ns =
            static_cast<double>(edge_bytes) / edge_bytes_per_ns(self, peer) * edge_factor(self, peer) * noise;
        double stood_ns = 0;
        if (stands) {
          stood_ns = std::max({paused_ns, pauses_in_transfer(peer) ? conditions(peer).pause_ns : 0.0, flaps_ns(self)});
          wire_ns += stood_ns;
        }
        wire_ns = std::min(inside_ns, wire_ns);
        const double idle_ns = inside_ns - wire_ns;
        const double own = next == blocker ? 0.1 : 0.9;
        FlowTotals& flow = flows[send_slot];
        add_to_flow(flow, edge_bytes, wire_ns,
                    {.own_gpu_ns = queue_ns + own * idle_ns,
                     .peer_ns = (1 - own) * idle_ns,
                     .own_gpu_longest_ns = std::max(queue_ns, own * static_cast<double>(last_arrival - arrival_[i]))});
        flow.wire_longest_ns = std::max(flow.wire_longest_ns, static_cast<int64_t>(std::min(stood_ns, wire_ns)));
      }
      if (const Rank peer = group.member(static_cast<int32_t>(previous));
          shape_.host_of(peer) != shape_.host_of(self)) {
        const double own = i == blocker ? 0.9 : 0.1;
        // Data that came before the own GPU did lay there until it did.
        const auto ahead_ns = static_cast<double>(arrival_[i] - arrival_[previous]);
        add_to_flow(flows[receive_slot], edge_bytes, handed_on_ns(self, edge_bytes, noise),
                    {.own_gpu_ns = own * inside_ns,
                     .peer_ns = (1 - own) * inside_ns,
                     .own_gpu_longest_ns = std::max(std::clamp(ahead_ns, 0.0, queue_ns), paused_ns)});
      }
    }
  }
}

// Tokens to their experts, or back. What a rank moves hangs on how many tokens its experts get, and all wait for the
// one that moves most.
void Fleet::exchange(const Group& group, int32_t group_index, double factor) {
  const auto n = static_cast<size_t>(group.size);
  const Transfer& transfer = transfers_[static_cast<size_t>(Role::kEp)];
  const double bytes = static_cast<double>(transfer.bytes) * factor;
  if (stopping_ && any_stuck(group)) {
    int32_t missing = 0;
    while (!stuck_[index_of(group.member(missing))]) ++missing;
    for (int32_t i = 0; i < group.size; ++i) {
      if (!stuck_[index_of(group.member(i))])
        wait_in(group.member(i), Role::kEp, Function::kRecv, static_cast<int64_t>(bytes / group.size), missing);
    }
    return;
  }
  const int64_t last_arrival = gather_arrivals(group, false);
  double most = 0;
  for (int32_t i = 0; i < group.size; ++i) most = std::max(most, expert_share(group.member(i)));
  const double slow = slow_[static_cast<size_t>(Role::kEp)][static_cast<size_t>(group_index)];
  const int64_t end =
      last_arrival + kLatencyNs +
      static_cast<int64_t>(transfer.wire_ns * factor * most * slow * wire_noise(Role::kEp, group_index));
  const bool crosses = shape_.host_of(group.first) != shape_.host_of(group.member(group.size - 1));
  for (size_t i = 0; i < n; ++i) {
    const Rank rank = group.member(static_cast<int32_t>(i));
    const double share = expert_share(rank);
    // Sent: to every expert but its own. Received: for its own experts from everybody else.
    const double size = group.size;
    const auto moved = static_cast<int64_t>(bytes / size * ((size - share) + (size - 1) * share));
    const auto messages = static_cast<uint64_t>(state_.progress[slot(rank, Role::kEp)].enqueued / (2 * (n - 1)));
    record(rank, {.role = Role::kEp,
                  .function = Function::kRecv,
                  .operations = 2 * (group.size - 1),
                  .bytes = moved,
                  .peer = (static_cast<int32_t>(i) + 1) % group.size,
                  .seq = messages,
                  .enqueued_ns = enqueued_[i],
                  .start_ns = arrival_[i],
                  .end_ns = end,
                  .silent_ns = (crosses ? last_arrival : end) - arrival_[i]});
  }
}

void Fleet::receive(Rank rank, const Pass& pass) {
  RankState& state = state_.ranks[index_of(rank)];
  const size_t passes = static_cast<size_t>(shape_.micro_batches) * static_cast<size_t>(shape_.model_chunks);
  const int64_t sent_ns =
      arrivals_[pass.forward ? 1 : 0][index_of(rank) * passes +
                                      static_cast<size_t>(pass.micro_batch) * static_cast<size_t>(shape_.model_chunks) +
                                      static_cast<size_t>(pass.chunk)];
  const Transfer& transfer = transfers_[static_cast<size_t>(Role::kPp)];
  const bool from_previous = shape_.pp > 2 && pass.from_stage == (pass.stage + shape_.pp - 1) % shape_.pp;
  const size_t flow_slot = from_previous ? 3 : 2;
  auto& messages = state_.messages[index_of(rank)];
  if (sent_ns == kNever) {
    wait_in(rank, Role::kPp, Function::kRecv, transfer.bytes, pass.from_stage);
    state_.progress[slot(rank, Role::kPp)].seq = messages[flow_slot];
    return;
  }
  const int64_t enqueued = state.host_ns + kLaunchNs;
  const int64_t start = std::max(state.gpu_ns, enqueued + kPickupNs);
  const int64_t end = std::max(start, sent_ns) + kPickupNs;
  const Rank sender = rank + (pass.from_stage - pass.stage) * shape_.stage_ranks();
  if (shape_.host_of(sender) != shape_.host_of(rank))
    add_to_flow(state_.flows[static_cast<size_t>(Role::kPp)][index_of(rank)][flow_slot], transfer.bytes,
                handed_on_ns(rank, transfer.bytes, 1), {.peer_ns = static_cast<double>(end - start)});
  record(rank, {.role = Role::kPp,
                .function = Function::kRecv,
                .bytes = transfer.bytes,
                .peer = pass.from_stage,
                .seq = messages[flow_slot]++,
                .enqueued_ns = enqueued,
                .start_ns = start,
                .end_ns = end,
                .silent_ns = std::max<int64_t>(0, sent_ns - static_cast<int64_t>(transfer.wire_ns) - start)});
}

// The sender is done when its bytes have left, whether or not the receiver is there; the receiver when they are there.
void Fleet::send(Rank rank, const Pass& pass) {
  RankState& state = state_.ranks[index_of(rank)];
  const Transfer& transfer = transfers_[static_cast<size_t>(Role::kPp)];
  const Rank receiver = rank + (pass.to_stage - pass.stage) * shape_.stage_ranks();
  const double noise =
      wire_shock_ * tailed_jitter(kWireSigma, draw(kForMessage, static_cast<uint64_t>(rank.value()) << 24 ^
                                                                    static_cast<uint64_t>(pass.ordinal)));
  const bool crosses = shape_.host_of(receiver) != shape_.host_of(rank);
  double wire_ns =
      static_cast<double>(transfer.bytes) / edge_bytes_per_ns(rank, receiver) * edge_factor(rank, receiver) * noise;
  double stood_ns = 0;
  if (gradients_stand_ && crosses && pass.of_kind == 0 && conditions(rank).flap_ns > 0 && flaps_ns(rank) == 0)
    wire_ns += stood_ns = conditions(rank).flap_ns;
  const int64_t enqueued = state.host_ns + kLaunchNs;
  const int64_t start = std::max(state.gpu_ns, enqueued + kPickupNs);
  const int64_t end = start + static_cast<int64_t>(wire_ns);
  const bool to_previous = shape_.pp > 2 && pass.to_stage == (pass.stage + shape_.pp - 1) % shape_.pp;
  const size_t flow_slot = to_previous ? 1 : 0;
  if (crosses) {
    FlowTotals& flow = state_.flows[static_cast<size_t>(Role::kPp)][index_of(rank)][flow_slot];
    add_to_flow(flow, transfer.bytes, wire_ns, {});
    flow.wire_longest_ns = std::max(flow.wire_longest_ns, static_cast<int64_t>(stood_ns));
  }
  record(rank, {.role = Role::kPp,
                .function = Function::kSend,
                .bytes = transfer.bytes,
                .peer = pass.to_stage,
                .seq = state_.messages[index_of(rank)][flow_slot]++,
                .enqueued_ns = enqueued,
                .start_ns = start,
                .end_ns = end});
  const size_t passes = static_cast<size_t>(shape_.micro_batches) * static_cast<size_t>(shape_.model_chunks);
  arrivals_[pass.forward ? 1 : 0][index_of(receiver) * passes +
                                  static_cast<size_t>(pass.micro_batch) * static_cast<size_t>(shape_.model_chunks) +
                                  static_cast<size_t>(pass.to_chunk)] = end;
}

void Fleet::play() {
  if (stopping_) {
    stuck_.assign(state_.ranks.size(), 0);
    stop_of_.assign(state_.ranks.size(), -1);
    for (const Stop& stop : conditions_.stops) stop_of_[index_of(stop.rank)] = static_cast<int8_t>(stop.kind);
    for (auto& arrivals : arrivals_) std::fill(arrivals.begin(), arrivals.end(), kNever);
  }
  begin_step();
  for (const Pass& pass : order_) shape_.sharding == Sharding::kFull ? run_sharded(pass) : run(pass);
  sync();
  finish();
}

bool Fleet::stops(Rank rank, StopKind kind) {
  if (!stopping_ || stop_of_[index_of(rank)] != static_cast<int8_t>(kind)) return false;
  if (resume_ns_ < 0) {
    stuck_[index_of(rank)] = 1;
    return true;
  }
  stop_of_[index_of(rank)] = -1;
  RankState& state = state_.ranks[index_of(rank)];
  state.host_ns = std::max({state.host_ns, state.gpu_ns, resume_ns_});
  return false;
}

bool Fleet::stops_in_pass(Rank rank) {
  const int32_t passes = state_.ranks[index_of(rank)].passes;
  if (passes == 0 && stops(rank, StopKind::kCompile)) return true;
  const auto all = static_cast<uint64_t>(2 * shape_.micro_batches * shape_.model_chunks);
  if (static_cast<uint64_t>(passes) != draw(kForStop, static_cast<uint64_t>(rank.value())) % all) return false;
  return stops(rank, StopKind::kDead) || stops(rank, StopKind::kStopped);
}

// Something common slows all kernels or all transfers, for some steps: shared storage, a neighbour on the fabric, power.
void Fleet::set_shocks() {
  kernel_shock_ = wire_shock_ = 1;
  if (shape_.noise.shocks <= 0) return;
  constexpr double kMeanSteps = (1.0 + kShockStepsMax) / 2;
  for (int64_t back = 0; back < kShockStepsMax && back <= step_.value(); ++back) {
    const uint64_t drawn = mix(shape_.seed ^ mix(kForShock << 32 ^ static_cast<uint64_t>(step_.value() - back)));
    if (uniform(drawn) >= shape_.noise.shocks / kMeanSteps) continue;
    const uint64_t luck = mix(drawn);
    if (back > static_cast<int64_t>(luck % kShockStepsMax)) continue;
    const double factor = 1 + shape_.noise.times * (kShockLeast + kShockMore * uniform(mix(luck)));
    double& hit = (luck >> 8) % 2 == 0 ? kernel_shock_ : wire_shock_;
    hit = std::max(hit, factor);
  }
}

void Fleet::begin_step() {
  set_network();
  set_shocks();
  for (auto& drawn : drawn_) std::fill(drawn.begin(), drawn.end(), 0);
  std::fill(state_.traffic.begin(), state_.traffic.end(), Traffic{});
  for (auto& flows : state_.flows) std::fill(flows.begin(), flows.end(), RingFlows{});
  details_.clear();
  if (with_detail_) details_.resize(state_.ranks.size());
  const double step_ns = healthy_step_ns();
  const double compile_ns = step_ns * (step_ == 0_step   ? shape_.first_step_extra
                                       : step_ == 1_step ? shape_.second_step_extra
                                                         : 0);
  for (Rank rank : all_ranks(shape_.world_size())) {
    RankState& state = state_.ranks[index_of(rank)];
    const auto which = static_cast<uint64_t>(rank.value());
    const RankConditions& now = conditions(rank);
    const int64_t start = std::max(state.host_ns, state.gpu_ns);
    state = RankState{.host_ns = start,
                      .gpu_ns = start,
                      .start_ns = start,
                      .phase_since_ns = start,
                      .stream_ns = start,
                      .phase = Phase::kInput};
    if (with_detail_) details_[index_of(rank)].step = step_;
    state.scale = now.gpu * now.work * rank_speed_[index_of(rank)] * tailed_jitter(kStepSigma, draw(kForStep, which)) *
                  kernel_shock_;
    state.expert_scale = state.scale * expert_share(rank);
    const uint64_t drawn = draw(kForInput, which);
    state.host_ns +=
        static_cast<int64_t>(input_ns_ * jitter(kInputSigma, drawn) + now.input_ns * (1 + 0.03 * bell(mix(drawn))));
    enter_phase(rank, Phase::kForward);
    const uint64_t luck = draw(kForHiccup, which);
    const double hiccup_ns = uniform(luck) < kHiccupChance ? step_ns * kHiccupShare * (1 + 0.2 * bell(mix(luck))) : 0;
    state.host_ns += static_cast<int64_t>((compile_ns + now.compile_ns) * (1 + 0.1 * bell(mix(luck ^ 1))) + hiccup_ns);
    // Copies to the GPU keep its stream.
    if (now.copy_ns > 0) compute(rank, now.copy_ns);
  }
}

bool Fleet::enter_pass(Rank rank, const Pass& pass) {
  if (stuck(rank)) return false;
  enter_phase(rank, pass.forward ? Phase::kForward : Phase::kBackward);
  if (pass.from_stage >= 0) receive(rank, pass);
  if (stuck(rank) || (stopping_ && stops_in_pass(rank))) return false;
  RankState& state = state_.ranks[index_of(rank)];
  ++state.passes;
  if (conditions_.ranks.empty()) return true;
  const auto forwards = static_cast<double>(shape_.micro_batches * shape_.model_chunks);
  const auto passes = static_cast<uint64_t>(2 * shape_.micro_batches * shape_.model_chunks);
  const auto which = static_cast<uint64_t>(rank.value());
  const RankConditions& now = conditions(rank);
  double late_ns = pass.forward && now.host_ns > 0
                       ? now.host_ns / forwards *
                             (1 + 0.15 * bell(draw(kForHost, which << 16 ^ static_cast<uint64_t>(pass.ordinal))))
                       : 0;
  if (now.stall_ns > 0 && pass.forward &&
      draw(kForStall, which) % static_cast<uint64_t>(forwards) == static_cast<uint64_t>(pass.of_kind))
    late_ns += now.stall_ns;
  if (now.pause_ns > 0 && mix(draw(kForPause, which)) % passes == static_cast<uint64_t>(pass.ordinal) &&
      !pauses_in_transfer(rank))
    late_ns += now.pause_ns;
  // A late host has no lead left.
  if (late_ns > 0) state.host_ns = std::max(state.host_ns, state.gpu_ns) + static_cast<int64_t>(late_ns);
  return true;
}

void Fleet::run(const Pass& pass) {
  const Rank first{pass.stage * shape_.stage_ranks()}, end = first + shape_.stage_ranks();
  const double size = pass.forward ? 1 : 2;
  const double dense_ns = size * forward_ns_ * (has(Role::kEp) ? 1 - kExpertShare : 1);
  for (Rank rank = first; rank < end; ++rank) {
    if (!enter_pass(rank, pass)) continue;
    const auto which = static_cast<uint64_t>(rank.value());
    compute(rank, dense_ns * state_.ranks[index_of(rank)].scale *
                      jitter(kPassSigma, draw(kForPass, which << 20 ^ static_cast<uint64_t>(pass.ordinal))));
  }
  main_stream_collectives(first, end, size, pass.forward);
  if (pass.to_stage >= 0) {
    for (Rank rank = first; rank < end; ++rank) {
      if (!stuck(rank)) send(rank, pass);
    }
  }
  if (!pass.forward && pass.of_kind + 1 == reduction_after_) start_reduction(pass.stage);
}

// What kernels of a pass, or of a layer of it, are followed by: context, tensor and expert groups, in this order.
void Fleet::main_stream_collectives(Rank first, Rank end, double size, bool forward) {
  auto transfer = [&](Role role) -> const Transfer& { return transfers_[static_cast<size_t>(role)]; };
  if (has(Role::kCp))
    collectives(Role::kCp, first, end, static_cast<int64_t>(size * static_cast<double>(transfer(Role::kCp).bytes)),
                size * transfer(Role::kCp).wire_ns, forward ? Function::kAllGather : Function::kReduceScatter);
  if (has(Role::kTp))
    collectives(Role::kTp, first, end, static_cast<int64_t>(size * static_cast<double>(transfer(Role::kTp).bytes)),
                size * transfer(Role::kTp).wire_ns, Function::kAllReduce);
  if (has(Role::kEp)) {
    for (const bool back : {false, true}) {
      for (Rank block = first; block < end; block += shape_.tp * shape_.ep) {
        for (Rank at = block; at < block + shape_.tp; ++at)
          exchange({at, shape_.tp, shape_.ep}, shape_.group_index(Role::kEp, at), size);
      }
      for (Rank rank = first; rank < end && !back; ++rank) {
        if (!stuck(rank)) compute(rank, size * forward_ns_ * kExpertShare * state_.ranks[index_of(rank)].expert_scale);
      }
    }
  }
}

// Spread evenly: of ten layers at 0.9 nine.
bool Fleet::beside_kernels(int32_t layer) const {
  return std::floor((layer + 1) * shape_.overlap) > std::floor(layer * shape_.overlap);
}

void Fleet::stream_collectives(Function function, int32_t layer, bool stands) {
  const bool waited_for = function == Function::kReduceScatter && !beside_kernels(layer);
  for (Rank first{0}; first < Rank{shape_.tp}; ++first)
    stream_collective(shape_.group(Role::kDp, first), shape_.group_index(Role::kDp, first), function, waited_for,
                      stands);
}

// Layer by layer: its parameters must be there; those of the next one are asked for; it computes; in backward its
// gradients leave. A host is one layer ahead of its GPU (the allocator lets it no further).
void Fleet::run_sharded(const Pass& pass) {
  const Rank end{shape_.world_size()};
  const double size = (pass.forward ? 1.0 : 2.0) / shape_.layers;
  const double dense_ns = size * forward_ns_ * (has(Role::kEp) ? 1 - kExpertShare : 1);
  for (Rank rank = 0_rank; rank < end; ++rank) enter_pass(rank, pass);
  const bool last_pass = !pass.forward && pass.of_kind + 1 == shape_.micro_batches;
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    if (layer == 0 || !beside_kernels(layer)) stream_collectives(Function::kAllGather, layer, false);
    for (Rank rank = 0_rank; rank < end; ++rank) {
      if (stuck(rank)) continue;
      RankState& state = state_.ranks[index_of(rank)];
      const int64_t ready = std::max(state.gpu_ns, state.host_ns);
      if (state.gathered_ns > ready) state.exposed_ns += state.gathered_ns - ready;
      state.gpu_ns = std::max(state.gpu_ns, state.gathered_ns);
    }
    if (layer + 1 < shape_.layers && beside_kernels(layer + 1))
      stream_collectives(Function::kAllGather, layer + 1, false);
    for (Rank rank = 0_rank; rank < end; ++rank) {
      if (stuck(rank)) continue;
      RankState& state = state_.ranks[index_of(rank)];
      const auto which = static_cast<uint64_t>(rank.value());
      const auto ordinal = static_cast<uint64_t>(pass.ordinal * shape_.layers + layer);
      compute(rank, dense_ns * state.scale * jitter(kPassSigma, draw(kForPass, which << 20 ^ ordinal)));
      state.host_ns = std::max(state.host_ns, std::exchange(state.layer_ns, state.gpu_ns));
    }
    main_stream_collectives(0_rank, end, size, pass.forward);
    if (!pass.forward) stream_collectives(Function::kReduceScatter, layer, last_pass && layer + 1 == shape_.layers);
  }
}

// The part of the gradients that is reduced beside what is left of the backward passes.
void Fleet::start_reduction(int32_t stage) {
  const Transfer& gradients = transfers_[static_cast<size_t>(Role::kDp)];
  for (int32_t tp = 0; tp < shape_.tp; ++tp) {
    const Rank first{stage * shape_.stage_ranks() + tp};
    collective(Role::kDp, shape_.group(Role::kDp, first), shape_.group_index(Role::kDp, first),
               static_cast<int64_t>(shape_.overlap * static_cast<double>(gradients.bytes)),
               shape_.overlap * gradients.wire_ns, Function::kAllReduce, true);
  }
}

void Fleet::sync() {
  const Role where = has(Role::kDp) ? Role::kDp : Role::kWorld;
  const Transfer& gradients = transfers_[static_cast<size_t>(Role::kDp)];
  const bool sharded = shape_.sharding == Sharding::kFull;
  // Sharded gradients are there already; what is left is their norm.
  const double rest_share = sharded ? 0 : 1 - shape_.overlap;
  const auto rest = sharded ? 8 : static_cast<int64_t>(rest_share * static_cast<double>(gradients.bytes));
  for (Rank rank : all_ranks(shape_.world_size())) {
    if (stuck(rank) || stops(rank, StopKind::kMissing)) continue;
    enter_phase(rank, Phase::kSync);
    RankState& state = state_.ranks[index_of(rank)];
    if (stops(rank, StopKind::kDeadlock)) {
      wait_in(rank, Role::kWorld, Function::kAllReduce, 8, -1);
    } else if (stops(rank, StopKind::kMismatch)) {
      wait_in(rank, where, Function::kAllGather, where == Role::kDp && !sharded ? rest / 2 : 16, -1);
    } else if (state.beside_to_ns == kNever) {
      stuck_[index_of(rank)] = 1;
    } else if (const int64_t now = std::max(state.gpu_ns, state.beside_from_ns); state.beside_to_ns > now) {
      state.exposed_ns += state.beside_to_ns - now;
      state.gpu_ns = state.beside_to_ns;
      state.host_ns = std::max(state.host_ns, state.gpu_ns);
    } else if (sharded) {
      const int64_t ready = std::max(state.gpu_ns, state.host_ns);
      if (state.stream_ns > ready) state.exposed_ns += state.stream_ns - ready;
      state.gpu_ns = std::max(state.gpu_ns, state.stream_ns);
      state.host_ns = std::max(state.host_ns, state.gpu_ns);
    }
  }
  if (has(Role::kDp) && (sharded || shape_.overlap < 1)) {
    for (int32_t stage = 0; stage < shape_.pp; ++stage)
      collectives(Role::kDp, Rank{stage * shape_.stage_ranks()}, Rank{(stage + 1) * shape_.stage_ranks()}, rest,
                  rest_share * gradients.wire_ns, Function::kAllReduce);
  }
  if (has(Role::kWorld)) collective(Role::kWorld, shape_.group(Role::kWorld, 0_rank), 0, 8, 0, Function::kAllReduce);
}

void Fleet::finish() {
  const bool checkpoint = conditions_.checkpoint;
  for (Rank rank : all_ranks(shape_.world_size())) {
    if (stuck(rank)) continue;
    RankState& state = state_.ranks[index_of(rank)];
    const RankConditions& now = conditions(rank);
    const auto which = static_cast<uint64_t>(rank.value());
    enter_phase(rank, Phase::kOptimizer);
    compute(rank, optimizer_ns_ * state.scale * jitter(kPassSigma, draw(kForOptimizer, which)));
    state.host_ns = state.gpu_ns;  // the script reads the loss
    enter_phase(rank, Phase::kOther);
    if (now.log_ns > 0) state.host_ns += static_cast<int64_t>(now.log_ns);
    if (now.evaluation_ns > 0 ||
        (stopping_ && stop_of_[index_of(rank)] == static_cast<int8_t>(StopKind::kEvaluation))) {
      enter_phase(rank, Phase::kEval);
      if (stops(rank, StopKind::kEvaluation)) continue;
      if (now.evaluation_ns > 0) compute(rank, now.evaluation_ns * state.scale / std::max(now.gpu * now.work, 0.01));
    }
    if (checkpoint) {
      enter_phase(rank, Phase::kCheckpoint);
      if (stops(rank, StopKind::kCheckpoint)) continue;
      state.host_ns = std::max(state.host_ns, state.gpu_ns) +
                      static_cast<int64_t>(now.checkpoint_ns * (1 + 0.03 * bell(draw(kForCheckpoint, which))));
      state.checkpoint_ns = std::max(state.host_ns, state.gpu_ns) - state.phase_since_ns;
    }
  }
  if (checkpoint) {  // nobody goes on before it is written
    if (has(Role::kWorld)) {
      collective(Role::kWorld, shape_.group(Role::kWorld, 0_rank), 0, 8, 0, Function::kAllReduce);
    } else if (has(Role::kDp)) {
      collective(Role::kDp, shape_.group(Role::kDp, 0_rank), 0, 8, 0, Function::kAllReduce);
    }
  }
  for (Rank rank : all_ranks(shape_.world_size())) {
    if (stuck(rank)) continue;
    RankState& state = state_.ranks[index_of(rank)];
    state.gpu_ns = std::max(state.gpu_ns, state.host_ns);
    // Sums up the phase it is in, kOther too.
    if (state.phase == Phase::kOther) {
      state.phase_ns[0] += state.gpu_ns - state.phase_since_ns;
      state.phase_since_ns = state.gpu_ns;
    }
    enter_phase(rank, Phase::kOther);
    if (with_detail_) report_detail(rank);
  }
}

}  // namespace lockstep::sim
