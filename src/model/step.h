// What a rank did: who it is, one compact summary per step, and where it stands right now (operations in flight).
// These are the join keys and the facts that diagnosis works on.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/ids.h"

namespace lockstep {

// Who: the join keys of design section 4. Strings are bounded by kIdentityTextMax where they enter the product.
struct Identity {
  std::string job_id;
  int64_t attempt = 0;
  Rank rank = kNoRank;
  int32_t world_size = 0;
  int32_t local_rank = 0;
  std::string host;
  std::string gpu_uuid;
  bool operator==(const Identity&) const = default;
};
inline constexpr size_t kIdentityTextMax = 256;

enum class Phase : uint8_t {
  kOther = 0,
  kInput = 1,
  kForward = 2,
  kBackward = 3,
  kOptimizer = 4,
  kCheckpoint = 5,
  kEval = 6,
  kSync = 7
};
inline constexpr size_t kPhaseCount = 8;
const char* to_text(Phase phase);  // "other", "input", "forward", "backward", "optimizer", "checkpoint", "eval", "sync"

// One communicator in one step on one rank. Times are GPU time where the profiler gives it.
struct CommStep {
  CommId comm_id;
  int32_t size = 0;
  int32_t rank_in_comm = 0;
  bool p2p = false;    // sends and receives; else collectives
  int64_t count = 0;   // operations
  int64_t bytes = 0;   // payload of this rank
  int64_t gpu_ns = 0;  // sum of (max stop - min start over channels); operations of one ncclGroup, which may run in one
                       // kernel, count together for the time in which at least one of them runs
  int64_t shortest_ns = 0;  // single operations
  int64_t longest_ns = 0;
  int64_t first_start_unix_ns = 0;
  int64_t last_end_unix_ns = 0;
  int64_t queue_ns = 0;  // sum of (GPU start - host enqueue): long on a rank whose GPU is behind
  int64_t unseen = 0;    // of `count`: operations whose GPU time is not known; the times above do without them
  bool operator==(const CommStep&) const = default;
};

// One direction of one peer of one communicator in one step, from the network proxy: why a transfer took its time.
struct FlowStep {
  CommId comm_id;
  int32_t peer = 0;  // rank in the communicator
  bool send = true;
  int64_t transfers = 0;  // proxy steps
  int64_t bytes = 0;
  int64_t wire_ns = 0;     // send: time with at least one transfer on the wire; receive: flush
  int64_t own_gpu_ns = 0;  // send: waited for own GPU to produce; receive: for own GPU to consume (sums over transfers)
  int64_t peer_ns =
      0;  // send: waited for the peer's credit; receive: waited for the sender's data (sums over transfers)
  int64_t wire_longest_ns = 0;     // longest single stay on the wire
  int64_t own_gpu_longest_ns = 0;  // longest single wait for the own GPU
  bool operator==(const FlowStep&) const = default;
};

// Where the time of a step went on one rank (docs/guide/where-the-time-goes.md). The parts add up to its duration.
enum class TimePart : uint8_t {
  kCompute = 0,        // the GPU works for the rank itself
  kCommunication = 1,  // exposed: only communication keeps the GPU, nothing of the rank's own runs beside it
  kInput = 2,
  kHost = 3,  // the GPU has nothing to do and the host is at work: launching, Python, the optimizer's bookkeeping
  kCheckpoint = 4,
  kIdle = 5,  // none of these is known to be the reason
};
inline constexpr size_t kTimePartCount = 6;
const char* to_text(TimePart part);  // "compute", "communication", "input", "host", "checkpoint", "idle"

// A number that the job told within a step. "loss", "grad_norm", "tokens", "flops", "parameters", "peak_flops" and
// "learning_rate" are known by name; others are kept and shown as they come.
struct StepScalar {
  std::string name;
  double value = 0;
  bool operator==(const StepScalar&) const = default;
};

struct StepSummary {
  StepNumber step;
  int64_t start_unix_ns = 0;
  int64_t duration_ns = 0;
  std::array<int64_t, kPhaseCount> phase_ns{};  // what the job told; kOther is not told
  int64_t self_ns = 0;   // step minus the union of its communication on the GPU: the rank's own work
  int64_t comm_ns = 0;   // that union
  int64_t queue_ns = 0;  // time with an operation enqueued but not started and no communication running: the GPU was
                         // still busy with the rank's own work. Long on a slow GPU, short on a late host
  int64_t quiet_ns = 0;  // longest stretch without any callback of the process while an operation was in flight
  int64_t quiet_from_unix_ns = 0;
  int64_t stopped_ns = 0;  // the process was found stopped (by a signal, a debugger, the freezer) for so long, by looks
      // of the agent a quarter of a second apart: an estimate. Not stored, diagnosis alone reads it
  bool inferred = false;     // step boundaries guessed, not told
  int64_t records_lost = 0;  // recorder records overwritten before they were read: the numbers above are lower bounds
  int64_t unseen = 0;        // operations whose GPU time is not known: own and communication time cannot be told apart
  bool split_known = false;  // what the next line says counts
  std::array<int64_t, kTimePartCount> split_ns{};
  std::vector<StepScalar> scalars;  // by name; of one told several times the last counts
  std::vector<CommStep> comms;
  std::vector<FlowStep> flows;
  // False: GPU times are missing, so its times say neither that the rank was fast nor that it was slow.
  bool gpu_time_known() const { return records_lost == 0 && unseen == 0; }
  bool operator==(const StepSummary&) const = default;
};

enum class OpState : uint8_t { kNone = 0, kEnqueued = 1, kStarted = 2, kCompleted = 3 };

// The oldest operation of a communicator that is not complete, or the last one if all are.
struct OpStatus {
  OpState state = OpState::kNone;
  uint64_t ordinal =
      0;  // 1 for the first operation of its kind (collective or p2p) on this communicator and rank; 0: none yet
  uint64_t seq = 0;      // NCCL's sequence number, collectives only
  std::string function;  // "AllReduce", "Send", ...
  std::string datatype;
  int64_t bytes = 0;
  int32_t peer = -1;          // p2p only, rank in the communicator
  int64_t since_unix_ns = 0;  // enqueued at
  bool end_not_seen = false;  // NCCL does not tell when it ends: not complete may as well be over
  bool is_open() const { return state == OpState::kEnqueued || state == OpState::kStarted; }
  bool is_in_flight() const { return is_open() && !end_not_seen; }
  bool operator==(const OpStatus&) const = default;
};

// What the network side of a communicator waits for.
struct ProxyWaitStatus {
  std::string state;  // "own GPU", "peer", "wire"; empty: nothing is under way, or not known
  bool send = false;
  int32_t peer = -1;          // rank in the communicator
  int64_t since_unix_ns = 0;  // nothing has entered or left this state since
  bool operator==(const ProxyWaitStatus&) const = default;
};

struct CommStatus {
  CommId comm_id;
  int32_t size = 0;
  int32_t rank_in_comm = 0;
  uint64_t collectives_enqueued = 0;  // counts since the communicator was made; equal counts mean equal progress
  uint64_t collectives_completed = 0;
  uint64_t p2p_enqueued = 0;
  uint64_t p2p_completed = 0;
  OpStatus collective;
  OpStatus p2p;
  uint64_t collective_calls = 0;  // calls of NCCL's API; 0: not told. More than enqueued: the rest is not visible
  uint64_t p2p_calls = 0;
  int64_t launched = -1;  // operations that NCCL's RAS says this rank has launched here; -1: not known
  ProxyWaitStatus proxy;
  bool operator==(const CommStatus&) const = default;
};

// Where a rank stands. Sent when a process has been quiet for a while, and again until it moves.
struct RankStatus {
  int64_t time_unix_ns = 0;
  int64_t quiet_ns = 0;  // no callback for so long, as the agent saw it (the agent's clock, not the job's)
  bool process_alive = true;
  bool process_stopped = false;   // SIGSTOP, a debugger, the freezer
  int64_t last_call_unix_ns = 0;  // its newest callback, on its own clock; 0: none
  bool finished = false;          // all communicators finalized, or lockstep_shutdown() called
  StepNumber step = kNoStep;      // last step begun, -1 unknown
  Phase phase = Phase::kOther;
  std::vector<CommStatus> comms;
  bool operator==(const RankStatus&) const = default;
};

}  // namespace lockstep
