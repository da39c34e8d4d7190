#include "query/promql/printer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

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
    text += is_plain_name(label, false) ? label : in_quotes(label);
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

// A tree's text and where in it each node's is: printed once, however often parts of it are asked for.
class Text {
 public:
  explicit Text(const Expr& expr) { add(expr); }
  std::string take() { return std::move(text_); }
  std::string_view of(const Expr& expr) const {
    const auto [begin, end] = places_.at(&expr);
    return std::string_view(text_).substr(begin, end - begin);
  }

 private:
  void add(const Expr& expr) {
    const size_t begin = text_.size();
    switch (expr.kind) {
      case Expr::Kind::kNumber:
        text_ += expr.is_duration ? duration_text(static_cast<int64_t>(std::round(expr.number * 1000)))
                                  : plain_number(expr.number);
        break;
      case Expr::Kind::kString:
        text_ += in_quotes(expr.text);
        break;
      case Expr::Kind::kSelector:
        text_ += bare_selector(expr) + at_text(expr) + extended_text(expr) + offset_text(expr);
        break;
      case Expr::Kind::kMatrix: {
        const Expr& selector = expr.child();
        text_ += bare_selector(selector) + "[" + duration_or(expr.range_ms, expr.range_expr) + "]" +
                 extended_text(selector) + at_text(selector) + offset_text(selector);
        break;
      }
      case Expr::Kind::kSubquery:
        add(expr.child());
        text_ += subquery_suffix(expr);
        break;
      case Expr::Kind::kAggregate:
        text_ += aggregate_head(expr) + "(";
        if (expr.children.size() > 1) {
          add(expr.child(1));
          text_ += ", ";
        }
        add(expr.child(0));
        text_ += ")";
        break;
      case Expr::Kind::kBinary:
        add(expr.child(0));
        text_ += " " + operator_text(expr) + " ";
        add(expr.child(1));
        break;
      case Expr::Kind::kUnary:
        text_ += expr.negative ? '-' : '+';
        add(expr.child());
        break;
      case Expr::Kind::kCall:
        text_ += std::string(expr.function->name) + "(";
        for (size_t i = 0; i < expr.children.size(); ++i) {
          if (i > 0) text_ += ", ";
          add(expr.child(i));
        }
        text_ += ")";
        break;
      case Expr::Kind::kParen:
        text_ += "(";
        add(expr.child());
        text_ += ")";
        break;
    }
    places_[&expr] = {begin, text_.size()};
  }

  std::string text_;
  std::unordered_map<const Expr*, std::pair<size_t, size_t>> places_;
};

// Appends what it prints, so that the work is what comes out.
class PrettyPrinter {
 public:
  explicit PrettyPrinter(const Expr& expr) : plain_(expr) { add(expr, 0, true); }
  std::string take() { return std::move(out_); }

 private:
  void indent(int level) { out_.append(static_cast<size_t>(level) * 2, ' '); }

  // on_new_line: else it goes on where the line is.
  void add(const Expr& expr, int level, bool on_new_line) {
    const std::string_view plain = plain_.of(expr);
    const bool fits = plain.size() <= kLineMax;
    const bool has_parts = expr.kind == Expr::Kind::kAggregate || expr.kind == Expr::Kind::kBinary ||
                           expr.kind == Expr::Kind::kCall || expr.kind == Expr::Kind::kParen ||
                           expr.kind == Expr::Kind::kSubquery;
    const bool begins_with_a_part = expr.kind == Expr::Kind::kBinary || expr.kind == Expr::Kind::kSubquery;
    if (on_new_line && (fits || !has_parts || !begins_with_a_part)) indent(level);
    if (expr.kind == Expr::Kind::kUnary) {
      out_ += expr.negative ? '-' : '+';
      return add(expr.child(), level, false);
    }
    if (fits || !has_parts) {
      out_ += plain;
      return;
    }
    switch (expr.kind) {
      case Expr::Kind::kAggregate:
        out_ += aggregate_head(expr) + "(\n";
        if (expr.children.size() > 1) {
          add(expr.child(1), level + 1, true);
          out_ += ",\n";
        }
        add(expr.child(0), level + 1, true);
        break;
      case Expr::Kind::kBinary:
        add(expr.child(0), level + 1, on_new_line);
        out_ += '\n';
        indent(level);
        out_ += operator_text(expr) + "\n";
        return add(expr.child(1), level + 1, true);
      case Expr::Kind::kCall:
        out_ += std::string(expr.function->name) + "(\n";
        for (size_t i = 0; i < expr.children.size(); ++i) {
          if (i > 0) out_ += ",\n";
          add(expr.child(i), level + 1, true);
        }
        break;
      case Expr::Kind::kSubquery:
        add(expr.child(), level, on_new_line);
        out_ += subquery_suffix(expr);
        return;
      default:
        out_ += "(\n";
        add(expr.child(), level + 1, true);
    }
    out_ += '\n';
    indent(level);
    out_ += ')';
  }

  const Text plain_;
  std::string out_;
};

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

std::string in_quotes(std::string_view text) {
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
  return (is_plain_name(matcher.name, false) ? matcher.name : in_quotes(matcher.name)) +
         std::string(kOps[static_cast<size_t>(matcher.op)]) + in_quotes(matcher.value);
}

std::string to_text(const Expr& expr) {
  return Text(expr).take();
}

std::string pretty(const Expr& expr) {
  return PrettyPrinter(expr).take();
}

}  // namespace lockstep::promql
