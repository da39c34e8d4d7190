// TraceQL's grammar: sets of spans, the conditions within their braces, and what follows after |.
#include <re2/re2.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "query/traceql/lexer.h"

namespace lockstep {
namespace {

using namespace traceql;

constexpr const char* kUnderstood =
    "understood are { conditions }, && and || between braces, and | count(), avg(), min(), max(), sum(), select()";
constexpr size_t kRegexBytesMax = 512;
constexpr int64_t kRegexMemoryMax = 1 << 20;

Op flipped(Op op) {
  switch (op) {
    case Op::kGreater:
      return Op::kLess;
    case Op::kGreaterEqual:
      return Op::kLessEqual;
    case Op::kLess:
      return Op::kGreater;
    case Op::kLessEqual:
      return Op::kGreaterEqual;
    default:
      return op;
  }
}

// Recursive descent.
class Parser : private Lexer {
 public:
  explicit Parser(std::string_view text) : Lexer(text) {}

  Result<TraceQl> parse() {
    TraceQl query;
    query.spans = spans_or(0);
    while (!failed() && take("|")) query.stages.push_back(stage());
    skip_blanks();
    if (!failed() && !at_end()) fail_at_rest();
    if (failed()) return Error{problem()};
    return query;
  }

 private:
  void fail_at_rest() {
    if (starts_with(">") || starts_with("<") || starts_with("~") || starts_with("!") || starts_with("&>") ||
        starts_with("&<") || starts_with("&~")) {
      fail(format("operators between spans, such as %.2s, are not understood; %s", as_one_line(next(2)).c_str(),
                  kUnderstood));
    } else {
      fail(format("%s is not understood here; %s", rest().c_str(), kUnderstood));
    }
  }
  bool enter(int depth) {
    if (depth > kTraceQlDepthMax) fail(format("nested deeper than %d", kTraceQlDepthMax));
    if (++nodes_ > kTraceQlNodesMax) fail(format("more than %zu parts", kTraceQlNodesMax));
    return !failed();
  }

  // Sets of spans

  SpanSet spans_or(int depth) { return spans_joined(depth, "||", SpanSet::Type::kOr); }
  SpanSet spans_joined(int depth, const char* word, SpanSet::Type type) {
    SpanSet first = type == SpanSet::Type::kOr ? spans_joined(depth, "&&", SpanSet::Type::kAnd) : spans_term(depth);
    SpanSet joined;
    joined.type = type;
    joined.parts.push_back(std::move(first));
    while (!failed() && take(word)) {
      joined.parts.push_back(type == SpanSet::Type::kOr ? spans_joined(depth, "&&", SpanSet::Type::kAnd)
                                                        : spans_term(depth));
    }
    if (joined.parts.size() > 1) return joined;
    SpanSet alone = std::move(joined.parts.front());
    return alone;
  }
  SpanSet spans_term(int depth) {
    SpanSet set;
    if (!enter(depth)) return set;
    if (take("(")) {
      set = spans_or(depth + 1);
      if (!failed() && !take(")")) fail_at_rest();
    } else if (take("{")) {
      set.condition = braces();
    } else {
      skip_blanks();
      fail(format("a \"{\" is expected, not %s; %s", rest().c_str(), kUnderstood));
    }
    return set;
  }
  // After "{".
  Condition braces() {
    if (take("}")) return {};
    Condition condition = any_of(0);
    expect("}");
    return condition;
  }

  // Conditions

  Condition any_of(int depth) { return joined(depth, "||", Condition::Type::kOr); }
  Condition joined(int depth, const char* word, Condition::Type type) {
    auto one = [&] { return type == Condition::Type::kOr ? joined(depth, "&&", Condition::Type::kAnd) : term(depth); };
    Condition list;
    list.type = type;
    list.parts.push_back(one());
    while (!failed() && take(word)) list.parts.push_back(one());
    if (list.parts.size() > 1) return list;
    Condition alone = std::move(list.parts.front());
    return alone;
  }
  Condition term(int depth) {
    Condition condition;
    if (!enter(depth)) return condition;
    skip_blanks();
    if (starts_with("!") && !starts_with("!=") && !starts_with("!~")) {
      skip(1);
      condition.type = Condition::Type::kNot;
      condition.parts.push_back(term(depth + 1));
      return condition;
    }
    if (take("(")) {
      condition = any_of(depth + 1);
      expect(")");
      return condition;
    }
    return comparison();
  }

  Condition comparison() {
    Condition condition;
    const size_t began = place();
    condition.left = operand();
    if (failed()) return condition;
    skip_blanks();
    std::optional<Op> op = compare_op();
    if (!op) {
      if (const Literal* literal = std::get_if<Literal>(&condition.left)) {
        const bool* flag = std::get_if<bool>(literal);
        if (flag == nullptr) fail(format("a comparison is expected (= != > >= < <= =~ !~), not %s", rest().c_str()));
        condition.type = flag != nullptr && *flag ? Condition::Type::kAlways : Condition::Type::kNever;
        return condition;
      }
      if (!at_end() && std::string_view("+-*/^%").find(next(1)) != std::string_view::npos)
        fail("arithmetic is not understood; compare a field with a value");
      const Field field = std::get<FieldRef>(condition.left).field;
      if (field != Field::kAttribute && field != Field::kSpanAttribute && field != Field::kResourceAttribute)
        fail(format("a comparison is expected (= != > >= < <= =~ !~), not %s", rest().c_str()));
      condition.type = Condition::Type::kIsTrue;
      return condition;
    }
    condition.type = Condition::Type::kCompare;
    condition.op = *op;
    condition.right = operand();
    if (failed()) return condition;
    if (std::holds_alternative<Literal>(condition.left)) {
      if (std::holds_alternative<Literal>(condition.right)) {
        go_back_to(began);
        fail("one side of a comparison has to be a field");
        return condition;
      }
      std::swap(condition.left, condition.right);
      condition.op = flipped(condition.op);
    }
    check(condition, began);
    return condition;
  }

