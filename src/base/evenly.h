// Some of many, evenly chosen.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// The places of at most `most` of `count`, in order and from the first on.
inline std::vector<size_t> evenly(size_t count, size_t most) {
  std::vector<size_t> places(std::min(count, most));
  for (size_t i = 0; i < places.size(); ++i) places[i] = i * count / places.size();
  return places;
}

}  // namespace lockstep
