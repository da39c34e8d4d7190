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

namespace lockstep::profile {

inline constexpr size_t kLexerPadding = 64;

class JsonLexer {
 public:
  JsonLexer(const char* begin, const char* end) : at_(begin), end_(end) {}

  const char* at() const { return at_; }
  // After a call that failed: the window ended, so that more of the text could make it good.
  bool hit_end() const { return hit_end_; }
  const char* failure() const { return failure_; }

  char peek() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
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

  bool string(std::string_view& raw);
  // Any value, as it is written.
  bool value(std::string_view& raw);
  // A whole number; a fraction is cut, a number in quotes is taken too. Anything else is skipped and gives `otherwise`.
  bool integer(int64_t& out, int64_t otherwise = 0);
  bool number(double& out);
  // Microseconds with a fraction, as whole nanoseconds.
  bool microseconds(int64_t& out_ns);
  // A number or a string, as it is written between the quotes.
  bool text(std::string_view& raw);

 private:
  bool fail(const char* why) {
    hit_end_ = at_ >= end_;
    failure_ = why;
    return false;
  }
  bool skip_nested();
  bool literal(std::string_view& raw);

  const char* at_;
  const char* end_;
  bool hit_end_ = false;
  const char* failure_ = "";
};

}  // namespace lockstep::profile
