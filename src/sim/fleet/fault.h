// What can be wrong in a simulated job. The same words on the command line, in the fleet and in the demo's table.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep::sim {

enum class FaultKind : uint8_t {
  kSlowGpu,      // the rank's kernels take `severity` times as long
  kSlowInput,    // the rank waits `severity` ms more for its input, every step
  kSlowLink,     // what the rank sends to other hosts goes at `severity` of the normal rate
  kMissingRank,  // the rank finishes backward and never enters the gradient collective: everyone stops
};
const char* to_text(FaultKind kind);  // "slow-gpu", "slow-input", "slow-link", "missing-rank"

struct Fault {
  FaultKind kind = FaultKind::kSlowGpu;
  Rank rank;
  StepNumber from_step;
  int64_t steps = 0;    // 0: until cleared. A missing rank keeps everyone for as long as so many steps take
  double severity = 0;  // 0: default_severity()
  bool operator==(const Fault&) const = default;
};

// step_ms: the length of a healthy step; a late input is measured against it.
double default_severity(FaultKind kind, double step_ms);

// Enough healthy steps first that a baseline can be learned.
inline constexpr StepNumber kDefaultFromStep{40};

// "KIND:RANK[:STEP[:STEPS[:SEVERITY]]]"
Result<Fault> parse_fault(std::string_view text);
// "slow-gpu on rank 5 (kernels take 1.6 times as long)"; severity must be set.
std::string describe(const Fault& fault);

}  // namespace lockstep::sim
