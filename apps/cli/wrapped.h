// Sentences for a terminal.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

namespace lockstep::cli {

inline constexpr size_t kWrapColumns = 80;

// On standard output, broken between words at kWrapColumns, every line indented so far, with a line end. A label
// stands in the first line's indentation.
void print_wrapped(const std::string& text, size_t indent = 0, const char* label = "");

}  // namespace lockstep::cli
