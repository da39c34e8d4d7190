// Whether a trouble is there all the time, comes back after the same number of steps, or comes and goes: from the steps
// in which the culprit was late.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <span>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"
#include "model/verdict_terms.h"

namespace lockstep {

struct Recurrence {
  Pattern pattern = Pattern::kPersistent;
  int64_t period_steps = 0;  // periodic: from the beginning of one time to that of the next
};

// late: the steps in which it was, in order; newest: the last step that was looked at. Nothing late: persistent, as
// nothing speaks against it.
Recurrence recurrence_of(std::span<const StepNumber> late, StepNumber newest);

// Whether the culprit of a finding was late in a step; where its own time does not show it (links, pauses, a whole
// job), whether the step was as long as the finding says. False where the step says nothing of it.
bool is_late_in(const JobWindow& window, const Finding& finding, StepNumber step);

}  // namespace lockstep
