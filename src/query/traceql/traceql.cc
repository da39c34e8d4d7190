#include "query/traceql/traceql.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

using namespace traceql;

constexpr const char* kUnderstood =
    "understood are { conditions }, && and || between braces, and | count(), avg(), min(), max(), sum(), select()";
constexpr const char* kFieldsUnderstood =
    "span.KEY, resource.KEY, .KEY, name, status, statusMessage, kind, duration, traceDuration, rootName, "
    "rootServiceName, span:id, trace:id";
constexpr size_t kRegexBytesMax = 512;
constexpr int64_t kRegexMemoryMax = 1 << 20;

struct Intrinsic {
  std::string_view name;
  Field field;
};
constexpr Intrinsic kIntrinsics[] = {
    {"name", Field::kName},
    {"span:name", Field::kName},
    {"status", Field::kStatus},
    {"span:status", Field::kStatus},
    {"statusMessage", Field::kStatusMessage},
    {"span:statusMessage", Field::kStatusMessage},
    {"kind", Field::kKind},
    {"span:kind", Field::kKind},
    {"duration", Field::kDuration},
    {"span:duration", Field::kDuration},
    {"traceDuration", Field::kTraceDuration},
    {"trace:duration", Field::kTraceDuration},
    {"rootName", Field::kRootName},
    {"trace:rootName", Field::kRootName},
    {"rootServiceName", Field::kRootService},
    {"trace:rootService", Field::kRootService},
    {"nestedSetParent", Field::kParent},
    {"trace:id", Field::kTraceId},
    {"span:id", Field::kSpanId},
    {"span:parentID", Field::kParentId},
};

bool ends_word(char letter) {
  return static_cast<unsigned char>(letter) <= ' ' ||
         std::string_view("{}()=!<>~&|^,\"`+*%").find(letter) != std::string_view::npos;
}

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

