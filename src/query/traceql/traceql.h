// A subset of TraceQL: what Grafana's search builder writes, and what people write by hand to find a span.
//
//   { resource.service.name = "trainer" && duration > 100ms }
//   { name =~ "All.*" && span.lockstep.bytes >= 1000000 } && { status = error }
//   { span.lockstep.kind = "collective" } | count() > 100 | select(span.lockstep.comm_id)
//
// Understood: span. resource. and . (either) attributes; name, status, statusMessage, kind, duration, traceDuration,
// rootName, rootServiceName, nestedSetParent (negative: the span has no parent), also as span:name, trace:rootName,
// ..., span:id, span:parentID, trace:id; = != > >= < <= =~ !~; && || ! and parentheses; strings, numbers, durations,
// true, false, nil, the words of status and kind; && and || between braces; | with further braces, count(), avg(),
// min(), max(), sum() compared with a value, select(). Regular expressions match the whole text (RE2: no input makes
// them slow). An attribute that is not there matches nothing but `= nil`.
// Refused with a line that says so: operators between spans (> >> ~ ...), arithmetic, by(), metrics.
//
// Limits: kTraceQlBytesMax, kTraceQlDepthMax, kTraceQlNodesMax.
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "store/span_store.h"

namespace re2 {
class RE2;
}

namespace lockstep {

inline constexpr size_t kTraceQlBytesMax = 8 * 1024;
inline constexpr int kTraceQlDepthMax = 32;
inline constexpr size_t kTraceQlNodesMax = 256;

namespace traceql {

enum class Field : uint8_t {
  kAttribute,  // of the span, else of its resource
  kSpanAttribute,
  kResourceAttribute,
  kName,
  kStatus,
  kStatusMessage,
  kKind,
  kDuration,
  kTraceDuration,
  kRootName,
  kRootService,
  kParent,  // nestedSetParent
  kTraceId,
  kSpanId,
  kParentId,
};

struct FieldRef {
  Field field = Field::kAttribute;
  std::string key;   // of an attribute
  std::string text;  // as it was written
};

// Words of status and kind, and durations, are types of their own.
struct Duration {
  int64_t ns = 0;
};
struct Status {
  int32_t code = 0;
};
struct Kind {
  int32_t code = 0;
};
// monostate: nil.
using Literal = std::variant<std::monostate, std::string, double, bool, Duration, Status, Kind>;
using Operand = std::variant<FieldRef, Literal>;

enum class Op : uint8_t { kEqual, kNotEqual, kGreater, kGreaterEqual, kLess, kLessEqual, kMatches, kNotMatches };

// left OP right; false for operators that are no comparison.
template <typename T>
bool holds(Op op, const T& left, const T& right) {
  switch (op) {
    case Op::kEqual:
      return left == right;
    case Op::kNotEqual:
      return left != right;
    case Op::kGreater:
      return left > right;
    case Op::kGreaterEqual:
      return left >= right;
    case Op::kLess:
      return left < right;
    case Op::kLessEqual:
      return left <= right;
    default:
      return false;
  }
}

// Within braces.
struct Condition {
  enum class Type : uint8_t { kAlways, kNever, kAnd, kOr, kNot, kCompare, kIsTrue };
  Type type = Type::kAlways;
  std::vector<Condition> parts;  // kAnd, kOr, kNot
  Operand left;                  // kCompare; kIsTrue: a flag
  Operand right;
  Op op = Op::kEqual;
  std::shared_ptr<const re2::RE2> regex;
};

// Braces, or several joined.
struct SpanSet {
  enum class Type : uint8_t { kFilter, kAnd, kOr };
  Type type = Type::kFilter;
  Condition condition;         // kFilter
  std::vector<SpanSet> parts;  // kAnd, kOr
};

struct Stage {
  enum class Type : uint8_t { kFilter, kCount, kAverage, kMinimum, kMaximum, kSum, kSelect };
  Type type = Type::kFilter;
  Condition condition;           // kFilter
  FieldRef of;                   // of kAverage to kSum
  Op op = Op::kGreater;          // kCount to kSum
  double value = 0;              // durations in ns
  std::vector<FieldRef> fields;  // kSelect
};

}  // namespace traceql

struct TraceQl {
  traceql::SpanSet spans;
  std::vector<traceql::Stage> stages;
};

// One line on error that names the place and what is understood there.
Result<TraceQl> parse_traceql(std::string_view text);

// What is known of the trace that a span stands in.
struct TraceFacts {
  std::string root_service;
  std::string root_name;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
};
bool matches(const traceql::Condition& condition, const StoredSpan& span, const TraceFacts& trace);

// The value of a field; monostate: it has none.
Value value_of(const traceql::FieldRef& field, const StoredSpan& span, const TraceFacts& trace);

// Fields that the query compares or selects, each once: what a person looking at the answer wants to see.
std::vector<traceql::FieldRef> fields_of(const TraceQl& query);

// What a store can look for so that no match is missed. exact: it finds nothing else either.
struct Pushdown {
  TraceQuery query;
  bool exact = false;
};
Pushdown push_down(const TraceQl& query);

}  // namespace lockstep
