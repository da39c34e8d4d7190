// Fleet: how a job is made, what is told of it. What happens inside a step is in fleet_physics.cc.
#include "sim/fleet/fleet.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "sim/fleet/fleet_internal.h"
#include "sim/fleet/random.h"

namespace lockstep::sim {

const RankConditions Fleet::kAsItShouldBe;

const char* Fleet::to_text(Function function) {
  static constexpr const char* kNames[] = {"", "AllReduce", "AllGather", "ReduceScatter", "Send", "Recv"};
  return kNames[static_cast<size_t>(function)];
}

Fleet::Fleet(JobShape shape, int64_t start_unix_ns, StepNumber first_step)
    : shape_(std::move(shape)), step_(first_step - 1) {
  attempt_hash_ = mix(hash_of(shape_.job_id) ^ static_cast<uint64_t>(shape_.attempt));
  order_ = all_passes(shape_.schedule, shape_.pp, shape_.micro_batches, shape_.model_chunks);
  const auto world = static_cast<size_t>(shape_.world_size());
  for (size_t role = 0; role < kRoleCount; ++role)
    slot_of_[role] = shape_.has(role_at(role)) ? static_cast<int32_t>(slots_++) : -1;
  size_up();

  state_.ranks.resize(world);
  for (RankState& rank : state_.ranks) rank.host_ns = rank.gpu_ns = start_unix_ns;
  state_.traffic.resize(world * slots_);
  state_.progress.resize(world * slots_);
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (role_at(role) == Role::kWorld || role_at(role) == Role::kEp || !has(role_at(role))) continue;
    bool crosses = false;
    for (Rank rank = 0_rank; rank < Rank{shape_.world_size()} && !crosses; ++rank) {
      const Group group = shape_.group(role_at(role), rank);
      crosses = shape_.host_of(group.first) != shape_.host_of(group.member(group.size - 1));
    }
    if (crosses) state_.flows[role].resize(world);
  }
  if (has(Role::kPp)) {
    state_.messages.resize(world);
    const size_t passes = static_cast<size_t>(shape_.micro_batches) * static_cast<size_t>(shape_.model_chunks);
    for (auto& arrivals : arrivals_) arrivals.resize(world * passes);
  }
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (!has(role_at(role))) continue;
    const auto groups = static_cast<size_t>(shape_.groups(role_at(role)));
    slow_[role].resize(groups);
    blocker_[role].assign(groups, -1);
    drawn_[role].resize(groups);
  }
  network_disturbed_ = true;  // so that the first step works the factors out
  for (size_t i = 0; i < world; ++i)
    rank_speed_.push_back(1 + shape_.noise.rank_spread * bell(mix(shape_.seed ^ mix(kForGpu << 32 ^ i))));
  for (int32_t host = 0; host < shape_.hosts(); ++host) {
    const uint64_t drawn = mix(shape_.seed ^ mix(kForClock << 32 ^ static_cast<uint64_t>(host)));
    clock_error_ns_.push_back(static_cast<int64_t>(bell(drawn) * shape_.clock_error_us * 1e3));
  }
}

Identity Fleet::identity(Rank rank) const {
  return identity_of(shape_, rank);
}

Identity identity_of(const JobShape& shape, Rank rank) {
  const int32_t host = shape.first_host + shape.host_of(rank), gpu = rank % shape.topology.gpus_per_host;
  const uint64_t high = hash_of(format("%d/%d", host, gpu));
  const uint64_t low = mix(high);
  return {.job_id = shape.job_id,
          .attempt = shape.attempt,
          .rank = rank,
          .world_size = shape.world_size(),
          .local_rank = gpu,
          .host = format("node-%02d", host),
          .gpu_uuid = format("GPU-%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                             static_cast<unsigned>(high >> 16 & 0xFFFF), static_cast<unsigned>(high & 0xFFFF),
                             static_cast<unsigned>(low >> 48), static_cast<unsigned long long>(low & 0xFFFFFFFFFFFF))};
}

CommId Fleet::comm_id(Role role, const Group& group) const {
  return CommId{mix(attempt_hash_ ^ (static_cast<uint64_t>(role) << 40 | static_cast<uint64_t>(group.first.value())))};
}

