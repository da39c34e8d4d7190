#include "query/promql/type_check.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::promql {
namespace {

class TypeCheck {
 public:
  void check(Expr& expr) {
    switch (expr.kind) {
      case Expr::Kind::kNumber:
      case Expr::Kind::kString:
        return;
      case Expr::Kind::kSelector:
        return check_selector(expr);
      case Expr::Kind::kMatrix:
      case Expr::Kind::kParen:
        break;
      case Expr::Kind::kCall:
        mark_info(expr);
        break;
      default:
        break;
    }
    for (auto& child : expr.children) check(*child);
    if (failed()) return;
    switch (expr.kind) {
      case Expr::Kind::kSubquery:
        if (expr.child().type != ValueType::kVector)
          fail(expr.begin, format("a subquery is only allowed on an instant vector, got %s",
                                  std::string(type_name(expr.child().type)).c_str()));
        return;
      case Expr::Kind::kUnary:
        if (expr.child().type != ValueType::kScalar && expr.child().type != ValueType::kVector)
          fail(expr.begin, format("a sign is only allowed before a scalar or an instant vector, got %s",
                                  std::string(type_name(expr.child().type)).c_str()));
        return;
      case Expr::Kind::kAggregate:
        expect_type(expr.child(), ValueType::kVector, "an aggregation");
        if (has_parameter(expr.aggregate))
          expect_type(expr.child(1),
                      expr.aggregate == AggregateOp::kCountValues ? ValueType::kString : ValueType::kScalar,
                      "the parameter of an aggregation");
        return;
      case Expr::Kind::kBinary:
        return check_binary(expr);
      case Expr::Kind::kCall:
        return check_call(expr);
      default:
        return;
    }
  }

  std::optional<ParseError> error() && { return std::move(error_); }

 private:
  bool failed() const { return error_.has_value(); }
  void fail(uint32_t at, std::string message) {
    if (!error_) error_ = ParseError{at, std::move(message)};
  }

  void expect_type(const Expr& expr, ValueType wanted, std::string_view where) {
    if (expr.type == wanted) return;
    fail(expr.begin, format("expected type %s in %s, got %s", std::string(type_name(wanted)).c_str(),
                            std::string(where).c_str(), std::string(type_name(expr.type)).c_str()));
  }

  void mark_info(Expr& expr) {
    if (expr.function->name != "info" || expr.children.size() < 2) return;
    Expr& labels = *expr.children[1];
    if (labels.kind != Expr::Kind::kSelector || !labels.text.empty())
      return fail(labels.begin, "the second argument of info() is label matchers alone: {label=\"value\"}");
    labels.may_match_all = true;
  }

  void check_selector(const Expr& expr) {
    if (!expr.text.empty()) {
      for (size_t i = 0; i + 1 < expr.matchers.size(); ++i) {
        if (expr.matchers[i].name == "__name__")
          return fail(expr.begin, format("the metric name must not be set twice: \"%.80s\" or \"%.80s\"",
                                         expr.text.c_str(), expr.matchers[i].value.c_str()));
      }
      return;
    }
    if (expr.may_match_all) return;
    if (std::all_of(expr.matchers.begin(), expr.matchers.end(), matches_empty))
      fail(expr.begin, "a vector selector must contain at least one matcher that does not match the empty string");
  }

  void check_binary(Expr& expr) {
    const ValueType left = expr.child(0).type;
    const ValueType right = expr.child(1).type;
    const std::string op(op_text(expr.op));
    if (expr.return_bool && !is_comparison(expr.op))
      return fail(expr.begin, "bool is only allowed on comparison operators");
    if (is_comparison(expr.op) && !expr.return_bool && left == ValueType::kScalar && right == ValueType::kScalar)
      return fail(expr.begin, "comparisons between scalars must use bool");
    VectorMatching& matching = *expr.matching;
    if (is_set_op(expr.op) && matching.card == Cardinality::kOneToOne) matching.card = Cardinality::kManyToMany;
    if (matching.on) {
      for (const std::string& label : matching.labels) {
        if (std::find(matching.include.begin(), matching.include.end(), label) != matching.include.end())
          return fail(expr.begin,
                      format("label \"%.80s\" must not stand in on() and in group_left() or group_right() at once",
                             label.c_str()));
      }
    }
    for (const auto& [type, side] : {std::pair{left, 0}, std::pair{right, 1}}) {
      if (type != ValueType::kScalar && type != ValueType::kVector)
        return fail(expr.child(static_cast<size_t>(side)).begin,
                    "a binary operator takes scalars and instant vectors only");
    }
    if (left != ValueType::kVector || right != ValueType::kVector) {
      if (!matching.labels.empty())
        return fail(expr.begin, "matching by labels is only possible between instant vectors");
      if (matching.fill_left || matching.fill_right)
        return fail(expr.begin, "filling in missing series is only possible between instant vectors");
      if (is_set_op(expr.op))
        return fail(expr.begin, format("set operator \"%s\" takes instant vectors only", op.c_str()));
      expr.matching.reset();
      return;
    }
    if (!is_set_op(expr.op)) return;
    if (matching.card != Cardinality::kManyToMany)
      return fail(expr.begin, format("no grouping is allowed for \"%s\"", op.c_str()));
    if (matching.fill_left || matching.fill_right)
      return fail(expr.begin, "filling in missing series is not possible for set operators");
  }

  void check_call(Expr& expr) {
    const Function& function = *expr.function;
    const size_t wanted = function.arguments.size();
    const size_t given = expr.children.size();
    const std::string name(function.name);
    if (function.variadic == 0 && given != wanted)
      return fail(expr.begin,
                  format("expected %zu argument(s) in call to \"%s\", got %zu", wanted, name.c_str(), given));
    if (function.variadic != 0) {
      if (given < wanted - 1)
        return fail(expr.begin, format("expected at least %zu argument(s) in call to \"%s\", got %zu", wanted - 1,
                                       name.c_str(), given));
      const size_t most = wanted - 1 + static_cast<size_t>(std::max(function.variadic, 0));
      if (function.variadic > 0 && given > most)
        return fail(expr.begin,
                    format("expected at most %zu argument(s) in call to \"%s\", got %zu", most, name.c_str(), given));
    }
    for (size_t i = 0; i < given; ++i) {
      const ValueType type = function.arguments[std::min(i, wanted - 1)];
      expect_type(expr.child(i), type, "call to function \"" + name + "\"");
    }
  }

  std::optional<ParseError> error_;
};

}  // namespace

std::optional<ParseError> check_types(Expr& expr) {
  TypeCheck types;
  types.check(expr);
  return std::move(types).error();
}

}  // namespace lockstep::promql
