// A training job that exists only as arithmetic: ranks of a JobShape, played one step at a time, and what an agent
// would tell about it.
//
// The physics is a dependency graph, so a delay spreads as in a real job. Per step and rank: wait for input; forward
// and backward passes of every micro-batch in the order of the schedule, each of them: receive from the stage before,
// compute, context-parallel exchange, tensor-parallel all-reduce, tokens to their experts and back, send to the stage
// behind; a reduction of the gradients over the data- and context-parallel ranks, a part of it beside the last backward
// passes; an all-reduce over the whole job (the gradient norm); the optimizer. A sharded job (JobShape::sharding) has
// no such reduction: its passes go layer by layer, each layer's parameters are gathered on a second stream while the
// layer before computes, and its gradients are scattered there while the next one does; kernels wait for what is not
// there yet. A collective ends for all its members at
// (arrival of the last) + (transfer), and a member's GPU time in it is that end minus its own arrival: the last to
// arrive spends the least. The host runs ahead of the GPU within one pass and waits at each communication, so a late
// GPU lengthens the queue in front of the next operation, and a late host or input does not.
//
// A ring runs in both directions, half of the bytes each, so that both ends of a host's part of it send to other hosts.
//
// The same shape and the same conditions give the same job, to the nanosecond; the noise does not depend on the
// conditions, so a faulty run differs from a healthy one of the same seed by the fault alone.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/events.h"
#include "model/step.h"
#include "model/step_detail.h"
#include "sim/fleet/fault.h"
#include "sim/fleet/job_shape.h"
#include "sim/fleet/schedule.h"

namespace lockstep::sim {

// What is not as it should be on a rank in one step. Factors multiply times.
struct RankConditions {
  double gpu = 1;         // all its kernels
  double work = 1;        // tokens it has to do: kernels and what it tells of its tokens
  double expert = 1;      // tokens that are routed to its experts; only the ratio inside a group counts
  double send = 1;        // wire time of what leaves by its adapter
  double receive = 1;     // of what comes in
  double nvlink = 1;      // of its transfers inside the host
  double proxy = 1;       // of what leaves, because the proxy thread gets no CPU; it hands on what arrives as late
  double handing = 1;     // of what has arrived, until it is handed on; what it sends goes as ever
  double reduce = 1;      // of every transfer it takes part in: its GPU is slow to hand on
  double input_ns = 0;    // longer wait for input
  double host_ns = 0;     // a slow host, spread over the forward passes
  double stall_ns = 0;    // the host stands still once, before one of the forward passes
  double compile_ns = 0;  // before the first of them
  double copy_ns = 0;     // copies to the GPU before the first of them take longer
  double pause_ns = 0;    // the whole process stands still once, its transfers too
  double flap_ns = 0;     // its link is down once, while gradients are on their way
  double log_ns = 0;      // the host at work behind the optimizer
  double checkpoint_ns = 0;
  double evaluation_ns = 0;
  bool gradient_nan = false;  // its gradients are not numbers before they are reduced
};

// Why a rank does not go on. Where it stops is drawn from the seed for the first three.
enum class StopKind : uint8_t {
  kDead,        // the process is gone
  kStopped,     // it is there and does not run
  kCompile,     // before the first forward pass, in phase forward
  kMissing,     // after backward, before it enters the gradient collective
  kMismatch,    // enters another operation there than the others
  kDeadlock,    // enters the whole job's collective before that of its gradients
  kCheckpoint,  // behind the optimizer, in phase checkpoint
  kEvaluation,  // likewise, in phase eval
};
struct Stop {
  Rank rank;
  StopKind kind = StopKind::kMissing;
};

// The link of a leaf and a spine.
struct LinkConditions {
  int32_t leaf = 0, spine = 0;
  double factor = 1;  // on the wire time of what crosses it
};

struct StepConditions {
  std::vector<RankConditions> ranks;                // empty: all as they should be
  std::vector<std::pair<int32_t, double>> uplinks;  // leaf, factor on the wire time of what leaves or enters it
  std::vector<std::pair<int32_t, double>> leaves;   // leaf, factor for everything on it
  std::vector<LinkConditions> links;
  std::vector<Stop> stops;
  bool checkpoint = false;  // the job writes one: all meet once more behind it
  bool loss_nan = false;
};

// Who a rank of a job is: host and GPU follow from its place alone.
Identity identity_of(const JobShape& shape, Rank rank);

class Fleet {
 public:
  // The shape must have passed check().
  Fleet(JobShape shape, int64_t start_unix_ns, StepNumber first_step = 0_step);

