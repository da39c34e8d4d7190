// A counter of 32 bits in the hardware, shown as one that goes on counting.
//
// When the value falls it has either wrapped around at 2^32 or begun again from zero (driver reload, firmware reset).
// The rule: it has wrapped if the increase that a wrap would mean could have happened in the time that has passed, at
// kEventsPerSecondMax, and is below 2^31; and if no other counter of the same port shows a reset at the same moment.
// Otherwise it has been reset, and the sum falls with it: whoever reads a sum takes a fall as a new start.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>

namespace lockstep {

class Counter32 {
 public:
  // No adapter handles more messages than this in a second.
  static constexpr double kEventsPerSecondMax = 500e6;

  // True: the value is less than before, and by more than a wrap could explain.
  bool is_reset(uint64_t raw, int64_t monotonic_ns) const {
    if (!seen_ || raw >= raw_) return false;
    const auto increase = static_cast<uint32_t>(raw - raw_);
    const double seconds = static_cast<double>(monotonic_ns - at_ns_) / 1e9;
    return increase >= (uint32_t{1} << 31) || increase > kEventsPerSecondMax * seconds;
  }

  // port_was_reset: another counter of the port has fallen for certain.
  uint64_t extend(uint64_t raw, int64_t monotonic_ns, bool port_was_reset) {
    if (seen_ && raw < raw_) {
      if (port_was_reset || is_reset(raw, monotonic_ns)) {
        wrapped_ = 0;
      } else {
        // Some drivers add 64-bit parts to the 32-bit one: the fall is then still a multiple of 2^32 and a bit.
        wrapped_ += ((raw_ - raw) / (uint64_t{1} << 32) + 1) << 32;
      }
    }
    seen_ = true;
    raw_ = raw;
    at_ns_ = monotonic_ns;
    return wrapped_ + raw;
  }

  void restart() { *this = Counter32(); }

 private:
  uint64_t raw_ = 0;
  uint64_t wrapped_ = 0;
  int64_t at_ns_ = 0;
  bool seen_ = false;
};

}  // namespace lockstep
