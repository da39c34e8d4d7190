// Stretches of time on one clock.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Time covered by at least one of them. Sorts them.
inline int64_t union_length(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t total = 0;
  int64_t reach = std::numeric_limits<int64_t>::min();
  for (const Interval& interval : intervals) {
    int64_t begin = std::max(interval.begin, reach);
    if (interval.end > begin) {
      total += interval.end - begin;
      reach = interval.end;
    }
  }
  return total;
}

}  // namespace lockstep
