// LogQL's grammar: selectors, the stages behind them, counts over time, and what is made of these.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/duration.h"
#include "base/text.h"
#include "query/logql/lexer.h"
#include "query/logql/logql.h"
#include "query/traceql/span_text.h"
#include "store/logs/log_query.h"

namespace lockstep::logql {
namespace {

using Type = Expression::Type;

constexpr const char* kStagesServed = "served are line filters, json, logfmt, label filters, drop and keep";
constexpr const char* kFunctionsServed =
    "served are count_over_time, rate, bytes_over_time, bytes_rate, sum, avg, min, max, count, topk, bottomk and "
    "vector";

struct AggregateName {
  const char* name;
  Expression::Aggregate aggregate;
};
constexpr AggregateName kAggregates[] = {
    {"sum", Expression::Aggregate::kSum},        {"avg", Expression::Aggregate::kAverage},
    {"min", Expression::Aggregate::kMinimum},    {"max", Expression::Aggregate::kMaximum},
    {"count", Expression::Aggregate::kCount},    {"topk", Expression::Aggregate::kTop},
    {"bottomk", Expression::Aggregate::kBottom},
};
struct FunctionName {
  const char* name;
  Expression::Function function;
};
constexpr FunctionName kFunctions[] = {
    {"count_over_time", Expression::Function::kCountOverTime},
    {"rate", Expression::Function::kRate},
    {"bytes_over_time", Expression::Function::kBytesOverTime},
    {"bytes_rate", Expression::Function::kBytesRate},
};

bool takes_number(Expression::Aggregate aggregate) {
  return aggregate == Expression::Aggregate::kTop || aggregate == Expression::Aggregate::kBottom;
}

// A number, or what shortest_text() writes for one that is not finite.
std::optional<double> constant_of(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  const std::optional<double> value = parse_double(text);
  return value && (std::isfinite(*value) || text == "NaN" || text == "-Inf") ? value : std::nullopt;
}

// Recursive descent.
class Parser : private Lexer {
 public:
  explicit Parser(std::string_view text) : Lexer(text) {}

  Result<Expression> parse() {
    Expression expression = sum(0);
    if (!failed() && !at_end()) fail_at_rest();
    if (failed()) return Error{problem()};
    return expression;
  }
  Result<std::vector<Matcher>> parse_matchers() {
    std::vector<Matcher> list = matchers();
    if (!failed() && !at_end()) fail(format("%s is not understood behind {...} here", rest().c_str()));
    if (failed()) return Error{problem()};
    return list;
  }

 private:
  void fail_at_rest() {
    for (const char* word : {"offset", "unwrap", "and", "or", "unless", "bool", "on", "ignoring"}) {
      if (sees_word(word)) return fail(format("%s is not served here", word));
    }
    for (const char* sign : {"==", "!=", ">=", "<=", ">", "<", "^", "@"}) {
      if (sees(sign)) return fail(format("the operator %s is not served here; + - * / %% with a number are", sign));
    }
    fail(format("%s is not understood here", rest().c_str()));
  }
  bool enter(int depth) {
    if (depth > kDepthMax) fail(format("nested deeper than %d", kDepthMax));
    if (++parts_ > kPartsMax) fail(format("more than %zu parts", kPartsMax));
    return !failed();
  }
  Pattern pattern(const std::string& text, bool is_whole) {
    if (++patterns_ > kPatternsMax) {
      fail(format("more than %zu patterns", kPatternsMax));
      return nullptr;
    }
    const Result<Pattern> made = log_pattern(text, is_whole);
    if (made.ok()) return *made;
    fail(made.error());
    return nullptr;
  }

  // Numbers and arithmetic

