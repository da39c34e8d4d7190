// What travels between agent and server, decoded: OTLP's three signals as plain values. `wire` turns bytes into a Batch
// and back; nothing else knows the wire format.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/characters.h"  // to_hex(), of ids

namespace lockstep {

struct Value;
struct Attribute;
using Attributes = std::vector<Attribute>;
using ValueList = std::vector<Value>;

// OTLP's AnyValue. monostate: present but empty.
struct Value {
  struct Bytes {
    std::string data;
    bool operator==(const Bytes&) const = default;
  };
  std::variant<std::monostate, std::string, bool, int64_t, double, ValueList, Attributes, Bytes> data;

  Value() = default;
  // Defined below, where Attribute is complete (clang asks for that).
  Value(std::string text);
  Value(const char* text);
  Value(bool value);
  Value(int64_t value);
  Value(int value);
  Value(double value);
  Value(ValueList list);
  Value(Attributes map);
  Value(Bytes bytes);

  bool operator==(const Value&) const;
};

struct Attribute {
  std::string key;
  Value value;
  bool operator==(const Attribute&) const = default;
};

inline Value::Value(std::string text) : data(std::move(text)) {}
inline Value::Value(const char* text) : data(std::string(text)) {}
inline Value::Value(bool value) : data(value) {}
inline Value::Value(int64_t value) : data(value) {}
inline Value::Value(int value) : data(static_cast<int64_t>(value)) {}
inline Value::Value(double value) : data(value) {}
inline Value::Value(ValueList list) : data(std::move(list)) {}
inline Value::Value(Attributes map) : data(std::move(map)) {}
inline Value::Value(Bytes bytes) : data(std::move(bytes)) {}

// Lookups: nullptr / fallback where the key is not there or has another type. (An int given as a string by some SDKs is
// not converted.)
const Value* find(const Attributes& attributes, std::string_view key);
std::string_view find_string(const Attributes& attributes, std::string_view key, std::string_view fallback = {});
int64_t find_int(const Attributes& attributes, std::string_view key, int64_t fallback = 0);
// For people: {"a":1} style JSON of a value.
std::string to_text(const Value& value);
// The same, but a text as it is.
std::string plain_text(const Value& value);

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;
// 32 hex digits, checked by the caller; to_hex() writes them (base/characters.h).
TraceId trace_id_from_hex(std::string_view digits);

struct LogRecord {
  int64_t time_unix_ns = 0;  // 0: not given; the observed time counts
  int64_t observed_unix_ns = 0;
  int32_t severity = 0;
  std::string severity_text;
  std::string event_name;  // "train.step", ...; empty for a plain log line
  Value body;
  Attributes attributes;
  TraceId trace_id{};
  SpanId span_id{};
  uint32_t flags = 0;
  bool operator==(const LogRecord&) const = default;
};

struct SpanEvent {
  int64_t time_unix_ns = 0;
  std::string name;
  Attributes attributes;
  bool operator==(const SpanEvent&) const = default;
};

struct SpanLink {
  TraceId trace_id{};
  SpanId span_id{};
  Attributes attributes;
  bool operator==(const SpanLink&) const = default;
};

struct Span {
  TraceId trace_id{};
  SpanId span_id{};
  SpanId parent_span_id{};
  std::string trace_state;
  std::string name;
  int32_t kind = 0;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  Attributes attributes;
  std::vector<SpanEvent> events;
  std::vector<SpanLink> links;
  int32_t status_code = 0;
  std::string status_message;
  bool operator==(const Span&) const = default;
};

enum class MetricKind : uint8_t { kGauge, kSum, kHistogram, kExponentialHistogram, kSummary };
enum class Temporality : uint8_t { kUnspecified = 0, kDelta = 1, kCumulative = 2 };

// One data point with its metric's description repeated by reference. Histograms keep their buckets.
struct MetricPoint {
  static constexpr uint32_t kNoRecordedValue = 1;

  std::string name;
  std::string unit;
  MetricKind kind = MetricKind::kGauge;
  Temporality temporality = Temporality::kUnspecified;
  bool monotonic = false;
  Attributes attributes;
  int64_t start_unix_ns = 0;
  int64_t time_unix_ns = 0;
  double value = 0;       // gauge, sum; histogram and summary: the sum
  int64_t int_value = 0;  // exact value when is_int
  bool is_int = false;
  uint64_t count = 0;             // histogram, summary
  std::vector<double> bounds;     // histogram: explicit bounds; summary: quantiles
  std::vector<uint64_t> buckets;  // histogram: bucket counts (bounds + 1); exponential: positive buckets from offset
  std::vector<double> quantile_values;  // summary
  int32_t scale = 0;                    // exponential
  int32_t positive_offset = 0;
  uint64_t zero_count = 0;
  int32_t negative_offset = 0;
  std::vector<uint64_t> negative_buckets;
  uint32_t flags = 0;
  bool is_stale() const { return (flags & kNoRecordedValue) != 0; }
  bool operator==(const MetricPoint&) const = default;
};

enum class Signal : uint8_t { kMetrics, kLogs, kSpans };
const char* to_text(Signal signal);  // "metrics", "logs", "spans"

// Records that share one resource and scope.
struct ResourceGroup {
  Attributes resource;
  std::string scope_name;
  std::string scope_version;
  std::vector<MetricPoint> points;  // exactly one of the three is used, by the batch's signal
  std::vector<LogRecord> logs;
  std::vector<Span> spans;
  bool operator==(const ResourceGroup&) const = default;
};

struct Batch {
  Signal signal = Signal::kLogs;
  std::vector<ResourceGroup> groups;
  size_t record_count() const;
  bool operator==(const Batch&) const = default;
};

}  // namespace lockstep
