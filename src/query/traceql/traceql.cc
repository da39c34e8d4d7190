// Evaluation of conditions over spans.
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

}  // namespace

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

}  // namespace lockstep
