// How this process stands in the scheduler's queue. A rank's threads spin, and all ranks wait for the one that lost its
// core; so by default whatever the agent does waits for a core that is free, or for its small share of a taken one.
//
//   low     SCHED_BATCH, nice 10: never preempts by waking up; where no core is free it gets a tenth of one at most, in
//           short slices. Several times what draining the rings of a node takes, so that it catches up; how late it
//           comes is reported (lockstep_agent_poll_late_ms).
//   idle    SCHED_IDLE: free cores alone, in effect. Rings may be overwritten on a node that has none.
//   normal  as it was started.
// Thread rule: Thread-safe. Holds for every thread and child that is there; later ones inherit it.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

Result<void> check_priority(const std::string& priority);
// One line for the log, of what holds from now on: a kernel may refuse.
std::string give_way(const std::string& priority);

}  // namespace lockstep
