// Writes JSON text, one value after the other, commas and escapes taken care of. Not a DOM: what is written stays.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view value);  // invalid UTF-8 becomes U+FFFD
  JsonWriter& number(int64_t value);
  JsonWriter& number(uint64_t value);
  JsonWriter& number(int value) { return number(static_cast<int64_t>(value)); }
  JsonWriter& number(double value);  // NaN and infinities become null: JSON has no word for them
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // already JSON; written as it is

  JsonWriter& field(std::string_view name, std::string_view value) { return key(name).string(value); }
  JsonWriter& field(std::string_view name, const char* value) { return key(name).string(value); }
  JsonWriter& field(std::string_view name, int64_t value) { return key(name).number(value); }
  JsonWriter& field(std::string_view name, uint64_t value) { return key(name).number(value); }
  JsonWriter& field(std::string_view name, int value) { return key(name).number(value); }
  JsonWriter& field(std::string_view name, double value) { return key(name).number(value); }
  JsonWriter& field(std::string_view name, bool value) { return key(name).boolean(value); }

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  void before_value();
  std::string text_;
  std::vector<bool> has_items_;
  bool after_key_ = false;
};

}  // namespace lockstep
