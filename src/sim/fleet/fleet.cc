#include "sim/fleet/fleet.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/text.h"

namespace lockstep::sim {

namespace {

// Rates of a current machine: NVLink inside a host, one 400 Gb/s NIC per GPU between hosts. 1 byte/ns = 1 GB/s.
constexpr double kNvlinkBytesPerNs = 300;
constexpr double kNicBytesPerNs = 40;

constexpr int64_t kLaunchNs = 20'000;       // the host needs this long to enqueue a kernel or an operation
constexpr int64_t kPickupNs = 12'000;       // an idle GPU starts what was enqueued after this
constexpr int64_t kLatencyNs = 40'000;      // of a collective, whatever its size
constexpr int64_t kChunkBytes = 512 << 10;  // one proxy step of NCCL's Simple protocol

// Where a healthy step goes; the rest is forward and backward. A slot is one micro-batch forward and backward on one
// stage.
constexpr double kInputShare = 0.02, kOptimizerShare = 0.03, kGradientShare = 0.10;
constexpr double kTensorShareOfChunk = 0.10, kPipelineShareOfChunk = 0.02;

constexpr double kRankSigma = 0.004, kStepSigma = 0.008, kChunkSigma = 0.01, kWireSigma = 0.02;
// About one hiccup in every 1,000 rank-steps: the host (a garbage collection, a page fault) keeps its GPU waiting once.
constexpr double kHiccupChance = 0.001;
// Compilation: the first steps are longer by so many steps.
constexpr double kFirstStepExtra = 3.0, kSecondStepExtra = 0.5;
// Clocks of hosts under NTP differ by about this much.
constexpr double kClockErrorNs = 800'000;

uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

uint64_t hash_of(std::string_view text) {
  uint64_t value = 14695981039346656037ull;
  for (char c : text) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return mix(value);
}

FlowStep& flow_to(StepSummary& summary, uint64_t comm_id, int32_t peer, bool send) {
  for (FlowStep& flow : summary.flows) {
    if (flow.comm_id == comm_id && flow.peer == peer && flow.send == send) return flow;
  }
  FlowStep& flow = summary.flows.emplace_back();
  flow.comm_id = comm_id;
  flow.peer = peer;
  flow.send = send;
  return flow;
}

struct Waits {
  double own_gpu_ns = 0, peer_ns = 0, own_gpu_longest_ns = 0;
};

void add_to_flow(FlowStep& flow, int64_t bytes, double wire_ns, const Waits& waits) {
  int64_t transfers = std::max<int64_t>(1, (bytes + kChunkBytes - 1) / kChunkBytes);
  flow.transfers += transfers;
  flow.bytes += bytes;
  flow.wire_ns += static_cast<int64_t>(wire_ns);
  flow.own_gpu_ns += static_cast<int64_t>(std::max({0.0, waits.own_gpu_ns, waits.own_gpu_longest_ns}));
  flow.peer_ns += static_cast<int64_t>(std::max(0.0, waits.peer_ns));
  flow.wire_longest_ns =
      std::max(flow.wire_longest_ns, static_cast<int64_t>(1.3 * wire_ns / static_cast<double>(transfers)));
  flow.own_gpu_longest_ns = std::max(flow.own_gpu_longest_ns, static_cast<int64_t>(waits.own_gpu_longest_ns));
}

// What the job says of itself: a GPU of 989 TFLOP/s, of which a healthy step gets so much.
constexpr double kPeakFlops = 989.4e12, kHealthyMfu = 0.42;
constexpr double kTokensPerMicroBatch = 8'192;

constexpr double kFlushNs = 3'000;  // a receive's share of the wire is the flush into GPU memory alone

}  // namespace

const char* to_text(Role role) {
  static constexpr const char* kNames[kRoleCount] = {"tp", "pp", "dp", "world"};
  return kNames[static_cast<size_t>(role)];
}

Result<void> check(const JobShape& shape) {
  if (shape.job_id.empty() || shape.job_id.size() > kIdentityTextMax)
    return Error{format("the job's name must have 1 to %zu bytes", kIdentityTextMax)};
  if (shape.tp < 1 || shape.pp < 1 || shape.dp < 1 || shape.gpus_per_host < 1 || shape.micro_batches < 1) {
    return Error{"tp, pp, dp, GPUs per host and micro-batches must be at least 1"};
  }
  int64_t world = static_cast<int64_t>(shape.tp) * shape.pp;
  if (world <= kWorldSizeMax) world *= shape.dp;
  if (world > kWorldSizeMax) return Error{format("tp x pp x dp makes more than %d ranks", kWorldSizeMax)};
  if (!(shape.step_ms >= 10 && shape.step_ms <= 600'000))
    return Error{format("a step of %g ms is not possible (10 ms to 10 min)", shape.step_ms)};
  return {};
}

Fleet::Fleet(JobShape shape, int64_t start_unix_ns) : shape_(std::move(shape)), random_(mix(shape_.seed)) {
  const double step_ns = shape_.step_ms * 1e6;
  const double slot_ns =
      step_ns * (1 - kInputShare - kOptimizerShare - kGradientShare) / (shape_.micro_batches + shape_.pp - 1);
  const double chunk_ns = slot_ns / 3;  // backward is twice a forward
  input_ns_ = step_ns * kInputShare;
  optimizer_ns_ = step_ns * kOptimizerShare;
  forward_ns_ =
      chunk_ns * (1 - (shape_.tp > 1 ? kTensorShareOfChunk : 0) - (shape_.pp > 1 ? kPipelineShareOfChunk : 0));
  // A ring in two directions carries bytes * (n - 1) / n per edge and direction.
  auto payload = [](double wire_ns, double bytes_per_ns, int32_t n) {
    return static_cast<int64_t>(n > 1 ? wire_ns * bytes_per_ns * n / (n - 1) : 0);
  };
  tp_bytes_ = payload(chunk_ns * kTensorShareOfChunk, kNvlinkBytesPerNs, shape_.tp);
  dp_bytes_ = payload(step_ns * kGradientShare, kNicBytesPerNs, shape_.dp);
  pp_bytes_ = static_cast<int64_t>(chunk_ns * kPipelineShareOfChunk * kNicBytesPerNs);

  const auto world = static_cast<size_t>(shape_.world_size());
  ranks_.resize(world);
  for (RankState& rank : ranks_) rank.host_ns = rank.gpu_ns = start_unix_ns;
  for (size_t i = 0; i < world; ++i) rank_speed_.push_back(noise(kRankSigma));
  for (int32_t host = 0; host <= host_of(shape_.world_size() - 1); ++host) {
    clock_error_ns_.push_back(static_cast<int64_t>((noise(0.3) - 1) * kClockErrorNs / 0.3));
  }
  make_communicators();
}

void Fleet::make_communicators() {
  auto add = [&](Role role, std::vector<int32_t> members) {
    if (members.size() < 2) return;
    Communicator group;
    group.role = role;
    group.id = hash_of(format("%s/%lld/%s/%d", shape_.job_id.c_str(), static_cast<long long>(shape_.attempt),
                              to_text(role), members.front()));
    std::set<int32_t> hosts;
    for (size_t i = 0; i < members.size(); ++i) {
      hosts.insert(host_of(members[i]));
      Membership& in = ranks_[static_cast<size_t>(members[i])].in[static_cast<size_t>(role)];
      in.communicator = static_cast<int32_t>(communicators_.size());
      in.rank_in_comm = static_cast<int32_t>(i);
      in.status.comm_id = group.id;
      in.status.size = static_cast<int32_t>(members.size());
      in.status.rank_in_comm = in.rank_in_comm;
    }
    group.nodes = static_cast<int32_t>(hosts.size());
    group.members = std::move(members);
    communicators_.push_back(std::move(group));
  };
  for (int32_t pp = 0; pp < shape_.pp; ++pp) {
    for (int32_t dp = 0; dp < shape_.dp; ++dp) {
      std::vector<int32_t> members;
      for (int32_t tp = 0; tp < shape_.tp; ++tp) members.push_back(rank_of(tp, dp, pp));
      add(Role::kTp, std::move(members));
    }
  }
  for (int32_t dp = 0; dp < shape_.dp; ++dp) {
    for (int32_t tp = 0; tp < shape_.tp; ++tp) {
      std::vector<int32_t> members;
      for (int32_t pp = 0; pp < shape_.pp; ++pp) members.push_back(rank_of(tp, dp, pp));
      add(Role::kPp, std::move(members));
    }
  }
  for (int32_t pp = 0; pp < shape_.pp; ++pp) {
    for (int32_t tp = 0; tp < shape_.tp; ++tp) {
      std::vector<int32_t> members;
      for (int32_t dp = 0; dp < shape_.dp; ++dp) members.push_back(rank_of(tp, dp, pp));
      add(Role::kDp, std::move(members));
    }
  }
  // Pure data parallelism needs no other group: there the gradients' collective already is the whole job's barrier.
  if (shape_.dp < shape_.world_size()) {
    std::vector<int32_t> everyone(ranks_.size());
    for (size_t i = 0; i < everyone.size(); ++i) everyone[i] = static_cast<int32_t>(i);
    add(Role::kWorld, std::move(everyone));
  }
}

Identity Fleet::identity(int32_t rank) const {
  uint64_t high = hash_of(format("%d/%d", shape_.first_host + host_of(rank), rank % shape_.gpus_per_host));
  uint64_t low = mix(high);
  return {.job_id = shape_.job_id,
          .attempt = shape_.attempt,
          .rank = rank,
          .world_size = shape_.world_size(),
          .local_rank = rank % shape_.gpus_per_host,
          .host = format("node-%02d", shape_.first_host + host_of(rank)),
          .gpu_uuid = format("GPU-%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                             static_cast<unsigned>(high >> 16 & 0xFFFF), static_cast<unsigned>(high & 0xFFFF),
                             static_cast<unsigned>(low >> 48), static_cast<unsigned long long>(low & 0xFFFFFFFFFFFF))};
}

std::vector<CommInit> Fleet::comm_inits(int32_t rank) const {
  std::vector<CommInit> inits;
  for (const Membership& in : ranks_[static_cast<size_t>(rank)].in) {
    if (in.communicator < 0) continue;
    const Communicator& group = communicators_[static_cast<size_t>(in.communicator)];
    inits.push_back({.comm_id = group.id,
                     .size = static_cast<int32_t>(group.members.size()),
                     .rank_in_comm = in.rank_in_comm,
                     .nodes = group.nodes,
                     .name = to_text(group.role)});
  }
  return inits;
}

std::vector<CommGroup> Fleet::comm_groups(int32_t rank) const {
  std::vector<CommGroup> groups;
  for (const Membership& in : ranks_[static_cast<size_t>(rank)].in) {
    if (in.communicator < 0) continue;
    const Communicator& group = communicators_[static_cast<size_t>(in.communicator)];
    groups.push_back({to_text(group.role), group.members});
  }
  return groups;
}

Result<void> Fleet::check(const Fault& fault) const {
  if (fault.rank < 0 || fault.rank >= shape_.world_size()) {
    return Error{
        format("%s: there is no rank %d in a job of %d ranks", to_text(fault.kind), fault.rank, shape_.world_size())};
  }
  if (fault.kind == FaultKind::kMissingRank && shape_.world_size() == 1)
    return Error{"missing-rank: a job of one rank waits for nobody"};
  if (fault.kind == FaultKind::kSlowLink && !sends_gradients_out(fault.rank)) {
    int32_t other = 0;
    while (other < shape_.world_size() && !sends_gradients_out(other)) ++other;
    return Error{format("slow-link: rank %d sends no gradients to another host; %s", fault.rank,
                        other < shape_.world_size() ? format("rank %d does", other).c_str() : "no rank does")};
  }
  return {};
}

bool Fleet::sends_gradients_out(int32_t rank) const {
  const Membership& in = ranks_[static_cast<size_t>(rank)].in[static_cast<size_t>(Role::kDp)];
  if (in.communicator < 0) return false;
  const std::vector<int32_t>& members = communicators_[static_cast<size_t>(in.communicator)].members;
  for (size_t hop : {size_t{1}, members.size() - 1}) {
    const int32_t peer = members[(static_cast<size_t>(in.rank_in_comm) + hop) % members.size()];
    if (host_of(peer) != host_of(rank)) return true;
  }
  return false;
}

double Fleet::noise(double sigma) {
  // Sum of three uniforms: bell-shaped, bounded at 3 sigma, and the same everywhere (std::normal_distribution is not).
  double sum = 0;
  for (int i = 0; i < 3; ++i) sum += static_cast<double>(random_() >> 11) * 0x1p-53;
  return 1 + sigma * 2 * (sum - 1.5);
}

double Fleet::link_bytes_per_ns(int32_t from, int32_t to) const {
  return host_of(from) == host_of(to) ? kNvlinkBytesPerNs : kNicBytesPerNs * send_rate_[static_cast<size_t>(from)];
}

void Fleet::enter_phase(RankState& rank, Phase phase) {
  int64_t now = std::max(rank.host_ns, rank.gpu_ns);
  rank.summary.phase_ns[static_cast<size_t>(rank.phase)] += now - rank.phase_since_ns;
  if (with_detail_ && rank.phase != Phase::kOther)
    rank.detail.phases.push_back({rank.phase, "", rank.phase_since_ns, now - rank.phase_since_ns});
  rank.phase = phase;
  rank.phase_since_ns = now;
}

void Fleet::compute(RankState& rank, double ns) {
  rank.host_ns += kLaunchNs;
  const auto length_ns = static_cast<int64_t>(ns * rank.compute_scale);
  rank.gpu_ns = std::max(rank.gpu_ns, rank.host_ns + kPickupNs) + length_ns;
  rank.compute_ns += length_ns;
}

void Fleet::record(RankState& rank, Role role, bool p2p, const char* function, int64_t bytes, int32_t peer,
                   int64_t enqueued_ns, int64_t start_ns, int64_t end_ns, int64_t silent_ns) {
  Membership& in = rank.in[static_cast<size_t>(role)];
  CommStep& step = in.step;
  const int64_t gpu_ns = end_ns - start_ns;
  if (step.count == 0) {
    step.comm_id = in.status.comm_id;
    step.size = in.status.size;
    step.rank_in_comm = in.rank_in_comm;
    step.p2p = p2p;
    step.shortest_ns = gpu_ns;
    step.first_start_unix_ns = start_ns;
  }
  ++step.count;
  step.bytes += bytes;
  step.gpu_ns += gpu_ns;
  step.shortest_ns = std::min(step.shortest_ns, gpu_ns);
  step.longest_ns = std::max(step.longest_ns, gpu_ns);
  step.last_end_unix_ns = end_ns;
  step.queue_ns += start_ns - enqueued_ns;

  StepSummary& summary = rank.summary;
  summary.comm_ns += gpu_ns;
  summary.queue_ns += start_ns - enqueued_ns;  // the host waits at each operation, so no two of these overlap
  // No callback from enqueue to GPU start, nor while the operation waits for others.
  for (auto [from_ns, length_ns] : {std::pair{enqueued_ns, start_ns - enqueued_ns}, std::pair{start_ns, silent_ns}}) {
    if (length_ns > summary.quiet_ns) {
      summary.quiet_ns = length_ns;
      summary.quiet_from_unix_ns = from_ns;
    }
  }

  uint64_t& enqueued = p2p ? in.status.p2p_enqueued : in.status.collectives_enqueued;
  uint64_t& completed = p2p ? in.status.p2p_completed : in.status.collectives_completed;
  OpStatus& op = p2p ? in.status.p2p : in.status.collective;
  op.ordinal = ++enqueued;
  completed = enqueued;
  op.seq = p2p ? in.messages[{peer, function[0] == 'S'}]++ : op.ordinal - 1;
  op.state = OpState::kCompleted;
  op.function = function;
  op.datatype = p2p ? "bfloat16" : "float32";
  op.bytes = bytes;
  op.peer = peer;
  op.since_unix_ns = enqueued_ns;
  if (with_detail_)
    rank.detail.ops.push_back({.comm_id = in.status.comm_id,
                               .comm_size = in.status.size,
                               .rank_in_comm = in.rank_in_comm,
                               .p2p = p2p,
                               .function = op.function,
                               .datatype = op.datatype,
                               .seq = op.seq,
                               .ordinal = op.ordinal,
                               .peer = peer,
                               .bytes = bytes,
                               .enqueued_unix_ns = enqueued_ns,
                               .start_unix_ns = start_ns,
                               .duration_ns = gpu_ns,
                               .timed = true});

  rank.gpu_ns = end_ns;
  rank.host_ns = end_ns;
}

void Fleet::collective(const Communicator& group, int64_t bytes) {
  const size_t n = group.members.size();
  const int64_t edge_bytes = bytes * static_cast<int64_t>(n - 1) / static_cast<int64_t>(n);
  double slowest_bytes_per_ns = kNvlinkBytesPerNs;
  int64_t last_arrival = 0;
  std::vector<int64_t> enqueued(n), arrival(n);
  for (size_t i = 0; i < n; ++i) {
    const RankState& rank = ranks_[static_cast<size_t>(group.members[i])];
    enqueued[i] = rank.host_ns + kLaunchNs;
    arrival[i] = std::max(rank.gpu_ns, enqueued[i] + kPickupNs);
    last_arrival = std::max(last_arrival, arrival[i]);
    for (size_t hop : {size_t{1}, n - 1}) {
      slowest_bytes_per_ns =
          std::min(slowest_bytes_per_ns, link_bytes_per_ns(group.members[i], group.members[(i + hop) % n]));
    }
  }
  const double wire_noise = noise(kWireSigma);
  const int64_t end = last_arrival + kLatencyNs +
                      static_cast<int64_t>(static_cast<double>(edge_bytes) / slowest_bytes_per_ns * wire_noise);
  if (bytes >= kChunkBytes) ring_flows(group, edge_bytes, wire_noise, enqueued, arrival, end);
  for (size_t i = 0; i < n; ++i) {
    // Inside a host there is no proxy and so no callback until the end.
    int64_t silent = (group.nodes > 1 ? last_arrival : end) - arrival[i];
    record(ranks_[static_cast<size_t>(group.members[i])], group.role, false, "AllReduce", bytes, -1, enqueued[i],
           arrival[i], end, silent);
  }
}

// A sender is on the wire for its bytes at its own rate, however long the collective lasts. The rest of the time it
// waits: for the peer's credit where the peer is what holds up the ring, else for its own GPU, which waits for data.
// Its proxy is there from the enqueue on, so an arrival later than that is a wait for the own GPU as well.
void Fleet::ring_flows(const Communicator& group, int64_t edge_bytes, double wire_noise,
                       std::span<const int64_t> enqueued, std::span<const int64_t> arrival, int64_t end_ns) {
  const size_t n = group.members.size();
  size_t blocker = static_cast<size_t>(std::max_element(arrival.begin(), arrival.end()) - arrival.begin());
  const int64_t last_arrival = arrival[blocker];
  for (size_t i = 0; i < n; ++i) {
    if (send_rate_[static_cast<size_t>(group.members[i])] < send_rate_[static_cast<size_t>(group.members[blocker])]) {
      blocker = i;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const int32_t self = group.members[i];
    RankState& rank = ranks_[static_cast<size_t>(self)];
    const auto inside_ns = static_cast<double>(end_ns - arrival[i]);
    const auto queue_ns = static_cast<double>(arrival[i] - enqueued[i]);
    for (size_t hop : {size_t{1}, n - 1}) {
      const size_t next = (i + hop) % n, previous = (i + n - hop) % n;
      if (int32_t peer = group.members[next]; host_of(peer) != host_of(self)) {
        const double wire_ns =
            std::min(inside_ns, static_cast<double>(edge_bytes) / link_bytes_per_ns(self, peer) * wire_noise);
        const double idle_ns = inside_ns - wire_ns;
        const double own = next == blocker ? 0.1 : 0.9;
        add_to_flow(flow_to(rank.summary, group.id, static_cast<int32_t>(next), true), edge_bytes, wire_ns,
                    {.own_gpu_ns = queue_ns + own * idle_ns,
                     .peer_ns = (1 - own) * idle_ns,
                     .own_gpu_longest_ns = std::max(queue_ns, own * static_cast<double>(last_arrival - arrival[i]))});
      }
      if (int32_t peer = group.members[previous]; host_of(peer) != host_of(self)) {
        const double own = i == blocker ? 0.9 : 0.1;
        // Data that came before the own GPU did lay there until it did.
        const auto ahead_ns = static_cast<double>(arrival[i] - arrival[previous]);
        add_to_flow(flow_to(rank.summary, group.id, static_cast<int32_t>(previous), false), edge_bytes, kFlushNs,
                    {.own_gpu_ns = own * inside_ns,
                     .peer_ns = (1 - own) * inside_ns,
                     .own_gpu_longest_ns = std::clamp(ahead_ns, 0.0, queue_ns)});
      }
    }
  }
}

// The sender is done when its bytes have left, whether or not the receiver is there; the receiver when they are there.
void Fleet::send_receive(int32_t from, int32_t to, int64_t bytes) {
  RankState& sender = ranks_[static_cast<size_t>(from)];
  RankState& receiver = ranks_[static_cast<size_t>(to)];
  const Membership& in = sender.in[static_cast<size_t>(Role::kPp)];
  const int32_t sender_in_comm = in.rank_in_comm;
  const int32_t receiver_in_comm = receiver.in[static_cast<size_t>(Role::kPp)].rank_in_comm;
  const double wire_ns = static_cast<double>(bytes) / link_bytes_per_ns(from, to) * noise(kWireSigma);
  const int64_t send_enqueued = sender.host_ns + kLaunchNs;
  const int64_t send_start = std::max(sender.gpu_ns, send_enqueued + kPickupNs);
  const int64_t send_end = send_start + static_cast<int64_t>(wire_ns);
  const int64_t receive_enqueued = receiver.host_ns + kLaunchNs;
  const int64_t receive_start = std::max(receiver.gpu_ns, receive_enqueued + kPickupNs);
  const int64_t receive_end = std::max(receive_start, send_end) + kPickupNs;
  if (host_of(from) != host_of(to)) {
    add_to_flow(flow_to(sender.summary, in.status.comm_id, receiver_in_comm, true), bytes, wire_ns, {});
    add_to_flow(flow_to(receiver.summary, in.status.comm_id, sender_in_comm, false), bytes, kFlushNs,
                {.peer_ns = static_cast<double>(receive_end - receive_start)});
  }
  record(sender, Role::kPp, true, "Send", bytes, receiver_in_comm, send_enqueued, send_start, send_end, 0);
  record(receiver, Role::kPp, true, "Recv", bytes, sender_in_comm, receive_enqueued, receive_start, receive_end,
         std::max<int64_t>(0, send_start - receive_start));
}

void Fleet::begin_step(std::span<const Fault> faults) {
  ++step_;
  send_rate_.assign(ranks_.size(), 1.0);
  missing_.clear();
  std::vector<double> gpu_factor(ranks_.size(), 1.0), input_extra_ns(ranks_.size(), 0.0);
  for (const Fault& fault : faults) {
    auto rank = static_cast<size_t>(fault.rank);
    if (fault.kind == FaultKind::kSlowGpu) gpu_factor[rank] *= fault.severity;
    if (fault.kind == FaultKind::kSlowInput) input_extra_ns[rank] += fault.severity * 1e6;
    if (fault.kind == FaultKind::kSlowLink) send_rate_[rank] *= fault.severity;
    if (fault.kind == FaultKind::kMissingRank) missing_.push_back(fault.rank);
  }
  const double compile_ns = shape_.step_ms * 1e6 * (step_ == 0 ? kFirstStepExtra : step_ == 1 ? kSecondStepExtra : 0);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankState& rank = ranks_[i];
    rank.summary = StepSummary{};
    rank.summary.step = step_;
    rank.detail = StepDetail{};
    rank.detail.step = step_;
    rank.compute_ns = 0;
    rank.summary.start_unix_ns = std::max(rank.host_ns, rank.gpu_ns);
    for (Membership& in : rank.in) in.step = CommStep{};
    rank.host_ns = rank.summary.start_unix_ns;
    rank.phase = Phase::kInput;
    rank.phase_since_ns = rank.host_ns;
    rank.compute_scale = gpu_factor[i] * rank_speed_[i] * noise(kStepSigma);
    rank.host_ns += static_cast<int64_t>(input_ns_ * noise(0.1) + input_extra_ns[i] * noise(0.03));
    enter_phase(rank, Phase::kForward);
    const double compile_noise = noise(0.1);
    const bool hiccup = static_cast<double>(random_() >> 11) * 0x1p-53 < kHiccupChance;
    const double hiccup_ns = shape_.step_ms * 1e6 * 0.06 * noise(0.2);
    rank.host_ns += static_cast<int64_t>(compile_ns * compile_noise + (hiccup ? hiccup_ns : 0));
  }
}

void Fleet::pass(bool forward) {
  for (int32_t turn = 0; turn < shape_.pp; ++turn) {
    const int32_t stage = forward ? turn : shape_.pp - 1 - turn;
    const int32_t before = forward ? stage - 1 : stage + 1;
    for (int32_t dp = 0; dp < shape_.dp; ++dp) {
      for (int32_t tp = 0; tp < shape_.tp; ++tp) {
        RankState& rank = ranks_[static_cast<size_t>(rank_of(tp, dp, stage))];
        if (turn > 0) send_receive(rank_of(tp, dp, before), rank_of(tp, dp, stage), pp_bytes_);
        compute(rank, (forward ? 1 : 2) * forward_ns_ * noise(kChunkSigma));
      }
      const Membership& in = ranks_[static_cast<size_t>(rank_of(0, dp, stage))].in[static_cast<size_t>(Role::kTp)];
      if (in.communicator >= 0)
        collective(communicators_[static_cast<size_t>(in.communicator)], (forward ? 1 : 2) * tp_bytes_);
    }
  }
}

bool Fleet::play_step(std::span<const Fault> faults, bool with_detail) {
  with_detail_ = with_detail;
  begin_step(faults);
  for (int32_t i = 0; i < shape_.micro_batches; ++i) pass(true);
  for (RankState& rank : ranks_) enter_phase(rank, Phase::kBackward);
  for (int32_t i = 0; i < shape_.micro_batches; ++i) pass(false);
  if (!missing_.empty()) {
    stop_everyone();
    return false;
  }
  finish_step();
  return true;
}

void Fleet::finish_step() {
  for (RankState& rank : ranks_) enter_phase(rank, Phase::kSync);
  for (const Communicator& group : communicators_) {
    if (group.role == Role::kDp) collective(group, dp_bytes_);
  }
  for (const Communicator& group : communicators_) {
    if (group.role == Role::kWorld) collective(group, 8);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankState& rank = ranks_[i];
    enter_phase(rank, Phase::kOptimizer);
    compute(rank, optimizer_ns_ * noise(kChunkSigma));
    rank.host_ns = rank.gpu_ns;  // the script reads the loss
    enter_phase(rank, Phase::kOther);
    tell_achieved(rank);
    sum_up(rank, clock_error_ns_[static_cast<size_t>(host_of(static_cast<int32_t>(i)))]);
  }
}

void Fleet::tell_achieved(RankState& rank) const {
  // Drawn from the step's number alone, so that telling it does not change the job.
  const double wiggle = static_cast<double>(mix(shape_.seed ^ mix(static_cast<uint64_t>(step_))) >> 11) * 0x1p-53 - 0.5;
  rank.summary.scalars = {{"flops", kHealthyMfu * kPeakFlops * shape_.step_ms / 1e3},
                          {"loss", 1.8 + 9 * std::exp(-static_cast<double>(step_) / 400) + 0.06 * wiggle},
                          {"peak_flops", kPeakFlops},
                          {"tokens", kTokensPerMicroBatch * shape_.micro_batches / (shape_.tp * shape_.pp)}};
}

// What is told is on the host's own clock.
void Fleet::sum_up(RankState& rank, int64_t clock_error_ns) const {
  StepSummary& summary = rank.summary;
  summary.duration_ns = rank.gpu_ns - summary.start_unix_ns;
  // On one stream operations never overlap, so the union of their times is their sum.
  summary.self_ns = summary.duration_ns - summary.comm_ns;
  for (const Membership& in : rank.in) {
    if (in.step.count == 0) continue;
    summary.comms.push_back(in.step);
    summary.comms.back().first_start_unix_ns += clock_error_ns;
    summary.comms.back().last_end_unix_ns += clock_error_ns;
  }
  summary.start_unix_ns += clock_error_ns;
  if (summary.quiet_from_unix_ns != 0) summary.quiet_from_unix_ns += clock_error_ns;

  auto& split = summary.split_ns;
  auto part = [&](TimePart name) -> int64_t& { return split[static_cast<size_t>(name)]; };
  part(TimePart::kCompute) = rank.compute_ns;
  part(TimePart::kCommunication) = summary.comm_ns;
  part(TimePart::kInput) = summary.phase_ns[static_cast<size_t>(Phase::kInput)];
  part(TimePart::kHost) = summary.duration_ns - rank.compute_ns - summary.comm_ns - part(TimePart::kInput);
  summary.split_known = true;

  StepDetail& detail = rank.detail;
  detail.start_unix_ns = summary.start_unix_ns;
  detail.duration_ns = summary.duration_ns;
  for (PhaseSpan& phase : detail.phases) phase.start_unix_ns += clock_error_ns;
  for (OpSpan& op : detail.ops) {
    op.enqueued_unix_ns += clock_error_ns;
    op.start_unix_ns += clock_error_ns;
  }
  finish(detail);
}

void Fleet::enter_and_wait(RankState& rank, Role role, int64_t bytes) {
  CommStatus& status = rank.in[static_cast<size_t>(role)].status;
  OpStatus& op = status.collective;
  rank.host_ns += kLaunchNs;
  rank.gpu_ns = std::max(rank.gpu_ns, rank.host_ns + kPickupNs);
  op.ordinal = ++status.collectives_enqueued;
  op.seq = op.ordinal - 1;
  op.state = OpState::kStarted;
  op.function = "AllReduce";
  op.datatype = "float32";
  op.bytes = bytes;
  op.peer = -1;
  op.since_unix_ns = rank.host_ns;
}

void Fleet::stop_everyone() {
  hung_ = true;
  at_sync_ = ranks_;
  random_at_sync_ = random_;
  std::vector<bool> stuck(ranks_.size(), false), missing(ranks_.size(), false);
  for (int32_t rank : missing_) stuck[static_cast<size_t>(rank)] = missing[static_cast<size_t>(rank)] = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!missing[i]) enter_phase(ranks_[i], Phase::kSync);
  }
  auto sync = [&](Role role, int64_t bytes) {
    for (const Communicator& group : communicators_) {
      if (group.role != role) continue;
      if (std::none_of(group.members.begin(), group.members.end(),
                       [&](int32_t rank) { return stuck[static_cast<size_t>(rank)]; })) {
        collective(group, bytes);
        continue;
      }
      for (int32_t rank : group.members) {
        if (!stuck[static_cast<size_t>(rank)]) enter_and_wait(ranks_[static_cast<size_t>(rank)], role, bytes);
        stuck[static_cast<size_t>(rank)] = true;
      }
    }
  };
  sync(Role::kDp, dp_bytes_);
  sync(Role::kWorld, 8);
}

void Fleet::release(int64_t at_unix_ns) {
  if (!hung_) return;
  hung_ = false;
  ranks_ = std::move(at_sync_);
  random_ = random_at_sync_;
  for (int32_t rank : missing_) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.host_ns = std::max(state.host_ns, at_unix_ns);
  }
  finish_step();
}