std::vector<CommInit> Fleet::comm_inits(Rank rank) const {
  std::vector<CommInit> inits;
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Role role = role_at(i);
    if (!has(role)) continue;
    const Group group = shape_.group(role, rank);
    // Members are equally spaced, so they are each on a host of their own or on neighbouring hosts without a hole.
    const int32_t nodes = group.stride >= shape_.topology.gpus_per_host
                              ? group.size
                              : shape_.host_of(group.member(group.size - 1)) - shape_.host_of(group.first) + 1;
    inits.push_back({.comm_id = comm_id(role, group),
                     .size = group.size,
                     .rank_in_comm = shape_.index_in(role, rank),
                     .nodes = nodes,
                     .name = sim::to_text(role)});
  }
  return inits;
}

std::vector<CommGroup> Fleet::comm_groups(Rank rank) const {
  std::vector<CommGroup> groups;
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Role role = role_at(i);
    if (!has(role)) continue;
    const Group group = shape_.group(role, rank);
    if (group.size > kReportedByAllMax && rank != group.first) continue;
    CommGroup& reported = groups.emplace_back();
    reported.name = role == Role::kDp && shape_.cp > 1 ? "dp_cp" : sim::to_text(role);
    for (int32_t member = 0; member < group.size; ++member) reported.ranks.push_back(group.member(member));
  }
  return groups;
}

Result<void> Fleet::check(const Fault& fault) const {
  if (fault.rank < 0_rank || fault.rank >= Rank{shape_.world_size()}) {
    return Error{format("%s: there is no rank %d in a job of %d ranks", sim::to_text(fault.kind), fault.rank.value(),
                        shape_.world_size())};
  }
  if (fault.kind == FaultKind::kMissingRank && shape_.world_size() == 1)
    return Error{"missing-rank: a job of one rank waits for nobody"};
  if (fault.kind == FaultKind::kSlowLink && !sends_gradients_out(fault.rank)) {
    Rank other = 0_rank;
    while (other < Rank{shape_.world_size()} && !sends_gradients_out(other)) ++other;
    return Error{
        format("slow-link: rank %d sends no gradients to another host; %s", fault.rank.value(),
               other < Rank{shape_.world_size()} ? format("rank %d does", other.value()).c_str() : "no rank does")};
  }
  return {};
}

bool Fleet::play_step(std::span<const Fault> faults, bool with_detail) {
  StepConditions conditions;
  if (!faults.empty()) conditions.ranks.resize(state_.ranks.size());
  for (const Fault& fault : faults) {
    RankConditions& rank = conditions.ranks[index_of(fault.rank)];
    if (fault.kind == FaultKind::kSlowGpu) rank.gpu *= fault.severity;
    if (fault.kind == FaultKind::kSlowInput) rank.input_ns += fault.severity * 1e6;
    if (fault.kind == FaultKind::kSlowLink) rank.send /= fault.severity;
    if (fault.kind == FaultKind::kMissingRank) conditions.stops.push_back({fault.rank, StopKind::kMissing});
  }
  return play_under(conditions, with_detail);
}

bool Fleet::play_under(const StepConditions& conditions, bool with_detail) {
  conditions_ = conditions;
  with_detail_ = with_detail;
  resume_ns_ = -1;
  stopping_ = !conditions_.stops.empty();
  ++step_;
  step_seed_ = mix(shape_.seed ^ mix(static_cast<uint64_t>(step_.value())));
  if (stopping_) before_ = state_;
  play();
  hung_ = stopping_;
  return !hung_;
}

void Fleet::release(int64_t at_unix_ns) {
  if (!hung_) return;
  state_ = std::move(before_);
  before_ = {};
  resume_ns_ = at_unix_ns;
  play();
  hung_ = stopping_ = false;
}

void Fleet::report_detail(Rank rank) {
  const RankState& state = state_.ranks[index_of(rank)];
  const int64_t error_ns = clock_error_ns_[static_cast<size_t>(shape_.host_of(rank))];
  StepDetail& detail = details_[index_of(rank)];
  detail.start_unix_ns = state.start_ns + error_ns;
  detail.duration_ns = state.gpu_ns - state.start_ns;
  for (PhaseSpan& phase : detail.phases) phase.start_unix_ns += error_ns;
  for (OpSpan& op : detail.ops) {
    op.enqueued_unix_ns += error_ns;
    op.start_unix_ns += error_ns;
  }
  lockstep::finish(detail);
}

