#include "query/promql/parser.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text.h"
#include "query/promql/duration_parser.h"
#include "query/promql/type_check.h"

namespace lockstep::promql {
namespace {

const struct {
  std::string_view word;
  AggregateOp op;
} kAggregates[] = {
    {"sum", AggregateOp::kSum},           {"avg", AggregateOp::kAvg},
    {"count", AggregateOp::kCount},       {"min", AggregateOp::kMin},
    {"max", AggregateOp::kMax},           {"group", AggregateOp::kGroup},
    {"stddev", AggregateOp::kStddev},     {"stdvar", AggregateOp::kStdvar},
    {"topk", AggregateOp::kTopk},         {"bottomk", AggregateOp::kBottomk},
    {"quantile", AggregateOp::kQuantile}, {"count_values", AggregateOp::kCountValues},
    {"limitk", AggregateOp::kLimitk},     {"limit_ratio", AggregateOp::kLimitRatio},
};

const AggregateOp* find_aggregate(std::string_view word) {
  for (const auto& row : kAggregates) {
    if (row.word == word) return &row.op;
  }
  return nullptr;
}

// Words that stand for something where an expression may begin, so that no metric can be called that without braces.
bool never_a_metric(std::string_view word) {
  return word == "bool" || word == "on" || word == "ignoring" || word == "group_left" || word == "group_right" ||
         word == "atan2";
}

bool is_valid_label_name(std::string_view name) {
  return !name.empty();  // any UTF-8, which the lexer has checked
}

class Parser : public DurationParser {
 public:
  using DurationParser::DurationParser;

  std::unique_ptr<Expr> run() {
    if (peek().kind == TokenKind::kEnd) {
      fail(0, "the query is empty");
      return nullptr;
    }
    std::unique_ptr<Expr> expr = expression(0);
    if (!failed() && peek().kind != TokenKind::kEnd) unexpected("");
    if (!failed()) check(*expr);
    if (failed()) return nullptr;
    return expr;
  }

  std::unique_ptr<Expr> run_selector() {
    std::unique_ptr<Expr> expr = primary();
    if (!failed() && peek().kind != TokenKind::kEnd) unexpected("a selector");
    if (!failed() && expr->kind != Expr::Kind::kSelector) fail(expr->begin, "a selector is expected here");
    if (!failed()) check(*expr);
    if (failed()) return nullptr;
    return expr;
  }

 private:
  using Ptr = std::unique_ptr<Expr>;

  void check(Expr& expr) {
    if (std::optional<ParseError> wrong = check_types(expr)) fail(wrong->at, std::move(wrong->message));
  }

  Ptr make(Expr::Kind kind, ValueType type, uint32_t begin) {
    if (++nodes_ > limits_.nodes_max) fail(begin, format("the query has more than %zu parts", limits_.nodes_max));
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->type = type;
    expr->begin = begin;
    expr->end = last_end_;
    return expr;
  }
  void adopt(Expr& parent, Ptr child) {
    if (!child) return;
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > limits_.depth_max) {
      fail(child->begin, format("the query is nested deeper than %u", limits_.depth_max));
    }
    parent.children.push_back(std::move(child));
  }

  // --- expressions
  Ptr expression(int least) {
    if (++recursion_ > limits_.depth_max)
      fail(peek().begin, format("the query is nested deeper than %u", limits_.depth_max));
    if (failed()) {
      --recursion_;
      return nullptr;
    }
    Ptr left = unary();
    while (!failed()) {
      const auto* row = binary_op();
      if (row == nullptr || row->precedence < least) break;
      left = binary(std::move(left), row->op, row->op == BinaryOp::kPow ? row->precedence : row->precedence + 1);
    }
    --recursion_;
    return failed() ? nullptr : std::move(left);
  }

