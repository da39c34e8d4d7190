// What the agent costs its node, and what it does about that: over its budget it reads less often, until it fits.
//
// Thread rule: Confined.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace lockstep {

struct OwnUse {
  double cpu_seconds = 0;  // since it started, its threads and its GPU reader together
  uint64_t rss_bytes = 0;
};
// Of this process and of one child (-1: none).
OwnUse measure_own_use(pid_t child);

// Level n means: sources are read kSlowdown[n] times less often.
class OwnCost {
 public:
  static constexpr int kSlowdown[] = {1, 2, 5, 10};
  static constexpr int kLevelMost = 3;
  static constexpr int64_t kWindowNs = 10'000'000'000;

  // cpu_budget: share of one core, e.g. 0.03.
  explicit OwnCost(double cpu_budget) : cpu_budget_(cpu_budget) {}

  // To be called at every tick; looks at whole windows. Returns the new level when it changes.
  // Two windows over the budget raise it; six windows at less than half of what the next lower level would be allowed
  // lower it, so that it does not swing.
  std::optional<int> note(const OwnUse& use, int64_t now_ns);
  int level() const { return level_; }
  double cpu_share() const { return cpu_share_; }  // over the last window

 private:
  const double cpu_budget_;
  OwnUse window_use_;
  int64_t window_since_ns_ = -1;
  double cpu_share_ = 0;
  int over_ = 0;
  int under_ = 0;
  int level_ = 0;
};

}  // namespace lockstep
