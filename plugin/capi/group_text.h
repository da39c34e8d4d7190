// The members of a process group as text: "0-3,8-32/8,7", in the group's order. The same words as ranks_text() of
// src/model/events.h, which this layer may not use; src/sim/replay/group_text_test.cc holds both against each other.
//
// Thread rule: Thread-safe (no state). Allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::capi {

// Bytes written; 0: there are none, one is negative, or they do not fit.
inline size_t write_ranks(std::span<const int32_t> ranks, std::span<char> out) {
  char* at = out.data();
  char* const limit = at + out.size();
  const auto put = [&](char before, int64_t number) {
    char digits[20];  // by hand: std::to_chars would leave symbols of the C++ library among those that we export
    char* digit = digits + sizeof digits;
    do *--digit = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    if (before != '\0') *--digit = before;
    const auto length = digits + sizeof digits - digit;
    if (limit - at < length) return false;
    at = std::copy(digit, digits + sizeof digits, at);
    return true;
  };
  for (size_t first = 0; first < ranks.size();) {
    if (ranks[first] < 0) return 0;
    // As far as the steps are even: "first-last", or "first-last/step"; two are written one by one.
    size_t end = first + 1;
    const int64_t step = end < ranks.size() ? int64_t{ranks[end]} - ranks[first] : 0;
    while (step > 0 && end < ranks.size() && int64_t{ranks[end]} - ranks[end - 1] == step) ++end;
    if (end - first < 3) end = first + 1;
    if (!put(first == 0 ? '\0' : ',', ranks[first])) return 0;
    if (end - first > 1 && !put('-', ranks[end - 1])) return 0;
    if (end - first > 1 && step != 1 && !put('/', step)) return 0;
    first = end;
  }
  return static_cast<size_t>(at - out.data());
}

}  // namespace lockstep::capi
