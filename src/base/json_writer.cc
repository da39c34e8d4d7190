#include "base/json_writer.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"

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
