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
// The same of a file that is nobody else's business: one that all users of the machine can open is refused.
Result<std::string> read_private_file(const std::string& path);
// Takes as long whatever is wrong with the guess.
bool same_secret(std::string_view guess, std::string_view secret);
// Printable ASCII and blanks: what a header can carry.
bool is_printable(std::string_view text);

}  // namespace lockstep