  const JobShape& shape() const { return shape_; }
  Identity identity(Rank rank) const;
  std::vector<CommInit> comm_inits(Rank rank) const;
  // As a training framework would tell them. A group of more than kReportedByAllMax ranks is told by its first member
  // alone.
  std::vector<CommGroup> comm_groups(Rank rank) const;
  static constexpr int32_t kReportedByAllMax = 128;
  // A clear line where this job cannot have this fault (no such rank; nothing goes to another host).
  Result<void> check(const Fault& fault) const;

  // Plays the next step. True: the step has ended. False: a rank has stopped and all are stuck until release().
  // with_detail: detail() has its phases and operations too.
  bool play_under(const StepConditions& conditions, bool with_detail = false);
  // Under these faults (their steps are the caller's business, their severity is set).
  bool play_step(std::span<const Fault> faults, bool with_detail = false);
  // The ranks that stopped go on at this time, and the step ends. Only while hung().
  void release(int64_t at_unix_ns);

  bool hung() const { return hung_; }
  StepNumber step() const { return step_; }   // the one played last; one before the first
  int64_t now_unix_ns() const;                // when the last rank ended that step, or stopped
  int64_t ended_unix_ns(Rank rank) const;     // when this one did
  StepSummary summary(Rank rank) const;       // only after a step that has ended
  const StepDetail& detail(Rank rank) const;  // likewise, of a step played with detail
  RankStatus status(Rank rank, int64_t at_unix_ns) const;
  // Which communicator a comm id of this rank is; kWorld where it is none of its others.
  Role role(Rank rank, CommId comm_id) const;
  // What the GPU did in the last step, as shares of it, and what went where.
  struct Activity {
    double busy = 0, communicating = 0, input = 0;
    int64_t duration_ns = 0;
    int64_t sent_bytes = 0, received_bytes = 0, nvlink_bytes = 0;
  };
  Activity activity(Rank rank) const;
  // What it sent to ranks on other hosts in the last step.
  struct Sent {
    Rank to;
    int64_t bytes = 0;
  };
  std::vector<Sent> sent(Rank rank) const;

  double healthy_step_ns() const { return shape_.step_ms * 1e6; }

 private:
  enum class Function : uint8_t { kNone, kAllReduce, kAllGather, kReduceScatter, kSend, kRecv };
  static const char* to_text(Function function);

  struct RankState {
    int64_t host_ns = 0;  // the host is busy or blocked until then
    int64_t gpu_ns = 0;   // the GPU is busy until then
    int64_t start_ns = 0;
    int64_t phase_since_ns = 0;
    int64_t compute_ns = 0;                                    // this step: the GPU at the rank's own work
    int64_t comm_ns = 0;                                       // on the main stream
    int64_t beside_from_ns = 0, beside_to_ns = 0;              // the reduction that runs beside the backward pass
    int64_t beside_shared_ns = 0;                              // of that: while the main stream communicates too
    int64_t stream_ns = 0;                                     // a sharded job's second stream is busy until then
    int64_t stream_busy_ns = 0;                                // this step: with transfers
    int64_t gathered_ns = 0;                                   // when the layer that comes next will be there
    int64_t layer_ns = 0;                                      // when the kernels of the layer before ended
    std::array<std::pair<int64_t, int64_t>, 4> stream_last{};  // its last transfers, from and to; a ring
    size_t stream_count = 0;
    int64_t exposed_ns = 0;  // of that: after the last backward pass
    int64_t queue_ns = 0;
    int64_t quiet_ns = 0, quiet_from_ns = 0;
    std::array<int64_t, kPhaseCount> phase_ns{};
    int64_t checkpoint_ns = 0;
    double scale = 1;         // of its kernels, this step
    double expert_scale = 1;  // of those of its experts
    int32_t passes = 0;       // gone through in this step
    Phase phase = Phase::kOther;
  };
  // What a rank did in one of its communicators in this step.
  struct Traffic {
    int64_t count = 0, bytes = 0, gpu_ns = 0, shortest_ns = 0, longest_ns = 0;
    int64_t first_start_ns = 0, last_end_ns = 0, queue_ns = 0;
  };
  // How far it has come there since the start.
  struct Progress {
    uint64_t enqueued = 0;
    uint64_t in_flight = 0;
    uint64_t seq = 0;
    int64_t bytes = 0;
    int64_t since_ns = 0;
    int32_t peer = -1;
    Function function = Function::kNone;
  };
  struct FlowTotals {
    int64_t transfers = 0, bytes = 0, wire_ns = 0, own_gpu_ns = 0, peer_ns = 0, wire_longest_ns = 0,
            own_gpu_longest_ns = 0;
  };
  // To and from the next and the previous member: sends, then receives.
  using RingFlows = std::array<FlowTotals, 4>;
  struct State {
    std::vector<RankState> ranks;
    std::vector<Traffic> traffic;                          // rank x slot
    std::vector<Progress> progress;                        // rank x slot
    std::array<std::vector<RingFlows>, kRoleCount> flows;  // per rank; empty where the role stays inside hosts
    std::vector<std::array<uint64_t, 4>> messages;         // pipeline: so far, as RingFlows
  };
  struct Transfer {        // of a role in this step
    double wire_ns = 0;    // of a forward pass, on a healthy wire
    int64_t bytes = 0;     // payload that takes this long
    bool crosses = false;  // hosts
  };

