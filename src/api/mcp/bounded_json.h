// An answer of the API, made short enough for whoever reads little: an assistant's context is small.
//
// What is JSON stays JSON. Lists are cut behind their first items and long texts behind their beginning, all by the same
// measure, as little as is enough; what was cut is told. Nothing is reworded, no number changes.
// Limits: an answer of more than kAnswerBytesMax or kAnswerValuesMax is not read at all.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::mcp {

inline constexpr size_t kAnswerBytesMax = 16u << 20;
inline constexpr size_t kAnswerValuesMax = 1'000'000;
inline constexpr size_t kCutsReportedMax = 8;

struct BoundedJson {
  std::string json;
  std::vector<std::string> cut;  // "verdicts[0].chain: 3 of 16", at most kCutsReportedMax of them
  size_t cut_count = 0;          // in all
};

// The error says how large it is, and that less must be asked for.
Result<BoundedJson> bounded_json(std::string_view json, size_t bytes_max);

}  // namespace lockstep::mcp
