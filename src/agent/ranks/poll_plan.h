// When the recorders are read next: by need, not by the clock. Every poll may take a core from a rank's thread, and one
// late rank makes all wait; so there are as few as the answer's speed allows (kUsualNs), and more only where a ring
// would otherwise come close to being overwritten.
//
// Also says how late a poll was: on a node without a free core the agent waits for its turn.
// Thread rule: Confined.
#pragma once

#include <cstdint>

namespace lockstep {

class PollPlan {
 public:
  // A verdict is due within seconds; a quarter of one is not seen.
  static constexpr int64_t kUsualNs = 250'000'000;
  static constexpr int64_t kShortestNs = 10'000'000;
  static constexpr int64_t kFirstNs = 50'000'000;
  // How full the fullest ring may become between two polls: a poll that is three intervals late still loses nothing.
  static constexpr double kFillAimed = 0.25;

  // A poll found the fullest ring this full with records that were new (more than 1: some were overwritten).
  void polled(int64_t now_ns, double fill);
  // Until when to wait.
  int64_t due_ns() const { return due_ns_; }
  // How much later than planned the last poll came.
  int64_t late_ns() const { return late_ns_; }

 private:
  int64_t polled_ns_ = 0;  // 0: not yet
  int64_t interval_ns_ = kFirstNs;
  int64_t due_ns_ = 0;
  int64_t late_ns_ = 0;
};

}  // namespace lockstep
