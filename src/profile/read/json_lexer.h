// Reads JSON values where they stand in a window of text: strings as they are written, numbers, times; skips the rest.
// For the trace reader alone: it reads no document, builds nothing, and tells "not JSON" from "the window ends here".
//
// The text must be followed by kLexerPadding bytes of NUL: that is how the end is seen without looking for it at every
// byte.
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace lockstep::profile {

inline constexpr size_t kLexerPadding = 64;

// The first byte from `at` on that is no blank.
inline const char* find_no_blank(const char* at) {
#ifdef __SSE2__
  const __m128i space = _mm_set1_epi8(' '), newline = _mm_set1_epi8('\n');
  const __m128i carriage = _mm_set1_epi8('\r'), tab = _mm_set1_epi8('\t');
  while (true) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i lines = _mm_or_si128(_mm_cmpeq_epi8(block, newline), _mm_cmpeq_epi8(block, carriage));
    const __m128i blanks = _mm_or_si128(_mm_cmpeq_epi8(block, space), _mm_cmpeq_epi8(block, tab));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(lines, blanks)));
    if (mask != 0xFFFF) return at + __builtin_ctz(~mask);
    at += 16;
  }
#else
  while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') ++at;
  return at;
#endif
}

// The first quote, backslash or control character. A control character has no place in a string: it is where the window
// or a string without an end is seen to stop.
inline const char* find_special(const char* at) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i last_control = _mm_set1_epi8(0x1f);
  while (true) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i is_control = _mm_cmpeq_epi8(_mm_min_epu8(block, last_control), block);
    const __m128i found =
        _mm_or_si128(is_control, _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)));
    if (const int mask = _mm_movemask_epi8(found); mask != 0) return at + __builtin_ctz(static_cast<unsigned>(mask));
    at += 16;
  }
#else
  while (*at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
  return at;
#endif
}

class JsonLexer {
 public:
  JsonLexer(const char* begin, const char* end) : at_(begin), end_(end) {}

  const char* at() const { return at_; }
  // After a call that failed: the window ended, so that more of the text could make it good.
  bool hit_end() const { return hit_end_; }
  const char* failure() const { return failure_; }

  char peek() {
    // Mostly none, or the one behind a colon or a comma; else a new line and its indentation.
    if (static_cast<unsigned char>(*at_) > ' ') return *at_;
    if (*at_ == ' ' && static_cast<unsigned char>(*++at_) > ' ') return *at_;
    at_ = find_no_blank(at_);
    return *at_;
  }
  // The next character that is no blank has to be this one.
  bool take(char wanted) {
    if (peek() != wanted) return fail("a character that does not belong there");
    ++at_;
    return true;
  }
  // "key" and its colon; what follows is the value.
  bool key(std::string_view& out) {
    peek();
    return string(out) && take(':') && (peek(), true);
  }
  // After a value: true where another member follows, false (and closed) at the end of the object; check ok().
  bool more(char closing, bool& ok) {
    const char c = peek();
    ok = c == ',' || c == closing || fail("neither a comma nor the end of an object or list");
    if (ok) ++at_;
    return ok && c == ',';
  }

  bool string(std::string_view& raw) {
    if (*at_ != '"') return fail("no quote where a string begins");
    const char* const begin = at_ + 1;
    const char* const found = find_special(begin);
    if (*found != '"') return rest_of_string(begin, found, raw);
    raw = {begin, static_cast<size_t>(found - begin)};
    at_ = found + 1;
    return true;
  }
  // Any value, as it is written.
  bool value(std::string_view& raw);
  // A whole number; a fraction is cut, a number in quotes is taken too. Anything else is skipped and gives `otherwise`.
  bool integer(int64_t& out, int64_t otherwise = 0);
  bool number(double& out);
  // Microseconds with a fraction, as whole nanoseconds.
  bool microseconds(int64_t& out_ns);
  // After a value of an object: to behind its end, where nothing in it is nested or escaped and it ends within the window.
  // Otherwise false, and nothing was taken.
  bool skip_flat_rest();
  // A number or a string, as it is written between the quotes.
  bool text(std::string_view& raw);

 private:
  bool fail(const char* why) {
    hit_end_ = at_ >= end_;
    failure_ = why;
    return false;
  }
  bool rest_of_string(const char* begin, const char* found, std::string_view& raw);
  bool skip_nested();
  bool literal(std::string_view& raw);

  const char* at_;
  const char* end_;
  bool hit_end_ = false;
  const char* failure_ = "";
};

}  // namespace lockstep::profile
