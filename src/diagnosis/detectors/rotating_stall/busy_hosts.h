// Why ranks stall by turns, where their hosts say it: tasks that wait for a CPU. Then it is no garbage collection;
// whichever rank is without a CPU makes the others wait.
//
// Thread rule: Thread-safe (pure function; the signals have a lock of their own).
#pragma once

#include "diagnosis/finding.h"
#include "diagnosis/signals/signal_store.h"
#include "diagnosis/window.h"

namespace lockstep {

// Changes layer, cause and claims of a finding of find_rotating_stall() where most of its hosts are busy; leaves others
// alone.
void blame_busy_hosts(const JobWindow& window, const SignalStore& signals, int64_t now_unix_ns, Finding& finding);

}  // namespace lockstep
