#include "query/promql/token_reader.h"

#include "base/duration.h"
#include "base/text.h"

namespace lockstep::promql {
namespace {

constexpr BinaryOpRow kBinaryOps[] = {
    {"or", BinaryOp::kOr, 1},        {"and", BinaryOp::kAnd, 2},      {"unless", BinaryOp::kUnless, 2},
    {"==", BinaryOp::kEqual, 3},     {"!=", BinaryOp::kNotEqual, 3},  {"<", BinaryOp::kLess, 3},
    {"<=", BinaryOp::kLessEqual, 3}, {">", BinaryOp::kGreater, 3},    {">=", BinaryOp::kGreaterEqual, 3},
    {"</", BinaryOp::kTrimUpper, 3}, {">/", BinaryOp::kTrimLower, 3}, {"+", BinaryOp::kAdd, 4},
    {"-", BinaryOp::kSub, 4},        {"*", BinaryOp::kMul, 5},        {"/", BinaryOp::kDiv, 5},
    {"%", BinaryOp::kMod, 5},        {"atan2", BinaryOp::kAtan2, 5},  {"^", BinaryOp::kPow, 6},
};

std::string located(std::string_view query, const ParseError& error) {
  const size_t at = std::min<size_t>(error.at, query.size());
  size_t line = 1;
  size_t line_begin = 0;
  for (size_t i = 0; i < at; ++i) {
    if (query[i] == '\n') {
      ++line;
      line_begin = i + 1;
    }
  }
  return format("%zu:%zu: parse error: %s", line, at - line_begin + 1, as_one_line(error.message).c_str());
}

}  // namespace

std::string TokenReader::error() const {
  return located(query_, *error_);
}

const Token& TokenReader::take() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  last_end_ = token.end;
  return token;
}

bool TokenReader::take_op(std::string_view text) {
  if (!peek().is(text)) return false;
  take();
  return true;
}

bool TokenReader::expect(std::string_view text, std::string_view where) {
  if (failed()) return false;
  if (take_op(text)) return true;
  unexpected(where, format("\"%.*s\"", static_cast<int>(text.size()), text.data()));
  return false;
}

void TokenReader::unexpected(std::string_view where, std::string_view expected) {
  const Token& token = peek();
  if (token.kind == TokenKind::kError) return fail(token.begin, token.text);
  std::string message = "unexpected ";
  switch (token.kind) {
    case TokenKind::kEnd:
      message += "end of input";
      break;
    case TokenKind::kNumber:
      message += "number " + token.text;
      break;
    case TokenKind::kDuration:
      message += "duration " + token.text;
      break;
    case TokenKind::kString:
      message += "string \"" + token.text.substr(0, 40) + "\"";
      break;
    case TokenKind::kIdentifier:
    case TokenKind::kMetricIdentifier:
      message += "identifier \"" + token.text.substr(0, 80) + "\"";
      break;
    default:
      message += "\"" + token.text + "\"";
  }
  if (!where.empty()) message += " in " + std::string(where);
  if (!expected.empty()) message += ", expected " + std::string(expected);
  fail(token.begin, std::move(message));
}

const BinaryOpRow* TokenReader::binary_op() const {
  const Token& token = peek();
  const std::string_view text = token.kind == TokenKind::kOperator     ? std::string_view(token.text)
                                : token.kind == TokenKind::kIdentifier ? std::string_view(token.word)
                                                                       : std::string_view();
  if (text.empty()) return nullptr;
  for (const auto& row : kBinaryOps) {
    if (row.text == text) return &row;
  }
  return nullptr;
}

double TokenReader::literal(std::string_view where) {
  if (failed()) return 0;
  const Token& token = peek();
  double value = 0;
  if (token.kind == TokenKind::kNumber) {
    if (!parse_number(token.text, &value)) fail(token.begin, format("\"%.40s\" is not a number", token.text.c_str()));
    take();
  } else if (token.kind == TokenKind::kDuration) {
    int64_t milliseconds = 0;
    if (std::string problem = parse_duration_ms(token.text, &milliseconds); !problem.empty())
      fail(token.begin, problem);
    value = static_cast<double>(milliseconds) / 1000;
    take();
  } else {
    unexpected(where, "a number");
  }
  return value;
}

}  // namespace lockstep::promql
