#include "query/promql/lexer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/characters.h"
#include "base/duration.h"
#include "base/text.h"

namespace lockstep::promql {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_alpha(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_alnum(char c) {
  return is_alpha(c) || is_digit(c);
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    while (next()) {
    }
    return std::move(tokens_);
  }

 private:
  bool next() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_])) {
        ++at_;
      } else if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else {
        break;
      }
    }
    begin_ = at_;
    if (at_ == text_.size()) {
      if (in_braces_) return fail("the braces are not closed");
      if (parens_ > 0) return fail("a left parenthesis is not closed");
      if (in_brackets_) return fail("the left bracket is not closed");
      add(TokenKind::kEnd);
      return false;
    }
    const char c = text_[at_];
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (is_alpha(c) || (c == ':' && !in_brackets_ && !in_braces_)) return identifier();
    if (c == '"' || c == '\'') return quoted(c);
    if (c == '`') return raw();
    return op(c);
  }

  bool op(char c) {
    static constexpr std::array<std::string_view, 10> kLong = {"==", "!=", "<=", ">=", "=~", "!~", "</", ">/"};
    const std::string_view two = text_.substr(at_, 2);
    for (std::string_view one : kLong) {
      if (one.empty() || two != one) continue;
      const bool matcher_only = one == "=~" || one == "!~";
      const bool expression_only = one == "==" || one == "<=" || one == ">=" || one == "</" || one == ">/";
      if (in_braces_ ? expression_only : matcher_only) continue;
      at_ += 2;
      return add(TokenKind::kOperator);
    }
    constexpr std::string_view kInBraces = "=,}";
    constexpr std::string_view kOutside = "+-*/%^=<>(){}[],@:";
    if ((in_braces_ ? kInBraces : kOutside).find(c) == std::string_view::npos) {
      if (c == '!') return fail("'!' is not followed by '='");
      const size_t length = std::max<size_t>(1, utf8_length(text_.substr(at_)));
      if (utf8_length(text_.substr(at_)) == 0) return fail(format("byte 0x%02x is not UTF-8", static_cast<uint8_t>(c)));
      return fail(format("unexpected character '%s'%s", as_one_line(text_.substr(at_, length)).c_str(),
                         in_braces_ ? " inside braces" : ""));
    }
    ++at_;
    if (c == '{') in_braces_ = true;
    if (c == '}') {
      if (!in_braces_) return fail("unexpected right brace");
      in_braces_ = false;
    }
    if (c == '(') ++parens_;
    if (c == ')' && --parens_ < 0) return fail("unexpected right parenthesis");
    if (c == '[') {
      if (in_brackets_) return fail("unexpected left bracket");
      in_brackets_ = true;
    }
    if (c == ']') {
      if (!in_brackets_) return fail("unexpected right bracket");
      in_brackets_ = false;
    }
    return add(TokenKind::kOperator);
  }

  // Digits with what may stand among them; a number that is followed by a unit is a duration.
  bool number() {
    if (text_[at_] == '0' && (peek(1) == 'x' || peek(1) == 'X')) {
      at_ += 2;
      while (at_ < text_.size() && (is_alnum(text_[at_]))) ++at_;
      double value = 0;
      if (!parse_number(text_.substr(begin_, at_ - begin_), &value)) return bad_number();
      return add(TokenKind::kNumber);
    }
    while (is_digit(peek(0)) || peek(0) == '_') ++at_;
    bool fraction = false;
    if (peek(0) == '.') {
      fraction = true;
      ++at_;
      while (is_digit(peek(0)) || peek(0) == '_') ++at_;
    }
    bool exponent = false;
    if ((peek(0) == 'e' || peek(0) == 'E')) {
      exponent = true;
      ++at_;
      if (peek(0) == '+' || peek(0) == '-') ++at_;
      while (is_digit(peek(0)) || peek(0) == '_') ++at_;
    }
    if (!is_alnum(peek(0)) && peek(0) != '.') {
      double value = 0;
      if (!parse_number(text_.substr(begin_, at_ - begin_), &value)) return bad_number();
      return add(TokenKind::kNumber);
    }
    while (is_alnum(peek(0)) || peek(0) == '.') ++at_;
    int64_t duration = 0;
    if (fraction || exponent) return bad_number();
    const std::string problem = parse_duration_ms(text_.substr(begin_, at_ - begin_), &duration);
    if (!problem.empty()) return fail(problem);
    return add(TokenKind::kDuration);
  }
  bool bad_number() {
    return fail(format("\"%.40s\" is neither a number nor a duration",
                       std::string(text_.substr(begin_, at_ - begin_)).c_str()));
  }

  bool identifier() {
    bool colon = false;
    while (at_ < text_.size() && (is_alnum(text_[at_]) || (text_[at_] == ':' && !in_brackets_ && !in_braces_))) {
      colon |= text_[at_] == ':';
      ++at_;
    }
    add(colon ? TokenKind::kMetricIdentifier : TokenKind::kIdentifier);
    if (!in_braces_ && !colon) {
      std::string word = lower_case(tokens_.back().text);
      if (word == "inf" || word == "nan") {
        tokens_.back().kind = TokenKind::kNumber;
      } else {
        tokens_.back().word = std::move(word);
      }
    }
    return true;
  }

  bool quoted(char quote) {
    ++at_;
    std::string value;
    for (;;) {
      if (at_ >= text_.size() || text_[at_] == '\n') return fail("the quoted string has no end");
      const char c = text_[at_];
      if (c == quote) break;
      if (c == '\\') {
        if (!escape(quote, value)) return false;
        continue;
      }
      const size_t length = utf8_length(text_.substr(at_));
      if (length == 0) return fail("the quoted string is not UTF-8");
      value.append(text_.substr(at_, length));
      at_ += length;
    }
    ++at_;
    add(TokenKind::kString);
    tokens_.back().text = std::move(value);
    return true;
  }

  bool escape(char quote, std::string& value) {
    ++at_;
    const char c = peek(0);
    constexpr std::string_view kNames = "abfnrtv\\";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\";
    if (const size_t known = kNames.find(c); c != '\0' && known != std::string_view::npos) {
      value += kValues[known];
      ++at_;
      return true;
    }
    if (c == quote) {
      value += c;
      ++at_;
      return true;
    }
    int digits = 0;
    int base = 16;
    uint32_t most = 255;
    switch (c) {
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        most = 0x10FFFF;
        break;
      case 'U':
        digits = 8;
        most = 0x10FFFF;
        break;
      default:
        if (c < '0' || c > '7') return fail("unknown escape in a quoted string");
        digits = 3;
        base = 8;
    }
    if (base == 16) ++at_;
    uint64_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_digit(peek(0));
      if (digit < 0 || digit >= base) return fail("an escape in a quoted string has too few digits");
      code = code * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit);
    }
    if (code > most || (code >= 0xD800 && code < 0xE000)) return fail("an escape in a quoted string is no character");
    if (most == 255) {
      value += static_cast<char>(code);
    } else {
      append_utf8(value, static_cast<uint32_t>(code));
    }
    return true;
  }

  bool raw() {
    ++at_;
    const size_t end = text_.find('`', at_);
    if (end == std::string_view::npos) return fail("the raw string has no end");
    for (size_t i = at_; i < end;) {
      const size_t length = utf8_length(text_.substr(i, end - i));
      if (length == 0) return fail("the raw string is not UTF-8");
      i += length;
    }
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    add(TokenKind::kString);
    tokens_.back().text = std::move(value);
    return true;
  }

  char peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool add(TokenKind kind) {
    tokens_.push_back({kind,
                       static_cast<uint32_t>(begin_),
                       static_cast<uint32_t>(at_),
                       std::string(text_.substr(begin_, at_ - begin_)),
                       {}});
    return true;
  }
  bool fail(std::string message) {
    tokens_.push_back(
        {TokenKind::kError, static_cast<uint32_t>(begin_), static_cast<uint32_t>(at_), std::move(message), {}});
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t begin_ = 0;
  int parens_ = 0;
  bool in_braces_ = false;
  bool in_brackets_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  uint32_t code = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
    code = first & 0x1F;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    code = first & 0x0F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    code = first & 0x07;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) return 0;
  if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return 0;
  return length;
}