void Fleet::add_split(const RankState& state, StepSummary& summary) const {
  auto part = [&](TimePart name) -> int64_t& { return summary.split_ns[static_cast<size_t>(name)]; };
  summary.split_known = true;
  part(TimePart::kCompute) = state.compute_ns;
  part(TimePart::kCommunication) = state.comm_ns + state.exposed_ns;
  part(TimePart::kInput) = state.phase_ns[static_cast<size_t>(Phase::kInput)];
  part(TimePart::kCheckpoint) = state.checkpoint_ns;
  part(TimePart::kHost) = summary.duration_ns - state.compute_ns - part(TimePart::kCommunication) -
                          part(TimePart::kInput) - state.checkpoint_ns;
}

// The rank's operations in its group of that role, and the flows of them.
void Fleet::add_traffic(Rank rank, Role role, StepSummary& summary) const {
  const auto i = static_cast<size_t>(role);
  const Traffic& traffic = state_.traffic[slot(rank, role)];
  if (traffic.count == 0) return;
  const int64_t error_ns = clock_error_ns_[static_cast<size_t>(shape_.host_of(rank))];
  const Group group = shape_.group(role, rank);
  summary.comms.push_back({.comm_id = comm_id(role, group),
                           .size = group.size,
                           .rank_in_comm = shape_.index_in(role, rank),
                           .p2p = is_p2p(role),
                           .count = traffic.count,
                           .bytes = traffic.bytes,
                           .gpu_ns = traffic.gpu_ns,
                           .shortest_ns = traffic.shortest_ns,
                           .longest_ns = traffic.longest_ns,
                           .first_start_unix_ns = traffic.first_start_ns + error_ns,
                           .last_end_unix_ns = traffic.last_end_ns + error_ns,
                           .queue_ns = traffic.queue_ns});
  if (role == Role::kEp && transfers_[i].crosses) add_exchange_flows(rank, summary);
  if (state_.flows[i].empty()) return;
  const int32_t at = shape_.index_in(role, rank);
  for (size_t flow = 0; flow < 4; ++flow) {
    const FlowTotals& totals = state_.flows[i][index_of(rank)][flow];
    if (totals.transfers == 0) continue;
    const int32_t peer = (at + (flow % 2 == 0 ? 1 : group.size - 1)) % group.size;
    summary.flows.push_back({.comm_id = summary.comms.back().comm_id,
                             .peer = peer,
                             .send = flow < 2,
                             .transfers = totals.transfers,
                             .bytes = totals.bytes,
                             .wire_ns = totals.wire_ns,
                             .own_gpu_ns = totals.own_gpu_ns,
                             .peer_ns = totals.peer_ns,
                             .wire_longest_ns = totals.wire_longest_ns,
                             .own_gpu_longest_ns = totals.own_gpu_longest_ns});
  }
}

// What is told is on the host's own clock.
StepSummary Fleet::summary(Rank rank) const {
  const RankState& state = state_.ranks[index_of(rank)];
  const int64_t error_ns = clock_error_ns_[static_cast<size_t>(shape_.host_of(rank))];
  StepSummary summary;
  summary.step = step_;
  summary.start_unix_ns = state.start_ns + error_ns;
  summary.duration_ns = state.gpu_ns - state.start_ns;
  summary.phase_ns = state.phase_ns;
  summary.comm_ns = communicated_ns(state);
  summary.self_ns = summary.duration_ns - summary.comm_ns;
  summary.queue_ns = state.queue_ns;
  summary.quiet_ns = state.quiet_ns;
  summary.quiet_from_unix_ns = state.quiet_from_ns != 0 ? state.quiet_from_ns + error_ns : 0;
  add_split(state, summary);
  for (size_t i = 0; i < kRoleCount; ++i)
    if (has(role_at(i))) add_traffic(rank, role_at(i), summary);
  add_scalars(rank, summary);
  return summary;
}

