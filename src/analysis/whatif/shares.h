// Shares that add up to the whole, from what each part recovers alone and what all recover together. Parts overlap (a
// bad worker may sit in a slow stage), so what they recover alone does not add up by itself.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <span>

namespace lockstep {

// loss, joint and parts in one unit. Writes one share per part and returns what is unexplained; all together are 1, or
// all 0 where nothing is lost. Parts that recover nothing (or less) have no share.
inline double split_shares(double loss, double joint, std::span<const double> alone, std::span<double> shares) {
  double sum = 0;
  for (const double part : alone) sum += std::max(0.0, part);
  std::fill(shares.begin(), shares.end(), 0.0);
  if (!(loss > 0)) return 0;
  const double explained = sum > 0 ? std::clamp(joint / loss, 0.0, 1.0) : 0.0;
  for (size_t i = 0; i < alone.size(); ++i) {
    if (alone[i] > 0) shares[i] = explained * alone[i] / sum;
  }
  return 1 - explained;
}

}  // namespace lockstep
