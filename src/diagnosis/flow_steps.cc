#include "diagnosis/flow_steps.h"

#include <algorithm>

namespace lockstep {

std::vector<StepNumber> last_steps_with_flows(const JobWindow& window, const std::vector<StepNumber>& steps,
                                              size_t count) {
  std::vector<StepNumber> found;
  for (auto step = steps.rbegin(); step != steps.rend() && found.size() < count; ++step) {
    const StepFrame* frame = window.frame(*step);
    if (frame != nullptr && frame->rows_with_flows > 0) found.push_back(*step);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace lockstep
