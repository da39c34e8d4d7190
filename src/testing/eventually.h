// Waiting for what another thread or process is about to do.
//
// Thread rule: Thread-safe, where the condition is.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace lockstep::testing {

// As long as a machine that is busy with everything else may take; only what never happens takes so long.
inline constexpr std::chrono::seconds kPatience{60};

// Whether the condition came true. It is asked again and again, by this thread.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockstep::testing
