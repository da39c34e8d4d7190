// Snappy's block format, opened only: pages of Parquet files are packed with it. The format is small enough that a
// library for it would be the larger thing to look after.
//
// Limits: bytes_max of what comes out; more is an error before anything is made.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

Result<std::string> unpack_snappy(std::string_view packed_untrusted, uint64_t bytes_max);

}  // namespace lockstep
