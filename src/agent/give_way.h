// How this process stands in the scheduler's queue. A rank's threads spin, and all ranks wait for the one that lost its
// core; so by default whatever the agent does waits for a core that is free, or for its small share of a taken one.
//
//   low     SCHED_BATCH, nice 19: never preempts by waking up; where no core is free it gets 1.5 % of one, in short
//           slices. Enough to drain the rings of a node; how late it comes is told (lockstep_agent_poll_late_ms).
//   idle    SCHED_IDLE: free cores alone, in effect. Rings may be overwritten on a node that has none.
//   normal  as it was started.
// Thread rule: call it before the first thread is made; threads and children inherit it.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// One line for the log, of what holds from now on. Fails for an unknown word only: a kernel that refuses is told of.
Result<std::string> give_way(const std::string& priority);

}  // namespace lockstep
