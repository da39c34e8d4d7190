// What a person said of a verdict: right, or wrong and what it was instead.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "base/result.h"
#include "model/verdict_terms.h"

namespace lockstep {

inline constexpr size_t kFeedbackBytesMax = 8192;  // of a request
inline constexpr size_t kFeedbackNoteMax = 1000;   // bytes

struct VerdictFeedback {
  std::string verdict_id;
  bool right = false;
  Cause said = Cause::kNone;   // the verdict's cause when it was judged
  Cause cause = Cause::kNone;  // what it was instead; none: not told
  std::string note;
  int64_t at_unix_ns = 0;
  bool operator==(const VerdictFeedback&) const = default;
};

// {"right":false,"cause":"ecc","note":"...","said":"slow-compute","at_unix_ns":1}
void write_feedback(JsonWriter& json, const VerdictFeedback& feedback);

// The body of a request: {"right": true|false|null, "cause": "...", "note": "..."}; null takes back what was said.
struct FeedbackAsked {
  std::optional<bool> right;
  Cause cause = Cause::kNone;
  std::string note;
};
// One line on anything else: unknown fields and causes, a note that is too long, a cause beside "right": true.
Result<FeedbackAsked> read_feedback(std::string_view body);

}  // namespace lockstep
