// GPU time and money as people pay for them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "base/text.h"

namespace lockstep::cli {

// "96 GPU-seconds", "45 GPU-minutes", "19.8 GPU-hours"
inline std::string gpu_time(double seconds) {
  if (seconds < 120) return format("%.0f GPU-seconds", seconds);
  if (seconds < 7200) return format("%.0f GPU-minutes", seconds / 60);
  return format("%.1f GPU-hours", seconds / 3600);
}

}  // namespace lockstep::cli
