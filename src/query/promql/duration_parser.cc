#include "query/promql/duration_parser.h"

#include <cmath>

#include "base/text.h"

namespace lockstep::promql {
namespace {

constexpr double kDurationSecondsMax = 9223372036.854775807;

}  // namespace

DurationParser::DurationPtr DurationParser::positive_duration() {
  DurationPtr duration = duration_expression(0);
  if (!failed() && duration->op == DurationExpr::Op::kNumber && !(duration->seconds > 0))
    fail(duration->begin, "a duration must be greater than 0");
  return duration;
}

DurationParser::DurationPtr DurationParser::duration_number(double seconds, bool is_duration, uint32_t begin) {
  if (seconds > kDurationSecondsMax || seconds < -kDurationSecondsMax || std::isnan(seconds))
    fail(begin, "a duration is out of range");
  auto node = std::make_unique<DurationExpr>();
  node->seconds = seconds;
  node->is_duration = is_duration;
  node->begin = begin;
  node->end = last_end_;
  return node;
}

DurationParser::DurationPtr DurationParser::offset_duration() {
  if (peek().is("(")) return duration_expression(0);
  if (peek().kind == TokenKind::kEnd || peek().kind == TokenKind::kError) {
    unexpected("offset", "a duration");
    return nullptr;
  }
  return duration_unary(true);
}

DurationParser::DurationPtr DurationParser::duration_expression(int least) {
  if (++recursion_ > limits_.depth_max)
    fail(peek().begin, format("the query is nested deeper than %u", limits_.depth_max));
  if (failed()) {
    --recursion_;
    return nullptr;
  }
  DurationPtr left = duration_unary(false);
  size_t chain = 0;
  while (!failed()) {
    const auto* row = binary_op();
    if (row == nullptr || row->precedence < 4 || row->op == BinaryOp::kAtan2 || row->precedence < least) break;
    const uint32_t at = take().begin;
    if (++chain > limits_.depth_max) fail(at, format("a duration has more than %u parts", limits_.depth_max));
    DurationPtr right = duration_expression(row->op == BinaryOp::kPow ? row->precedence : row->precedence + 1);
    if (failed()) break;
    if ((row->op == BinaryOp::kDiv || row->op == BinaryOp::kMod) && right->op == DurationExpr::Op::kNumber &&
        right->seconds == 0)
      fail(at, row->op == BinaryOp::kDiv ? "division by zero" : "modulo by zero");
    using Op = DurationExpr::Op;
    const Op op = row->op == BinaryOp::kAdd   ? Op::kAdd
                  : row->op == BinaryOp::kSub ? Op::kSub
                  : row->op == BinaryOp::kMul ? Op::kMul
                  : row->op == BinaryOp::kDiv ? Op::kDiv
                  : row->op == BinaryOp::kMod ? Op::kMod
                                              : Op::kPow;
    left = duration_node(op, std::move(left), std::move(right));
  }
  --recursion_;
  return failed() ? nullptr : std::move(left);
}

DurationParser::DurationPtr DurationParser::duration_node(DurationExpr::Op op, DurationPtr left, DurationPtr right) {
  if (++nodes_ > limits_.nodes_max) fail(peek().begin, format("the query has more than %zu parts", limits_.nodes_max));
  auto node = std::make_unique<DurationExpr>();
  node->op = op;
  node->begin = left ? left->begin : right ? right->begin : last_end_;
  node->end = last_end_;
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

DurationParser::DurationPtr DurationParser::duration_unary(bool tight) {
  const uint32_t begin = peek().begin;
  if (peek().is("-") || peek().is("+")) {
    const bool negative = take().text == "-";
    DurationPtr operand = tight ? duration_primary() : duration_expression(kPowPrecedence);
    if (failed() || !negative) return operand;
    if (operand->op == DurationExpr::Op::kNumber) {
      operand->seconds = -operand->seconds;
      operand->begin = begin;
      return operand;
    }
    return duration_node(DurationExpr::Op::kNegate, nullptr, std::move(operand));
  }
  return duration_primary();
}

DurationParser::DurationPtr DurationParser::duration_primary() {
  const Token& token = peek();
  const uint32_t begin = token.begin;
  if (token.kind == TokenKind::kNumber || token.kind == TokenKind::kDuration) {
    const bool is_duration = token.kind == TokenKind::kDuration;
    const double seconds = literal("a duration");
    return duration_number(seconds, is_duration, begin);
  }
  if (token.is("(")) {
    take();
    DurationPtr inner = duration_expression(0);
    expect(")", "a duration");
    if (failed()) return nullptr;
    if (inner->op != DurationExpr::Op::kNumber) inner->in_parens = true;
    return inner;
  }
  if ((is_word("step") || is_word("range")) && peek(1).is("(")) {
    const bool step = take().word == "step";
    take();
    expect(")", "a duration");
    DurationPtr node = duration_node(step ? DurationExpr::Op::kStep : DurationExpr::Op::kRange, nullptr, nullptr);
    node->begin = begin;
    return node;
  }
  if ((is_word("min_of") || is_word("max_of")) && peek(1).is("(")) {
    const bool least = take().word == "min_of";
    take();
    DurationPtr left = duration_expression(0);
    expect(",", "a duration");
    DurationPtr right = failed() ? nullptr : duration_expression(0);
    expect(")", "a duration");
    if (failed()) return nullptr;
    DurationPtr node =
        duration_node(least ? DurationExpr::Op::kMinOf : DurationExpr::Op::kMaxOf, std::move(left), std::move(right));
    node->begin = begin;
    return node;
  }
  unexpected("a duration", "a number, a duration, step() or range()");
  return nullptr;
}

}  // namespace lockstep::promql