std::vector<Token> lex(std::string_view query) {
  return Lexer(query).run();
}

bool parse_number(std::string_view text, double* number) {
  std::string digits;
  const std::string lower = lower_case(text);
  if (lower == "inf" || lower == "+inf" || lower == "-inf") {
    *number = lower[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    return true;
  }
  if (lower == "nan") {
    *number = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const bool hex = lower.starts_with("0x");
  for (size_t i = 0; i < lower.size(); ++i) {
    if (lower[i] == '_') {  // between digits, or after 0x
      const bool before = i > 0 && (hex_digit(lower[i - 1]) >= 0 || (hex && i == 2));
      const bool after = i + 1 < lower.size() && hex_digit(lower[i + 1]) >= 0;
      if (!before || !after) return false;
      continue;
    }
    digits += lower[i];
  }
  if (digits.empty()) return false;
  if (hex) {
    if (digits.size() == 2) return false;
    uint64_t value = 0;
    for (size_t i = 2; i < digits.size(); ++i) {
      const int digit = hex_digit(digits[i]);
      if (digit < 0 || value > (std::numeric_limits<uint64_t>::max() >> 4)) return false;
      value = value << 4 | static_cast<uint64_t>(digit);
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    *number = static_cast<double>(value);
    return true;
  }
  const bool all_digits = digits.find_first_not_of("0123456789") == std::string::npos;
  if (all_digits && digits.size() > 1 && digits[0] == '0' && digits.find_first_of("89") == std::string::npos) {
    uint64_t value = 0;  // a leading zero is octal
    for (char c : digits) {
      if (value > (std::numeric_limits<uint64_t>::max() >> 4)) return false;
      value = value << 3 | static_cast<uint64_t>(c - '0');
    }
    *number = static_cast<double>(value);
    return true;
  }
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  const std::from_chars_result result = std::from_chars(begin, end, *number);
  if (result.ptr != end) return false;
  if (result.ec == std::errc::result_out_of_range) {
    *number = std::strtod(digits.c_str(), nullptr);  // 0 or infinity
    return !std::isinf(*number);
  }
  return result.ec == std::errc();
}

}  // namespace lockstep::promql
