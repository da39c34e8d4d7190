// The past of one signal in 64 bytes: the last minute in buckets of 5 s, eight minutes in buckets of 50 s, an hour and
// a third in buckets of 500 s, as 16-bit floats (three digits are plenty to tell a low clock from a high one).
//
// What is not sent has not changed: agents send a value again only when it differs, and once in two minutes. So a gap
// of up to kHoldBuckets holds the last level, or counts as no increase; a longer one is unknown (NaN), never zero. A
// bucket is numbered by its time: unix time / 5 s. Rings of 10 hold exactly what the next ring is made from. Thread
// rule: Confined.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

inline constexpr int64_t kBucketNs = 5'000'000'000;
inline constexpr uint32_t kHoldBuckets = 30;
inline constexpr size_t kFineBuckets = 12;
inline constexpr size_t kCoarseBuckets = 10;
inline constexpr uint32_t kPerMiddle = 10;   // fine buckets in one of the middle ring
inline constexpr uint32_t kPerCoarse = 100;  // fine buckets in one of the coarse ring

uint32_t bucket_of(int64_t unix_ns);

// IEEE 754 binary16, rounded to nearest, saturating at its largest number. NaN stays NaN.
uint16_t to_half(float value);
float from_half(uint16_t bits);

struct HistoryPage {
  std::array<uint16_t, kFineBuckets> fine;
  std::array<uint16_t, kCoarseBuckets> middle;
  std::array<uint16_t, kCoarseBuckets> coarse;

  // Nothing known.
  void clear();
  // As if `value` had held in every bucket from `first` to `newest`.
  void fill(uint32_t first, uint32_t newest, float value);
  // From bucket `from` to bucket `to`, each new one starting with `value` (NaN: unknown).
  void advance(uint32_t from, uint32_t to, float value);
  float fine_at(uint32_t bucket) const { return from_half(fine[bucket % kFineBuckets]); }
  void set_fine(uint32_t bucket, float value) { fine[bucket % kFineBuckets] = to_half(value); }
};
static_assert(sizeof(HistoryPage) == 64);

// One value of the past: it held from bucket `from` for `buckets` of them.
struct HistoryValue {
  uint32_t from = 0;
  uint32_t buckets = 1;
  float value = 0;
};
// What is known, oldest first, each stretch of time at the finest that is kept. `head` is the newest bucket.
std::vector<HistoryValue> values_of(const HistoryPage& page, uint32_t head);

}  // namespace lockstep
