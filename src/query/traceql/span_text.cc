#include "query/traceql/span_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/base64.h"
#include "base/characters.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kKinds[] = {"unspecified", "internal", "server", "client", "producer", "consumer"};
constexpr const char* kStatuses[] = {"unset", "ok", "error"};
constexpr size_t kTagsMax = 64;

// The longest unit that stands here.
std::optional<std::pair<double, size_t>> unit_at(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1},   {"us", 1e3}, {"\xc2\xb5s", 1e3}, {"\xce\xbcs", 1e3},  // both letters for micro
      {"ms", 1e6}, {"s", 1e9},  {"m", 60e9},        {"h", 3600e9}};
  for (const auto& [name, ns] : kUnits) {
    if (text.starts_with(name)) return std::pair(ns, name.size());
  }
  return std::nullopt;
}

std::string id_text(std::span<const uint8_t> id, OtlpJson style) {
  return style == OtlpJson::kOtlp ? to_hex(id) : base64({reinterpret_cast<const char*>(id.data()), id.size()});
}

void write_kind(JsonWriter& json, int32_t kind, OtlpJson style) {
  if (style == OtlpJson::kOtlp) {
    json.field("kind", kind);
    return;
  }
  std::string name = kind_text(kind);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::toupper(letter); });
  json.field("kind", "SPAN_KIND_" + name);
}

void write_span(JsonWriter& json, const Span& span, OtlpJson style) {
  json.begin_object().field("traceId", id_text(span.trace_id, style)).field("spanId", id_text(span.span_id, style));
  if (span.parent_span_id != SpanId{}) json.field("parentSpanId", id_text(span.parent_span_id, style));
  if (!span.trace_state.empty()) json.field("traceState", span.trace_state);
  json.field("name", span.name);
  write_kind(json, span.kind, style);
  json.field("startTimeUnixNano", std::to_string(span.start_unix_ns))
      .field("endTimeUnixNano", std::to_string(span.end_unix_ns))
      .key("attributes");
  write_otlp_attributes(json, span.attributes);
  if (!span.events.empty()) {
    json.key("events").begin_array();
    for (const SpanEvent& event : span.events) {
      json.begin_object().field("timeUnixNano", std::to_string(event.time_unix_ns)).field("name", event.name);
      json.key("attributes");
      write_otlp_attributes(json, event.attributes);
      json.end_object();
    }
    json.end_array();
  }
  if (!span.links.empty()) {
    json.key("links").begin_array();
    for (const SpanLink& link : span.links) {
      json.begin_object().field("traceId", id_text(link.trace_id, style)).field("spanId", id_text(link.span_id, style));
      json.key("attributes");
      write_otlp_attributes(json, link.attributes);
      json.end_object();
    }
    json.end_array();
  }
  json.key("status").begin_object();
  if (!span.status_message.empty()) json.field("message", span.status_message);
  if (style == OtlpJson::kOtlp) {
    json.field("code", span.status_code);
  } else if (span.status_code == 1 || span.status_code == 2) {
    json.field("code", span.status_code == 1 ? "STATUS_CODE_OK" : "STATUS_CODE_ERROR");
  }
  json.end_object().end_object();
}

// Indices of spans by resource, resources in the order of their first span. Equal resources are one, whichever request
// brought them.
std::vector<std::vector<size_t>> by_resource(std::span<const StoredSpan> spans) {
  std::vector<std::vector<size_t>> groups;
  std::map<const Attributes*, size_t> by_pointer;
  std::map<std::string, size_t> by_text;
  for (size_t i = 0; i < spans.size(); ++i) {
    auto [pointed, is_new_pointer] = by_pointer.try_emplace(spans[i].resource.get(), 0);
    if (is_new_pointer) {
      auto [found, is_new] = by_text.try_emplace(to_text(Value(*spans[i].resource)), groups.size());
      if (is_new) groups.emplace_back();
      pointed->second = found->second;
    }
    groups[pointed->second].push_back(i);
  }
  return groups;
}

}  // namespace

Result<TraceId> trace_id_from_text(std::string_view text) {
  const bool is_hex = std::all_of(text.begin(), text.end(), [](char digit) { return hex_digit(digit) >= 0; });
  if (text.empty() || text.size() > 32 || !is_hex) {
    return Error{format("\"%.64s\" is not a trace id: 1 to 32 hex digits", as_one_line(text.substr(0, 64)).c_str())};
  }
  const TraceId id = trace_id_from_hex(std::string(32 - text.size(), '0') + std::string(text));
  if (id == TraceId{}) return Error{"a trace id of zeros names no trace"};
  return id;
}

std::optional<std::pair<int64_t, size_t>> duration_prefix(std::string_view text) {
  size_t at = 0;
  const bool is_negative = text.starts_with('-');
  at += is_negative;
  double total = 0;
  bool is_any = false;
  while (at < text.size() && is_digit(text[at])) {
    size_t end = at;
    while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
    std::optional<double> number = parse_double(text.substr(at, end - at));
    std::optional<std::pair<double, size_t>> unit = unit_at(text.substr(end));
    if (!number || !unit) break;
    total += *number * unit->first;
    at = end + unit->second;
    is_any = true;
  }
  if (!is_any || !(total < 9e18)) return std::nullopt;
  const auto ns = static_cast<int64_t>(std::llround(total));
  return std::pair(is_negative ? -ns : ns, at);
}

