// Where the fault of a verdict or an alert is, as the dependency graph names things: what groups findings of several
// jobs, and of jobs and hardware, into one incident.
//
// A rank's number says nothing outside of its job, so a place is what stands still when jobs come and go: the GPU, the
// adapter, the leaf that all slow ranks share, the host. Where the topology does not say which, it is what is known: the
// host, or the job alone.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>

#include "fabric/fabric.h"
#include "incident/incident.h"
#include "model/metric_descriptor.h"
#include "model/verdict.h"

namespace lockstep::incident {

FaultPlace place_of(const Verdict& verdict, const fabric::Topology& topology, const fabric::JobPlaces& places,
                    int64_t now_unix_ns);

// Of an alert of the hardware, by its labels host, gpu, device and cause (alert/builtin_alerts.h).
FaultPlace place_of(const Labels& labels, const fabric::Topology& topology);

// Who depends on it: by the dependency graph; where that does not have it, by where jobs say that their ranks run.
BlastRadius radius_of(const FaultPlace& place, const fabric::Topology& topology, const fabric::JobPlaces& places,
                      int64_t at_unix_ns);

}  // namespace lockstep::incident
