// How much memory a record takes, estimated: what the limits of the stores in memory count.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstddef>

#include "model/telemetry.h"

namespace lockstep {

size_t bytes_of(const Value& value);
size_t bytes_of(const Attributes& attributes);
size_t bytes_of(const LogRecord& record);
size_t bytes_of(const Span& span);

}  // namespace lockstep