  // The left side is a field.
  void check(Condition& condition, size_t began) {
    const FieldRef& field = std::get<FieldRef>(condition.left);
    const Literal* literal = std::get_if<Literal>(&condition.right);
    auto wrong = [&](const char* what) {
      go_back_to(began);
      fail(format("%.60s %s", as_one_line(field.text).c_str(), what));
    };
    if (condition.op == Op::kMatches || condition.op == Op::kNotMatches) {
      const std::string* pattern = literal != nullptr ? std::get_if<std::string>(literal) : nullptr;
      if (pattern == nullptr) return wrong("is matched against something that is no text; =~ and !~ take \"...\"");
      if (pattern->size() > kRegexBytesMax) return wrong("is matched against more than 512 characters");
      re2::RE2::Options options;
      options.set_log_errors(false);
      options.set_max_mem(kRegexMemoryMax);
      auto regex = std::make_shared<re2::RE2>(*pattern, options);
      if (!regex->ok()) {
        return wrong(format("is matched against what is no regular expression: %s", as_one_line(regex->error()).c_str())
                         .c_str());
      }
      condition.regex = std::move(regex);
      return;
    }
    if (literal == nullptr || std::holds_alternative<std::monostate>(*literal)) return;
    const bool is_order = condition.op != Op::kEqual && condition.op != Op::kNotEqual;
    switch (field.field) {
      case Field::kStatus:
        if (is_order || !std::holds_alternative<Status>(*literal))
          wrong("is compared by = and != with ok, error or unset");
        return;
      case Field::kKind:
        if (is_order || !std::holds_alternative<Kind>(*literal))
          wrong("is compared by = and != with internal, server, client, producer, consumer or unspecified");
        return;
      case Field::kDuration:
      case Field::kTraceDuration:
        if (!std::holds_alternative<Duration>(*literal)) wrong("is compared with a duration, such as 100ms");
        return;
      case Field::kName:
      case Field::kStatusMessage:
      case Field::kRootName:
      case Field::kRootService:
      case Field::kTraceId:
      case Field::kSpanId:
      case Field::kParentId:
        if (!std::holds_alternative<std::string>(*literal)) wrong("is compared with a text in quotes");
        return;
      case Field::kParent:
        if (!std::holds_alternative<double>(*literal)) wrong("is compared with a number; negative: no parent");
        return;
      default:
        return;
    }
  }

  // After "|"

  Stage stage() {
    Stage stage;
    if (!enter(0)) return stage;
    if (take("{")) {
      stage.condition = braces();
      return stage;
    }
    skip_blanks();
    const size_t began = place();
    const std::string word = bare_word();
    static constexpr std::pair<std::string_view, Stage::Type> kFunctions[] = {
        {"count", Stage::Type::kCount}, {"avg", Stage::Type::kAverage}, {"min", Stage::Type::kMinimum},
        {"max", Stage::Type::kMaximum}, {"sum", Stage::Type::kSum},     {"select", Stage::Type::kSelect}};
    auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                              [&](const auto& function) { return function.first == word; });
    if (found == std::end(kFunctions)) {
      go_back_to(began);
      const bool is_metrics = word == "rate" || word == "compare" || word.ends_with("_over_time");
      fail(is_metrics ? format("%.40s() makes a metric of spans, which is not served here", as_one_line(word).c_str())
                      : format("%s is not understood after |; %s", rest().c_str(), kUnderstood));
      return stage;
    }
    stage.type = found->second;
    expect("(");
    if (failed()) return stage;
    if (stage.type == Stage::Type::kSelect) {
      do {
        stage.fields.push_back(field());
        if (++nodes_ > kTraceQlNodesMax) fail(format("more than %zu parts", kTraceQlNodesMax));
      } while (!failed() && take(","));
      expect(")");
      return stage;
    }
    if (stage.type != Stage::Type::kCount) stage.of = field();
    expect(")");
    if (failed()) return stage;
    std::optional<Op> op = compare_op();
    if (!op || *op == Op::kMatches || *op == Op::kNotMatches) {
      fail(format("%s() is compared with a value, such as %s() > 2", word.c_str(), word.c_str()));
      return stage;
    }
    stage.op = *op;
    Operand value = operand();
    if (failed()) return stage;
    const Literal* literal = std::get_if<Literal>(&value);
    if (literal != nullptr && std::holds_alternative<double>(*literal)) {
      stage.value = std::get<double>(*literal);
    } else if (literal != nullptr && std::holds_alternative<Duration>(*literal)) {
      stage.value = static_cast<double>(std::get<Duration>(*literal).ns);
    } else {
      fail(format("%s() is compared with a number or a duration", word.c_str()));
    }
    return stage;
  }
  size_t nodes_ = 0;
};

}  // namespace

Result<TraceQl> parse_traceql(std::string_view text) {
  if (text.size() > kTraceQlBytesMax)
    return Error{format("TraceQL: %zu characters; at most %zu are taken", text.size(), kTraceQlBytesMax)};
  return Parser(text).parse();
}

}  // namespace lockstep
