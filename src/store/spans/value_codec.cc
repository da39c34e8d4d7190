#include "store/spans/value_codec.h"

#include <bit>

#include "store/columns/byte_codec.h"

namespace lockstep::spans {

using namespace columns;

namespace {

// The receivers let values nest 32 deep; some more, so that what was taken can always be read again.
constexpr int kNestingMax = 64;

// The alternatives of Value, by number: part of the format.
enum Kind : uint8_t {
  kEmpty = 0,
  kText = 1,
  kFalse = 2,
  kTrue = 3,
  kInt = 4,
  kReal = 5,
  kList = 6,
  kMap = 7,
  kRawBytes = 8,
};

struct Writer {
  std::string& out;
  void kind(Kind kind) { out.push_back(static_cast<char>(kind)); }
  void operator()(std::monostate) { kind(kEmpty); }
  void operator()(const std::string& text) {
    kind(kText);
    put_bytes(out, text);
  }
  void operator()(bool flag) { kind(flag ? kTrue : kFalse); }
  void operator()(int64_t number) {
    kind(kInt);
    put_signed(out, number);
  }
  void operator()(double number) {
    kind(kReal);
    put_fixed(out, std::bit_cast<uint64_t>(number));
  }
  void operator()(const ValueList& list) {
    kind(kList);
    put_varint(out, list.size());
    for (const Value& item : list) encode_value(out, item);
  }
  void operator()(const Attributes& map) {
    kind(kMap);
    encode_attributes(out, map);
  }
  void operator()(const Value::Bytes& bytes) {
    kind(kRawBytes);
    put_bytes(out, bytes.data);
  }
};

Value read_value(ByteReader& in, int depth);

Attributes read_attributes(ByteReader& in, int depth) {
  Attributes attributes(in.count(2));
  for (Attribute& attribute : attributes) {
    attribute.key = in.bytes();
    attribute.value = read_value(in, depth);
    if (!in.ok()) break;
  }
  return attributes;
}

Value read_value(ByteReader& in, int depth) {
  if (depth > kNestingMax) in.fail();
  switch (in.fixed<uint8_t>()) {
    case kEmpty:
      return {};
    case kText:
      return std::string(in.bytes());
    case kFalse:
      return false;
    case kTrue:
      return true;
    case kInt:
      return in.signed_varint();
    case kReal:
      return std::bit_cast<double>(in.fixed<uint64_t>());
    case kList: {
      ValueList list(in.count());
      for (Value& item : list) {
        item = read_value(in, depth + 1);
        if (!in.ok()) break;
      }
      return list;
    }
    case kMap:
      return read_attributes(in, depth + 1);
    case kRawBytes:
      return Value::Bytes{std::string(in.bytes())};
    default:
      in.fail();
      return {};
  }
}

}  // namespace

void encode_value(std::string& out, const Value& value) {
  std::visit(Writer{out}, value.data);
}

void encode_attributes(std::string& out, const Attributes& attributes) {
  put_varint(out, attributes.size());
  for (const Attribute& attribute : attributes) {
    put_bytes(out, attribute.key);
    encode_value(out, attribute.value);
  }
}

std::string encode_extra(const std::vector<SpanEvent>& events, const std::vector<SpanLink>& links) {
  std::string out;
  if (events.empty() && links.empty()) return out;
  put_varint(out, events.size());
  for (const SpanEvent& event : events) {
    put_signed(out, event.time_unix_ns);
    put_bytes(out, event.name);
    encode_attributes(out, event.attributes);
  }
  put_varint(out, links.size());
  for (const SpanLink& link : links) {
    put_fixed(out, link.trace_id);
    put_fixed(out, link.span_id);
    encode_attributes(out, link.attributes);
  }
  return out;
}

std::optional<Value> decode_value(std::string_view bytes) {
  ByteReader in(bytes);
  Value value = read_value(in, 1);
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return value;
}

std::optional<Attributes> decode_attributes(std::string_view bytes) {
  ByteReader in(bytes);
  Attributes attributes = read_attributes(in, 1);
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return attributes;
}

bool decode_extra(std::string_view bytes, std::vector<SpanEvent>& events, std::vector<SpanLink>& links) {
  if (bytes.empty()) return true;
  ByteReader in(bytes);
  const size_t event_count = in.count(3);
  for (size_t i = 0; i < event_count && in.ok(); ++i) {
    SpanEvent& event = events.emplace_back();
    event.time_unix_ns = in.signed_varint();
    event.name = in.bytes();
    event.attributes = read_attributes(in, 1);
  }
  const size_t link_count = in.count(25);
  for (size_t i = 0; i < link_count && in.ok(); ++i) {
    SpanLink& link = links.emplace_back();
    link.trace_id = in.fixed<TraceId>();
    link.span_id = in.fixed<SpanId>();
    link.attributes = read_attributes(in, 1);
  }
  return in.ok() && in.at_end();
}

}  // namespace lockstep::spans
