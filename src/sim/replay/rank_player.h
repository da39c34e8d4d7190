// One rank of a replay, inside a process of its own: loads the real plugin (and the C API) and makes the recorded
// calls again, as NCCL made them.
//
// - One thread per recorded thread, its calls in their order, at their times (scaled by the speed). On an overloaded
//   machine calls come late, never in another order.
// - Calls that use the same object (their own, their parent, their group) keep the recorded order across threads: a
//   call waits for the one before it to return. The file's order is such an order, so nobody waits for ever.
// - Step marks and the job's own calls of NCCL keep the order of their times, as they do in a training loop: what the
//   plugin asks NCCL for goes by the step.
// - Ids become the pointers that the plugin gave; NULL stays NULL and is not used again; events outside the mask
//   that the plugin had set when their call began are not sent.
// - The libraries see the recorded time of each call (plus a constant) as the time, whatever the wall clock says.
//
// Thread rule: Confined; its own threads are joined or end with the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "sim/replay/recording.h"

namespace lockstep::replay {

// A bit makes NCCL send the events above it, too (an operation for a channel of its kernel, a group for an operation).
uint64_t with_ancestors(uint64_t mask);

struct Pace {
  int64_t start_ns = 0;   // this machine's monotonic time at which `first_ns` happens
  uint64_t first_ns = 0;  // on the recording's common clock
  int64_t offset_ns = 0;  // common clock -> the time that the libraries see
  double speed = 1.0;
};

struct RankCounters {
  std::atomic<uint64_t> passed{0};  // calls of the recording dealt with
  std::atomic<uint64_t> made{0};    // of those, made; the others are outside the mask or belong to a NULL object
};

class RankPlayer {
 public:
  // Loads the libraries and prepares every call. Identity must be in the environment already.
  // capi_path: empty plays without step marks.
  static Result<std::unique_ptr<RankPlayer>> load(const RankRecording& rank, const std::string& plugin_path,
                                                  const std::string& capi_path);
  virtual ~RankPlayer() = default;

  // Makes every call. Returns when the last has returned; its threads are then still there, quiet, as they are in a
  // process that hangs.
  virtual void play(const Pace& pace, RankCounters& counters) = 0;

  // The job is over: threads end, the plugin is unloaded as NCCL does it after the last finalize, the C API is told.
  virtual void finish() = 0;
};

}  // namespace lockstep::replay
