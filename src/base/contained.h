// Work that a thread does again and again for others: where one piece of it throws (out of memory, a library's
// complaint about what a peer sent), that piece is over and the thread goes on. An exception that leaves a thread's
// first function ends the process.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <exception>

#include "base/log.h"

namespace lockstep {

// False: it threw. The line says who, what and why; whoever calls counts it and tidies up.
template <typename Work>
bool contained(const char* who, const char* what, const Work& work) noexcept {
  try {
    work();
    return true;
  } catch (const std::exception& failure) {
    LOCKSTEP_LOG_ERROR(who, "%s failed: %s", what, failure.what());
  } catch (...) {
    LOCKSTEP_LOG_ERROR(who, "%s failed", what);
  }
  return false;
}

}  // namespace lockstep
