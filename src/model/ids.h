// The numbers that telemetry is joined by, each with a type of its own (base/strong_id.h).
//
// Formats (the recorder's records, the plugin's C interface, the wire, files, JSON) have plain numbers; they become ids
// where they are read.
// Thread rule: Immutable.
#pragma once

#include <cstdint>

#include "base/strong_id.h"

namespace lockstep {

// A communicator as its members call it: NCCL's commHash. 0: none.
using CommId = StrongId<struct CommIdTag, uint64_t>;
inline constexpr CommId kNoCommId{};

// A step as the job numbers it: neither a count of steps nor a place among those that are held. Two of them are so many
// steps apart.
using StepNumber = StrongId<struct StepNumberTag, int64_t, IdArithmetic::kDistance>;
inline constexpr StepNumber kNoStep{-1};
inline constexpr StepNumber kLastStep{INT64_MAX};  // no step comes after it: the end of a range without one

inline namespace id_literals {
constexpr StepNumber operator""_step(unsigned long long number) {
  return StepNumber{static_cast<int64_t>(number)};
}
}  // namespace id_literals

}  // namespace lockstep
