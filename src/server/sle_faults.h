// What the SLE ledger hears of alerts: faults of hardware, of those that fire or fired a moment ago; planned windows, of
// silences that name jobs, hosts and GPUs and nothing else.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <vector>

#include "alert/alert_registry.h"
#include "alert/silence.h"
#include "sle/minute_judge.h"
#include "sle/planned.h"

namespace lockstep {

std::vector<sle::HardwareFault> hardware_faults(const AlertRegistry& alerts, int64_t over_since_unix_ns);
std::vector<sle::PlannedWindow> planned_windows(std::vector<Silence> silences);

}  // namespace lockstep
