// Reads JSON text into values that can be walked. For answers of other programs and small files: plain code, libc only,
// about 24 bytes per value on top of the text. Not for hot paths.
//
// Strict (RFC 8259): no trailing commas, comments, NaN, leading zeros, lone surrogates, control characters in strings
// or bytes after the value. Bytes from 0x80 on pass through as they are: JsonWriter makes them harmless on the way out.
// Where an object has a key twice, the first counts.
//
// Limits: JsonLimits; more is an error, never a cut.
// On error: one line that names the byte and what was wrong with it.
// Thread rule: Immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct JsonLimits {
  size_t bytes_max = 16u << 20;
  size_t values_max = 1'000'000;
  int depth_max = 32;
};

class JsonDocument;

// One value of a document, or absent. Small; valid as long as the document and its text are.
class JsonValue {
 public:
  class Iterator;

  JsonValue() = default;  // absent: no such key
  bool present() const { return document_ != nullptr; }
  bool is_array() const;
  bool is_object() const;

  // The value, if it is of that kind: 3 is an integer; 3.0 and "3" are not.
  std::optional<bool> boolean() const;
  std::optional<int64_t> integer() const;
  std::optional<uint64_t> unsigned_integer() const;
  std::optional<double> number() const;
  std::optional<std::string> string() const;  // without quotes and escapes

  JsonValue operator[](std::string_view key) const;  // absent where this is no object or has no such key
  // Elements of an array or members of an object, in the text's order; nothing for any other value.
  Iterator begin() const;
  Iterator end() const;
  std::string key() const;        // of a member of an object
  std::string_view json() const;  // as it stands in the text

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}
  const JsonDocument* document_ = nullptr;
  uint32_t index_ = 0;
};

class JsonDocument {
 public:
  // `text` is referred to, not copied: it has to outlive the document and its values.
  // wrong_at: of a text that is refused, the byte that the error names; 0 where it is too large to be looked at.
  static Result<JsonDocument> parse(std::string_view text, const JsonLimits& limits = {}, size_t* wrong_at = nullptr);
  JsonValue root() const { return {this, 0}; }

 private:
  friend class JsonValue;
  friend class JsonParser;
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  // Values lie in the order of the text, so a value's first child is the next node and `next` leads past the last.
  struct Node {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t key_begin = 0;  // between the quotes
    uint32_t key_end = 0;
    uint32_t next = 0;
    Kind kind = Kind::kNull;
  };
  std::string_view text_;
  std::vector<Node> nodes_;
};

class JsonValue::Iterator {
 public:
  JsonValue operator*() const { return {document_, index_}; }
  Iterator& operator++();
  bool operator==(const Iterator& other) const { return index_ == other.index_; }

 private:
  friend class JsonValue;
  Iterator(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}
  const JsonDocument* document_;
  uint32_t index_;
};

}  // namespace lockstep
