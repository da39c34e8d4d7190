// A job in one sentence, where nothing is wrong with it: that it is healthy, or why that cannot be told.
//
// Thread rule: Thread-safe (pure functions); the window as its owner has it.
#pragma once

#include <cstdint>
#include <string>

#include "diagnosis/signals/signal_store.h"
#include "diagnosis/window.h"

namespace lockstep {

// reported_unix_ns: when its newest step summary came.
std::string health_of(const JobWindow& window, const SignalStore& signals, int64_t reported_unix_ns);

}  // namespace lockstep
