#include "base/json_writer.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace lockstep {

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!has_items_.empty()) {
    if (has_items_.back()) text_ += ',';
    has_items_.back() = true;
  }
}

JsonWriter& JsonWriter::begin_object() {
  before_value();
  text_ += '{';
  has_items_.push_back(false);
  return *this;
}
JsonWriter& JsonWriter::end_object() {
  text_ += '}';
  has_items_.pop_back();
  return *this;
}
JsonWriter& JsonWriter::begin_array() {
  before_value();
  text_ += '[';
  has_items_.push_back(false);
  return *this;
}
JsonWriter& JsonWriter::end_array() {
  text_ += ']';
  has_items_.pop_back();
  return *this;
}
JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  text_ += ':';
  after_key_ = true;
  return *this;
}

namespace {

// Length of the valid UTF-8 sequence at `at`, 0 if there is none.
size_t utf8_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  unsigned first = byte(at);
  size_t length = first < 0x80                    ? 1
                  : first >= 0xC2 && first < 0xE0 ? 2
                  : first >= 0xE0 && first < 0xF0 ? 3
                  : first >= 0xF0 && first < 0xF5 ? 4
                                                  : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  if (length == 3 && ((first == 0xE0 && byte(at + 1) < 0xA0) || (first == 0xED && byte(at + 1) >= 0xA0))) return 0;
  if (length == 4 && ((first == 0xF0 && byte(at + 1) < 0x90) || (first == 0xF4 && byte(at + 1) >= 0x90))) return 0;
  return length;
}

}  // namespace

JsonWriter& JsonWriter::string(std::string_view value) {
  before_value();
  text_ += '"';
  for (size_t i = 0; i < value.size();) {
    unsigned char c = static_cast<unsigned char>(value[i]);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += static_cast<char>(c);
      ++i;
    } else if (c == '\n') {
      text_ += "\\n";
      ++i;
    } else if (c == '\t') {
      text_ += "\\t";
      ++i;
    } else if (c < 0x20 || c == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      text_ += escape;
      ++i;
    } else if (size_t length = utf8_length(value, i); length > 0) {
      text_.append(value.substr(i, length));
      i += length;
    } else {
      text_ += "\xEF\xBF\xBD";
      ++i;
    }
  }
  text_ += '"';
  return *this;
}

namespace {
template <typename T>
void append_number(std::string& text, T value) {
  char digits[40];
  auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  (void)error;
  text.append(digits, end);
}
}  // namespace

JsonWriter& JsonWriter::number(int64_t value) {
  before_value();
  append_number(text_, value);
  return *this;
}
JsonWriter& JsonWriter::number(uint64_t value) {
  before_value();
  append_number(text_, value);
  return *this;
}
JsonWriter& JsonWriter::number(double value) {
  before_value();
  if (std::isfinite(value)) {
    append_number(text_, value);
  } else {
    text_ += "null";
  }
  return *this;
}
JsonWriter& JsonWriter::boolean(bool value) {
  before_value();
  text_ += value ? "true" : "false";
  return *this;
}
JsonWriter& JsonWriter::null() {
  before_value();
  text_ += "null";
  return *this;
}
JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  text_ += json;
  return *this;
}

}  // namespace lockstep
