// In which order the passes of a pipeline run: which stage does the forward or backward of which micro-batch and model
// chunk next. All replicas of a job follow the same order, so it is worked out once.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/fleet/job_shape.h"

namespace lockstep::sim {

struct Pass {
  int32_t stage = 0;
  bool forward = true;
  int32_t micro_batch = 0;
  int32_t chunk = 0;
  int32_t ordinal = 0;  // how many passes of this stage come before
  int32_t of_kind = 0;  // how many of them are forward passes like this one, or backward like this one
  // Where its input comes from and its output goes to; -1: nowhere.
  int32_t from_stage = -1, to_stage = -1;
  int32_t to_chunk = 0;
};

// What one stage does, in its order.
std::vector<Pass> passes_of_stage(Schedule schedule, int32_t stage, int32_t stages, int32_t micro_batches,
                                  int32_t model_chunks);
// All stages, so that every pass comes behind those that it needs.
std::vector<Pass> all_passes(Schedule schedule, int32_t stages, int32_t micro_batches, int32_t model_chunks);

// How many micro-batches' worth of work (forward and backward on one stage) a step lasts where everything is even:
// micro-batches plus the bubble.
double slots(Schedule schedule, int32_t stages, int32_t micro_batches, int32_t model_chunks);

}  // namespace lockstep::sim
