// Time of one call: the CPU's counter register, fenced on both sides so that a call neither starts early nor ends late,
// and a histogram that takes a sample without allocating or touching much memory.
//
// Thread rule: Confined (Histogram); ticks are Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lockstep::plugin_bench {

inline uint64_t ticks_begin() {
#if defined(__x86_64__)
  _mm_lfence();
  const uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
#else
  uint64_t ticks;
  asm volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(ticks)::"memory");
  return ticks;
#endif
}
inline uint64_t ticks_end() {
#if defined(__x86_64__)
  unsigned processor;
  const uint64_t ticks = __rdtscp(&processor);
  _mm_lfence();
  return ticks;
#else
  return ticks_begin();
#endif
}

inline uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Ticks: exact below kExact, then 128 steps to each doubling (an error below 1 %). The worst is kept exactly.
class Histogram {
 public:
  void add(uint64_t ticks) {
    counts_[index_of(ticks)] += 1;
    count_ += 1;
    sum_ += ticks;
    worst_ = std::max(worst_, ticks);
  }
  void merge(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    worst_ = std::max(worst_, other.worst_);
  }
  uint64_t count() const { return count_; }
  uint64_t worst() const { return worst_; }
  uint64_t sum() const { return sum_; }
  // The smallest value that is not below `share` of the samples; 0 where there are none.
  uint64_t quantile(double share) const {
    const uint64_t wanted = std::max<uint64_t>(1, static_cast<uint64_t>(share * static_cast<double>(count_)));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= wanted) return std::min(value_of(i), worst_);
    }
    return 0;
  }

 private:
  static constexpr uint64_t kExact = 2048;
  static constexpr int kExactBits = 11;
  static constexpr int kStepBits = 7;
  static size_t index_of(uint64_t ticks) {
    if (ticks < kExact) return ticks;
    const int top = std::min(63 - __builtin_clzll(ticks), 47);
    const uint64_t step = std::min<uint64_t>(ticks >> (top - kStepBits), (2u << kStepBits) - 1) - (1u << kStepBits);
    return kExact + static_cast<size_t>(top - kExactBits) * (1u << kStepBits) + step;
  }
  static uint64_t value_of(size_t index) {
    if (index < kExact) return index;
    const size_t top = (index - kExact) >> kStepBits;
    const uint64_t step = (index - kExact) & ((1u << kStepBits) - 1);
    return ((1u << kStepBits) + step) << (top + static_cast<size_t>(kExactBits - kStepBits));
  }

  std::array<uint32_t, kExact + (48 - kExactBits) * (1u << kStepBits)> counts_{};
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t worst_ = 0;
};

// How long a tick is, and what a pair of readings with nothing between them says: the harness's own cost.
struct Timer {
  double ns_per_tick = 1;
  uint64_t empty_ticks = 0;

  static Timer calibrate() {
    Timer timer;
    const uint64_t from_ns = monotonic_ns(), from = ticks_begin();
    uint64_t to_ns = from_ns;
    while (to_ns < from_ns + 50'000'000) to_ns = monotonic_ns();
    timer.ns_per_tick = static_cast<double>(to_ns - from_ns) / static_cast<double>(ticks_end() - from);
    // The quietest of several rounds: a busy neighbour makes a pair look dearer than it is.
    timer.empty_ticks = UINT64_MAX;
    for (int round = 0; round < 10; ++round) {
      Histogram pairs;
      for (int i = 0; i < 20'000; ++i) {
        const uint64_t begin = ticks_begin();
        pairs.add(ticks_end() - begin);
      }
      timer.empty_ticks = std::min(timer.empty_ticks, pairs.quantile(0.5));
    }
    return timer;
  }
  double ns(double ticks) const { return ticks * ns_per_tick; }
  uint64_t ticks(double ns) const { return static_cast<uint64_t>(ns / ns_per_tick); }
  // What lies between two readings, without the readings.
  uint64_t between(uint64_t begin, uint64_t end) const {
    const uint64_t taken = end - begin;
    return taken > empty_ticks ? taken - empty_ticks : 0;
  }
};

}  // namespace lockstep::plugin_bench
