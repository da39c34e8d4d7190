// Every detector that looks at steps, one row each. A detector earlier in the table explains a rank before a later one
// may.
#pragma once

#include <span>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

struct StepDetector {
  const char* name;
  const char* finds;
  std::vector<Finding> (*find)(const JobWindow& window, const std::vector<AttributedRange>& explained);
};

std::span<const StepDetector> step_detectors();

}  // namespace lockstep
