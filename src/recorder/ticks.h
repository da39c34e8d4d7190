// The CPU's own counter as a clock: clock_gettime costs two thirds of a whole callback, the counter a fifth of one.
//
// The problem: the counter has its own rate, and CLOCK_MONOTONIC is steered. The method: each thread takes the counter
// from an anchor (counter and clock read together) that is at most kWindowNs old, at the rate seen between its last two
// anchors. So its error is what the two clocks drift apart in a tenth of a second: well below a microsecond, and some
// microseconds in a thread's first window. Used only where the kernel itself keeps time by that counter.
//
// Thread rule: Confined (one per thread); usable() and the first rate are Thread-safe.
#pragma once

#include <cstdint>

namespace lockstep {

uint64_t system_now_ns();  // CLOCK_MONOTONIC

class TickClock {
 public:
  static constexpr uint64_t kWindowNs = 100'000'000;

  // Reads the machine's clock source and takes the first rate; call once, before the first now_ns(). Takes a
  // millisecond.
  static void prepare();
  static bool usable();

  static uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    asm volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
  }
  static uint64_t ticks_to_ns(uint64_t ticks);  // at the first rate: for short stretches

  // CLOCK_MONOTONIC, and never less than what it said before.
  uint64_t now_ns() {
    const uint64_t since = ticks() - tick_;
    if (since >= window_) [[unlikely]]
      return anchor();
    return ns_ + static_cast<uint64_t>(static_cast<unsigned __int128>(since) * rate_ >> 32);
  }

 private:
  uint64_t anchor();

  uint64_t tick_ = 0;
  uint64_t ns_ = 0;        // what this clock says at tick_
  uint64_t clock_ns_ = 0;  // what CLOCK_MONOTONIC said then
  uint64_t rate_ = 0;      // ns per tick, 32 bits after the point
  uint64_t window_ = 0;    // in ticks; 0: not anchored yet
};

}  // namespace lockstep
