#include "query/traceql/lexer.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep::traceql {
namespace {

constexpr const char* kFieldsUnderstood =
    "span.KEY, resource.KEY, .KEY, name, status, statusMessage, kind, duration, traceDuration, rootName, "
    "rootServiceName, span:id, trace:id";

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

}  // namespace

void Lexer::fail(std::string what) {
  if (failed()) return;
  problem_ = format("TraceQL, character %zu: %s", at_ + 1, what.c_str());
}

std::string Lexer::rest() const {
  return at_ < text_.size() ? "\"" + as_one_line(text_.substr(at_, 20)) + "\"" : std::string("the end");
}

void Lexer::skip_blanks() {
  while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) <= ' ') ++at_;
}

bool Lexer::take(std::string_view word) {
  skip_blanks();
  if (!starts_with(word)) return false;
  if (word == "|" && starts_with("||")) return false;
  at_ += word.size();
  return true;
}

void Lexer::expect(std::string_view word) {
  if (!failed() && !take(word))
    fail(format("\"%.*s\" is expected, not %s", static_cast<int>(word.size()), word.data(), rest().c_str()));
}

std::string Lexer::bare_word() {
  std::string word;
  while (at_ < text_.size() && !ends_word(text_[at_])) word += text_[at_++];
  return word;
}

std::optional<Op> Lexer::compare_op() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"!~", Op::kNotMatches}, {"!=", Op::kNotEqual}, {"=~", Op::kMatches}, {">=", Op::kGreaterEqual},
      {"<=", Op::kLessEqual},  {">", Op::kGreater},   {"<", Op::kLess},     {"=", Op::kEqual}};
  for (const auto& [word, op] : kOps) {
    if (take(word)) return op;
  }
  return std::nullopt;
}

Operand Lexer::operand() {
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
  while (at_ < text_.size() && (!ends_word(text_[at_]) || (text_[at_] == '"' && !word.empty() && word.back() == '.'))) {
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

Operand Lexer::field_of(std::string word, size_t began) {
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
  fail(word.empty() ? format("a field or a value is expected, not %s", rest().c_str())
                    : format("\"%.40s\" is not a field; understood: %s", as_one_line(word).c_str(), kFieldsUnderstood));
  return Literal{};
}

std::string Lexer::quoted() {
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

Operand Lexer::number() {
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

FieldRef Lexer::field() {
  skip_blanks();
  const size_t began = at_;
  Operand value = operand();
  if (FieldRef* found = std::get_if<FieldRef>(&value)) return std::move(*found);
  at_ = began;
  fail(format("a field is expected, not %s; understood: %s", rest().c_str(), kFieldsUnderstood));
  return {};
}

}  // namespace lockstep::traceql
