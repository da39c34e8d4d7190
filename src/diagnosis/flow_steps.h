// The newest steps in which transfers were recorded. On nodes without a core to spare they are recorded in some steps
// only (docs/guide/nccl-plugin.md), the same ones on all ranks; what compares flows looks at those.
//
// Thread rule: as the window's.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnosis/window.h"

namespace lockstep {

// Of `steps`, in order, the last `count` in which some rank has a flow.
std::vector<StepNumber> last_steps_with_flows(const JobWindow& window, const std::vector<StepNumber>& steps,
                                              size_t count);

}  // namespace lockstep
