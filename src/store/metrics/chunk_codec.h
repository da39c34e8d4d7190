// A column of one series as bytes: up to 240 doubles, every bit of which comes back, and the times that the series of a
// group share.
//
// Values measured by devices are decimals of few digits or counters: scaled by a power of ten they are integers, and
// those pack well as they are, as differences or as differences of differences (frame of reference or zigzag, one bit
// width for all, what does not fit patched). That covers constants (width 0) and rare changes (width 0 and patches)
// too. What is no such decimal (a NaN, a stale marker) is patched as it is, or, where there is much of it, the column
// takes the XOR of neighbours. docs/formats/metric-blocks.md has the bytes.
// Budgets: encoding 30 ns and decoding 3 ns a sample (engine_bench.cc).
// On error: decoding takes nothing on trust; bytes that are no column of so many rows are false.
// Thread rule: Thread-safe (no state).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

inline constexpr size_t kChunkRowsMax = 240;

// In a column this pattern stands for "no sample in this row": a NaN that no one sends. The one pattern of 2^64 that
// cannot be kept; a sample that has it is refused by name (reserved_nan), never changed.
inline constexpr uint64_t kAbsentBits = 0xFFF7'1357'9BDF'0246;
inline double absent() {
  return std::bit_cast<double>(kAbsentBits);
}
inline bool is_absent(double value) {
  return std::bit_cast<uint64_t>(value) == kAbsentBits;
}

// What a chunk's header says of its samples; stale markers do not count.
struct ChunkSummary {
  uint32_t count = 0;
  double first = 0, last = 0, min = 0, max = 0, sum = 0;
  bool has_increase = false;  // a counter with few resets
  double increase = 0;        // resets counted
  bool falls = false;         // not every value is at least the one before; of doubles it is not known, and true
  bool is_whole = false;      // integers
};

enum class WithSummary : uint8_t { kNo, kYes };

// Appends the column to `out`; rows that are absent() are left out and known to be. At most kChunkRowsMax rows.
void encode_values(std::span<const double> rows, WithSummary with, std::string& out);
// Exactly `rows` values, absent() among them.
bool decode_values(std::string_view bytes, size_t rows, double* values);
// A row without a sample may be among them.
bool has_gaps(std::string_view bytes);
// False: this chunk has no summary (values must be read), or its bytes are none.
bool read_summary(std::string_view bytes, size_t rows, ChunkSummary& summary);

void encode_times(std::span<const int64_t> times_ms, std::string& out);
bool decode_times(std::string_view bytes, size_t rows, int64_t* times_ms);

}  // namespace lockstep::metrics
