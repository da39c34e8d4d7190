#include "diagnosis/signals/signal_history.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr uint16_t kUnknownBits = 0x7E00;
// Past this, nothing of a page is left to keep.
constexpr uint32_t kEverything = kPerCoarse * kCoarseBuckets;

template <size_t N>
uint16_t mean_of(const std::array<uint16_t, N>& ring, uint32_t from, uint32_t to) {
  double sum = 0;
  int known = 0;
  for (uint32_t at = from; at < to; ++at) {
    float value = from_half(ring[at % N]);
    if (std::isnan(value)) continue;
    sum += value;
    ++known;
  }
  // Half of a bucket unknown: so is the bucket.
  return known * 2 >= static_cast<int>(to - from) ? to_half(static_cast<float>(sum / known)) : kUnknownBits;
}

}  // namespace

uint32_t bucket_of(int64_t unix_ns) {
  return static_cast<uint32_t>(std::clamp<int64_t>(unix_ns / kBucketNs, 0, std::numeric_limits<uint32_t>::max() - 1));
}

uint16_t to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return kUnknownBits;
  float size = std::fabs(value);
  if (size >= 65504.0f) return static_cast<uint16_t>(sign | 0x7BFF);
  // Below the smallest normal number the steps are even: 2^-24.
  if (size < 6.103515625e-5f)
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::lround(size * 16777216.0f)));
  bits = std::bit_cast<uint32_t>(size) + 0x1000;  // rounds the 13 bits that go
  return static_cast<uint16_t>(sign | std::min<uint32_t>(0x7BFF, (bits - 0x38000000) >> 13));
}

float from_half(uint16_t half) {
  uint32_t exponent = (half >> 10) & 0x1F;
  uint32_t mantissa = half & 0x3FF;
  float size;
  if (exponent == 0x1F) {
    size = kUnknown;
  } else if (exponent == 0) {
    size = static_cast<float>(mantissa) / 16777216.0f;
  } else {
    size = std::bit_cast<float>(((exponent + 112) << 23) | (mantissa << 13));
  }
  return (half & 0x8000) != 0 ? -size : size;
}

void HistoryPage::clear() {
  fine.fill(kUnknownBits);
  middle.fill(kUnknownBits);
  coarse.fill(kUnknownBits);
}

void HistoryPage::fill(uint32_t first, uint32_t newest, float value) {
  clear();
  if (first > newest) return;
  uint16_t bits = to_half(value);
  for (uint32_t back = 0; back < kFineBuckets && newest - first >= back; ++back)
    fine[(newest - back) % kFineBuckets] = bits;
  for (uint32_t back = 1; back <= kCoarseBuckets; ++back) {
    uint32_t number = newest / kPerMiddle;
    if (number >= back && (number - back) * kPerMiddle >= first) middle[(number - back) % kCoarseBuckets] = bits;
    number = newest / kPerCoarse;
    if (number >= back && (number - back) * kPerCoarse >= first) coarse[(number - back) % kCoarseBuckets] = bits;
  }
}

void HistoryPage::advance(uint32_t from, uint32_t to, float value) {
  if (to <= from) return;
  if (to - from > kEverything + kPerCoarse) {
    fill(std::isnan(value) ? to + 1 : from, to, value);
    return;
  }
  uint16_t bits = to_half(value);
  for (uint32_t at = from + 1; at <= to; ++at) {
    if (at % kPerMiddle == 0) middle[(at / kPerMiddle - 1) % kCoarseBuckets] = mean_of(fine, at - kPerMiddle, at);
    if (at % kPerCoarse == 0) {
      uint32_t number = at / kPerMiddle;
      coarse[(at / kPerCoarse - 1) % kCoarseBuckets] = mean_of(middle, number - kPerCoarse / kPerMiddle, number);
    }
    fine[at % kFineBuckets] = bits;
  }
}

std::vector<HistoryValue> values_of(const HistoryPage& page, uint32_t head) {
  std::vector<HistoryValue> values;
  auto take = [&](uint32_t from, uint32_t buckets, uint16_t bits) {
    float value = from_half(bits);
    if (!std::isnan(value)) values.push_back({from, buckets, value});
  };
  uint32_t fine_from = head + 1 >= kFineBuckets ? head + 1 - static_cast<uint32_t>(kFineBuckets) : 0;
  uint32_t middle_number = head / kPerMiddle, coarse_number = head / kPerCoarse;
  uint32_t middle_from =
      middle_number >= kCoarseBuckets ? (middle_number - static_cast<uint32_t>(kCoarseBuckets)) * kPerMiddle : 0;
  for (uint32_t back = kCoarseBuckets; back >= 1; --back) {
    if (coarse_number < back || (coarse_number - back + 1) * kPerCoarse > middle_from) continue;
    take((coarse_number - back) * kPerCoarse, kPerCoarse, page.coarse[(coarse_number - back) % kCoarseBuckets]);
  }
  for (uint32_t back = kCoarseBuckets; back >= 1; --back) {
    if (middle_number < back || (middle_number - back + 1) * kPerMiddle > fine_from) continue;
    take((middle_number - back) * kPerMiddle, kPerMiddle, page.middle[(middle_number - back) % kCoarseBuckets]);
  }
  for (uint32_t at = fine_from; at <= head; ++at) take(at, 1, page.fine[at % kFineBuckets]);
  return values;
}

}  // namespace lockstep
