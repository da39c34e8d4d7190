// Small steps through one line of text, without copies.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/characters.h"

namespace lockstep {

inline bool contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

// Takes `prefix` off the front; false and unchanged where it is not there.
inline bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// What stands behind the first `word`; nullopt where it is not there.
inline std::optional<std::string_view> behind(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + word.size());
}

// Takes everything up to a character of `ends` (or the end) off the front; that character stays.
inline std::string_view take_until(std::string_view& text, std::string_view ends) {
  const size_t at = std::min(text.find_first_of(ends), text.size());
  std::string_view taken = text.substr(0, at);
  text.remove_prefix(at);
  return taken;
}

inline constexpr std::string_view kBlanks = " \t\n\r";

// The next word between blanks; empty at the end.
inline std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return take_until(text, kBlanks);
}

// The word that ends the text, blanks behind it aside.
inline std::string_view last_word(std::string_view text) {
  const size_t end = text.find_last_not_of(kBlanks);
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const size_t begin = text.find_last_of(kBlanks);
  return begin == std::string_view::npos ? text : text.substr(begin + 1);
}

inline std::string_view without_end(std::string_view text, char end) {
  if (text.ends_with(end)) text.remove_suffix(1);
  return text;
}

// Takes a number of at most `most` off the front; nullopt and unchanged where there is none, or a larger one.
inline std::optional<int64_t> take_number(std::string_view& text, int64_t most) {
  int64_t value = 0;
  size_t at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > most) return std::nullopt;
  }
  if (at == 0) return std::nullopt;
  text.remove_prefix(at);
  return value;
}

// Takes "0x1f" off the front; nullopt where it is none, or has more than 32 bits.
inline std::optional<uint32_t> take_hex(std::string_view& text) {
  std::string_view rest = text;
  if (!skip(rest, "0x")) return std::nullopt;
  uint32_t value = 0;
  size_t at = 0;
  for (; at < rest.size() && hex_digit(rest[at]) >= 0; ++at) {
    if ((value >> 28) != 0) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(hex_digit(rest[at]));
  }
  if (at == 0) return std::nullopt;
  text = rest.substr(at);
  return value;
}

}  // namespace lockstep
