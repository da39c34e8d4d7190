// A series as Prometheus' text formats write it: name{label="value"}.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// What becomes of a name that is not of letters, digits and _: in quotes, {"http.latency"}, or, for readers that do not
// know those, with _ for what they do not take (http_latency).
enum class NameForm : uint8_t { kQuoted, kUnderscores };

// labels: without __name__. With kUnderscores two names may become one; of labels the later one gets another _ then,
// because readers refuse a page that has a label twice.
std::string series_text(std::string_view name, std::span<const std::pair<std::string, std::string>> labels,
                        NameForm form);
std::string metric_name_text(std::string_view name, NameForm form);  // for # TYPE

}  // namespace lockstep
