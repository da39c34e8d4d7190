// Time comes through a Clock, so that a test can own it. Nanoseconds everywhere, in the name.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <ctime>

namespace lockstep {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t unix_ns() const = 0;       // CLOCK_REALTIME
  virtual int64_t monotonic_ns() const = 0;  // CLOCK_MONOTONIC
};

class SystemClock final : public Clock {
 public:
  int64_t unix_ns() const override { return read(CLOCK_REALTIME); }
  int64_t monotonic_ns() const override { return read(CLOCK_MONOTONIC); }

 private:
  static int64_t read(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace lockstep
