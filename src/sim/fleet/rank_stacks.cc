#include "sim/fleet/rank_stacks.h"

#include <string>
#include <utility>
#include <vector>

namespace lockstep::sim {
namespace {

constexpr const char* kTrain = "/workspace/train.py";
constexpr const char* kBatches = "/workspace/batches.py";
constexpr const char* kCollectives = "/usr/local/lib/python3.12/dist-packages/torch/distributed/distributed_c10d.py";

using Frames = std::vector<StackFrame>;  // innermost first

Frames in_collective(Role role) {
  switch (role) {
    case Role::kTp:
      return {{"all_reduce", kCollectives, 2810}, {"forward", kTrain, 143}, {"train_step", kTrain, 204}};
    case Role::kPp:
      return {{"recv", kCollectives, 2541}, {"receive_activations", kTrain, 171}, {"train_step", kTrain, 201}};
    case Role::kWorld:
      return {{"all_reduce", kCollectives, 2810}, {"clip_gradients", kTrain, 188}, {"train_step", kTrain, 213}};
    default:
      return {{"all_reduce", kCollectives, 2810}, {"reduce_gradients", kTrain, 181}, {"train_step", kTrain, 209}};
  }
}

// Of a rank that does not wait in any collective: it is still somewhere in its own code.
Frames in_own_code() {
  return {{"acquire", "/usr/lib/python3.12/threading.py", 355},
          {"fetch", kBatches, 88},
          {"refill", kBatches, 61},
          {"train_step", kTrain, 206}};
}

// The operation that the rank is in, and has been for longest.
const CommStatus* waits_in(const RankStatus& status) {
  const CommStatus* found = nullptr;
  int64_t since_ns = INT64_MAX;
  for (const CommStatus& comm : status.comms) {
    for (const OpStatus* op : {&comm.collective, &comm.p2p}) {
      if (op->state != OpState::kStarted || op->since_unix_ns >= since_ns) continue;
      found = &comm;
      since_ns = op->since_unix_ns;
    }
  }
  return found;
}

}  // namespace

RankStack stack_of(const Fleet& fleet, Rank rank, int64_t at_unix_ns) {
  const RankStatus status = fleet.status(rank, at_unix_ns);
  const CommStatus* comm = fleet.hung() ? waits_in(status) : nullptr;
  RankStack stack{.time_unix_ns = at_unix_ns, .pid = 20'000 + rank.value(), .threads_count = 3};
  if (!status.process_alive) {
    stack.threads_count = 0;
    stack.note = "the process is gone";
    return stack;
  }
  Frames frames = comm != nullptr ? in_collective(fleet.role(rank, comm->comm_id)) : in_own_code();
  frames.push_back({"main", kTrain, 251});
  frames.push_back({"<module>", kTrain, 266});
  const char state = status.process_stopped ? 'T' : 'S';
  // Who waits for a collective on the GPU polls an event; who waits for a lock sleeps in a futex.
  const std::string where = comm != nullptr ? "poll_schedule_timeout" : "futex_wait_queue";
  stack.threads = {{.tid = stack.pid,
                    .name = "python3",
                    .state = state,
                    .wchan = where,
                    .syscall = comm != nullptr ? "poll" : "futex"},
                   {.tid = stack.pid + 100'000,
                    .name = "ncclProxyService",
                    .state = state,
                    .wchan = "poll_schedule_timeout",
                    .syscall = "poll"},
                   {.tid = stack.pid + 200'000,
                    .name = "pt_nccl_watchdg",
                    .state = state,
                    .wchan = "futex_wait_queue",
                    .syscall = "futex"}};
  stack.python = {{.ident = 1, .main = true, .name = "MainThread", .frames = std::move(frames)}};
  return stack;
}

}  // namespace lockstep::sim
