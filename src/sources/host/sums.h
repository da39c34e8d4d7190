// Sums that never fall, over counters that do: a CPU that goes away, a thread that ends, a cgroup that is made anew, a
// kernel counter that slips back a little.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>

namespace lockstep::host {

// Follows one counter of the world and tells by how much it grew.
class Growth {
 public:
  // The first value is where we start: what was before is not ours. A fall is a new start.
  uint64_t since_last(uint64_t value) {
    uint64_t grown = known_ && value >= last_ ? value - last_ : 0;
    last_ = value;
    known_ = true;
    return grown;
  }
  // The counter was zero when we last looked.
  void start_from_zero() {
    last_ = 0;
    known_ = true;
  }
  void forget() { known_ = false; }

 private:
  uint64_t last_ = 0;
  bool known_ = false;
};

// A counter published as it is, except that a fall by less than `slip` (the kernel's idle and iowait times do that) is
// not shown: it would read as a reset, and the whole count as new.
class Unfalling {
 public:
  explicit Unfalling(uint64_t slip = UINT64_MAX) : slip_(slip) {}
  uint64_t value(uint64_t now) {
    if (now >= shown_ || shown_ - now >= slip_) shown_ = now;
    return shown_;
  }

 private:
  uint64_t slip_;
  uint64_t shown_ = 0;
};

}  // namespace lockstep::host
