// Faults of hardware for the SLE ledger, from the alerts that fire or fired a moment ago.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <vector>

#include "alert/alert_registry.h"
#include "sle/minute_judge.h"

namespace lockstep {

std::vector<sle::HardwareFault> hardware_faults(const AlertRegistry& alerts, int64_t over_since_unix_ns);

}  // namespace lockstep
