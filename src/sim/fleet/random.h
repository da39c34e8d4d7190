// Randomness that depends on what it is drawn for and on nothing else: a number is a hash of its name (seed, rank,
// step, purpose). So a fault changes no draw of another rank or step, and playing a step twice gives the same step.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace lockstep::sim {

inline uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

inline uint64_t hash_of(std::string_view text) {
  uint64_t value = 14695981039346656037ull;
  for (char c : text) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return mix(value);
}

// 0 <= x < 1
inline double uniform(uint64_t drawn) {
  return static_cast<double>(drawn >> 11) * 0x1p-53;
}

// Mean 0, standard deviation 1, never beyond 3: the sum of three uniforms.
inline double bell(uint64_t drawn) {
  constexpr uint64_t kBits = (1u << 21) - 1;
  const uint64_t sum = (drawn & kBits) + (drawn >> 21 & kBits) + (drawn >> 42 & kBits);
  return 2 * (static_cast<double>(sum) * 0x1p-21 - 1.5);
}

// Student's t with three degrees of freedom, scaled to a standard deviation of about 1, so that one in a thousand is
// beyond 6: a tail as kernels and transfers of real jobs have it. Cut at 6, beyond which a stall has a reason of its
// own, and at -2: nothing gets much faster than usual by chance.
inline double heavy(uint64_t drawn) {
  double squares = 0;
  for (uint64_t i = 1; i <= 3; ++i) {
    const double one = bell(mix(drawn ^ i));
    squares += one * one;
  }
  return std::clamp(bell(drawn) / std::sqrt(std::max(squares, 1e-9)), -2.0, 6.0);
}

}  // namespace lockstep::sim
