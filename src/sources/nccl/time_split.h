// Where a step's time went on one rank, from what is always known: when the host enqueued each operation of
// communication, when the GPU ran it, and the phases the job told. No kernel trace, so kernels of the rank's own are
// not seen; they are inferred from what waited for them. docs/guide/where-the-time-goes.md says how far that carries,
// tests/golden/time_split_test.cc holds it against kernel traces of the same steps.
//
// In the step's window on the host's clock, first match counts:
//   compute        an enqueued operation waits, and nothing that it may be waiting for is communication. It may wait
//                  for operations enqueued before it that end before it starts, and for the rank's own work; one that
//                  is still running when it starts was not waited for. The first kHandOverNs after an operation's end
//                  are the GPU's hand-over, not work.
//                  An operation that ran beside the work of the next one (gradients: see time_split.cc) is compute too.
//   communication  else, while an operation runs.
// Where none runs or waits, the next operation tells: one that the GPU started as soon as it was enqueued found the
// GPU waiting for the host; one that had to wait found it behind.
//   input, checkpoint   the phase is open
//   compute        the next operation found the GPU behind, or the host waits for the GPU (phase sync); after the
//                  last operation: for as long as the host was ahead when it ended
//   host           another phase is open: the GPU waits for the host's launches
//   idle           the rest: nothing is told, or it is a hand-over
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "model/step.h"
#include "sources/nccl/intervals.h"

namespace lockstep {

// From one operation's end to the start of what waited for it: a few microseconds on every GPU we have seen.
inline constexpr int64_t kHandOverNs = 10'000;
// From NCCL's callback to the kernel's start on an idle GPU: NCCL's own work and a launch. Less is no sign of a wait.
inline constexpr int64_t kLaunchNs = 100'000;
// Work piles up in proportion to the time in which the host launched it, or it does not pile up: a kernel may happen to
// be under way when an operation is enqueued. Behind is who is behind by more than this share of that time.
inline constexpr int64_t kBehindShare = 20;

struct SplitOp {
  int64_t enqueued_ns = 0;
  int64_t start_ns = 0;  // on the GPU
  int64_t end_ns = 0;
  uint32_t chain = 0;    // operations with the same number are one function of one communicator
  bool reduces = false;  // AllReduce, ReduceScatter, Reduce: what gradients go through
};

struct SplitPhase {
  Phase phase = Phase::kOther;
  Interval when;
};

struct SplitInput {
  Interval step;                       // host's clock, as everything here
  std::span<const SplitOp> ops;        // every operation that ran, or waited, within the step; any order
  std::span<const SplitPhase> phases;  // not overlapping, any order
};

using TimeSplit = std::array<int64_t, kTimePartCount>;  // by TimePart

// The parts add up to the step's length exactly. nullopt: no operation within the step, nothing can be inferred.
// Cost: O(n log n) in operations.
std::optional<TimeSplit> split_time(const SplitInput& input);

}  // namespace lockstep
