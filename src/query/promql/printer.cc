#include "query/promql/printer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/duration.h"
#include "base/text.h"
#include "query/promql/lexer.h"

namespace lockstep::promql {
namespace {

constexpr size_t kLineMax = 100;

bool is_plain_name(std::string_view name, bool colon) {
  if (name.empty()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':');
    if (!letter && !(i > 0 && c >= '0' && c <= '9')) return false;
  }
  return true;
}

std::string label_list(const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& label : labels) {
    if (!text.empty()) text += ", ";
    text += is_plain_name(label, false) ? label : quoted(label);
  }
  return text;
}

std::string text_of(const DurationExpr& duration) {
  using Op = DurationExpr::Op;
  std::string text;
  switch (duration.op) {
    case Op::kNumber:
      if (duration.is_duration) {
        text = duration_text(static_cast<int64_t>(std::round(duration.seconds * 1000)));
      } else {
        text = plain_number(duration.seconds);
      }
      break;
    case Op::kStep:
      text = "step()";
      break;
    case Op::kRange:
      text = "range()";
      break;
    case Op::kMinOf:
      text = "min_of(" + text_of(*duration.left) + ", " + text_of(*duration.right) + ")";
      break;
    case Op::kMaxOf:
      text = "max_of(" + text_of(*duration.left) + ", " + text_of(*duration.right) + ")";
      break;
    case Op::kNegate:
      text = "-" + text_of(*duration.right);
      break;
    default: {
      constexpr std::string_view kSigns = "+-*/%^";
      const char sign = kSigns[static_cast<size_t>(duration.op) - static_cast<size_t>(Op::kAdd)];
      text = text_of(*duration.left) + ' ' + sign + ' ' + text_of(*duration.right);
    }
  }
  return duration.in_parens ? "(" + text + ")" : text;
}

std::string duration_or(int64_t milliseconds, const std::unique_ptr<DurationExpr>& expr) {
  return expr ? text_of(*expr) : duration_text(milliseconds);
}

std::string at_text(const Expr& expr) {
  switch (expr.at) {
    case AtModifier::kTime:
      return format(" @ %.3f", static_cast<double>(expr.at_ms) / 1000);
    case AtModifier::kStart:
      return " @ start()";
    case AtModifier::kEnd:
      return " @ end()";
    default:
      return {};
  }
}

std::string offset_text(const Expr& expr) {
  if (expr.offset_expr) return " offset " + text_of(*expr.offset_expr);
  if (expr.offset_ms != 0) return " offset " + duration_text(expr.offset_ms);
  return {};
}

std::string extended_text(const Expr& selector) {
  return selector.anchored ? " anchored" : selector.smoothed ? " smoothed" : "";
}

std::string bare_selector(const Expr& expr) {
  std::vector<std::string> matchers;
  for (const LabelMatcher& matcher : expr.matchers) {
    if (matcher.name == "__name__" && matcher.op == LabelMatcher::Op::kEqual && matcher.value == expr.text &&
        !expr.text.empty())
      continue;
    matchers.push_back(matcher_text(matcher));
  }
  std::sort(matchers.begin(), matchers.end());
  std::string text = expr.text;
  if (!matchers.empty() || text.empty()) {
    text += '{';
    for (size_t i = 0; i < matchers.size(); ++i) text += (i ? "," : "") + matchers[i];
    text += '}';
  }
  return text;
}

std::string subquery_suffix(const Expr& expr) {
  const std::string step = expr.step_expr      ? text_of(*expr.step_expr)
                           : expr.step_ms != 0 ? duration_text(expr.step_ms)
                                               : "";
  return "[" + duration_or(expr.range_ms, expr.range_expr) + ":" + step + "]" + at_text(expr) + offset_text(expr);
}

std::string aggregate_head(const Expr& expr) {
  std::string text(op_text(expr.aggregate));
  if (expr.without) {
    text += " without (" + label_list(expr.grouping) + ") ";
  } else if (!expr.grouping.empty()) {
    text += " by (" + label_list(expr.grouping) + ") ";
  }
  return text;
}

std::string operator_text(const Expr& expr) {
  std::string text(op_text(expr.op));
  if (expr.return_bool) text += " bool";
  if (!expr.matching) return text;
  const VectorMatching& matching = *expr.matching;
  const bool grouped = matching.card == Cardinality::kManyToOne || matching.card == Cardinality::kOneToMany;
  if (!matching.labels.empty() || matching.on || grouped)
    text += std::string(matching.on ? " on (" : " ignoring (") + label_list(matching.labels) + ")";
  if (grouped)
    text += std::string(matching.card == Cardinality::kManyToOne ? " group_left (" : " group_right (") +
            label_list(matching.include) + ")";
  if (matching.fill_left && matching.fill_right && *matching.fill_left == *matching.fill_right)
    return text + " fill (" + shortest_text(*matching.fill_left) + ")";
  if (matching.fill_left) text += " fill_left (" + shortest_text(*matching.fill_left) + ")";
  if (matching.fill_right) text += " fill_right (" + shortest_text(*matching.fill_right) + ")";
  return text;
}

std::string indent(int level) {
  return std::string(static_cast<size_t>(level) * 2, ' ');
}

