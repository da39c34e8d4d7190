// Steps of a job that does not tell them, from the operations it repeats.
//
// A training loop makes the same operations in every step. Nothing but the operations themselves (communicator,
// function, type, size, order) decides where a step ends and which number it has, and those are the same on all members
// of a communicator: so ranks agree without talking to each other. What comes now and then (an evaluation, a
// checkpoint, a loss that is averaged every ten steps) lies inside some step and makes it longer, no more.
//
// Five ways of looking are tried side by side; the first that finds a pattern leads: collectives of weight by size; the
// same with what came before them (where none occurs once a step); without their sizes (sequences of different length);
// every collective; sends and receives where there is nothing else. docs/guide/inferred-steps.md has the rules, the
// numbering and the weaknesses, bench/results/inferred-steps.md how it compares to steps that were told.
// Limits: those of pattern_tracker.h.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sources/nccl/pattern_tracker.h"

namespace lockstep {

struct PatternOp {
  CommId comm_id;
  int32_t comm_size = 0;
  bool p2p = false;
  Function function = Function::kUnknown;
  Datatype datatype = Datatype::kUnknown;
  int64_t bytes = 0;
  int32_t peer = -1;
  uint64_t ordinal = 0;  // on its communicator, from 1; collectives and p2p apart
  int64_t enqueued_ns = 0;
};

class StepInference {
 public:
  // Below this an operation is bookkeeping: a loss, a norm, a barrier, an object that is passed around.
  static constexpr int64_t kWeightBytesMin = 32 * 1024;
  // So long without a pattern, and it is said that none can be found.
  static constexpr int64_t kCannotTellNs = 60'000'000'000;

  void add(const PatternOp& op);
  std::vector<InferredStep> take() { return std::exchange(steps_, {}); }
  // The rank has ended: so has its last step.
  void finish(int64_t at_ns);

  enum class State : uint8_t { kNothing = 0, kSearching = 1, kFollowing = 2, kCannotTell = 3 };
  State state() const;
  uint64_t breaks() const;
  // Start of the open step; 0: none.
  int64_t open_since_ns() const;

 private:
  enum Way : size_t { kSized, kContext, kUnsized, kEvery, kP2p, kWays };
  const PatternTracker* leader() const;
  void collect();

  // Ways that see less must see more of it.
  std::array<PatternTracker, kWays> ways_{PatternTracker(0), PatternTracker(512), PatternTracker(512),
                                          PatternTracker(512), PatternTracker(64)};
  std::array<uint64_t, 2> context_{};  // hashes of the collectives before
  std::array<uint64_t, 2> p2p_context_{};
  uint64_t p2p_alone_ = 0;  // sends and receives since the last collective
  int64_t searching_since_ns_ = 0;
  int64_t newest_ns_ = 0;
  StepNumber last_step_ = kNoStep;
  int64_t last_end_ns_ = 0;
  std::vector<InferredStep> steps_;
};

}  // namespace lockstep
