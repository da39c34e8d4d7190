// Bytes as a test writes them down.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/characters.h"

namespace lockstep::testing {

// Two lower-case digits a byte.
inline std::string hex(std::string_view bytes, std::string_view between = "") {
  std::string text;
  for (const char c : bytes) {
    if (!text.empty()) text += between;
    text += to_hex({&c, 1});
  }
  return text;
}
// As the pages on formats show them: "4c 53 0a".
inline std::string spaced_hex(std::string_view bytes) {
  return hex(bytes, " ");
}

// The bytes of "4c530a"; blanks are left out. Anything else is the test's own mistake.
inline std::string bytes_of_hex(std::string_view digits) {
  std::string bytes;
  int high = -1;
  for (const char c : digits) {
    if (c == ' ') continue;
    const int digit = hex_digit(c);
    if (digit < 0) std::abort();
    if (high >= 0) bytes += static_cast<char>(high << 4 | digit);
    high = high >= 0 ? -1 : digit;
  }
  if (high >= 0) std::abort();
  return bytes;
}

}  // namespace lockstep::testing
