// Sentences for a terminal.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

namespace lockstep::cli {

inline constexpr size_t kWrapColumns = 80;

// On standard output, broken between words at kWrapColumns, with a line end.
void print_wrapped(const std::string& text);

}  // namespace lockstep::cli