int64_t Fleet::now_unix_ns() const {
  int64_t now = 0;
  for (const RankState& rank : ranks_) now = std::max({now, rank.host_ns, rank.gpu_ns});
  return now;
}

const StepSummary& Fleet::summary(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)].summary;
}

const StepDetail& Fleet::detail(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)].detail;
}

RankStatus Fleet::status(int32_t rank, int64_t at_unix_ns) const {
  const RankState& state = ranks_[static_cast<size_t>(rank)];
  const int64_t error_ns = clock_error_ns_[static_cast<size_t>(host_of(rank))];
  RankStatus status;
  status.time_unix_ns = at_unix_ns + error_ns;
  status.quiet_ns = std::max<int64_t>(0, at_unix_ns - std::max(state.host_ns, state.gpu_ns));
  status.step = step_;
  status.phase = state.phase;
  for (const Membership& in : state.in) {
    if (in.communicator < 0) continue;
    CommStatus& comm = status.comms.emplace_back(in.status);
    for (OpStatus* op : {&comm.collective, &comm.p2p}) {
      if (op->since_unix_ns != 0) op->since_unix_ns += error_ns;
    }
  }
  return status;
}

Role Fleet::role(int32_t rank, uint64_t comm_id) const {
  for (size_t role = 0; role < kRoleCount; ++role) {
    const Membership& in = ranks_[static_cast<size_t>(rank)].in[role];
    if (in.communicator >= 0 && in.status.comm_id == comm_id) return static_cast<Role>(role);
  }
  return Role::kWorld;
}

}  // namespace lockstep::sim
