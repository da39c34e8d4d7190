// Moments as text, in UTC.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// "2026-11-15T22:00:00.250Z"
std::string utc_time(int64_t unix_ms);
// By a pattern of strftime, in whole seconds.
std::string utc_time(int64_t unix_ms, const char* pattern);

}  // namespace lockstep