  size_t slot(Rank rank, Role role) const {
    return index_of(rank) * slots_ + static_cast<size_t>(slot_of_[static_cast<size_t>(role)]);
  }
  bool has(Role role) const { return slot_of_[static_cast<size_t>(role)] >= 0; }
  CommId comm_id(Role role, const Group& group) const;
  uint64_t draw(uint64_t what, uint64_t which) const;
  // 1 on average; sigma is what it deviates by at JobNoise::times 1.
  double jitter(double sigma, uint64_t drawn) const;
  double tailed_jitter(double sigma, uint64_t drawn) const;  // with the tails of JobNoise
  double wire_noise(Role role, int32_t group_index);
  double edge_factor(Rank from, Rank to) const;
  double edge_bytes_per_ns(Rank from, Rank to) const;
  bool sends_gradients_out(Rank rank) const;

  void size_up();
  double sharded_forward_ns(double main_ns) const;
  void begin_step();
  void set_shocks();
  void note_disturbances();
  bool fabric_disturbed() const;
  void share_experts();
  void set_fabric();
  void slow_groups(Role role);
  void set_network();
  void play();
  void run(const Pass& pass);
  void run_sharded(const Pass& pass);
  // What its host does before a pass computes. False: it is stuck.
  bool enter_pass(Rank rank, const Pass& pass);
  void main_stream_collectives(Rank first, Rank end, double size, bool forward);
  bool beside_kernels(int32_t layer) const;
  void stream_collectives(Function function, int32_t layer, bool stands);
  void start_reduction(int32_t stage);
  void sync();
  void finish();
  void collectives(Role role, Rank first_rank, Rank end_rank, int64_t bytes, double wire_ns, Function function);
  void collective(Role role, const Group& group, int32_t group_index, int64_t bytes, double wire_ns, Function function,
                  bool beside = false);
  void exchange(const Group& group, int32_t group_index, double factor);
  void stream_collective(const Group& group, int32_t group_index, Function function, bool waited_for, bool stands);
  // Puts into enqueued_ and arrival_ when the members come; the last one's arrival.
  int64_t gather_arrivals(const Group& group, bool on_stream);
  // How long a collective stands still because a link of it flaps or a process of it pauses.
  int64_t stand_ns(const Group& group) const;
  void ring_flows(Role role, const Group& group, int32_t group_index, int64_t edge_bytes, double noise, int64_t end_ns,
                  bool stands);
  double handed_on_ns(Rank rank, int64_t bytes, double noise) const;
  bool pauses_in_transfer(Rank rank) const;
  double flaps_ns(Rank rank) const;
  void receive(Rank rank, const Pass& pass);
  void send(Rank rank, const Pass& pass);
  void compute(Rank rank, double ns);
  void enter_phase(Rank rank, Phase phase);
  // What a rank does in one of its communicators.
  struct Operation {
    Role role = Role::kWorld;
    Function function = Function::kAllReduce;
    int64_t operations = 1;  // of NCCL: an AlltoAll is many
    int64_t bytes = 0;
    int32_t peer = -1;
    uint64_t seq = 0;  // of its messages, where there is a peer
    int64_t enqueued_ns = 0, start_ns = 0, end_ns = 0;
    int64_t silent_ns = 0;  // from the start on without a callback
  };
  void record(Rank rank, const Operation& operation);
  void wait_in(Rank rank, Role role, Function function, int64_t bytes, int32_t peer);
  bool any_stuck(const Group& group) const;
  // Union of a rank's transfers in this step.
  static int64_t communicated_ns(const RankState& state) {
    return state.comm_ns + state.stream_busy_ns + state.beside_to_ns - state.beside_from_ns - state.beside_shared_ns;
  }
  void note_quiet(RankState& state, int64_t from_ns, int64_t length_ns) const;
  // Whether a stop of this kind holds the rank here: stuck, or delayed until it is released.
  bool stops(Rank rank, StopKind kind);
  bool stops_in_pass(Rank rank);
  bool stuck(Rank rank) const { return stopping_ && stuck_[index_of(rank)] != 0; }
  // What one operation of a rank adds to its communicator's row, its progress and its detail.
  void count(Rank rank, const Operation& operation);
  const RankConditions& conditions(Rank rank) const {
    return conditions_.ranks.empty() ? kAsItShouldBe : conditions_.ranks[index_of(rank)];
  }
  void add_split(const RankState& state, StepSummary& summary) const;
  void add_traffic(Rank rank, Role role, StepSummary& summary) const;
  void add_scalars(Rank rank, StepSummary& summary) const;
  void add_exchange_flows(Rank rank, StepSummary& summary) const;
  // Tokens that its experts get, of what would be even.
  double expert_share(Rank rank) const { return experts_uneven_ ? expert_share_[index_of(rank)] : 1; }
  void report_detail(Rank rank);
  static const RankConditions kAsItShouldBe;

