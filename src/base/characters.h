// Single characters: digits, hexadecimal ones and bytes written in them, ASCII letters in lower case, and UTF-8 from a number.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The value of a hexadecimal digit of either case; -1: it is none.
constexpr int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Of digits in lower case alone, as sums and ids are written; also where it is empty.
constexpr bool is_lower_hex(std::string_view text) {
  for (char c : text)
    if (hex_digit(c) < 0 || (c >= 'A' && c <= 'F')) return false;
  return true;
}

// Two digits in lower case for each byte.
inline std::string to_hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}
inline std::string to_hex(std::string_view bytes) {
  return to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}
// And back; nothing where it is not as to_hex() writes it.
inline std::optional<std::string> from_lower_hex(std::string_view text) {
  if (text.size() % 2 != 0 || !is_lower_hex(text)) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2)
    bytes += static_cast<char>(hex_digit(text[i]) << 4 | hex_digit(text[i + 1]));
  return bytes;
}

// ASCII letters alone, whatever the locale: what header names, units and PCI addresses are compared by.
constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_case(c);
  return lower;
}

// The caller has seen to it that it is a character: no surrogate, at most 0x10FFFF.
inline void append_utf8(std::string& text, uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace lockstep