  Ptr binary(Ptr left, BinaryOp op, int least) {
    take();
    Ptr node = make(Expr::Kind::kBinary, ValueType::kVector, left->begin);
    node->op = op;
    VectorMatching matching;
    modifiers(*node, matching);
    Ptr right = expression(least);
    if (failed()) return nullptr;
    if (left->type == ValueType::kScalar && right->type == ValueType::kScalar) node->type = ValueType::kScalar;
    node->matching = std::move(matching);
    adopt(*node, std::move(left));
    adopt(*node, std::move(right));
    node->end = last_end_;
    return node;
  }

  void modifiers(Expr& node, VectorMatching& matching) {
    if (is_word("bool")) {
      take();
      node.return_bool = true;
    }
    if (is_word("on") || is_word("ignoring")) {
      matching.on = take().word == "on";
      matching.labels = label_list();
      if (is_word("group_left") || is_word("group_right")) {
        matching.card = take().word == "group_left" ? Cardinality::kManyToOne : Cardinality::kOneToMany;
        if (peek().is("(")) matching.include = label_list();
      }
    }
    while (!failed() && (is_word("fill") || is_word("fill_left") || is_word("fill_right")) && peek(1).is("(")) {
      const std::string word = take().word;
      if ((word != "fill_right" && matching.fill_left) || (word != "fill_left" && matching.fill_right))
        return fail(peek().begin, "what is filled in is given twice");
      const double value = fill_value();
      if (word != "fill_right") matching.fill_left = value;
      if (word != "fill_left") matching.fill_right = value;
    }
  }

  double fill_value() {
    expect("(", "fill");
    double sign = 1;
    if (peek().is("-") || peek().is("+")) sign = take().text == "-" ? -1 : 1;
    const double value = literal("fill");
    expect(")", "fill");
    return sign * value;
  }

  std::vector<std::string> label_list() {
    std::vector<std::string> labels;
    if (!expect("(", "a list of labels")) return labels;
    while (!failed() && !peek().is(")")) {
      const Token& token = peek();
      if (token.kind != TokenKind::kIdentifier && token.kind != TokenKind::kMetricIdentifier &&
          token.kind != TokenKind::kString) {
        unexpected("a list of labels", "a label");
        return labels;
      }
      if (!is_valid_label_name(token.text)) fail(token.begin, "a label without a name in a list of labels");
      labels.push_back(token.text);
      take();
      if (peek().is(")")) break;
      if (!take_op(",")) unexpected("a list of labels", "\",\" or \")\"");
    }
    expect(")", "a list of labels");
    return labels;
  }

  Ptr unary() {
    if (peek().is("-") || peek().is("+")) {
      if (++recursion_ > limits_.depth_max)
        fail(peek().begin, format("the query is nested deeper than %u", limits_.depth_max));
      const uint32_t begin = peek().begin;
      const bool negative = take().text == "-";
      Ptr operand = failed() ? nullptr : expression(kPowPrecedence);
      static_assert(kUnaryPrecedence + 1 == kPowPrecedence);
      --recursion_;
      if (failed()) return nullptr;
      if (operand->kind == Expr::Kind::kNumber) {
        if (negative) operand->number = -operand->number;
        operand->begin = begin;
        return operand;
      }
      Ptr node = make(Expr::Kind::kUnary, operand->type, begin);
      node->negative = negative;
      adopt(*node, std::move(operand));
      return node;
    }
    Ptr expr = primary();
    while (!failed() && postfix(expr)) {
    }
    return failed() ? nullptr : std::move(expr);
  }

