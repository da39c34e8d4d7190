// A run as it is kept under a name, to compare later ones with: what `lockstep baseline save` writes. Byte by byte in
// docs/formats/baselines.md.
//
// What is read may have been written by anybody: a text that is no baseline, was cut, has numbers that are none, or is
// larger than the limits, is refused with one line.
// Limits:      kBaselineBytesMax, and those of run_summary.h.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "profile/ranks/run_summary.h"

namespace lockstep::profile {

inline constexpr size_t kBaselineBytesMax = 16u << 20;

struct Baseline {
  std::string written_by;  // "lockstep 0.1.0 (commit 3f9a1c20b7de)"
  int64_t saved_unix_ms = 0;
  RunSummary run;
};

// An error where it is beyond what is read: what was written can be.
Result<std::string> baseline_text(const Baseline& baseline);
Result<Baseline> parse_baseline_untrusted(std::string_view text);

}  // namespace lockstep::profile
