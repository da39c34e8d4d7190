// What a rank told of a step's work, for MFU: one reading of the scalars for the waterfall (mfu.h) and for what is kept
// of jobs as steps arrive (job_rollups.h).
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cmath>
#include <string_view>

#include "model/step.h"

namespace lockstep {

struct StepFlops {
  double flops = 0;  // told, else 6 x parameters x tokens; 0: not known
  bool six_n_t = false;
  double tokens = 0;
  double peak = 0;  // FLOP/s of its GPU, as the job told it; 0: it did not
};

inline StepFlops step_flops(const StepSummary& summary) {
  StepFlops reported;
  double parameters = 0;
  for (const StepScalar& scalar : summary.scalars) {
    if (!std::isfinite(scalar.value) || scalar.value <= 0) continue;
    const std::string_view name = scalar.name;
    if (name == "flops") reported.flops = scalar.value;
    if (name == "tokens") reported.tokens = scalar.value;
    if (name == "peak_flops") reported.peak = scalar.value;
    if (name == "parameters") parameters = scalar.value;
  }
  if (reported.flops <= 0) {
    reported.flops = 6 * parameters * reported.tokens;
    reported.six_n_t = reported.flops > 0;
  }
  return reported;
}

}  // namespace lockstep
