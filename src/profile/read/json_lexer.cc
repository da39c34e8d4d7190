#include "profile/read/json_lexer.h"

#include <charconv>
#include <cmath>

#include "base/characters.h"

namespace lockstep::profile {
namespace {

constexpr int kDepthMax = 64;
constexpr int64_t kMicrosecondsMax = 4'000'000'000'000'000;  // as nanoseconds: far from where additions overflow

bool is_literal(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}

}  // namespace

// At a backslash, or at a control character.
bool JsonLexer::rest_of_string(const char* begin, const char* found, std::string_view& raw) {
  while (*found == '\\') {
    if (found + 1 >= end_) {
      at_ = end_;
      return fail("a string without an end");
    }
    found = find_special(found + 2);
  }
  if (*found != '"') {
    at_ = found;
    return fail("a control character in a string");
  }
  raw = {begin, static_cast<size_t>(found - begin)};
  at_ = found + 1;
  return true;
}

bool JsonLexer::literal(std::string_view& raw) {
  const char* const begin = at_;
  while (is_literal(*at_)) ++at_;
  if (at_ >= end_ || at_ == begin) return fail("no value");  // at the end of the window a number may go on
  raw = {begin, static_cast<size_t>(at_ - begin)};
  return true;
}

bool JsonLexer::skip_nested() {
  uint64_t is_object = 0;  // a bit for each level
  int depth = 0;
  while (true) {
    const char c = *at_;
    if (c == '"') {
      std::string_view unused;
      if (!string(unused)) return false;
      continue;
    }
    if (c == '{' || c == '[') {
      if (depth == kDepthMax) return fail("nested too deep");
      is_object = is_object << 1 | static_cast<uint64_t>(c == '{');
      ++depth;
    } else if (c == '}' || c == ']') {
      if ((is_object & 1) != static_cast<uint64_t>(c == '}')) return fail("brackets that do not match");
      is_object >>= 1;
      if (--depth == 0) {
        ++at_;
        return true;
      }
    } else if (!is_literal(c) && c != ',' && c != ':' && c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      return fail("a character that does not belong there");
    }
    ++at_;
  }
}

bool JsonLexer::skip_flat_rest() {
#ifdef __SSE2__
  const auto mask_of = [](__m128i block, char c) {
    return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(c))));
  };
  const __m128i last_control = _mm_set1_epi8(0x1f);
  uint32_t before = 0;  // all ones where a block begins within a string
  for (const char* at = at_;; at += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    uint32_t in_string = mask_of(block, '"');
    for (const int width : {1, 2, 4, 8}) in_string ^= in_string << width;
    in_string = (in_string ^ before) & 0xFFFF;
    const auto controls =
        static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(block, last_control), block)));
    const uint32_t nested = (mask_of(block, '{') | mask_of(block, '[')) & ~in_string;
    const uint32_t other = nested | mask_of(block, '\\') | (controls & in_string) | mask_of(block, '\0');
    const uint32_t ends = mask_of(block, '}') & ~in_string;
    if ((ends | other) != 0) {
      const int first = __builtin_ctz(ends | other);
      if ((ends >> first & 1) == 0) return false;
      at_ = at + first + 1;
      return true;
    }
    before = (in_string >> 15) != 0 ? 0xFFFF : 0;
  }
#else
  return false;
#endif
}

bool JsonLexer::value(std::string_view& raw) {
  const char* const begin = at_;
  const char c = *at_;
  if (c == '"') {
    std::string_view unused;
    if (!string(unused)) return false;
  } else if (c == '{' || c == '[') {
    if (!skip_nested()) return false;
  } else {
    return literal(raw);
  }
  raw = {begin, static_cast<size_t>(at_ - begin)};
  return true;
}

bool JsonLexer::integer(int64_t& out, int64_t otherwise) {
  const bool is_negative = *at_ == '-';
  const char* at = at_ + (is_negative ? 1 : 0);
  if (is_digit(*at)) {
    uint64_t number = 0;
    int digits = 0;
    for (; is_digit(*at); ++at, ++digits) number = number * 10 + static_cast<uint64_t>(*at - '0');
    if (!is_literal(*at) && at < end_ && digits <= 19 && number <= INT64_MAX) {
      out = is_negative ? -static_cast<int64_t>(number) : static_cast<int64_t>(number);
      at_ = at;
      return true;
    }
  }
  std::string_view raw;
  if (!value(raw)) return false;
  if (raw.size() >= 2 && raw.front() == '"') raw = raw.substr(1, raw.size() - 2);
  out = otherwise;
  if (std::from_chars(raw.data(), raw.data() + raw.size(), out).ec != std::errc()) out = otherwise;
  return true;
}

bool JsonLexer::number(double& out) {
  std::string_view raw;
  if (!value(raw)) return false;
  if (raw.size() >= 2 && raw.front() == '"') raw = raw.substr(1, raw.size() - 2);
  out = 0;
  if (std::from_chars(raw.data(), raw.data() + raw.size(), out).ec != std::errc() || !std::isfinite(out)) out = 0;
  return true;
}

bool JsonLexer::microseconds(int64_t& out_ns) {
  const char* at = at_;
  const bool is_negative = *at == '-';
  if (is_negative) ++at;
  int64_t whole = 0;
  int digits = 0;
  for (; is_digit(*at) && digits < 17; ++at, ++digits) whole = whole * 10 + (*at - '0');
  int64_t fraction = 0;
  if (*at == '.') {
    int places = 0;
    for (++at; is_digit(*at); ++at, ++places) {
      if (places < 3) fraction = fraction * 10 + (*at - '0');
    }
    for (; places < 3; ++places) fraction *= 10;
  }
  if (digits > 0 && !is_literal(*at) && at < end_ && whole <= kMicrosecondsMax) {
    const int64_t ns = whole * 1000 + fraction;
    out_ns = is_negative ? -ns : ns;
    at_ = at;
    return true;
  }
  double value_us = 0;  // 1.5e3, and what is no number
  std::string_view raw;
  const char* const begin = at_;
  if (!literal(raw)) return false;
  const auto [stop, code] = std::from_chars(raw.data(), raw.data() + raw.size(), value_us);
  if (code != std::errc() || stop != raw.data() + raw.size() || !(std::fabs(value_us) <= double{kMicrosecondsMax})) {
    at_ = begin;
    return fail("a time that is none");
  }
  out_ns = std::llround(value_us * 1000);
  return true;
}

bool JsonLexer::text(std::string_view& raw) {
  if (*at_ == '"') return string(raw);
  return value(raw);
}

}  // namespace lockstep::profile
