#include "base/json_reader.h"

#include <algorithm>

#include "base/characters.h"
#include "base/text.h"

namespace lockstep {
namespace {

// The four digits of a \u escape at `at`; -1 where there are none.
int32_t hex4(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    int digit = hex_digit(text[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

bool is_high_surrogate(int32_t unit) {
  return unit >= 0xD800 && unit < 0xDC00;
}
bool is_low_surrogate(int32_t unit) {
  return unit >= 0xDC00 && unit < 0xE000;
}

constexpr std::string_view kEscapes = "\"\\/bfnrt";
constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t";

// What stands between the quotes of a string that the parser has accepted.
std::string unescape(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      plain += text[i];
      continue;
    }
    char kind = text[++i];
    if (kind != 'u') {
      plain += kEscaped[kEscapes.find(kind)];
      continue;
    }
    int32_t code = hex4(text, i + 1);
    i += 4;
    if (is_high_surrogate(code)) {
      code = 0x10000 + ((code - 0xD800) << 10) + (hex4(text, i + 3) - 0xDC00);
      i += 6;
    }
    append_utf8(plain, static_cast<uint32_t>(code));
  }
  return plain;
}

}  // namespace

class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits, std::vector<JsonDocument::Node>& nodes)
      : text_(text), limits_(limits), nodes_(nodes) {}

  Result<void> run() {
    skip_space();
    bool whole = value(1, 0, 0);
    skip_space();
    if (whole && at_ != text_.size()) whole = fail("something follows the value");
    if (!whole) return Error{format("JSON: byte %zu: %s", at_, wrong_)};
    return {};
  }
  size_t at() const { return at_; }  // of a text that is refused: what is wrong with it

 private:
  using Kind = JsonDocument::Kind;

  bool fail(const char* wrong) {
    wrong_ = wrong;
    return false;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return fail("not a value");
    at_ += wanted.size();
    return true;
  }

  bool value(int depth, uint32_t key_begin, uint32_t key_end) {
    if (nodes_.size() >= limits_.values_max) return fail("too many values");
    size_t index = nodes_.size();
    nodes_.push_back({static_cast<uint32_t>(at_), 0, key_begin, key_end, 0, Kind::kNull});
    bool good = false;
    Kind kind = Kind::kNull;
    switch (peek()) {
      case '{':
        kind = Kind::kObject;
        good = members(depth, '}', true);
        break;
      case '[':
        kind = Kind::kArray;
        good = members(depth, ']', false);
        break;
      case '"':
        kind = Kind::kString;
        good = string();
        break;
      case 't':
        kind = Kind::kBool;
        good = word("true");
        break;
      case 'f':
        kind = Kind::kBool;
        good = word("false");
        break;
      case 'n':
        good = word("null");
        break;
      default:
        kind = Kind::kNumber;
        good = number();
    }
    nodes_[index].kind = kind;
    nodes_[index].end = static_cast<uint32_t>(at_);
    nodes_[index].next = static_cast<uint32_t>(nodes_.size());
    return good;
  }

  bool members(int depth, char close, bool keyed) {
    if (depth > limits_.depth_max) return fail("nested too deep");
    ++at_;
    skip_space();
    if (take(close)) return true;
    for (;;) {
      uint32_t key_begin = 0;
      uint32_t key_end = 0;
      if (keyed) {
        key_begin = static_cast<uint32_t>(at_ + 1);
        if (peek() != '"') return fail("a key is wanted here");
        if (!string()) return false;
        key_end = static_cast<uint32_t>(at_ - 1);
        skip_space();
        if (!take(':')) return fail("a colon is wanted here");
        skip_space();
      }
      if (!value(depth + 1, key_begin, key_end)) return false;
      skip_space();
      if (take(close)) return true;
      if (!take(',')) return fail("a comma or the end of the list is wanted here");
      skip_space();
    }
  }

