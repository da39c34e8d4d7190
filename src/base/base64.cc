#include "base/base64.h"

#include <cstdint>

namespace lockstep {
namespace {

constexpr char kPlainDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr char kUrlDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string encode(std::string_view bytes, const char* digits) {
  std::string text;
  text.reserve(bytes.size() / 3 * 4 + 4);
  uint32_t held = 0;
  int bits = 0;
  for (const char byte : bytes) {
    held = held << 8 | static_cast<uint8_t>(byte);
    for (bits += 8; bits >= 6; bits -= 6) text += digits[held >> (bits - 6) & 63];
  }
  if (bits > 0) text += digits[held << (6 - bits) & 63];
  return text;
}

enum class Alphabet { kPlain, kUrl, kEither };

int digit_of(char c, Alphabet alphabet) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (alphabet != Alphabet::kUrl && (c == '+' || c == '/')) return c == '+' ? 62 : 63;
  if (alphabet != Alphabet::kPlain && (c == '-' || c == '_')) return c == '-' ? 62 : 63;
  return -1;
}

// text: without padding. is_exact: bits that belong to no byte are 0.
std::optional<std::string> decode(std::string_view text, Alphabet alphabet, bool is_exact) {
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int digit = digit_of(c, alphabet);
    if (digit < 0) return std::nullopt;
    held = held << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(held >> bits & 0xff);
    }
  }
  if (is_exact && (held & ((1u << bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

std::string_view without_padding(std::string_view text) {
  for (int padding = 0; padding < 2 && text.size() % 4 != 1 && text.ends_with('='); ++padding) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string text = encode(bytes, kPlainDigits);
  while (text.size() % 4 != 0) text += '=';
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  return decode(without_padding(text), Alphabet::kPlain, false);
}

std::string base64url(std::string_view bytes) {
  return encode(bytes, kUrlDigits);
}

std::optional<std::string> decode_base64url(std::string_view text) {
  return decode(text, Alphabet::kUrl, true);
}

std::optional<std::string> decode_any_base64(std::string_view text) {
  return decode(without_padding(text), Alphabet::kEither, false);
}

}  // namespace lockstep
