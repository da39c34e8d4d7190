// PromQL text to tokens. The whole text at once: a query is small and its length is limited by the parser.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::promql {

enum class TokenKind : uint8_t {
  kEnd,
  kError,             // text: what is wrong; always the last token
  kNumber,            // text: as written
  kDuration,          // text: as written
  kString,            // text: without quotes and escapes
  kIdentifier,        // may be a keyword: word() tells, outside braces
  kMetricIdentifier,  // has a ':'
  kOperator,          // text: the operator or bracket as written
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t begin = 0, end = 0;
  std::string text;
  std::string word;  // kIdentifier: in lower case
  bool is(std::string_view operator_text) const { return kind == TokenKind::kOperator && text == operator_text; }
};

// Ends with kEnd or kError.
std::vector<Token> lex(std::string_view query);

// Length of the UTF-8 sequence at the front of a text that is not empty; 0: it is none.
size_t utf8_length(std::string_view text);

// 12345, 0x1f, 1_000, 1e9, .5, Inf, NaN. False: not a number.
bool parse_number(std::string_view text, double* number);

}  // namespace lockstep::promql