  JobShape shape_;
  uint64_t attempt_hash_ = 0;  // what the ids of its communicators hang on
  std::vector<Pass> order_;
  std::array<int32_t, kRoleCount> slot_of_{};
  size_t slots_ = 0;
  std::vector<double> rank_speed_;       // no two GPUs are alike
  std::vector<int64_t> clock_error_ns_;  // per host
  double forward_ns_ = 0, input_ns_ = 0, optimizer_ns_ = 0;
  std::array<Transfer, kRoleCount> transfers_{};
  int32_t reduction_after_ = -1;  // so many backward passes of a stage; -1: nothing runs beside

  State state_;
  StepNumber step_;
  bool hung_ = false;

  // Of the step that is played.
  StepConditions conditions_;
  bool network_disturbed_ = false;
  std::vector<double> uplink_, leaf_;                     // factors by leaf; empty: none
  std::vector<double> link_;                              // by leaf and spine; likewise
  std::array<std::vector<double>, kRoleCount> slow_;      // factor on a group's transfers
  std::array<std::vector<int32_t>, kRoleCount> blocker_;  // index of the member that holds up the ring, -1: none
  std::array<std::vector<int64_t>, 2> arrivals_;          // of messages, backward and forward, by rank and pass
  std::array<std::vector<uint32_t>, kRoleCount> drawn_;   // operations of a group so far: what their noise hangs on
  uint64_t step_seed_ = 0;
  double kernel_shock_ = 1, wire_shock_ = 1;
  bool gradients_stand_ = false;  // a link flaps or a process pauses while they are on their way
  bool experts_uneven_ = false;
  bool gradients_nan_ = false;
  std::vector<double> expert_share_;
  std::vector<uint8_t> stuck_;
  std::vector<int8_t> stop_of_;  // StopKind by rank, -1: none
  bool stopping_ = false;        // stops act
  int64_t resume_ns_ = -1;       // they are delays until then
  bool with_detail_ = false;
  std::vector<StepDetail> details_;
  State before_;  // while hung: as all stood before the step
  // Scratch of one collective.
  std::vector<int64_t> enqueued_, arrival_;
};

}  // namespace lockstep::sim