  bool string() {
    ++at_;
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return fail("a control character in a string");
      if (c == '\\') {
        if (!escape()) return false;
      } else {
        ++at_;
      }
    }
    return fail("a string that does not end");
  }

  bool escape() {
    char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (kind != 'u') {
      if (kind == '\0' || kEscapes.find(kind) == std::string_view::npos) return fail("an unknown escape");
      at_ += 2;
      return true;
    }
    int32_t unit = hex4(text_, at_ + 2);
    if (unit < 0) return fail("\\u without four digits");
    if (is_low_surrogate(unit)) return fail("half a surrogate pair");
    if (is_high_surrogate(unit)) {
      bool paired = text_.substr(at_ + 6, 2) == "\\u" && is_low_surrogate(hex4(text_, at_ + 8));
      if (!paired) return fail("half a surrogate pair");
      at_ += 6;
    }
    at_ += 6;
    return true;
  }

  bool digits() {
    if (!is_digit(peek())) return fail("not a value");
    while (is_digit(peek())) ++at_;
    return true;
  }
  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (!take('+')) take('-');
      if (!digits()) return false;
    }
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::vector<JsonDocument::Node>& nodes_;
  size_t at_ = 0;
  const char* wrong_ = "";
};

Result<JsonDocument> JsonDocument::parse(std::string_view text, const JsonLimits& limits, size_t* wrong_at) {
  if (wrong_at != nullptr) *wrong_at = 0;
  // Places are kept in 32 bits.
  size_t bytes_max = std::min<size_t>(limits.bytes_max, UINT32_MAX - 1);
  if (text.size() > bytes_max)
    return Error{format("JSON: %zu bytes are over the limit of %zu", text.size(), bytes_max)};
  JsonDocument document;
  document.text_ = text;
  JsonParser parser(text, limits, document.nodes_);
  Result<void> parsed = parser.run();
  if (!parsed.ok() && wrong_at != nullptr) *wrong_at = parser.at();
  LOCKSTEP_TRY(std::move(parsed));
  return document;
}

bool JsonValue::is_array() const {
  return present() && document_->nodes_[index_].kind == JsonDocument::Kind::kArray;
}
bool JsonValue::is_object() const {
  return present() && document_->nodes_[index_].kind == JsonDocument::Kind::kObject;
}

std::string_view JsonValue::json() const {
  if (!present()) return {};
  const JsonDocument::Node& node = document_->nodes_[index_];
  return document_->text_.substr(node.begin, node.end - node.begin);
}

std::string JsonValue::key() const {
  if (!present()) return {};
  const JsonDocument::Node& node = document_->nodes_[index_];
  return unescape(document_->text_.substr(node.key_begin, node.key_end - node.key_begin));
}

std::optional<bool> JsonValue::boolean() const {
  if (json() == "true") return true;
  if (json() == "false") return false;
  return std::nullopt;
}

// A text that begins with a quote or a word is no number, so the kind need not be asked for.
std::optional<int64_t> JsonValue::integer() const {
  return parse_int(json());
}
std::optional<uint64_t> JsonValue::unsigned_integer() const {
  return parse_uint(json());
}
std::optional<double> JsonValue::number() const {
  if (!present() || document_->nodes_[index_].kind != JsonDocument::Kind::kNumber) return std::nullopt;
  return parse_double(json());
}

std::optional<std::string> JsonValue::string() const {
  if (!present() || document_->nodes_[index_].kind != JsonDocument::Kind::kString) return std::nullopt;
  std::string_view quoted = json();
  return unescape(quoted.substr(1, quoted.size() - 2));
}

JsonValue JsonValue::operator[](std::string_view wanted) const {
  if (!is_object()) return {};
  for (JsonValue member : *this) {
    const JsonDocument::Node& node = document_->nodes_[member.index_];
    std::string_view name = document_->text_.substr(node.key_begin, node.key_end - node.key_begin);
    if (name == wanted || (name.find('\\') != std::string_view::npos && unescape(name) == wanted)) return member;
  }
  return {};
}

JsonValue::Iterator JsonValue::begin() const {
  if (!is_array() && !is_object()) return {nullptr, 0};
  return {document_, index_ + 1};
}
JsonValue::Iterator JsonValue::end() const {
  if (!is_array() && !is_object()) return {nullptr, 0};
  return {document_, document_->nodes_[index_].next};
}
JsonValue::Iterator& JsonValue::Iterator::operator++() {
  index_ = document_->nodes_[index_].next;
  return *this;
}

}  // namespace lockstep
