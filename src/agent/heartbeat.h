// Which thread of the agent has not moved, and for how long: for /healthz.
//
// A thread says when it begins a round of its work and when it only waits for some. One that has begun and neither
// ended nor begun again within its limit is stuck: in a file system that does not answer, a call into the kernel, a
// mistake of ours.
//
// Thread rule: Thread-safe. Heartbeats outlives the threads that it watches.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace lockstep {

class Heartbeat {
 public:
  Heartbeat(std::string name, int64_t stuck_after_ns, const Clock& clock)
      : name_(std::move(name)), stuck_after_ns_(stuck_after_ns), clock_(clock) {}

  void beat() { since_ns_.store(clock_.monotonic_ns(), std::memory_order_relaxed); }
  void waits() { since_ns_.store(kWaits, std::memory_order_relaxed); }

  const std::string& name() const { return name_; }
  // 0: it moves, or waits for work.
  int64_t stuck_ns() const;

 private:
  static constexpr int64_t kWaits = INT64_MAX;

  const std::string name_;
  const int64_t stuck_after_ns_;
  const Clock& clock_;
  std::atomic<int64_t> since_ns_{kWaits};
};

// Says what a thread does for as long as it lives; a thread that nobody watches has none.
class Busy {
 public:
  explicit Busy(Heartbeat* heartbeat) : heartbeat_(heartbeat) {
    if (heartbeat_ != nullptr) heartbeat_->beat();
  }
  ~Busy() {
    if (heartbeat_ != nullptr) heartbeat_->waits();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Heartbeat* const heartbeat_;
};

class Heartbeats {
 public:
  // Well above what a disk or a busy node makes a thread wait, well below the minute after which a supervisor acts.
  static constexpr int64_t kStuckAfterNs = 10'000'000'000;

  explicit Heartbeats(const Clock& clock) : clock_(clock) {}

  // name: as people call it, "main loop". Good as long as this lives.
  Heartbeat& add(std::string name, int64_t stuck_after_ns = kStuckAfterNs);
  // A line for each thread that is stuck; empty: none is.
  std::string stuck() const;

 private:
  const Clock& clock_;
  mutable Mutex mutex_;
  std::deque<Heartbeat> all_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
