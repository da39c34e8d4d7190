// A file that holds a token or a password: one line of printable text, blanks around it left off.
//
// On error: one line with the path, never with what is in it.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

Result<std::string> read_secret_file(const std::string& path);
// Printable ASCII and blanks: what a header can carry.
bool is_printable(std::string_view text);

}  // namespace lockstep
