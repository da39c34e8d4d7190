// GPU time and money as people pay for them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "apps/cli/answer_json.h"
#include "base/text.h"

namespace lockstep::cli {

// "96 GPU-seconds", "45 GPU-minutes", "19.8 GPU-hours"
inline std::string gpu_time(double seconds) {
  if (seconds < 120) return format("%.0f GPU-seconds", seconds);
  if (seconds < 7200) return format("%.0f GPU-minutes", seconds / 60);
  return format("%.1f GPU-hours", seconds / 3600);
}

// ", 6.40 at 2.00 a GPU-hour", as the server words it; empty: it knows no prices.
inline std::string money_of(const Json& priced) {
  const std::string money = text_of(priced, "money");
  return money.empty() ? money : ", " + money;
}

}  // namespace lockstep::cli
