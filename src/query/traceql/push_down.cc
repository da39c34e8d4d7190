// What of a TraceQL query a store can look for by itself.
#include <algorithm>

#include "query/traceql/traceql.h"

namespace lockstep {
namespace {

using namespace traceql;

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
