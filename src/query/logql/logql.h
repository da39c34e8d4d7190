// LogQL as far as Grafana's Explore needs it (docs/guide/logs.md): logs of a stream selector, and counts of them over time.
//
// Limits: kQueryBytesMax, kDepthMax, kPartsMax, kPatternsMax, kParsersMax; each pattern as log_pattern() bounds it, by RE2. What Loki
//   knows and we do not is one line that names it.
// Thread rule: Immutable once parsed.
#pragma once

#include <re2/re2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/characters.h"
#include "base/result.h"

namespace lockstep::logql {

inline constexpr size_t kQueryBytesMax = 16 << 10;
inline constexpr int kDepthMax = 32;
inline constexpr size_t kPartsMax = 500;
inline constexpr size_t kPatternsMax = 32;  // each may take a megabyte
inline constexpr size_t kParsersMax = 8;    // | json and | logfmt, each of which reads the whole line
inline constexpr size_t kLabelNameBytesMax = 256;
inline constexpr int64_t kRangeMaxMs = 366ll * 24 * 3600 * 1000;

using Pattern = std::shared_ptr<const re2::RE2>;  // of log_pattern()

// Of a label by its text: the whole text. A label that is not there is the empty text.
struct Matcher {
  enum class Op : uint8_t { kEqual, kNotEqual, kMatches, kNotMatches };
  std::string name;
  Op op = Op::kEqual;
  std::string value;
  Pattern pattern = nullptr;  // of kMatches and kNotMatches
  bool holds(std::string_view text) const;
};

// Of a line: one of these texts or patterns is somewhere in it, or none of them is.
struct LineFilter {
  bool is_not = false;
  bool is_pattern = false;
  std::vector<std::string> texts;
  std::vector<Pattern> patterns = {};
  bool holds(std::string_view line) const;
};

// Of labels that a line has, those read from it too.
struct LabelFilter {
  enum class Type : uint8_t { kText, kNumber, kDuration, kBytes, kAnd, kOr };
  enum class Compare : uint8_t { kEqual, kNotEqual, kGreater, kGreaterEqual, kLess, kLessEqual };
  Type type = Type::kText;
  Matcher text = {};                    // kText; its name is that of the others too
  Compare compare = Compare::kEqual;    // kNumber to kBytes
  double number = 0;                    // in ns, in bytes
  std::string written = {};             // the number, as it was written
  std::vector<LabelFilter> parts = {};  // kAnd, kOr
};

struct Stage {
  enum class Type : uint8_t { kLineFilter, kJson, kLogfmt, kLabelFilter, kDrop, kKeep };
  Type type = Type::kLineFilter;
  LineFilter line = {};
  LabelFilter label = {};
  std::vector<std::string> names = {};  // kDrop, kKeep
};

struct LogSelection {
  std::vector<Matcher> matchers;  // all of them
  std::vector<Stage> stages;      // one after the other
};

struct Expression {
  enum class Type : uint8_t { kLogs, kConstant, kRange, kAggregate, kArithmetic };
  enum class Function : uint8_t { kCountOverTime, kRate, kBytesOverTime, kBytesRate };
  enum class Aggregate : uint8_t { kSum, kAverage, kMinimum, kMaximum, kCount, kTop, kBottom };
  enum class Grouping : uint8_t { kNone, kBy, kWithout };
  Type type = Type::kLogs;
  LogSelection logs = {};                        // kLogs, kRange
  double constant = 0;                           // kConstant
  bool is_vector = false;                        // kConstant: vector(1), not 1
  Function function = Function::kCountOverTime;  // kRange
  int64_t range_ms = 0;                          // likewise
  Aggregate aggregate = Aggregate::kSum;         // kAggregate
  Grouping grouping = Grouping::kNone;           // likewise
  std::vector<std::string> labels = {};          // likewise
  int64_t most = 0;                              // of kTop, kBottom
  char sign = '+';                               // kArithmetic: + - * / %; one side at least is a constant
  std::vector<Expression> parts = {};            // kAggregate: one; kArithmetic: two
};

// One line on error, which names the place and what is understood there.
Result<Expression> parse(std::string_view text);
// {...} alone, as the lists of labels and streams take it.
Result<std::vector<Matcher>> parse_matchers(std::string_view text);

// In normal form; reads back as the same.
std::string to_text(const Expression& expression);
std::string to_text(const std::vector<Matcher>& matchers);

const char* name_of(Expression::Function function);
const char* name_of(Expression::Aggregate aggregate);
bool is_label_name(std::string_view text);
// Of a name of a label; a digit does not come first there.
constexpr bool is_label_letter(char letter) {
  return (lower_case(letter) >= 'a' && lower_case(letter) <= 'z') || is_digit(letter) || letter == '_';
}

// left + right, ...; as in Loki, what is divided by 0 is no number (NaN).
double computed(char sign, double left, double right);

// "10KB", "1.5MiB", "7": as Loki compares sizes.
Result<double> bytes_from_text(std::string_view text);

}  // namespace lockstep::logql
