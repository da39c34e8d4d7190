#include "query/logql/lexer.h"

#include "base/characters.h"
#include "base/text.h"
#include "query/logql/logql.h"

namespace lockstep::logql {
void Lexer::fail(const std::string& what) {
  if (failed()) return;
  problem_ = format("LogQL, character %zu: %s", at_ + 1, what.c_str());
}

std::string Lexer::rest() const {
  return at_ < text_.size() ? "\"" + as_one_line(text_.substr(at_, 20)) + "\"" : std::string("the end");
}

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    if (static_cast<unsigned char>(text_[at_]) <= ' ') {
      ++at_;
    } else if (text_[at_] == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else {
      return;
    }
  }
}

bool Lexer::at_end() {
  skip_blanks();
  return at_ == text_.size();
}

bool Lexer::sees(std::string_view sign) {
  skip_blanks();
  return text_.substr(at_).starts_with(sign);
}

bool Lexer::sees_word(std::string_view word) {
  return sees(word) && (at_ + word.size() == text_.size() || !is_label_letter(text_[at_ + word.size()]));
}

bool Lexer::sees_text() {
  return sees("\"") || sees("`");
}

bool Lexer::take(std::string_view sign) {
  if (!sees(sign)) return false;
  at_ += sign.size();
  return true;
}

bool Lexer::take_word(std::string_view word) {
  if (!sees_word(word)) return false;
  at_ += word.size();
  return true;
}

void Lexer::expect(std::string_view sign) {
  if (failed() || take(sign)) return;
  fail(format("\"%.*s\" is expected, not %s", static_cast<int>(sign.size()), sign.data(), rest().c_str()));
}

std::string Lexer::word() {
  skip_blanks();
  std::string word;
  while (at_ < text_.size() && is_label_letter(text_[at_])) word += text_[at_++];
  return word;
}

std::string Lexer::literal() {
  skip_blanks();
  std::string literal;
  if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) literal += text_[at_++];
  // "1e-3" and "10µs" too.
  while (at_ < text_.size() &&
         (is_label_letter(text_[at_]) || text_[at_] == '.' || (text_[at_] & 0x80) != 0 ||
          ((text_[at_] == '-' || text_[at_] == '+') && (literal.back() == 'e' || literal.back() == 'E'))))
    literal += text_[at_++];
  return literal;
}

std::string Lexer::until(char end) {
  std::string text;
  while (at_ < text_.size() && text_[at_] != end) text += text_[at_++];
  if (at_ == text_.size()) {
    fail(format("\"%c\" is expected", end));
  } else {
    ++at_;
  }
  return text;
}

// After a backslash. False: no such escape.
bool Lexer::escaped(std::string& value) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeans = "\a\b\f\n\r\t\v\\'\"";
  const char letter = text_[at_++];
  if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
    value += kMeans[known];
    return true;
  }
  const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 0;
  if (digits == 0 || text_.size() - at_ < digits) return false;
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int digit = hex_digit(text_[at_++]);
    if (digit < 0) return false;
    code = code * 16 + static_cast<uint32_t>(digit);
  }
  if (code >= 0xD800 && code < 0xE000) return false;
  if (letter == 'x') {
    value += static_cast<char>(code);
  } else {
    append_utf8(value, code);
  }
  return true;
}

std::string Lexer::text() {
  if (!sees_text()) {
    fail(format("a text in quotes is expected, not %s", rest().c_str()));
    return {};
  }
  const char quote = text_[at_++];
  std::string value;
  while (at_ < text_.size() && text_[at_] != quote) {
    if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
      ++at_;
      if (escaped(value)) continue;
      fail("a text has an escape that is none; within `...` a backslash is a backslash");
      return {};
    }
    value += text_[at_++];
  }
  if (at_ == text_.size()) {
    fail("a quote does not end");
    return {};
  }
  ++at_;
  return value;
}

}  // namespace lockstep::logql
