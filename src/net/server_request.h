// Percent-decoding for paths and query parameters.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// nullopt: a '%' without two hex digits, or a NUL.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);

}  // namespace lockstep
