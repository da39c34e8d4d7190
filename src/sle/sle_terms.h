// The service level expectations (SLEs) and their thresholds: one row each, from which the judge, the API, the CLI, the
// page and docs/guide/sle.md have them.
//
// Names are forever: they are in files and addresses. A row's place is its number on disk: rows are added at the end.
// Thread rule: Immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::sle {

enum class Sle : uint8_t {
  kProgress,
  kMfu,
  kBandwidth,
  kSkew,
  kInput,
  kGpu,
  kNvlink,
  kNic,
  kFabric,
  kHost,
  kCorrectness,
  kGoodput,
  kCoverage,
  kTtft,
  kTpot,
  kQueue,
};
inline constexpr size_t kSles = 16;

enum class Direction : uint8_t { kBelow, kAbove };  // a good minute's value is at most, or at least, the threshold
enum class Against : uint8_t { kBaseline, kFixed, kNone };  // kNone: events decide, there is no value

// What a minute's value is held against: value x the job's own baseline (kBaseline) or value itself (kFixed), kept
// within minimum and maximum.
struct Threshold {
  Against against = Against::kNone;
  Direction direction = Direction::kBelow;
  const char* unit = "";
  double value = 0;
  double minimum = 0;
  double maximum = 0;

  double effective(double baseline) const;
  bool is_good(double measured, double baseline) const;
};

struct SleRow {
  Sle sle;
  const char* name;   // "progress"
  const char* title;  // "Training progress"
  const char* good_when;
  const char* measured_from;
  Threshold threshold;
};
std::span<const SleRow, kSles> sle_rows();
const SleRow& row_of(Sle sle);
std::optional<Sle> sle_of(std::string_view name);

using Thresholds = std::array<Threshold, kSles>;
Thresholds default_thresholds();
// "progress=1.1,input=2": other values for some rows; each within the limits of its row.
Result<Thresholds> parse_thresholds(std::string_view text);

}  // namespace lockstep::sle