  Ptr primary() {
    const Token& token = peek();
    const uint32_t begin = token.begin;
    if (token.kind == TokenKind::kNumber || token.kind == TokenKind::kDuration) {
      const bool is_duration = token.kind == TokenKind::kDuration;
      const double value = literal("");
      Ptr node = make(Expr::Kind::kNumber, ValueType::kScalar, begin);
      node->number = value;
      node->is_duration = is_duration;
      return node;
    }
    if (token.kind == TokenKind::kString) {
      std::string text = token.text;
      take();
      Ptr node = make(Expr::Kind::kString, ValueType::kString, begin);
      node->text = std::move(text);
      return node;
    }
    if (token.is("(")) {
      take();
      Ptr inner = expression(0);
      expect(")", "parentheses");
      if (failed()) return nullptr;
      Ptr node = make(Expr::Kind::kParen, inner->type, begin);
      adopt(*node, std::move(inner));
      return node;
    }
    if (token.is("{")) return selector({}, begin);
    if (token.kind == TokenKind::kMetricIdentifier) {
      std::string name = token.text;
      take();
      return selector(std::move(name), begin);
    }
    if (token.kind == TokenKind::kIdentifier) {
      if (const AggregateOp* op = find_aggregate(token.word);
          op != nullptr && (peek(1).is("(") || is_word("by", 1) || is_word("without", 1)))
        return aggregate(*op);
      if (never_a_metric(token.word)) {
        unexpected("");
        return nullptr;
      }
      if (peek(1).is("(") && !is_keyword(token.word)) return call();
      std::string name = token.text;
      take();
      return selector(std::move(name), begin);
    }
    unexpected("");
    return nullptr;
  }

  static bool is_keyword(std::string_view word) {
    return word == "and" || word == "or" || word == "unless" || word == "by" || word == "without" || word == "offset" ||
           word == "smoothed" || word == "anchored" || word == "fill" || word == "fill_left" || word == "fill_right";
  }

  Ptr call() {
    const Token name = take();
    const Function* function = find_function(name.text);
    if (function == nullptr) fail(name.begin, format("unknown function with name \"%.80s\"", name.text.c_str()));
    Ptr node = make(Expr::Kind::kCall, function ? function->returns : ValueType::kNone, name.begin);
    node->function = function;
    arguments(*node);
    node->end = last_end_;
    return node;
  }

  void arguments(Expr& node) {
    expect("(", "a call");
    if (failed() || take_op(")")) return;
    for (;;) {
      adopt(node, expression(0));
      if (failed()) return;
      if (take_op(")")) return;
      if (!peek().is(",")) return unexpected("the arguments of a call", "\",\" or \")\"");
      take();
      if (peek().is(")")) return fail(peek().begin, "a comma at the end of the arguments of a call");
    }
  }

  Ptr aggregate(AggregateOp op) {
    Ptr node = make(Expr::Kind::kAggregate, ValueType::kVector, peek().begin);
    node->aggregate = op;
    take();
    bool grouped = false;
    const auto grouping = [&] {
      if (grouped || !(is_word("by") || is_word("without"))) return;
      grouped = true;
      node->without = take().word == "without";
      node->grouping = label_list();
    };
    grouping();
    arguments(*node);
    if (failed()) return nullptr;
    node->end = last_end_;
    grouping();
    const size_t wanted = has_parameter(op) ? 2 : 1;
    if (node->children.empty()) {
      fail(node->begin, "an aggregation without arguments");
    } else if (node->children.size() != wanted) {
      fail(node->begin, format("wrong number of arguments for an aggregation: expected %zu, got %zu", wanted,
                               node->children.size()));
    } else if (wanted == 2) {
      std::swap(node->children[0], node->children[1]);
    }
    node->end = last_end_;
    return node;
  }

  Ptr selector(std::string name, uint32_t begin) {
    Ptr node = make(Expr::Kind::kSelector, ValueType::kVector, begin);
    if (take_op("{")) {
      while (!failed() && !peek().is("}")) {
        matcher(*node);
        if (failed() || peek().is("}")) break;
        if (!take_op(",")) unexpected("label matching", "\",\" or \"}\"");
      }
      expect("}", "label matching");
    }
    if (failed()) return nullptr;
    node->end = last_end_;
    if (!name.empty()) node->matchers.push_back({"__name__", LabelMatcher::Op::kEqual, name});
    node->text = std::move(name);
    return node;
  }

