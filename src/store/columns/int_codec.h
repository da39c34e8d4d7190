// A column of integers as bytes. Each column takes the cheapest of: one value for all; frame of reference and bit
// packing in runs of 256, of the values or of their differences; varints of either, compressed by zstd. The first suits
// what does not change, the second noise (times), the third patterns: every rank of a job does the same operations in
// the same order, and zstd sees that where packed bits hide it.
//
// On error: decoding takes nothing on trust; bytes that are no column of so many values are false.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::columns {

std::string encode_ints(std::span<const int64_t> values);
// Exactly `count` values.
bool decode_ints(std::string_view bytes, size_t count, std::vector<int64_t>& values);

// zstd where that makes it smaller, with the size it had; decoding is bounded by what the caller can take.
std::string pack_bytes(std::string_view bytes);
bool unpack_bytes(std::string_view packed, size_t bytes_max, std::string& bytes);

}  // namespace lockstep::columns
