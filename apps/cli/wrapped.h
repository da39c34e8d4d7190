// Sentences for a terminal.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

// Broken between words so that lines are at most `columns` wide (0: as wide as the output, terminal.h), every line
// indented so far, with a line end. A label stands in the first line's indentation.
std::string wrapped(std::string_view text, size_t indent = 0, std::string_view label = "", size_t columns = 0);
// The same on standard output.
// Wrapped where the output has a width, else one line: for what other programs read line by line.
std::string wrapped_row(std::string_view text, size_t indent = 0, std::string_view label = "");
void print_wrapped(std::string_view text, size_t indent = 0, std::string_view label = "");

}  // namespace lockstep::cli
