#include "model/telemetry.h"

#include "base/characters.h"
#include "base/json_writer.h"

namespace lockstep {

bool Value::operator==(const Value& other) const {
  return data == other.data;
}

const Value* find(const Attributes& attributes, std::string_view key) {
  for (const Attribute& attribute : attributes) {
    if (attribute.key == key) return &attribute.value;
  }
  return nullptr;
}

std::string_view find_string(const Attributes& attributes, std::string_view key, std::string_view fallback) {
  const Value* value = find(attributes, key);
  const std::string* text = value ? std::get_if<std::string>(&value->data) : nullptr;
  return text ? std::string_view(*text) : fallback;
}

int64_t find_int(const Attributes& attributes, std::string_view key, int64_t fallback) {
  const Value* value = find(attributes, key);
  const int64_t* number = value ? std::get_if<int64_t>(&value->data) : nullptr;
  return number ? *number : fallback;
}

namespace {

void write(JsonWriter& json, const Value& value) {
  struct Visitor {
    JsonWriter& json;
    void operator()(std::monostate) { json.null(); }
    void operator()(const std::string& text) { json.string(text); }
    void operator()(bool flag) { json.boolean(flag); }
    void operator()(int64_t number) { json.number(number); }
    void operator()(double number) { json.number(number); }
    void operator()(const ValueList& list) {
      json.begin_array();
      for (const Value& item : list) write(json, item);
      json.end_array();
    }
    void operator()(const Attributes& map) {
      json.begin_object();
      for (const Attribute& item : map) {
        json.key(item.key);
        write(json, item.value);
      }
      json.end_object();
    }
    void operator()(const Value::Bytes& bytes) { json.string(to_hex(bytes.data)); }
  };
  std::visit(Visitor{json}, value.data);
}

}  // namespace

std::string to_text(const Value& value) {
  JsonWriter json;
  write(json, value);
  return json.take();
}

std::string plain_text(const Value& value) {
  const std::string* text = std::get_if<std::string>(&value.data);
  return text != nullptr ? *text : to_text(value);
}

TraceId trace_id_from_hex(std::string_view digits) {
  TraceId id{};
  for (size_t i = 0; i < id.size() * 2 && i < digits.size(); ++i) {
    id[i / 2] = static_cast<uint8_t>(id[i / 2] << 4 | (hex_digit(digits[i]) & 15));
  }
  return id;
}

const char* to_text(Signal signal) {
  switch (signal) {
    case Signal::kMetrics:
      return "metrics";
    case Signal::kLogs:
      return "logs";
    case Signal::kSpans:
      return "spans";
  }
  return "?";
}

size_t Batch::record_count() const {
  size_t count = 0;
  for (const ResourceGroup& group : groups) count += group.points.size() + group.logs.size() + group.spans.size();
  return count;
}

}  // namespace lockstep
