#include "query/promql/parser.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/duration.h"
#include "base/text.h"
#include "query/promql/lexer.h"

namespace lockstep::promql {
namespace {

constexpr double kDurationSecondsMax = 9223372036.854775807;

struct ParseError {
  uint32_t at;
  std::string message;
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

const struct {
  std::string_view text;
  BinaryOp op;
  int precedence;
} kBinaryOps[] = {
    {"or", BinaryOp::kOr, 1},        {"and", BinaryOp::kAnd, 2},      {"unless", BinaryOp::kUnless, 2},
    {"==", BinaryOp::kEqual, 3},     {"!=", BinaryOp::kNotEqual, 3},  {"<", BinaryOp::kLess, 3},
    {"<=", BinaryOp::kLessEqual, 3}, {">", BinaryOp::kGreater, 3},    {">=", BinaryOp::kGreaterEqual, 3},
    {"</", BinaryOp::kTrimUpper, 3}, {">/", BinaryOp::kTrimLower, 3}, {"+", BinaryOp::kAdd, 4},
    {"-", BinaryOp::kSub, 4},        {"*", BinaryOp::kMul, 5},        {"/", BinaryOp::kDiv, 5},
    {"%", BinaryOp::kMod, 5},        {"atan2", BinaryOp::kAtan2, 5},  {"^", BinaryOp::kPow, 6},
};
constexpr int kUnaryPrecedence = 5;  // that of '*': -a^b is -(a^b), -a*b is (-a)*b
constexpr int kPowPrecedence = 6;

// Words that stand for something where an expression may begin, so that no metric can be called that without braces.
bool never_a_metric(std::string_view word) {
  return word == "bool" || word == "on" || word == "ignoring" || word == "group_left" || word == "group_right" ||
         word == "atan2";
}

bool is_valid_label_name(std::string_view name) {
  return !name.empty();  // any UTF-8, which the lexer has checked
}

class Parser {
 public:
  Parser(std::string_view query, const ParseLimits& limits) : query_(query), limits_(limits), tokens_(lex(query)) {}

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

  std::string error() const { return located(query_, *error_); }

 private:
  using Ptr = std::unique_ptr<Expr>;

  // --- tokens
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    last_end_ = token.end;
    return token;
  }
  bool is_word(std::string_view word, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kIdentifier && peek(ahead).word == word;
  }
  bool take_op(std::string_view text) {
    if (!peek().is(text)) return false;
    take();
    return true;
  }
  bool expect(std::string_view text, std::string_view where) {
    if (failed()) return false;
    if (take_op(text)) return true;
    unexpected(where, format("\"%.*s\"", static_cast<int>(text.size()), text.data()));
    return false;
  }

  // --- errors: the first counts
  bool failed() const { return error_.has_value(); }
  void fail(uint32_t at, std::string message) {
    if (!error_) error_ = ParseError{at, std::move(message)};
  }
  void unexpected(std::string_view where, std::string_view expected = {}) {
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

  const std::remove_extent_t<decltype(kBinaryOps)>* binary_op() const {
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

  double literal(std::string_view where) {
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

  // --- durations
  using DurationPtr = std::unique_ptr<DurationExpr>;

  DurationPtr positive_duration() {
    DurationPtr duration = duration_expression(0);
    if (!failed() && duration->op == DurationExpr::Op::kNumber && !(duration->seconds > 0))
      fail(duration->begin, "a duration must be greater than 0");
    return duration;
  }

  DurationPtr duration_number(double seconds, bool is_duration, uint32_t begin) {
    if (seconds > kDurationSecondsMax || seconds < -kDurationSecondsMax || std::isnan(seconds))
      fail(begin, "a duration is out of range");
    auto node = std::make_unique<DurationExpr>();
    node->seconds = seconds;
    node->is_duration = is_duration;
    node->begin = begin;
    node->end = last_end_;
    return node;
  }

  // After "offset" a bare operator ends the duration: foo offset 5m + 1 is (foo offset 5m) + 1. Only what began with a
  // parenthesis goes on: foo offset (5m) + 1m is foo offset ((5m) + 1m).
  DurationPtr offset_duration() {
    if (peek().is("(")) return duration_expression(0);
    if (peek().kind == TokenKind::kEnd || peek().kind == TokenKind::kError) {
      unexpected("offset", "a duration");
      return nullptr;
    }
    return duration_unary(true);
  }

  DurationPtr duration_expression(int least) {
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

  DurationPtr duration_node(DurationExpr::Op op, DurationPtr left, DurationPtr right) {
    if (++nodes_ > limits_.nodes_max)
      fail(peek().begin, format("the query has more than %zu parts", limits_.nodes_max));
    auto node = std::make_unique<DurationExpr>();
    node->op = op;
    node->begin = left ? left->begin : right ? right->begin : last_end_;
    node->end = last_end_;
    node->left = std::move(left);
    node->right = std::move(right);
    return node;
  }

  DurationPtr duration_unary(bool tight) {
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

  DurationPtr duration_primary() {
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

  // --- types
  void expect_type(const Expr& expr, ValueType wanted, std::string_view where) {
    if (expr.type == wanted) return;
    fail(expr.begin, format("expected type %s in %s, got %s", std::string(type_name(wanted)).c_str(),
                            std::string(where).c_str(), std::string(type_name(expr.type)).c_str()));
  }

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

  std::string_view query_;
  const ParseLimits& limits_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t last_end_ = 0;
  uint32_t recursion_ = 0;
  size_t nodes_ = 0;
  std::optional<ParseError> error_;
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