  Expression sum(int depth) { return chain(depth, "+-"); }
  Expression chain(int depth, std::string_view signs) {
    const bool is_sum = signs[0] == '+';
    Expression left = is_sum ? chain(depth, "*/%") : operand(depth);
    while (!failed()) {
      const auto sign = std::find_if(signs.begin(), signs.end(), [&](char one) { return sees(std::string(1, one)); });
      if (sign == signs.end()) break;
      take(std::string(1, *sign));
      left = joined(*sign, std::move(left), is_sum ? chain(depth, "*/%") : operand(depth));
    }
    return left;
  }
  Expression joined(char sign, Expression left, Expression right) {
    if (left.type == Type::kConstant && right.type == Type::kConstant) {
      left.constant = computed(sign, left.constant, right.constant);
      left.is_vector = left.is_vector || right.is_vector;
      return left;
    }
    Expression both;
    both.type = Type::kArithmetic;
    both.sign = sign;
    if (left.type == Type::kLogs || right.type == Type::kLogs) fail("lines of logs are no numbers to compute with");
    if (left.type != Type::kConstant && right.type != Type::kConstant)
      fail("of two sides that are computed with, one has to be a number here");
    if (left.is_vector || right.is_vector) fail("vector(...) beside counts over time is not served here; a number is");
    if (!enter(0)) return both;
    both.parts.push_back(std::move(left));
    both.parts.push_back(std::move(right));
    return both;
  }
  Expression operand(int depth) {
    Expression expression;
    if (!enter(depth)) return expression;
    if (sees("{")) {
      expression.logs = selection();
      return expression;
    }
    if (take("(")) {
      expression = sum(depth + 1);
      expect(")");
      // ({...} |= "a") |= "b"
      if (expression.type == Type::kLogs && !failed()) stages(expression.logs.stages);
      return expression;
    }
    const size_t began = place();
    const std::string name = word();
    if (name.empty() || is_digit(name[0]) || name == "NaN") {
      go_back_to(began);
      return number();
    }
    for (const AggregateName& row : kAggregates) {
      if (name == row.name) return aggregate(depth, row.aggregate);
    }
    for (const FunctionName& row : kFunctions) {
      if (name == row.name) return over_time(row.function);
    }
    if (name == "vector") return vector();
    go_back_to(began);
    fail(format("%.40s is not served here; %s", name.c_str(), kFunctionsServed));
    return expression;
  }
  Expression number() {
    Expression expression;
    expression.type = Type::kConstant;
    const size_t began = place();
    const std::string text = literal();
    if (const std::optional<double> value = constant_of(text)) {
      expression.constant = *value;
    } else {
      go_back_to(began);
      fail(format("a selector {...}, a function or a number is expected, not %s", rest().c_str()));
    }
    return expression;
  }
  Expression vector() {
    expect("(");
    Expression expression = number();
    expect(")");
    expression.is_vector = true;
    return expression;
  }

  // Over time, and together

