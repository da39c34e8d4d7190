// PromQL as a tree: what the parser makes, and what printer, evaluator and the query API read.
//
// One node type with the fields of every kind: a query has tens of nodes, so plain beats compact.
// Thread rule: Confined while it is made and resolved; then Immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/metric_reader.h"

namespace lockstep::promql {

enum class ValueType : uint8_t { kNone, kScalar, kVector, kMatrix, kString };
// "instant vector" and the like, for messages.
std::string_view type_name(ValueType type);

enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kPow,
  kAtan2,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kTrimUpper,  // </ keeps the part of a histogram below
  kTrimLower,  // >/ keeps the part above
  kAnd,
  kOr,
  kUnless,
};
std::string_view op_text(BinaryOp op);
inline bool is_comparison(BinaryOp op) {
  return op >= BinaryOp::kEqual && op <= BinaryOp::kGreaterEqual;
}
inline bool is_set_op(BinaryOp op) {
  return op >= BinaryOp::kAnd;
}

enum class AggregateOp : uint8_t {
  kSum,
  kAvg,
  kCount,
  kMin,
  kMax,
  kGroup,
  kStddev,
  kStdvar,
  kTopk,
  kBottomk,
  kCountValues,
  kQuantile,
  kLimitk,
  kLimitRatio,
};
std::string_view op_text(AggregateOp op);
bool has_parameter(AggregateOp op);

// A name is the index of its row in functions.cc.
struct Function {
  std::string_view name;
  std::vector<ValueType> arguments;
  int variadic;  // 0: exactly these; n: the last may be left out or come up to n times; -1: any number
  ValueType returns;
};
const Function* find_function(std::string_view name);

// Arithmetic on durations, as in [step() * 2] and offset (1h / 2).
struct DurationExpr {
  enum class Op : uint8_t { kNumber, kStep, kRange, kMinOf, kMaxOf, kAdd, kSub, kMul, kDiv, kMod, kPow, kNegate };
  Op op = Op::kNumber;
  double seconds = 0;        // kNumber
  bool is_duration = false;  // kNumber: was written with units
  bool in_parens = false;
  uint32_t begin = 0, end = 0;
  std::unique_ptr<DurationExpr> left, right;
};

enum class Cardinality : uint8_t { kOneToOne, kManyToOne, kOneToMany, kManyToMany };

struct VectorMatching {
  Cardinality card = Cardinality::kOneToOne;
  std::vector<std::string> labels;
  bool on = false;
  std::vector<std::string> include;
  std::optional<double> fill_left, fill_right;
};

enum class AtModifier : uint8_t { kNone, kTime, kStart, kEnd };

struct Expr {
  enum class Kind : uint8_t {
    kNumber,
    kString,
    kSelector,
    kMatrix,
    kSubquery,
    kAggregate,
    kBinary,
    kUnary,
    kCall,
    kParen
  };
  Kind kind = Kind::kNumber;
  ValueType type = ValueType::kNone;
  uint32_t begin = 0, end = 0;  // bytes of the query
  uint32_t depth = 1;
  // kMatrix: the selector. kSubquery, kUnary, kParen: the operand. kBinary: left, right. kAggregate: the vector, then
  // the parameter if there is one. kCall: the arguments.
  std::vector<std::unique_ptr<Expr>> children;

  double number = 0;         // kNumber
  bool is_duration = false;  // kNumber: written as 5m
  std::string text;          // kString; kSelector: the name before the braces, if there is one

  std::vector<LabelMatcher> matchers;  // kSelector; the name is among them, at the end
  bool may_match_all = false;          // kSelector: the second argument of info()
  bool anchored = false, smoothed = false;
  // Only count and sum of histograms are wanted, so whether a counter was reset is worked out as they are read: buckets
  // would not be there to tell later.
  bool finds_resets = false;
  // kSelector: an aggregation looks at these labels of what it finds, and nobody at the others.
  std::optional<std::vector<std::string>> only_labels;

  // kSelector, kSubquery
  int64_t offset_ms = 0;
  std::unique_ptr<DurationExpr> offset_expr;
  AtModifier at = AtModifier::kNone;
  int64_t at_ms = 0;
  // kMatrix, kSubquery
  int64_t range_ms = 0;
  std::unique_ptr<DurationExpr> range_expr;
  // kSubquery; 0: the default step
  int64_t step_ms = 0;
  std::unique_ptr<DurationExpr> step_expr;

  AggregateOp aggregate = AggregateOp::kSum;
  std::vector<std::string> grouping;
  bool without = false;

  BinaryOp op = BinaryOp::kAdd;
  bool return_bool = false;
  std::optional<VectorMatching> matching;  // between two vectors only
  bool negative = false;                   // kUnary: '-'

  const Function* function = nullptr;

  const Expr& child(size_t i = 0) const { return *children[i]; }
};

// Without parentheses around it.
const Expr& unwrapped(const Expr& expr);

}  // namespace lockstep::promql
