// Which numbers an attempt can be.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>

namespace lockstep {

// A restart counter, or a time in milliseconds where somebody numbers attempts by the clock; nothing beyond. What is
// read back from disk is held to the same.
inline constexpr int64_t kAttemptMost = 10'000'000'000'000;
inline bool attempt_may_be(int64_t attempt) {
  return attempt >= 0 && attempt <= kAttemptMost;
}

}  // namespace lockstep
