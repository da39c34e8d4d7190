// How much evidence is enough: the rule that detectors share.
//
// What is near the limit has to last for many steps before it is sure. What is far beyond it needs few, if these last
// long enough that no hiccup of a moment is taken for trouble.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>

namespace lockstep {

inline constexpr size_t kPlainSteps = 3;
inline constexpr double kPlainNs = 3e9;

// `usual`: steps that are enough for anything beyond the limit; `plain`: it is far beyond.
inline bool enough_steps(size_t steps, size_t usual, bool plain, double step_ns, size_t plain_steps = kPlainSteps) {
  return steps >= usual || (plain && steps >= plain_steps && static_cast<double>(steps) * step_ns >= kPlainNs);
}

}  // namespace lockstep