  Expression over_time(Expression::Function function) {
    Expression expression;
    expression.type = Type::kRange;
    expression.function = function;
    expect("(");
    const bool in_parentheses = take("(");
    expression.logs = selection();
    if (in_parentheses) expect(")");
    if (sees("[")) {
      expression.range_ms = range();
      if (!failed()) stages(expression.logs.stages);
    } else {
      fail(format("a range such as [5m] is expected, not %s", rest().c_str()));
    }
    if (sees_word("offset")) fail("offset is not served here");
    expect(")");
    if (sees_word("by") || sees_word("without"))
      fail(format("%s takes no by and without; sum by (...) of it does", name_of(function)));
    return expression;
  }
  int64_t range() {
    expect("[");
    const size_t began = place();
    const std::string text(trim(until(']')));
    int64_t ms = 0;
    if (failed()) return 0;
    if (parse_duration_ms(text, &ms).empty() && ms > 0 && ms <= kRangeMaxMs) return ms;
    go_back_to(began);
    fail(format("\"%.40s\" is no range: 1ms to 366d, as 5m or 1h30m", as_one_line(text).c_str()));
    return 0;
  }
  Expression aggregate(int depth, Expression::Aggregate what) {
    Expression expression;
    expression.type = Type::kAggregate;
    expression.aggregate = what;
    const bool is_grouped = grouping(expression);
    expect("(");
    if (takes_number(what)) {
      const Expression most = number();
      if (!failed() && (most.constant < 1 || most.constant > 10'000 || most.constant != std::floor(most.constant)))
        fail(format("%s takes a whole number from 1 to 10,000", name_of(what)));
      expression.most = failed() ? 0 : static_cast<int64_t>(most.constant);
      expect(",");
    }
    expression.parts.push_back(sum(depth + 1));
    if (!failed() && (expression.parts[0].type == Type::kLogs || expression.parts[0].type == Type::kConstant))
      fail(format("%s is of counts over time, such as count_over_time({...}[5m])", name_of(what)));
    expect(")");
    if (!is_grouped) grouping(expression);
    return expression;
  }
  // by (a, b), without (a, b). False: neither.
  bool grouping(Expression& expression) {
    if (failed()) return false;
    if (take_word("by")) {
      expression.grouping = Expression::Grouping::kBy;
    } else if (take_word("without")) {
      expression.grouping = Expression::Grouping::kWithout;
    } else {
      return false;
    }
    expect("(");
    if (!sees(")")) expression.labels = names();
    expect(")");
    return true;
  }
  std::vector<std::string> names() {
    std::vector<std::string> list;
    do {
      list.push_back(label_name());
      if (!enter(0)) break;
    } while (take(","));
    return list;
  }
  std::string label_name() {
    const size_t began = place();
    std::string name = word();
    if (is_label_name(name) && name.size() <= kLabelNameBytesMax) return name;
    go_back_to(began);
    fail(format("the name of a label is expected, not %s", rest().c_str()));
    return {};
  }

  // Selectors

  LogSelection selection() {
    LogSelection selected;
    selected.matchers = matchers();
    if (!failed()) stages(selected.stages);
    return selected;
  }
  std::vector<Matcher> matchers() {
    std::vector<Matcher> list;
    expect("{");
    while (!failed() && !sees("}")) {
      list.push_back(matcher(label_name()));
      if (!enter(0) || !take(",")) break;
    }
    expect("}");
    return list;
  }
  Matcher matcher(std::string name) {
    Matcher matcher;
    matcher.name = std::move(name);
    if (take("=~")) {
      matcher.op = Matcher::Op::kMatches;
    } else if (take("!~")) {
      matcher.op = Matcher::Op::kNotMatches;
    } else if (take("!=")) {
      matcher.op = Matcher::Op::kNotEqual;
    } else if (!take("==") && !take("=")) {
      fail(format("= != =~ or !~ is expected, not %s", rest().c_str()));
    }
    if (!failed()) matcher.value = text();
    if (!failed() && (matcher.op == Matcher::Op::kMatches || matcher.op == Matcher::Op::kNotMatches))
      matcher.pattern = pattern(matcher.value, true);
    return matcher;
  }

  // Stages

  void stages(std::vector<Stage>& list) {
    while (!failed()) {
      if (sees("|=") || sees("|~") || sees("!=") || sees("!~")) {
        list.push_back(line_filter());
      } else if (sees("|>") || sees("!>")) {
        fail("pattern filters (|> and !>) are not served here; |~ with a regular expression is");
      } else if (take("|")) {
        list.push_back(stage());
      } else {
        return;
      }
      if (!enter(0)) return;
    }
  }
  Stage line_filter() {
    Stage stage;
    LineFilter& line = stage.line;
    line.is_not = sees("!");
    line.is_pattern = sees("|~") || sees("!~");
    take(line.is_pattern ? (line.is_not ? "!~" : "|~") : (line.is_not ? "!=" : "|="));
    do {
      if (sees_word("ip")) fail("ip(...) is not served here");
      line.texts.push_back(text());
      if (!failed() && line.is_pattern) line.patterns.push_back(pattern(line.texts.back(), false));
      if (!enter(0)) break;
    } while (take_word("or"));
    return stage;
  }
  // After "|".
  Stage stage() {
    Stage stage;
    const size_t began = place();
    const std::string name = sees("(") ? std::string() : word();
    if (name == "json" || name == "logfmt") {
      stage.type = name == "json" ? Stage::Type::kJson : Stage::Type::kLogfmt;
      if (++parsers_ > kParsersMax) fail(format("more than %zu times | json or | logfmt", kParsersMax));
      if (sees("--")) fail(format("flags of %s are not served here", name.c_str()));
      const size_t behind = place();
      if (!failed() && !word().empty())
        fail(format("expressions of %s are not served here; it alone reads every label", name.c_str()));
      go_back_to(behind);
      return stage;
    }
    if (name == "drop" || name == "keep") {
      stage.type = name == "drop" ? Stage::Type::kDrop : Stage::Type::kKeep;
      stage.names = names();
      if (sees("=") || sees("!=") || sees("!~")) fail(format("%s takes names of labels alone here", name.c_str()));
      return stage;
    }
    for (const char* other : {"pattern", "regexp", "unpack", "line_format", "label_format", "unwrap", "decolorize",
                              "distinct", "variants"}) {
      if (name != other || sees("=") || sees("!") || sees(">") || sees("<")) continue;
      go_back_to(began);
      fail(format("| %s is not served here; %s", other, kStagesServed));
      return stage;
    }
    go_back_to(began);
    stage.type = Stage::Type::kLabelFilter;
    stage.label = any_of(0);
    return stage;
  }

  // Filters of labels

  LabelFilter any_of(int depth) {
    LabelFilter first = all_of(depth);
    LabelFilter either;
    either.type = LabelFilter::Type::kOr;
    either.parts.push_back(std::move(first));
    while (!failed() && take_word("or")) either.parts.push_back(all_of(depth));
    if (either.parts.size() > 1) return either;
    LabelFilter alone = std::move(either.parts.front());
    return alone;
  }
  LabelFilter all_of(int depth) {
    LabelFilter all;
    all.type = LabelFilter::Type::kAnd;
    all.parts.push_back(one_of(depth));
    while (!failed() && (take_word("and") || take(","))) all.parts.push_back(one_of(depth));
    if (all.parts.size() > 1) return all;
    LabelFilter alone = std::move(all.parts.front());
    return alone;
  }
  LabelFilter one_of(int depth) {
    LabelFilter filter;
    if (!enter(depth)) return filter;
    if (take("(")) {
      filter = any_of(depth + 1);
      expect(")");
      return filter;
    }
    const std::string name = label_name();
    if (failed()) return filter;
    const size_t began = place();
    const bool is_order = sees(">") || sees("<");
    if (!is_order) {
      const bool is_pattern = sees("=~") || sees("!~");
      take(is_pattern ? (sees("=") ? "=~" : "!~") : sees("!=") ? "!=" : sees("==") ? "==" : "=");
      if (is_pattern || sees_text()) {
        go_back_to(began);
        filter.text = matcher(name);
        return filter;
      }
      if (sees_word("ip")) fail("ip(...) is not served here");
    }
    go_back_to(began);
    filter.text.name = name;
    compare_with_number(filter);
    return filter;
  }
  void compare_with_number(LabelFilter& filter) {
    using Compare = LabelFilter::Compare;
    static constexpr std::pair<const char*, Compare> kSigns[] = {
        {">=", Compare::kGreaterEqual}, {"<=", Compare::kLessEqual}, {"==", Compare::kEqual},
        {"!=", Compare::kNotEqual},     {">", Compare::kGreater},    {"<", Compare::kLess},
        {"=", Compare::kEqual}};
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& one) { return take(one.first); });
    if (sign == std::end(kSigns)) return fail(format("a comparison is expected, not %s", rest().c_str()));
    filter.compare = sign->second;
    const size_t began = place();
    filter.written = literal();
    if (const std::optional<double> value = parse_double(filter.written); value && std::isfinite(*value)) {
      filter.type = LabelFilter::Type::kNumber;
      filter.number = *value;
    } else if (const Result<int64_t> duration = duration_from_text(filter.written); duration.ok()) {
      filter.type = LabelFilter::Type::kDuration;
      filter.number = static_cast<double>(*duration);
    } else if (const Result<double> bytes = bytes_from_text(filter.written); bytes.ok()) {
      filter.type = LabelFilter::Type::kBytes;
      filter.number = *bytes;
    } else {
      go_back_to(began);
      fail(format("a text in quotes, a number, a duration or a size is expected, not %s", rest().c_str()));
    }
  }

