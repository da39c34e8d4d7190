// Reads LogQL character by character: words, signs, texts in quotes, numbers, and where the first mistake is.
//
// The first thing that is wrong is kept; everything then comes back empty.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::logql {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  void fail(const std::string& what);  // names the place
  // What stands here, as far as a line has room for it.
  std::string rest() const;

  // All of these skip blanks and comments first.
  bool at_end();
  bool sees(std::string_view sign);
  bool sees_word(std::string_view word);  // the whole word
  bool sees_text();                       // a quote
  bool take(std::string_view sign);
  bool take_word(std::string_view word);
  void expect(std::string_view sign);
  std::string word();           // letters, digits and _; may be empty
  std::string text();           // in quotes, which are taken off
  std::string literal();        // a number with its unit, as it is written; may be empty
  std::string until(char end);  // and takes it

  size_t place() const { return at_; }
  void go_back_to(size_t place) { at_ = place; }

 private:
  void skip_blanks();
  bool escaped(std::string& value);

  std::string_view text_;
  size_t at_ = 0;
  std::string problem_;
};

}  // namespace lockstep::logql
