// Reads TraceQL character by character: words, operators, values and fields, and where the first mistake is.
//
// The first thing that is wrong is kept; everything then comes back empty.
// Thread rule: Confined.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "query/traceql/traceql.h"

namespace lockstep::traceql {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  void fail(std::string what);  // names the place
  // What stands here, as far as a line has room for it.
  std::string rest() const;

  bool at_end() const { return at_ == text_.size(); }
  size_t place() const { return at_; }
  void go_back_to(size_t place) { at_ = place; }
  std::string_view next(size_t length) const { return text_.substr(at_, length); }
  bool starts_with(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  void skip_blanks();
  void skip(size_t length) { at_ += length; }

  // All but bare_word() skip blanks first.
  bool take(std::string_view word);
  void expect(std::string_view word);
  std::string bare_word();  // up to a blank or a sign; may be empty
  std::optional<Op> compare_op();
  Operand operand();
  FieldRef field();

 private:
  Operand field_of(std::string word, size_t began);
  std::string quoted();
  Operand number();

  std::string_view text_;
  size_t at_ = 0;
  std::string problem_;
};

}  // namespace lockstep::traceql
