// Labels of a series as every receiver hands them to the store: sorted by name, each name once, none empty, text that
// is UTF-8, within limits. What does not fit is refused with one line; nothing is cut or renamed.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/metric_descriptor.h"

namespace lockstep {

inline constexpr size_t kLabelsMax = 96;
inline constexpr size_t kLabelNameBytesMax = 256;
inline constexpr size_t kLabelValueBytesMax = 4096;
inline constexpr size_t kLabelsBytesMax = 16'384;  // of all names and values: series are many, and stay in memory
inline constexpr size_t kExemplarBytesMax = 1024;  // of its labels; OpenMetrics asks for 128 characters
inline constexpr const char* kMetricNameLabel = "__name__";
inline constexpr const char* kTenantLabel = "tenant";  // who sends: X-Scope-OrgID

// Empty where there is none.
inline std::string_view label_value(const Labels& labels, std::string_view name) {
  for (const auto& [key, value] : labels) {
    if (key == name) return value;
  }
  return {};
}

inline size_t label_bytes(const Labels& labels) {
  size_t bytes = 0;
  for (const auto& [name, value] : labels) bytes += name.size() + value.size();
  return bytes;
}

// A name or value in quotes, as Prometheus writes and PromQL reads it.
std::string in_label_quotes(std::string_view text);

// In any order; a label with an empty value counts as not there.
Result<Labels> canonical_labels(Labels labels);

}  // namespace lockstep
