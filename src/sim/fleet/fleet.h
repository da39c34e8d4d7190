// A training job that exists only as arithmetic: dp x tp x pp ranks, played one step at a time, and what an agent would
// send about it.
//
// The physics is a dependency graph, so a delay spreads as in a real job. Per step and rank: wait for input; forward,
// then backward, of every micro-batch through the pipeline stages (GPipe order), each chunk of compute followed by a
// tensor-parallel all-reduce, activations and gradients sent between stages; a data-parallel all-reduce of the
// gradients; an all-reduce over the whole job (the gradient norm); the optimizer. A collective ends for all its members
// at (arrival of the last) + (transfer), and a member's GPU time in it is that end minus its own arrival: the last to
// arrive spends the least. The host runs ahead of the GPU within one chunk and waits at each communication, so a late
// GPU lengthens the queue in front of the next operation, and a late host or input does not.
//
// A ring runs in both directions, half of the bytes each, so that both ends of a host's part of it send to other hosts.
// Ranks are numbered tensor fastest, then data, then pipeline; hosts are filled in rank order.
//
// The same seed and the same faults give the same job, to the nanosecond; the noise does not depend on the faults, so a
// faulty run differs from a healthy one of the same seed by the fault alone.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/events.h"
#include "model/step.h"
#include "model/step_detail.h"
#include "sim/fleet/fault.h"

namespace lockstep::sim {

struct JobShape {
  std::string job_id = "sim";
  int64_t attempt = 0;
  int32_t tp = 4;
  int32_t pp = 4;
  int32_t dp = 4;
  int32_t gpus_per_host = 8;
  int32_t micro_batches = 8;
  int32_t first_host = 0;  // host names start at this number: several jobs, several sets of hosts
  double step_ms = 250;    // a healthy step
  uint64_t seed = 1;
  int32_t world_size() const { return tp * pp * dp; }
};
inline constexpr int32_t kWorldSizeMax = 131'072;
// A clear line where the numbers do not make a job.
Result<void> check(const JobShape& shape);

enum class Role : uint8_t { kTp, kPp, kDp, kWorld };
inline constexpr size_t kRoleCount = 4;
const char* to_text(Role role);  // "tp", "pp", "dp", "world"

class Fleet {
 public:
  // The shape must have passed check().
  Fleet(JobShape shape, int64_t start_unix_ns);

  const JobShape& shape() const { return shape_; }
  Identity identity(int32_t rank) const;
  std::vector<CommInit> comm_inits(int32_t rank) const;
  std::vector<CommGroup> comm_groups(int32_t rank) const;  // as a training framework would tell them
  // A clear line where this job cannot have this fault (no such rank; nothing goes to another host).
  Result<void> check(const Fault& fault) const;

  // Plays the next step under these faults (their steps are the caller's business, their severity is set). True: the
  // step has ended. False: a rank is missing and all are stuck until release().
  // with_detail: detail() has its phases and operations too.
  bool play_step(std::span<const Fault> faults, bool with_detail = false);
  // The missing ranks enter at last, at this time, and the step ends. Only while hung().
  void release(int64_t at_unix_ns);

  bool hung() const { return hung_; }
  int64_t step() const { return step_; }           // the one played last, -1 before the first
  int64_t now_unix_ns() const;                     // when the last rank ended that step, or stopped
  const StepSummary& summary(int32_t rank) const;  // only after a step that has ended
  const StepDetail& detail(int32_t rank) const;    // likewise, of a step played with detail
  RankStatus status(int32_t rank, int64_t at_unix_ns) const;
  // Which communicator a comm id of this rank is; kWorld where it is none of its others.
  Role role(int32_t rank, uint64_t comm_id) const;

 private:
  struct Communicator {
    uint64_t id = 0;
    Role role = Role::kWorld;
    std::vector<int32_t> members;
    int32_t nodes = 1;
  };
  // A rank's place in one of its communicators, and what it did there.
  struct Membership {
    int32_t communicator = -1;  // -1: the group has one member, so there is none
    int32_t rank_in_comm = 0;
    std::map<std::pair<int32_t, bool>, uint64_t> messages;  // so far, by peer and direction
    CommStep step;
    CommStatus status;
  };
  struct RankState {
    int64_t host_ns = 0;  // the host is busy or blocked until then
    int64_t gpu_ns = 0;   // the GPU is busy until then
    Phase phase = Phase::kOther;
    int64_t phase_since_ns = 0;
    double compute_scale = 1;  // this step: fault and noise together
    int64_t compute_ns = 0;    // this step: the GPU at the rank's own work
    std::array<Membership, kRoleCount> in;
    StepSummary summary;
    StepDetail detail;
  };

  int32_t rank_of(int32_t tp, int32_t dp, int32_t pp) const { return tp + shape_.tp * (dp + shape_.dp * pp); }
  int32_t host_of(int32_t rank) const { return rank / shape_.gpus_per_host; }
  bool sends_gradients_out(int32_t rank) const;
  double link_bytes_per_ns(int32_t from, int32_t to) const;
  double noise(double sigma);

  void make_communicators();
  void begin_step(std::span<const Fault> faults);
  void pass(bool forward);  // one micro-batch through all stages
  void finish_step();       // from the gradient collective on
  void stop_everyone();     // who can enter the gradient collective and what follows does, and waits
  void enter_phase(RankState& rank, Phase phase);
  void tell_achieved(RankState& rank) const;
  void sum_up(RankState& rank, int64_t clock_error_ns) const;
  void compute(RankState& rank, double ns);
  void collective(const Communicator& group, int64_t bytes);
  void ring_flows(const Communicator& group, int64_t edge_bytes, double wire_noise, std::span<const int64_t> enqueued,
                  std::span<const int64_t> arrival, int64_t end_ns);
  void send_receive(int32_t from, int32_t to, int64_t bytes);
  void enter_and_wait(RankState& rank, Role role, int64_t bytes);
  void record(RankState& rank, Role role, bool p2p, const char* function, int64_t bytes, int32_t peer,
              int64_t enqueued_ns, int64_t start_ns, int64_t end_ns, int64_t silent_ns);

  JobShape shape_;
  std::mt19937_64 random_;
  std::mt19937_64 random_at_sync_;
  std::vector<Communicator> communicators_;
  std::vector<RankState> ranks_;
  std::vector<RankState> at_sync_;       // while hung: as all stood before the gradient collective
  std::vector<double> rank_speed_;       // no two GPUs are alike
  std::vector<double> send_rate_;        // 1, or the slow link's share
  std::vector<int64_t> clock_error_ns_;  // per host
  std::vector<int32_t> missing_;
  double forward_ns_ = 0, input_ns_ = 0, optimizer_ns_ = 0;
  int64_t tp_bytes_ = 0, pp_bytes_ = 0, dp_bytes_ = 0;
  int64_t step_ = -1;
  bool hung_ = false;
  bool with_detail_ = false;
};

}  // namespace lockstep::sim
