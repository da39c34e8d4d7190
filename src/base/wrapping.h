// Sums and differences of numbers that others say: they wrap around, so that any two have one, and what was added can
// be taken away again.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>

namespace lockstep {

inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

}  // namespace lockstep
