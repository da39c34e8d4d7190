// A clock that stands until the test moves it. Its wall clock can be wrong, as a machine's can.
//
// Thread rule: Thread-safe: threads of what is tested read it while the test moves it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace lockstep::testing {

class FakeClock final : public Clock {
 public:
  // The two are far apart, so that code which takes one for the other is noticed.
  static constexpr int64_t kMonotonicNs = 1'000'000'000'000;
  static constexpr int64_t kUnixNs = 1'700'000'000'000'000'000 + kMonotonicNs;

  explicit FakeClock(int64_t unix_ns = kUnixNs, int64_t monotonic_ns = kMonotonicNs)
      : started_unix_ns_(unix_ns), started_monotonic_ns_(monotonic_ns) {}

  int64_t unix_ns() const override { return true_unix_ns() + ahead_ns_; }
  int64_t monotonic_ns() const override { return started_monotonic_ns_ + passed_ns_; }
  int64_t unix_ms() const { return unix_ns() / 1'000'000; }
  int64_t true_unix_ns() const { return started_unix_ns_ + passed_ns_; }  // what a clock that is right shows

  void advance(int64_t ns) { passed_ns_ += ns; }
  void advance_to(int64_t unix_ns) { passed_ns_ += unix_ns - this->unix_ns(); }
  // Somebody sets the wall clock so far ahead of the true time (negative: behind). The monotonic clock does not move.
  void set_ahead(int64_t ns) { ahead_ns_ = ns; }

 private:
  const int64_t started_unix_ns_;
  const int64_t started_monotonic_ns_;
  std::atomic<int64_t> passed_ns_{0};
  std::atomic<int64_t> ahead_ns_{0};
};

}  // namespace lockstep::testing