  void matcher(Expr& node) {
    const Token& name = peek();
    if (name.kind != TokenKind::kIdentifier && name.kind != TokenKind::kString)
      return unexpected("label matching", "a label or \"}\"");
    LabelMatcher made;
    made.name = name.text;
    const bool quoted = name.kind == TokenKind::kString;
    const uint32_t begin = name.begin;
    take();
    if (quoted && (peek().is(",") || peek().is("}"))) {
      node.matchers.push_back({"__name__", LabelMatcher::Op::kEqual, made.name});
      return;
    }
    if (peek().is("=")) {
      made.op = LabelMatcher::Op::kEqual;
    } else if (peek().is("!=")) {
      made.op = LabelMatcher::Op::kNotEqual;
    } else if (peek().is("=~")) {
      made.op = LabelMatcher::Op::kRegex;
    } else if (peek().is("!~")) {
      made.op = LabelMatcher::Op::kNotRegex;
    } else {
      return unexpected("label matching", "one of = != =~ !~");
    }
    take();
    if (peek().kind != TokenKind::kString) return unexpected("label matching", "a string");
    made.value = take().text;
    if (made.op == LabelMatcher::Op::kRegex || made.op == LabelMatcher::Op::kNotRegex) {
      RE2::Options options;
      options.set_log_errors(false);
      const RE2 regex(made.value, options);
      if (!regex.ok()) fail(begin, format("the regular expression does not compile: %s", regex.error().c_str()));
    }
    node.matchers.push_back(std::move(made));
  }

  // --- what follows an expression
  bool postfix(Ptr& expr) {
    if (peek().is("[")) {
      bracket(expr);
    } else if (is_word("offset")) {
      take();
      offset(*expr);
    } else if (peek().is("@")) {
      take();
      at_modifier(*expr);
    } else if (is_word("anchored") || is_word("smoothed")) {
      extended(*expr, take().word == "anchored");
    } else {
      return false;
    }
    if (expr) expr->end = last_end_;
    return true;
  }

  void bracket(Ptr& expr) {
    const uint32_t bracket_at = take().begin;
    std::unique_ptr<DurationExpr> range = positive_duration();
    if (failed()) return;
    if (take_op(":")) {
      Ptr node = make(Expr::Kind::kSubquery, ValueType::kMatrix, expr->begin);
      set_duration(std::move(range), node->range_ms, node->range_expr);
      if (!peek().is("]")) {
        std::unique_ptr<DurationExpr> step = positive_duration();
        if (failed()) return;
        set_duration(std::move(step), node->step_ms, node->step_expr);
      }
      expect("]", "a subquery");
      adopt(*node, std::move(expr));
      expr = std::move(node);
      return;
    }
    if (!peek().is("]")) return unexpected("a subquery or range", "\":\" or \"]\"");
    take();
    if (expr->kind != Expr::Kind::kSelector) return fail(bracket_at, "ranges are only allowed on vector selectors");
    if (expr->offset_ms != 0 || expr->offset_expr)
      return fail(bracket_at, "an offset stands after the range, not before");
    if (expr->at != AtModifier::kNone) return fail(bracket_at, "@ stands after the range, not before");
    Ptr node = make(Expr::Kind::kMatrix, ValueType::kMatrix, expr->begin);
    set_duration(std::move(range), node->range_ms, node->range_expr);
    adopt(*node, std::move(expr));
    expr = std::move(node);
  }

  static int64_t milliseconds_of(double seconds) { return static_cast<int64_t>(std::round(seconds * 1e9)) / 1'000'000; }
  static void set_duration(std::unique_ptr<DurationExpr> from, int64_t& milliseconds,
                           std::unique_ptr<DurationExpr>& expr) {
    if (from->op == DurationExpr::Op::kNumber) {
      milliseconds = milliseconds_of(from->seconds);
    } else {
      expr = std::move(from);
    }
  }

  // The selector or subquery that a modifier belongs to.
  Expr* modified(Expr& expr, std::string_view what) {
    if (expr.kind == Expr::Kind::kSelector || expr.kind == Expr::Kind::kSubquery) return &expr;
    if (expr.kind == Expr::Kind::kMatrix) return expr.children[0].get();
    fail(expr.begin, format("%.*s must follow an instant vector selector, a range vector selector or a subquery",
                            static_cast<int>(what.size()), what.data()));
    return nullptr;
  }

