// The tokens of a query as the parser takes them, what counts against its limits, and the first error.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/promql/lexer.h"
#include "query/promql/parser.h"

namespace lockstep::promql {

struct ParseError {
  uint32_t at;
  std::string message;
};

struct BinaryOpRow {
  std::string_view text;
  BinaryOp op;
  int precedence;
};
inline constexpr int kUnaryPrecedence = 5;  // that of '*': -a^b is -(a^b), -a*b is (-a)*b
inline constexpr int kPowPrecedence = 6;

class TokenReader {
 public:
  TokenReader(std::string_view query, const ParseLimits& limits)
      : limits_(limits), query_(query), tokens_(lex(query)) {}

  // LINE:COLUMN and what is wrong; only where failed().
  std::string error() const;

 protected:
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take();
  bool is_word(std::string_view word, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kIdentifier && peek(ahead).word == word;
  }
  bool take_op(std::string_view text);
  bool expect(std::string_view text, std::string_view where);
  double literal(std::string_view where);
  const BinaryOpRow* binary_op() const;  // none: no operator is next

  // The first error counts.
  bool failed() const { return error_.has_value(); }
  void fail(uint32_t at, std::string message) {
    if (!error_) error_ = ParseError{at, std::move(message)};
  }
  void unexpected(std::string_view where, std::string_view expected = {});

  const ParseLimits& limits_;
  uint32_t last_end_ = 0;  // of the token taken last
  uint32_t recursion_ = 0;
  size_t nodes_ = 0;

 private:
  std::string_view query_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::optional<ParseError> error_;
};

}  // namespace lockstep::promql
