// A span as views into the bytes it came in: what a decoder hands to whoever keeps spans, without making objects.
//
// Views are valid during the call that hands them over.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/telemetry.h"

namespace lockstep {

// How the value of an attribute is kept. kOther: a list, a map or bytes.
enum class CellType : uint8_t { kNone = 0, kText = 1, kFlag = 2, kInt = 3, kReal = 4, kOther = 5 };
inline constexpr size_t kCellTypes = 6;

struct AttributeView {
  std::string_view key;
  CellType type = CellType::kNone;
  std::string_view text;  // kText; kOther: as whoever made the view encodes it
  uint64_t bits = 0;      // kFlag, kInt; kReal: of the double
};

struct SpanView {
  TraceId trace_id{};
  SpanId span_id{};
  SpanId parent_span_id{};
  std::string_view trace_state;
  std::string_view name;
  std::string_view status_message;
  int32_t kind = 0;
  int32_t status_code = 0;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  std::span<const AttributeView> attributes;
  std::string_view extra;  // events and links, as whoever made the view encodes them; empty: none
};

}  // namespace lockstep
