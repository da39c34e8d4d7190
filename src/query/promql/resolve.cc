// What is settled before an expression is evaluated: durations, times after @, which labels anybody will look at, and
// which parts have the same value at every step.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "query/promql/evaluator.h"

namespace lockstep::promql {
namespace {

// Functions whose value changes with the time of evaluation though their arguments do not.
bool depends_on_time(std::string_view name) {
  static constexpr std::string_view kNames[] = {"days_in_month", "day_of_month", "day_of_week",    "day_of_year",
                                                "hour",          "minute",       "month",          "year",
                                                "time",          "timestamp",    "predict_linear", "start_timestamp"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

double duration_value(const DurationExpr& expr, double step_s, double range_s) {
  using Op = DurationExpr::Op;
  const double left = expr.left ? duration_value(*expr.left, step_s, range_s) : 0;
  const double right = expr.right ? duration_value(*expr.right, step_s, range_s) : 0;
  switch (expr.op) {
    case Op::kNumber:
      return expr.seconds;
    case Op::kStep:
      return step_s;
    case Op::kRange:
      return range_s;
    case Op::kMinOf:
      return std::min(left, right);
    case Op::kMaxOf:
      return std::max(left, right);
    case Op::kAdd:
      return left + right;
    case Op::kSub:
      return left - right;
    case Op::kMul:
      return left * right;
    case Op::kDiv:
      if (right == 0)
        throw EvalFailure{QueryFailure::kBadQuery, format("a duration is divided by zero at byte %u", expr.begin)};
      return left / right;
    case Op::kMod:
      if (right == 0)
        throw EvalFailure{QueryFailure::kBadQuery, format("a duration is taken modulo zero at byte %u", expr.begin)};
      return std::fmod(left, right);
    case Op::kPow:
      return std::pow(left, right);
    case Op::kNegate:
      return -right;
  }
  return 0;
}

int64_t duration_ms(const DurationExpr& expr, const QueryTimes& times, bool may_be_negative) {
  const double step_s = static_cast<double>(times.step_ms) / 1000;
  const double range_s = static_cast<double>(times.end_ms - times.start_ms) / 1000;
  const double seconds = duration_value(expr, step_s, range_s);
  if (std::isnan(seconds) || std::isinf(seconds))
    throw EvalFailure{QueryFailure::kBadQuery, format("%u:%u: duration is NaN or infinite", expr.begin, expr.end)};
  if (seconds <= 0 && !may_be_negative)
    throw EvalFailure{QueryFailure::kBadQuery, format("%u:%u: duration must be greater than 0", expr.begin, expr.end)};
  if (std::fabs(seconds) > 9223372036.0)
    throw EvalFailure{QueryFailure::kBadQuery, format("%u:%u: duration is out of range", expr.begin, expr.end)};
  return static_cast<int64_t>(seconds * 1000);
}

Expr* unwrapped(std::unique_ptr<Expr>& expr) {
  return expr->kind == Expr::Kind::kParen ? unwrapped(expr->children[0]) : expr.get();
}

// sum by (job) (rate(x[1m])): nobody sees any label of x but job. Series that then look alike are not merged: a
// selector's rows are what they are, and those of one metric differ without their name too.
void set_wanted_labels(Expr& aggregate) {
  switch (aggregate.aggregate) {
    case AggregateOp::kTopk:
    case AggregateOp::kBottomk:
    case AggregateOp::kLimitk:
    case AggregateOp::kLimitRatio:
    case AggregateOp::kCountValues:
      return;
    default:
      break;
  }
  if (aggregate.without) return;
  Expr* operand = unwrapped(aggregate.children[0]);
  if (operand->kind == Expr::Kind::kCall) {
    for (std::unique_ptr<Expr>& argument : operand->children) {
      Expr* range = unwrapped(argument);
      if (range->kind == Expr::Kind::kMatrix && names_one_metric(range->child()))
        range->children[0]->only_labels = aggregate.grouping;
    }
  } else if (operand->kind == Expr::Kind::kSelector) {
    operand->only_labels = aggregate.grouping;
  }
}

}  // namespace

bool names_one_metric(const Expr& selector) {
  return std::any_of(selector.matchers.begin(), selector.matchers.end(), [](const LabelMatcher& matcher) {
    return matcher.name == "__name__" && matcher.op == LabelMatcher::Op::kEqual;
  });
}

void Evaluator::resolve(Expr& expr, BucketUse use) {
  if (expr.offset_expr) expr.offset_ms = duration_ms(*expr.offset_expr, times_, true);
  if (expr.range_expr) expr.range_ms = duration_ms(*expr.range_expr, times_, false);
  if (expr.step_expr) expr.step_ms = duration_ms(*expr.step_expr, times_, false);
  if (expr.at == AtModifier::kStart) expr.at_ms = times_.start_ms;
  if (expr.at == AtModifier::kEnd) expr.at_ms = times_.end_ms;
  expr.at_ms = tame(expr.at_ms);
  expr.offset_ms = tame(expr.offset_ms);
  expr.range_ms = tame(expr.range_ms);
  if (expr.kind == Expr::Kind::kSubquery || expr.op == BinaryOp::kTrimUpper || expr.op == BinaryOp::kTrimLower) {
    use = BucketUse::kNeeded;
  } else if (expr.kind == Expr::Kind::kCall && use != BucketUse::kNeeded) {
    const std::string_view name = expr.function->name;
    if (name == "histogram_count" || name == "histogram_sum" || name == "histogram_avg") use = BucketUse::kNotNeeded;
    if (name == "histogram_quantile" || name == "histogram_quantiles" || name == "histogram_fraction")
      use = BucketUse::kNeeded;
  }
  expr.finds_resets = use == BucketUse::kNotNeeded;
  if (expr.kind == Expr::Kind::kAggregate) set_wanted_labels(expr);
  for (auto& child : expr.children) resolve(*child, use);
}

bool Evaluator::is_invariant(const Expr& expr) const {
  switch (expr.kind) {
    case Expr::Kind::kNumber:
    case Expr::Kind::kString:
      return true;
    case Expr::Kind::kSelector:
    case Expr::Kind::kSubquery:
      return expr.at != AtModifier::kNone;
    case Expr::Kind::kMatrix:
    case Expr::Kind::kAggregate:
    case Expr::Kind::kUnary:
    case Expr::Kind::kParen:
      return is_invariant(expr.child());
    case Expr::Kind::kBinary:
      return is_invariant(expr.child(0)) && is_invariant(expr.child(1));
    case Expr::Kind::kCall: {
      if (expr.function->name == "timestamp") {
        const Expr& argument = unwrapped(expr.child());
        return argument.kind == Expr::Kind::kSelector && is_invariant(argument);
      }
      if (depends_on_time(expr.function->name)) return false;
      return std::all_of(expr.children.begin(), expr.children.end(),
                         [&](const auto& child) { return is_invariant(*child); });
    }
  }
  return false;
}

}  // namespace lockstep::promql