  size_t parts_ = 0;
  size_t patterns_ = 0;
  size_t parsers_ = 0;
};

Result<void> within_limit(std::string_view text) {
  if (text.size() > kQueryBytesMax)
    return Error{format("a LogQL query has at most %zu bytes, this one has %zu", kQueryBytesMax, text.size())};
  return {};
}

}  // namespace

bool Matcher::holds(std::string_view text) const {
  switch (op) {
    case Op::kEqual:
      return text == value;
    case Op::kNotEqual:
      return text != value;
    default:
      return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), *pattern) == (op == Op::kMatches);
  }
}

bool LineFilter::holds(std::string_view line) const {
  const re2::StringPiece piece(line.data(), line.size());
  const bool is_there =
      is_pattern ? std::any_of(patterns.begin(), patterns.end(),
                               [&](const Pattern& pattern) { return RE2::PartialMatch(piece, *pattern); })
                 : std::any_of(texts.begin(), texts.end(),
                               [&](const std::string& text) { return line.find(text) != std::string_view::npos; });
  return is_there != is_not;
}

bool is_label_name(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) && std::all_of(text.begin(), text.end(), is_label_letter);
}

const char* name_of(Expression::Function function) {
  for (const FunctionName& row : kFunctions) {
    if (row.function == function) return row.name;
  }
  return "";
}

const char* name_of(Expression::Aggregate aggregate) {
  for (const AggregateName& row : kAggregates) {
    if (row.aggregate == aggregate) return row.name;
  }
  return "";
}

double computed(char sign, double left, double right) {
  constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  switch (sign) {
    case '+':
      return left + right;
    case '-':
      return left - right;
    case '*':
      return left * right;
    case '/':
      return right == 0 ? kNoNumber : left / right;
    default:
      return right == 0 ? kNoNumber : std::fmod(left, right);
  }
}

Result<double> bytes_from_text(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"b", 1},
                                                                   {"kb", 1e3},
                                                                   {"mb", 1e6},
                                                                   {"gb", 1e9},
                                                                   {"tb", 1e12},
                                                                   {"kib", 1024},
                                                                   {"mib", 1048576.0},
                                                                   {"gib", 1073741824.0},
                                                                   {"tib", 1099511627776.0},
                                                                   {"", 1}};
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit = lower_case(trim(text.substr(digits)));
  const std::optional<double> value = parse_double(text.substr(0, digits));
  for (const auto& [name, times] : kUnits) {
    if (value && unit == name) return *value * times;
  }
  return Error{format("\"%.40s\" is no size", as_one_line(text).c_str())};
}

Result<Expression> parse(std::string_view text) {
  LOCKSTEP_TRY(within_limit(text));
  return Parser(text).parse();
}

Result<std::vector<Matcher>> parse_matchers(std::string_view text) {
  LOCKSTEP_TRY(within_limit(text));
  return Parser(text).parse_matchers();
}

}  // namespace lockstep::logql