// Recursive descent. The first thing that is wrong is kept; everything then comes back empty.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<TraceQl> parse() {
    TraceQl query;
    query.spans = spans_or(0);
    while (!failed() && take("|")) query.stages.push_back(stage());
    skip_blanks();
    if (!failed() && at_ < text_.size()) fail_at_rest();
    if (failed()) return Error{problem_};
    return query;
  }

 private:
  bool failed() const { return !problem_.empty(); }
  void fail(std::string what) {
    if (failed()) return;
    problem_ = format("TraceQL, character %zu: %s", at_ + 1, what.c_str());
  }
  std::string rest() const {
    return at_ < text_.size() ? "\"" + as_one_line(text_.substr(at_, 20)) + "\"" : std::string("the end");
  }
  void fail_at_rest() {
    if (starts_with(">") || starts_with("<") || starts_with("~") || starts_with("!") || starts_with("&>") ||
        starts_with("&<") || starts_with("&~")) {
      fail(format("operators between spans, such as %.2s, are not understood; %s",
                  as_one_line(text_.substr(at_, 2)).c_str(), kUnderstood));
    } else {
      fail(format("%s is not understood here; %s", rest().c_str(), kUnderstood));
    }
  }
  bool enter(int depth) {
    if (depth > kTraceQlDepthMax) fail(format("nested deeper than %d", kTraceQlDepthMax));
    if (++nodes_ > kTraceQlNodesMax) fail(format("more than %zu parts", kTraceQlNodesMax));
    return !failed();
  }

  void skip_blanks() {
    while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) <= ' ') ++at_;
  }
  bool starts_with(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    skip_blanks();
    if (!starts_with(word)) return false;
    if (word == "|" && starts_with("||")) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!failed() && !take(word))
      fail(format("\"%.*s\" is expected, not %s", static_cast<int>(word.size()), word.data(), rest().c_str()));
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
      ++at_;
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
    const size_t began = at_;
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
      if (at_ < text_.size() && std::string_view("+-*/^%").find(text_[at_]) != std::string_view::npos)
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
        at_ = began;
        fail("one side of a comparison has to be a field");
        return condition;
      }
      std::swap(condition.left, condition.right);
      condition.op = flipped(condition.op);
    }
    check(condition, began);
    return condition;
  }

  std::optional<Op> compare_op() {
    static constexpr std::pair<std::string_view, Op> kOps[] = {
        {"!~", Op::kNotMatches}, {"!=", Op::kNotEqual}, {"=~", Op::kMatches}, {">=", Op::kGreaterEqual},
        {"<=", Op::kLessEqual},  {">", Op::kGreater},   {"<", Op::kLess},     {"=", Op::kEqual}};
    for (const auto& [word, op] : kOps) {
      if (take(word)) return op;
    }
    return std::nullopt;
  }

  // The left side is a field.
  void check(Condition& condition, size_t began) {
    const FieldRef& field = std::get<FieldRef>(condition.left);
    const Literal* literal = std::get_if<Literal>(&condition.right);
    auto wrong = [&](const char* what) {
      at_ = began;
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

  // Fields and values

  Operand operand() {
    skip_blanks();
    if (at_ == text_.size()) {
      fail("a field or a value is expected, not the end");
      return Literal{};
    }
    const char first = text_[at_];
    if (first == '"' || first == '`') return Literal{quoted()};
    const bool is_number = (first >= '0' && first <= '9') ||
                           (first == '-' && at_ + 1 < text_.size() && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9');
    if (is_number) return number();
    const size_t began = at_;
    std::string word;
    // Parts of an attribute's name may stand in quotes: span."a key".
    while (at_ < text_.size() &&
           (!ends_word(text_[at_]) || (text_[at_] == '"' && !word.empty() && word.back() == '.'))) {
      if (text_[at_] == '"') {
        word += quoted();
        if (failed()) return Literal{};
      } else {
        word += text_[at_++];
      }
    }
    if (word == "true" || word == "false") return Literal{word == "true"};
    if (word == "nil") return Literal{};
    if (std::optional<int32_t> status = status_from_text(word)) return Literal{Status{*status}};
    if (std::optional<int32_t> kind = kind_from_text(word)) return Literal{Kind{*kind}};
    return field_of(std::move(word), began);
  }

  Operand field_of(std::string word, size_t began) {
    FieldRef field;
    field.text = word;
    auto rest_of = [&](std::string_view prefix) {
      if (!word.starts_with(prefix) || word.size() == prefix.size()) return false;
      field.key = word.substr(prefix.size());
      return true;
    };
    if (rest_of(".")) {
      field.field = Field::kAttribute;
      return field;
    }
    if (rest_of("span.")) {
      field.field = Field::kSpanAttribute;
      return field;
    }
    if (rest_of("resource.")) {
      field.field = Field::kResourceAttribute;
      return field;
    }
    for (const Intrinsic& intrinsic : kIntrinsics) {
      if (word != intrinsic.name) continue;
      field.field = intrinsic.field;
      return field;
    }
    at_ = began;
    fail(word.empty()
             ? format("a field or a value is expected, not %s", rest().c_str())
             : format("\"%.40s\" is not a field; understood: %s", as_one_line(word).c_str(), kFieldsUnderstood));
    return Literal{};
  }

  std::string quoted() {
    const char quote = text_[at_++];
    std::string value;
    while (at_ < text_.size() && text_[at_] != quote) {
      char letter = text_[at_++];
      if (quote == '"' && letter == '\\' && at_ < text_.size()) {
        letter = text_[at_++];
        // Of other escapes the backslash stays: regular expressions are full of them.
        if (letter == 'n') {
          letter = '\n';
        } else if (letter == 't') {
          letter = '\t';
        } else if (letter != '"' && letter != '\\') {
          value += '\\';
        }
      }
      value += letter;
    }
    if (at_ == text_.size()) {
      fail("a quote does not end");
    } else {
      ++at_;
    }
    return value;
  }

  Operand number() {
    const std::string_view here = text_.substr(at_);
    if (std::optional<std::pair<int64_t, size_t>> duration = duration_prefix(here)) {
      if (duration->second == here.size() || ends_word(here[duration->second])) {
        at_ += duration->second;
        return Literal{Duration{duration->first}};
      }
    }
    size_t size = 1;
    while (size < here.size() && !ends_word(here[size])) ++size;
    std::optional<double> value = parse_double(here.substr(0, size));
    if (!value || !std::isfinite(*value)) {
      fail(format("%s is neither a number nor a duration", rest().c_str()));
      return Literal{};
    }
    at_ += size;
    return Literal{*value};
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
    const size_t began = at_;
    std::string word;
    while (at_ < text_.size() && !ends_word(text_[at_])) word += text_[at_++];
    static constexpr std::pair<std::string_view, Stage::Type> kFunctions[] = {
        {"count", Stage::Type::kCount}, {"avg", Stage::Type::kAverage}, {"min", Stage::Type::kMinimum},
        {"max", Stage::Type::kMaximum}, {"sum", Stage::Type::kSum},     {"select", Stage::Type::kSelect}};
    auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                              [&](const auto& function) { return function.first == word; });
    if (found == std::end(kFunctions)) {
      at_ = began;
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
  FieldRef field() {
    skip_blanks();
    const size_t began = at_;
    Operand value = operand();
    if (FieldRef* field = std::get_if<FieldRef>(&value)) return std::move(*field);
    at_ = began;
    fail(format("a field is expected, not %s; understood: %s", rest().c_str(), kFieldsUnderstood));
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t nodes_ = 0;
  std::string problem_;
};

// Evaluation

std::optional<double> number_of(const Value& value) {
  if (const int64_t* number = std::get_if<int64_t>(&value.data)) return static_cast<double>(*number);
  if (const double* number = std::get_if<double>(&value.data)) return *number;
  return std::nullopt;
}

// 1000000, not 1e+06: as people and attributes have it.
std::string number_text(double number) {
  const bool is_whole = std::abs(number) < 9e15 && number == std::floor(number);
  return is_whole ? format("%lld", static_cast<long long>(number)) : shortest_text(number);
}

// What has another type is unequal, and in no order.
bool compare(Op op, const Value& left, const Literal& right) {
  const bool is_absent = std::holds_alternative<std::monostate>(left.data);
  if (std::holds_alternative<std::monostate>(right))
    return (op == Op::kEqual && is_absent) || (op == Op::kNotEqual && !is_absent);
  if (is_absent) return false;
  const std::string* text = std::get_if<std::string>(&left.data);
  if (const std::string* wanted = std::get_if<std::string>(&right)) {
    return text != nullptr ? holds(op, *text, *wanted) : op == Op::kNotEqual;
  }
  if (const bool* wanted = std::get_if<bool>(&right)) {
    const bool* flag = std::get_if<bool>(&left.data);
    return flag != nullptr ? holds(op, *flag, *wanted) : op == Op::kNotEqual;
  }
  double wanted = 0;
  if (const double* number = std::get_if<double>(&right)) {
    // Lists of values do not tell types, so somebody who picks 200 there means the text as well.
    if (text != nullptr && (op == Op::kEqual || op == Op::kNotEqual)) return holds(op, *text, number_text(*number));
    wanted = *number;
  } else if (const Duration* duration = std::get_if<Duration>(&right)) {
    wanted = static_cast<double>(duration->ns);
  } else if (const Status* status = std::get_if<Status>(&right)) {
    if (text != nullptr) return holds(op, *text, std::string(status_text(status->code)));
    wanted = status->code;
  } else if (const Kind* kind = std::get_if<Kind>(&right)) {
    if (text != nullptr) return holds(op, *text, std::string(kind_text(kind->code)));
    wanted = kind->code;
  }
  const std::optional<double> number = number_of(left);
  return number ? holds(op, *number, wanted) : op == Op::kNotEqual;
}

bool compare(Op op, const Value& left, const Value& right) {
  if (std::holds_alternative<std::monostate>(left.data) || std::holds_alternative<std::monostate>(right.data))
    return false;
  const std::optional<double> a = number_of(left);
  const std::optional<double> b = number_of(right);
  if (a && b) return holds(op, *a, *b);
  const std::string* first = std::get_if<std::string>(&left.data);
  const std::string* second = std::get_if<std::string>(&right.data);
  if (first != nullptr && second != nullptr) return holds(op, *first, *second);
  return op == Op::kEqual ? left == right : op == Op::kNotEqual && !(left == right);
}

Value or_nothing(const Value* value) {
  return value != nullptr ? *value : Value();
}

void add_fields(std::vector<FieldRef>& fields, const Operand& operand) {
  const FieldRef* field = std::get_if<FieldRef>(&operand);
  if (field == nullptr) return;
  auto same = [&](const FieldRef& other) { return other.field == field->field && other.key == field->key; };
  if (std::none_of(fields.begin(), fields.end(), same)) fields.push_back(*field);
}
void add_fields(std::vector<FieldRef>& fields, const Condition& condition) {
  for (const Condition& part : condition.parts) add_fields(fields, part);
  if (condition.type == Condition::Type::kCompare || condition.type == Condition::Type::kIsTrue)
    add_fields(fields, condition.left);
  if (condition.type == Condition::Type::kCompare) add_fields(fields, condition.right);
}
void add_fields(std::vector<FieldRef>& fields, const SpanSet& set) {
  if (set.type == SpanSet::Type::kFilter) add_fields(fields, set.condition);
  for (const SpanSet& part : set.parts) add_fields(fields, part);
}

// Puts into the query what every match of the condition has; false: the condition asks for more than that.
bool push_compare(const Condition& condition, TraceQuery& query) {
  const FieldRef* field = std::get_if<FieldRef>(&condition.left);
  const Literal* literal = std::get_if<Literal>(&condition.right);
  if (field == nullptr || literal == nullptr) return false;
  const std::string* text = std::get_if<std::string>(literal);
  if (const Duration* duration = std::get_if<Duration>(literal);
      duration != nullptr && field->field == Field::kDuration) {
    const int64_t ns = duration->ns;
    const bool is_least =
        condition.op == Op::kGreater || condition.op == Op::kGreaterEqual || condition.op == Op::kEqual;
    const bool is_most = condition.op == Op::kLess || condition.op == Op::kLessEqual || condition.op == Op::kEqual;
    if (is_least) query.duration_least_ns = std::max(query.duration_least_ns, ns + (condition.op == Op::kGreater));
    if (is_most) {
      const int64_t most = ns - (condition.op == Op::kLess);
      if (most <= 0) return false;  // 0 means no limit there
      query.duration_most_ns = query.duration_most_ns == 0 ? most : std::min(query.duration_most_ns, most);
    }
    return is_least || is_most;
  }
  if (condition.op != Op::kEqual) return false;
  switch (field->field) {
    case Field::kName:
      if (text == nullptr || text->empty() || !query.name.empty()) return false;
      query.name = *text;
      return true;
    case Field::kStatus:
      if (const Status* status = std::get_if<Status>(literal); status == nullptr || status->code != 2) return false;
      query.errors_only = true;
      return true;
    case Field::kResourceAttribute:
      if (field->key == "service.name" && text != nullptr && !text->empty() && query.service.empty()) {
        query.service = *text;
        return true;
      }
      [[fallthrough]];
    case Field::kAttribute:
    case Field::kSpanAttribute:
      // Stores compare as text, in both places: that misses nothing, but may find more.
      if (text != nullptr) query.attributes.push_back({field->key, *text});
      return false;
    default:
      return false;
  }
}

bool push_condition(const Condition& condition, TraceQuery& query) {
  switch (condition.type) {
    case Condition::Type::kAlways:
      return true;
    case Condition::Type::kAnd: {
      bool is_exact = true;
      for (const Condition& part : condition.parts) is_exact = push_condition(part, query) && is_exact;
      return is_exact;
    }
    case Condition::Type::kCompare:
      return push_compare(condition, query);
    default:
      return false;
  }
}

}  // namespace

Result<TraceQl> parse_traceql(std::string_view text) {
  if (text.size() > kTraceQlBytesMax)
    return Error{format("TraceQL: %zu characters; at most %zu are taken", text.size(), kTraceQlBytesMax)};
  return Parser(text).parse();
}

Value value_of(const FieldRef& field, const StoredSpan& item, const TraceFacts& trace) {
  const Span& span = item.span;
  switch (field.field) {
    case Field::kAttribute:
      if (const Value* value = find(span.attributes, field.key)) return *value;
      return or_nothing(find(*item.resource, field.key));
    case Field::kSpanAttribute:
      return or_nothing(find(span.attributes, field.key));
    case Field::kResourceAttribute:
      return or_nothing(find(*item.resource, field.key));
    case Field::kName:
      return Value(span.name);
    case Field::kStatus:
      return Value(status_text(span.status_code));
    case Field::kStatusMessage:
      return Value(span.status_message);
    case Field::kKind:
      return Value(kind_text(span.kind));
    case Field::kDuration:
      return Value(span.end_unix_ns - span.start_unix_ns);
    case Field::kTraceDuration:
      return Value(trace.end_unix_ns - trace.start_unix_ns);
    case Field::kRootName:
      return Value(trace.root_name);
    case Field::kRootService:
      return Value(trace.root_service);
    case Field::kParent:
      return Value(span.parent_span_id == SpanId{} ? int64_t{-1} : int64_t{1});
    case Field::kTraceId:
      return Value(to_hex(span.trace_id));
    case Field::kSpanId:
      return Value(to_hex(span.span_id));
    case Field::kParentId:
      return Value(span.parent_span_id == SpanId{} ? std::string() : to_hex(span.parent_span_id));
  }
  return {};
}

bool matches(const Condition& condition, const StoredSpan& span, const TraceFacts& trace) {
  auto one = [&](const Condition& part) { return matches(part, span, trace); };
  switch (condition.type) {
    case Condition::Type::kAlways:
      return true;
    case Condition::Type::kNever:
      return false;
    case Condition::Type::kAnd:
      return std::all_of(condition.parts.begin(), condition.parts.end(), one);
    case Condition::Type::kOr:
      return std::any_of(condition.parts.begin(), condition.parts.end(), one);
    case Condition::Type::kNot:
      return !one(condition.parts.front());
    case Condition::Type::kIsTrue: {
      const Value value = value_of(std::get<FieldRef>(condition.left), span, trace);
      const bool* flag = std::get_if<bool>(&value.data);
      return flag != nullptr && *flag;
    }
    case Condition::Type::kCompare:
      break;
  }
  const Value left = value_of(std::get<FieldRef>(condition.left), span, trace);
  if (condition.regex != nullptr) {
    if (std::holds_alternative<std::monostate>(left.data)) return false;
    return re2::RE2::FullMatch(plain_text(left), *condition.regex) == (condition.op == Op::kMatches);
  }
  if (const Literal* literal = std::get_if<Literal>(&condition.right)) return compare(condition.op, left, *literal);
  return compare(condition.op, left, value_of(std::get<FieldRef>(condition.right), span, trace));
}

std::vector<FieldRef> fields_of(const TraceQl& query) {
  std::vector<FieldRef> fields;
  add_fields(fields, query.spans);
  for (const Stage& stage : query.stages) {
    if (stage.type == Stage::Type::kFilter) add_fields(fields, stage.condition);
    if (stage.type > Stage::Type::kCount && stage.type < Stage::Type::kSelect) add_fields(fields, Operand(stage.of));
    for (const FieldRef& field : stage.fields) add_fields(fields, Operand(field));
  }
  return fields;
}

Pushdown push_down(const TraceQl& query) {
  Pushdown pushed;
  // Of sets joined by && each must match in the trace, so the first is as good as any; with || nothing must.
  const SpanSet* set = &query.spans;
  while (set->type == SpanSet::Type::kAnd) set = &set->parts.front();
  if (set->type == SpanSet::Type::kOr) return pushed;
  pushed.exact = push_condition(set->condition, pushed.query) && set == &query.spans &&
                 std::all_of(query.stages.begin(), query.stages.end(),
                             [](const Stage& stage) { return stage.type == Stage::Type::kSelect; });
  return pushed;
}

}  // namespace lockstep
