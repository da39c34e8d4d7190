#include "diagnosis/flow_steps.h"

#include <algorithm>

namespace lockstep {
namespace {

struct HasFlows {
  bool any = false;
};

bool has_flows(const StepFrame& frame) {
  return frame
      .derived<HasFlows>([&] {
        return HasFlows{std::any_of(frame.rows.begin(), frame.rows.end(),
                                    [](const RankStep& row) { return !row.summary.flows.empty(); })};
      })
      .any;
}

}  // namespace

std::vector<StepNumber> last_steps_with_flows(const JobWindow& window, const std::vector<StepNumber>& steps,
                                              size_t count) {
  std::vector<StepNumber> found;
  for (auto step = steps.rbegin(); step != steps.rend() && found.size() < count; ++step) {
    const StepFrame* frame = window.frame(*step);
    if (frame != nullptr && has_flows(*frame)) found.push_back(*step);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace lockstep
