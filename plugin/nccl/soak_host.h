// Plays a whole process of NCCL for plugin_soak: communicators that come and go, and NCCL's threads around them, all at
// random. What they do is what some NCCL release does (its own order of events within an operation), with the traps
// that real releases have: repeated stops, handles that have gone stale, callbacks after finalize, events that never
// end, proxy operations of other processes.
//
// Thread rule: Confined; starts its threads and joins them all.
// On error:    one line, and the end of the process.
#pragma once

#include "plugin/nccl/soak_parts.h"

namespace lockstep::nccl {

// Of settings.version, for settings.seconds. told: what it did, for whoever reads the recorder.
void run_soak_host(const SoakSettings& settings, SoakReported& reported);

}  // namespace lockstep::nccl
