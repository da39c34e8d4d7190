// LogQL in normal form.
#include "base/duration.h"
#include "base/text.h"
#include "query/logql/logql.h"

namespace lockstep::logql {
namespace {

// Within double quotes; what a person cannot see is written by its number.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (letter == '\n') {
      out += "\\n";
    } else if (letter == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F) {
      out += format("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(letter)));
    } else {
      out += letter;
    }
  }
  return out + "\"";
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string text_of(const Matcher& matcher) {
  static constexpr const char* kSigns[] = {"=", "!=", "=~", "!~"};
  return matcher.name + kSigns[static_cast<size_t>(matcher.op)] + in_quotes(matcher.value);
}

std::string text_of(const LabelFilter& filter) {
  static constexpr const char* kSigns[] = {"==", "!=", ">", ">=", "<", "<="};
  using Type = LabelFilter::Type;
  if (filter.type == Type::kText) return text_of(filter.text);
  if (filter.type != Type::kAnd && filter.type != Type::kOr)
    return filter.text.name + " " + kSigns[static_cast<size_t>(filter.compare)] + " " + filter.written;
  std::string out;
  for (const LabelFilter& part : filter.parts) {
    if (!out.empty()) out += filter.type == Type::kAnd ? " and " : " or ";
    const bool is_joined = part.type == Type::kAnd || part.type == Type::kOr;
    out += is_joined ? "(" + text_of(part) + ")" : text_of(part);
  }
  return out;
}

std::string text_of(const Stage& stage) {
  switch (stage.type) {
    case Stage::Type::kLineFilter: {
      std::string out = std::string(stage.line.is_not ? "!" : "|") + (stage.line.is_pattern ? "~" : "=");
      for (size_t i = 0; i < stage.line.texts.size(); ++i)
        out += (i > 0 ? " or " : " ") + in_quotes(stage.line.texts[i]);
      return out;
    }
    case Stage::Type::kJson:
      return "| json";
    case Stage::Type::kLogfmt:
      return "| logfmt";
    case Stage::Type::kLabelFilter:
      return "| " + text_of(stage.label);
    case Stage::Type::kDrop:
      return "| drop " + list_of(stage.names);
    default:
      return "| keep " + list_of(stage.names);
  }
}

std::string text_of(const LogSelection& logs) {
  std::string out = to_text(logs.matchers);
  for (const Stage& stage : logs.stages) out += " " + text_of(stage);
  return out;
}

std::string text_of_aggregate(const Expression& expression) {
  std::string out = name_of(expression.aggregate);
  if (expression.grouping != Expression::Grouping::kNone) {
    out += expression.grouping == Expression::Grouping::kBy ? " by (" : " without (";
    out += list_of(expression.labels) + ") ";
  }
  out += "(";
  if (expression.most > 0) out += std::to_string(expression.most) + ", ";
  return out + to_text(expression.parts[0]) + ")";
}

}  // namespace

std::string to_text(const std::vector<Matcher>& matchers) {
  std::string out;
  for (const Matcher& matcher : matchers) out += (out.empty() ? "" : ", ") + text_of(matcher);
  return "{" + out + "}";
}

std::string to_text(const Expression& expression) {
  switch (expression.type) {
    case Expression::Type::kLogs:
      return text_of(expression.logs);
    case Expression::Type::kConstant:
      return expression.is_vector ? "vector(" + shortest_text(expression.constant) + ")"
                                  : shortest_text(expression.constant);
    case Expression::Type::kRange:
      return std::string(name_of(expression.function)) + "(" + text_of(expression.logs) + " [" +
             duration_text(expression.range_ms) + "])";
    case Expression::Type::kAggregate:
      return text_of_aggregate(expression);
    default: {
      std::string out;
      for (const Expression& part : expression.parts) {
        if (!out.empty()) out += std::string(" ") + expression.sign + " ";
        out += part.type == Expression::Type::kArithmetic ? "(" + to_text(part) + ")" : to_text(part);
      }
      return out;
    }
  }
}

}  // namespace lockstep::logql