void Fleet::add_exchange_flows(Rank rank, StepSummary& summary) const {
  const Transfer& transfer = transfers_[static_cast<size_t>(Role::kEp)];
  const Traffic& traffic = state_.traffic[slot(rank, Role::kEp)];
  const Group group = shape_.group(Role::kEp, rank);
  // Two exchanges in a forward pass, two of twice the size in a backward one; of a sharded job so many in each layer.
  const auto exchanges = static_cast<double>(traffic.count) / (2.0 * (group.size - 1));
  const double bytes = static_cast<double>(transfer.bytes) * exchanges * 1.5 / group.size / shape_.layers;
  for (int32_t i = 0; i < group.size; ++i) {
    const Rank peer = group.member(i);
    if (shape_.host_of(peer) == shape_.host_of(rank)) continue;
    for (const bool send : {true, false}) {
      FlowStep& flow = summary.flows.emplace_back();
      flow.comm_id = summary.comms.back().comm_id;
      flow.peer = i;
      flow.send = send;
      const double moved = bytes * expert_share(send ? peer : rank);
      const double wire_ns = send ? moved / edge_bytes_per_ns(rank, peer) * edge_factor(rank, peer)
                                  : (exchanges - 1) * kFlushNs + handed_on_ns(rank, static_cast<int64_t>(moved), 1);
      const double idle_ns = std::max(0.0, static_cast<double>(traffic.gpu_ns) - wire_ns);
      add_to_flow(
          flow, static_cast<int64_t>(moved), wire_ns,
          {.own_gpu_ns = send ? 0.5 * idle_ns : 0.1 * idle_ns, .peer_ns = send ? 0.5 * idle_ns : 0.9 * idle_ns});
    }
  }
}

std::vector<Fleet::Sent> Fleet::sent(Rank rank) const {
  std::vector<Sent> all;
  StepSummary exchanged;
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Role role = role_at(i);
    if (!has(role)) continue;
    const Group group = shape_.group(role, rank);
    if (role == Role::kEp && transfers_[i].crosses && state_.traffic[slot(rank, role)].count > 0) {
      exchanged.comms.push_back({.comm_id = comm_id(role, group)});
      add_exchange_flows(rank, exchanged);
      for (const FlowStep& flow : exchanged.flows)
        if (flow.send) all.push_back({group.member(flow.peer), flow.bytes});
    }
    if (state_.flows[i].empty()) continue;
    const int32_t at = shape_.index_in(role, rank);
    for (size_t flow = 0; flow < 2; ++flow) {
      const FlowTotals& totals = state_.flows[i][index_of(rank)][flow];
      if (totals.transfers == 0) continue;
      all.push_back({group.member((at + (flow == 0 ? 1 : group.size - 1)) % group.size), totals.bytes});
    }
  }
  return all;
}

void Fleet::add_scalars(Rank rank, StepSummary& summary) const {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const double wiggle = uniform(step_seed_) - 0.5;
  const double work = conditions(rank).work;
  const bool lost = conditions_.loss_nan;  // since a step before: the weights are no numbers any more
  const double norm = (0.4 + 3 * std::exp(-static_cast<double>(step_.value()) / 300)) * (1 + 0.15 * wiggle);
  const double own = norm * (1 + 0.05 * bell(draw(kForGradient, static_cast<uint64_t>(rank.value()))));
  summary.scalars = {
      {"flops", kHealthyMfu * kPeakFlops * shape_.step_ms / 1e3 * work},
      {"grad_norm", gradients_nan_ ? nan : norm},
      {"grad_norm_local", lost || conditions(rank).gradient_nan ? nan : own},
      {"loss", lost ? nan : 1.8 + 9 * std::exp(-static_cast<double>(step_.value()) / 400) + 0.06 * wiggle},
      {"peak_flops", kPeakFlops},
      {"tokens", std::round(kTokensPerMicroBatch * shape_.micro_batches / (shape_.tp * shape_.pp * shape_.cp) * work)}};
}

const StepDetail& Fleet::detail(Rank rank) const {
  static const StepDetail kNone;
  return details_.empty() ? kNone : details_[index_of(rank)];
}

int64_t Fleet::ended_unix_ns(Rank rank) const {
  const RankState& state = state_.ranks[index_of(rank)];
  return std::max(state.host_ns, state.gpu_ns);
}