  void offset(Expr& expr) {
    std::unique_ptr<DurationExpr> duration = offset_duration();
    if (failed()) return;
    Expr* target = modified(expr, "offset");
    if (target == nullptr) return;
    if (target->offset_ms != 0 || target->offset_expr) return fail(expr.begin, "an offset is given twice");
    set_duration(std::move(duration), target->offset_ms, target->offset_expr);
  }

  void at_modifier(Expr& expr) {
    AtModifier kind = AtModifier::kTime;
    double seconds = 0;
    if ((is_word("start") || is_word("end")) && peek(1).is("(")) {
      kind = take().word == "start" ? AtModifier::kStart : AtModifier::kEnd;
      take();
      expect(")", "@");
    } else {
      double sign = 1;
      if (peek().is("-") || peek().is("+")) sign = take().text == "-" ? -1 : 1;
      seconds = sign * literal("@");
    }
    if (failed()) return;
    Expr* target = modified(expr, "@");
    if (target == nullptr) return;
    constexpr double kMost = 9.2233720368547758e18;
    if (std::isnan(seconds) || std::isinf(seconds) || seconds >= kMost || seconds <= -kMost)
      return fail(expr.begin, "the time after @ is out of range");
    if (target->at != AtModifier::kNone) return fail(expr.begin, "@ is given twice");
    target->at = kind;
    const double ms = std::round(seconds * 1000);
    target->at_ms = ms >= kMost    ? std::numeric_limits<int64_t>::max()
                    : ms <= -kMost ? std::numeric_limits<int64_t>::min()
                                   : static_cast<int64_t>(ms);
  }

  void extended(Expr& expr, bool anchored) {
    const char* word = anchored ? "anchored" : "smoothed";
    if (expr.kind == Expr::Kind::kSubquery) return fail(expr.begin, format("%s is not supported for subqueries", word));
    if (expr.kind != Expr::Kind::kSelector && expr.kind != Expr::Kind::kMatrix)
      return fail(expr.begin, format("%s must follow a selector", word));
    Expr* target = modified(expr, word);
    (anchored ? target->anchored : target->smoothed) = true;
    if (target->anchored && target->smoothed) fail(expr.begin, "anchored and smoothed exclude each other");
  }
};

}  // namespace

bool matches_empty(const LabelMatcher& matcher) {
  switch (matcher.op) {
    case LabelMatcher::Op::kEqual:
      return matcher.value.empty();
    case LabelMatcher::Op::kNotEqual:
      return !matcher.value.empty();
    default:
      break;
  }
  RE2::Options options;
  options.set_log_errors(false);
  options.set_dot_nl(true);
  const RE2 regex(matcher.value, options);
  return RE2::FullMatch("", regex) == (matcher.op == LabelMatcher::Op::kRegex);
}

Result<std::unique_ptr<Expr>> parse(std::string_view query, const ParseLimits& limits) {
  if (query.size() > limits.bytes_max)
    return Error{
        format("1:1: parse error: the query has %zu bytes; at most %zu are taken", query.size(), limits.bytes_max)};
  Parser parser(query, limits);
  std::unique_ptr<Expr> expr = parser.run();
  if (!expr) return Error{parser.error()};
  return expr;
}

Result<std::vector<LabelMatcher>> parse_selector(std::string_view query) {
  const ParseLimits limits;
  if (query.size() > limits.bytes_max)
    return Error{
        format("1:1: parse error: the selector has %zu bytes; at most %zu are taken", query.size(), limits.bytes_max)};
  Parser parser(query, limits);
  std::unique_ptr<Expr> expr = parser.run_selector();
  if (!expr) return Error{parser.error()};
  return std::move(expr->matchers);
}

}  // namespace lockstep::promql
