// Durations as Prometheus writes them: 1h30m, 500ms; units in falling order (y w d h m s ms), each once.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Empty on success, else what is wrong.
std::string parse_duration_ms(std::string_view text, int64_t* milliseconds);
// 90000 -> 1m30s.
std::string duration_text(int64_t milliseconds);

}  // namespace lockstep