int64_t Fleet::now_unix_ns() const {
  int64_t now = 0;
  for (const RankState& rank : state_.ranks) now = std::max({now, rank.host_ns, rank.gpu_ns});
  return now;
}

Fleet::Activity Fleet::activity(Rank rank) const {
  const RankState& state = state_.ranks[index_of(rank)];
  Activity activity;
  if (hung_) {  // whoever waits spins in its collective
    bool waits = false;
    for (size_t i = 0; i < kRoleCount; ++i)
      waits |= has(role_at(i)) && state_.progress[slot(rank, role_at(i))].in_flight > 0;
    activity.communicating = waits ? 1 : 0;
    return activity;
  }
  activity.duration_ns = state.gpu_ns - state.start_ns;
  const double duration = std::max<double>(1, static_cast<double>(activity.duration_ns));
  activity.busy = static_cast<double>(state.compute_ns) / duration;
  activity.communicating = static_cast<double>(communicated_ns(state)) / duration;
  activity.input = static_cast<double>(state.phase_ns[static_cast<size_t>(Phase::kInput)]) / duration;
  for (size_t i = 0; i < kRoleCount; ++i) {
    if (!has(role_at(i))) continue;
    const Traffic& traffic = state_.traffic[slot(rank, role_at(i))];
    if (role_at(i) == Role::kEp && transfers_[i].crosses) {
      activity.sent_bytes += traffic.bytes / 2;
      activity.received_bytes += traffic.bytes / 2;
    } else if (!state_.flows[i].empty()) {
      for (size_t flow = 0; flow < 4; ++flow)
        (flow < 2 ? activity.sent_bytes : activity.received_bytes) += state_.flows[i][index_of(rank)][flow].bytes;
    } else {
      activity.nvlink_bytes += 2 * traffic.bytes;
    }
  }
  return activity;
}

RankStatus Fleet::status(Rank rank, int64_t at_unix_ns) const {
  const RankState& state = state_.ranks[index_of(rank)];
  const int64_t error_ns = clock_error_ns_[static_cast<size_t>(shape_.host_of(rank))];
  const int64_t last_ns = std::max(state.host_ns, state.gpu_ns);
  RankStatus status;
  status.time_unix_ns = at_unix_ns + error_ns;
  status.quiet_ns = std::max<int64_t>(0, at_unix_ns - last_ns);
  status.last_call_unix_ns = last_ns + error_ns;
  status.step = step_;
  status.phase = state.phase;
  if (hung_) {
    const int8_t stop = stop_of_[index_of(rank)];
    status.process_alive = stop != static_cast<int8_t>(StopKind::kDead);
    status.process_stopped = stop == static_cast<int8_t>(StopKind::kStopped);
  }
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Role role = role_at(i);
    if (!has(role)) continue;
    const Progress& progress = state_.progress[slot(rank, role)];
    const Group group = shape_.group(role, rank);
    CommStatus& comm = status.comms.emplace_back();
    comm.comm_id = comm_id(role, group);
    comm.size = group.size;
    comm.rank_in_comm = shape_.index_in(role, rank);
    const bool p2p = is_p2p(role);
    (p2p ? comm.p2p_enqueued : comm.collectives_enqueued) = progress.enqueued;
    (p2p ? comm.p2p_completed : comm.collectives_completed) = progress.enqueued - progress.in_flight;
    if (progress.enqueued == 0) continue;
    OpStatus& op = p2p ? comm.p2p : comm.collective;
    op.state = progress.in_flight > 0 ? OpState::kStarted : OpState::kCompleted;
    op.ordinal = progress.enqueued;
    op.seq = progress.seq;
    op.function = to_text(progress.function);
    op.datatype = p2p ? "bfloat16" : "float32";
    op.bytes = progress.bytes;
    op.peer = progress.peer;
    op.since_unix_ns = progress.since_ns + error_ns;
  }
  return status;
}

Role Fleet::role(Rank rank, CommId comm) const {
  for (size_t i = 0; i < kRoleCount; ++i) {
    if (has(role_at(i)) && comm_id(role_at(i), shape_.group(role_at(i), rank)) == comm) return role_at(i);
  }
  return Role::kWorld;
}

}  // namespace lockstep::sim
