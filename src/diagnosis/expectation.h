// What a job in which nobody stands out was compared with. "Healthy" is a claim like any other: ranks are compared with
// each other and with their past, and a whole job that was never fast has neither. Then the hardware says what could be:
// the rate that the adapters' ports trained to, and the peak of the GPUs where the job tells it.
//
// Thread rule: Thread-safe (no state); the window as its owner has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnosis/signals/signal_store.h"
#include "diagnosis/window.h"

namespace lockstep {

// The rest of the sentence that begins "Healthy: ...": parts that begin with "; ", or nothing. `steps`: the newest
// complete ones, at least one.
std::string compared_with(const JobWindow& window, const SignalStore& signals, const std::vector<StepNumber>& steps,
                          int64_t now_unix_ns);

}  // namespace lockstep