std::string pretty_at(const Expr& expr, int level) {
  const std::string plain = to_text(expr);
  const std::string front = indent(level);
  const bool fits = plain.size() <= kLineMax;
  switch (expr.kind) {
    case Expr::Kind::kAggregate: {
      if (fits) return front + plain;
      std::string text = front + aggregate_head(expr) + "(\n";
      if (expr.children.size() > 1) text += pretty_at(expr.child(1), level + 1) + ",\n";
      return text + pretty_at(expr.child(0), level + 1) + "\n" + front + ")";
    }
    case Expr::Kind::kBinary:
      if (fits) return front + plain;
      return pretty_at(expr.child(0), level + 1) + "\n" + front + operator_text(expr) + "\n" +
             pretty_at(expr.child(1), level + 1);
    case Expr::Kind::kCall: {
      if (fits) return front + plain;
      std::string text = front + std::string(expr.function->name) + "(\n";
      for (size_t i = 0; i < expr.children.size(); ++i) text += (i ? ",\n" : "") + pretty_at(expr.child(i), level + 1);
      return text + "\n" + front + ")";
    }
    case Expr::Kind::kParen:
      if (fits) return front + plain;
      return front + "(\n" + pretty_at(expr.child(), level + 1) + "\n" + front + ")";
    case Expr::Kind::kSubquery:
      if (fits) return front + plain;
      return pretty_at(expr.child(), level) + subquery_suffix(expr);
    case Expr::Kind::kUnary: {
      std::string inner = pretty_at(expr.child(), level);
      return front + (expr.negative ? "-" : "+") + std::string(trim(inner));
    }
    default:
      return front + plain;
  }
}

}  // namespace

std::string_view type_name(ValueType type) {
  switch (type) {
    case ValueType::kScalar:
      return "scalar";
    case ValueType::kVector:
      return "instant vector";
    case ValueType::kMatrix:
      return "range vector";
    case ValueType::kString:
      return "string";
    default:
      return "none";
  }
}

std::string_view op_text(BinaryOp op) {
  constexpr std::string_view kTexts[] = {
      "+", "-", "*", "/", "%", "^", "atan2", "==", "!=", "<", "<=", ">", ">=", "</", ">/", "and", "or", "unless"};
  return kTexts[static_cast<size_t>(op)];
}

std::string_view op_text(AggregateOp op) {
  constexpr std::string_view kTexts[] = {"sum",          "avg",      "count",  "min",        "max",
                                         "group",        "stddev",   "stdvar", "topk",       "bottomk",
                                         "count_values", "quantile", "limitk", "limit_ratio"};
  return kTexts[static_cast<size_t>(op)];
}

bool has_parameter(AggregateOp op) {
  return op >= AggregateOp::kTopk;
}

const Expr& unwrapped(const Expr& expr) {
  const Expr* at = &expr;
  while (at->kind == Expr::Kind::kParen) at = &at->child();
  return *at;
}

std::string plain_number(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Inf" : "+Inf";
  char buffer[1100];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  return std::string(buffer, result.ptr);
}

std::string quoted(std::string_view text) {
  constexpr std::string_view kNamed = "\"\\\n\t\r\a\b\f\v";
  constexpr std::string_view kNames = "\"\\ntrabfv";
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = utf8_length(text.substr(i));
    if (const size_t named = kNamed.find(c); named != std::string_view::npos) {
      out += '\\';
      out += kNames[named];
    } else if (length == 0 || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += format("\\x%02x", static_cast<unsigned char>(c));
    } else {
      out += text.substr(i, length);
    }
    i += std::max<size_t>(1, length);
  }
  return out + '"';
}

std::string matcher_text(const LabelMatcher& matcher) {
  constexpr std::string_view kOps[] = {"=", "!=", "=~", "!~"};
  return (is_plain_name(matcher.name, false) ? matcher.name : quoted(matcher.name)) +
         std::string(kOps[static_cast<size_t>(matcher.op)]) + quoted(matcher.value);
}

std::string to_text(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kNumber:
      if (expr.is_duration) return duration_text(static_cast<int64_t>(std::round(expr.number * 1000)));
      return plain_number(expr.number);
    case Expr::Kind::kString:
      return quoted(expr.text);
    case Expr::Kind::kSelector:
      return bare_selector(expr) + at_text(expr) + extended_text(expr) + offset_text(expr);
    case Expr::Kind::kMatrix: {
      const Expr& selector = expr.child();
      return bare_selector(selector) + "[" + duration_or(expr.range_ms, expr.range_expr) + "]" +
             extended_text(selector) + at_text(selector) + offset_text(selector);
    }
    case Expr::Kind::kSubquery:
      return to_text(expr.child()) + subquery_suffix(expr);
    case Expr::Kind::kAggregate: {
      std::string text = aggregate_head(expr) + "(";
      if (expr.children.size() > 1) text += to_text(expr.child(1)) + ", ";
      return text + to_text(expr.child(0)) + ")";
    }
    case Expr::Kind::kBinary:
      return to_text(expr.child(0)) + " " + operator_text(expr) + " " + to_text(expr.child(1));
    case Expr::Kind::kUnary:
      return std::string(expr.negative ? "-" : "+") + to_text(expr.child());
    case Expr::Kind::kCall: {
      std::string text = std::string(expr.function->name) + "(";
      for (size_t i = 0; i < expr.children.size(); ++i) text += (i ? ", " : "") + to_text(expr.child(i));
      return text + ")";
    }
    case Expr::Kind::kParen:
      return "(" + to_text(expr.child()) + ")";
  }
  return {};
}

std::string pretty(const Expr& expr) {
  return pretty_at(expr, 0);
}

}  // namespace lockstep::promql