Result<int64_t> duration_from_text(std::string_view text) {
  text = trim(text);
  if (text == "0") return int64_t{0};
  std::optional<std::pair<int64_t, size_t>> found = duration_prefix(text);
  if (!found || found->second != text.size()) {
    return Error{
        format("\"%.40s\" is not a duration, such as 1.5s, 250ms or 1h30m", as_one_line(text.substr(0, 40)).c_str())};
  }
  return found->first;
}

Result<std::vector<AttributeMatch>> tags_from_logfmt(std::string_view text) {
  std::vector<AttributeMatch> tags;
  size_t at = 0;
  auto is_blank = [&] { return text[at] == ' ' || text[at] == '\t'; };
  while (at < text.size()) {
    if (is_blank()) {
      ++at;
      continue;
    }
    if (tags.size() == kTagsMax) return Error{format("more than %zu tags", kTagsMax)};
    AttributeMatch tag;
    while (at < text.size() && !is_blank() && text[at] != '=') tag.key += text[at++];
    if (tag.key.empty() || at == text.size() || text[at] != '=') {
      return Error{format("tags: \"%.40s\" has no value; they are written key=value key2=\"two words\"",
                          as_one_line(tag.key).substr(0, 40).c_str())};
    }
    ++at;
    if (at < text.size() && text[at] == '"') {
      ++at;
      while (at < text.size() && text[at] != '"') {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        tag.value += text[at++];
      }
      if (at == text.size()) return Error{"tags: a quote does not end"};
      ++at;
    } else {
      while (at < text.size() && !is_blank()) tag.value += text[at++];
    }
    tags.push_back(std::move(tag));
  }
  return tags;
}

const char* kind_text(int32_t kind) {
  return kind >= 0 && kind < 6 ? kKinds[kind] : kKinds[0];
}
const char* status_text(int32_t code) {
  return code >= 0 && code < 3 ? kStatuses[code] : kStatuses[0];
}
std::optional<int32_t> kind_from_text(std::string_view text) {
  for (int32_t i = 0; i < 6; ++i) {
    if (text == kKinds[i]) return i;
  }
  return std::nullopt;
}
std::optional<int32_t> status_from_text(std::string_view text) {
  for (int32_t i = 0; i < 3; ++i) {
    if (text == kStatuses[i]) return i;
  }
  return std::nullopt;
}

void write_otlp_value(JsonWriter& json, const Value& value) {
  struct Visitor {
    JsonWriter& json;
    void operator()(std::monostate) {}
    void operator()(const std::string& text) { json.field("stringValue", text); }
    void operator()(bool flag) { json.field("boolValue", flag); }
    void operator()(int64_t number) { json.field("intValue", std::to_string(number)); }
    void operator()(double number) {
      json.key("doubleValue");
      // As protobuf's JSON has it; JSON itself has no word for these.
      if (std::isnan(number)) {
        json.string("NaN");
      } else if (std::isinf(number)) {
        json.string(number > 0 ? "Infinity" : "-Infinity");
      } else {
        json.number(number);
      }
    }
    void operator()(const ValueList& list) {
      json.key("arrayValue").begin_object().key("values").begin_array();
      for (const Value& item : list) write_otlp_value(json, item);
      json.end_array().end_object();
    }
    void operator()(const Attributes& map) {
      json.key("kvlistValue").begin_object().key("values");
      write_otlp_attributes(json, map);
      json.end_object();
    }
    void operator()(const Value::Bytes& bytes) { json.field("bytesValue", base64(bytes.data)); }
  };
  json.begin_object();
  std::visit(Visitor{json}, value.data);
  json.end_object();
}

void write_otlp_attributes(JsonWriter& json, const Attributes& attributes) {
  json.begin_array();
  for (const Attribute& attribute : attributes) {
    json.begin_object().field("key", attribute.key).key("value");
    write_otlp_value(json, attribute.value);
    json.end_object();
  }
  json.end_array();
}

void write_resource_spans(JsonWriter& json, std::span<const StoredSpan> spans, OtlpJson style) {
  json.begin_array();
  for (const std::vector<size_t>& group : by_resource(spans)) {
    json.begin_object().key("resource").begin_object().key("attributes");
    write_otlp_attributes(json, *spans[group.front()].resource);
    json.end_object().key("scopeSpans").begin_array().begin_object();
    json.key("scope").begin_object().end_object().key("spans").begin_array();
    for (size_t index : group) write_span(json, spans[index].span, style);
    json.end_array().end_object().end_array().end_object();
  }
  json.end_array();
}

Batch batch_of(std::span<const StoredSpan> spans) {
  Batch batch;
  batch.signal = Signal::kSpans;
  for (const std::vector<size_t>& group : by_resource(spans)) {
    ResourceGroup& resource = batch.groups.emplace_back();
    resource.resource = *spans[group.front()].resource;
    for (size_t index : group) resource.spans.push_back(spans[index].span);
  }
  return batch;
}

}  // namespace lockstep
