// How findings about slow flows and slow groups are worded.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include "diagnosis/detectors/slow_link/last_data.h"
#include "diagnosis/detectors/slow_link/slow_flow_rule.h"
#include "diagnosis/detectors/slow_link/slow_group_rule.h"
#include "diagnosis/detectors/slow_link/starved_proxy.h"
#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep::slow_link {

// Of a group in fewer steps nothing is sure. Processes that share a machine's cores make a group slow for a dozen steps
// and then another: what is wrong with a link stays. (Seen on healthy jobs of eight ranks on 16 cores.)
inline constexpr size_t kGroupStepsMin = 20;
// Of a flow in fewer steps nothing is told.
inline constexpr size_t kFlowStepsMin = 2;

Finding finding_of(const JobWindow& window, const ComparedSteps& compared, const SlowEnd& slow,
                   const Handlings& handlings);
Finding finding_of(const JobWindow& window, const ComparedSteps& compared, const SlowGroup& slow,
                   const Handlings& handlings);
Finding finding_of(const JobWindow& window, const ComparedSteps& compared, const LastData& last,
                   const Handlings& handlings);

}  // namespace lockstep::slow_link
