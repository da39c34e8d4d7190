#include "agent/ranks/poll_plan.h"

#include <algorithm>

namespace lockstep {

void PollPlan::polled(int64_t now_ns, double fill) {
  if (polled_ns_ != 0) {
    late_ns_ = std::max<int64_t>(0, now_ns - due_ns_);
    const auto passed_ns = static_cast<double>(std::max<int64_t>(1, now_ns - polled_ns_));
    const double allowed_ns = fill > 0 ? passed_ns * kFillAimed / fill : static_cast<double>(kUsualNs);
    // Longer only step by step: what comes in bursts shows its rate in some polls and not in others.
    const int64_t longest_ns = std::min(kUsualNs, 2 * interval_ns_);
    interval_ns_ = std::max(kShortestNs, static_cast<int64_t>(std::min(allowed_ns, static_cast<double>(longest_ns))));
  }
  polled_ns_ = now_ns;
  due_ns_ = now_ns + interval_ns_;
}

}  // namespace lockstep
