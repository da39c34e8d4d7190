// Moments as text, in UTC, and back.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// "2026-11-15T22:00:00.250Z"
std::string utc_time(int64_t unix_ms);
// By a pattern of strftime, in whole seconds.
std::string utc_time(int64_t unix_ms, const char* pattern);

// "2026-06-10T10:15:30.123Z", or with +02:00 at its end; of the years 1970 to 2200.
Result<int64_t> unix_ns_from_rfc3339(std::string_view text);
// "Tue, 17 Nov 2026 04:05:06 GMT", as HTTP's headers write it.
std::optional<int64_t> unix_s_from_http_date(const std::string& text);

}  // namespace lockstep
