// OTLP/JSON to Batch. simdjson checks the text as a whole first (structure, UTF-8, depth); then each object is one
// function with one chain of the names it knows, as in otlp_decode.cc. null is "not given". A value of the wrong type
// is an error that names its field; the first error ends the walk.
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/base64.h"
#include "base/characters.h"
#include "base/text.h"
#include "wire/copy_budget.h"
#include "wire/otlp.h"

namespace lockstep::otlp {
namespace {

using Json = simdjson::dom::element;

class JsonDecoder {
 public:
  explicit JsonDecoder(MemoryLease* lease) : lease_(lease) {}
  const std::string& error() const { return error_; }

  void request(Json root, Batch& batch) {
    const char* name = batch.signal == Signal::kLogs    ? "resourceLogs"
                       : batch.signal == Signal::kSpans ? "resourceSpans"
                                                        : "resourceMetrics";
    fields(root, "the request", [&](std::string_view key, Json value) {
      if (key == name) items(value, name, [&](Json item) { resource_records(item, batch); });
    });
  }

 private:
  // An empty element is three bytes of text and hundreds in memory.
  static constexpr size_t kItemsMax = 2'000'000;
  static constexpr size_t kItemBytes = std::max({sizeof(MetricPoint), sizeof(Span), sizeof(LogRecord)});

  // Before it is made. False: there is none, and that is the error.
  bool take_memory(size_t bytes) {
    constexpr size_t kPiece = 64u << 10;
    if (lease_ == nullptr || bytes <= memory_left_) {
      memory_left_ -= lease_ == nullptr ? 0 : bytes;
      return true;
    }
    const size_t more = std::max(bytes, kPiece);
    if (!lease_->add(more)) {
      if (error_.empty()) error_ = kMemorySpent;
      return false;
    }
    memory_left_ += more - bytes;
    return true;
  }

  void fail(const char* field, const char* what) {
    if (error_.empty()) error_ = format("%s %s", field, what);
  }

  // Calls visit(key, value) for every member that is not null.
  template <typename Visit>
  void fields(Json json, const char* field, Visit&& visit) {
    simdjson::dom::object object;
    if (json.get(object) != simdjson::SUCCESS) return fail(field, "is not an object");
    for (auto member : object) {
      if (!error_.empty()) return;
      if (!member.value.is_null()) visit(member.key, member.value);
    }
  }

  template <typename Visit>
  void items(Json json, const char* field, Visit&& visit) {
    simdjson::dom::array array;
    if (json.get(array) != simdjson::SUCCESS) return fail(field, "is not an array");
    for (Json item : array) {
      if (++items_ > kItemsMax) fail("the request", "has more than 2,000,000 elements");
      if (!error_.empty() || !take_memory(kItemBytes)) return;
      visit(item);
    }
  }

  void text(Json json, const char* field, std::string& out) {
    std::string_view value;
    if (json.get(value) != simdjson::SUCCESS) return fail(field, "is not a string");
    if (take_memory(value.size())) out = value;
  }

  void boolean(Json json, const char* field, bool& out) {
    if (json.get(out) != simdjson::SUCCESS) fail(field, "is not true or false");
  }

  // 64-bit integers come as strings or numbers; 1.0 and 1e3 are integers too.
  void integer(Json json, const char* field, int64_t& out) {
    std::string_view digits;
    double real = 0;
    if (json.is_int64()) {
      out = json.get_int64().value_unsafe();
    } else if (json.get(digits) == simdjson::SUCCESS) {
      std::optional<int64_t> number = parse_int(digits);
      if (!number) return fail(field, "is not a 64-bit integer");
      out = *number;
    } else if (json.is_double() && json.get(real) == simdjson::SUCCESS && real == std::trunc(real) && real >= -0x1p63 &&
               real < 0x1p63) {
      out = static_cast<int64_t>(real);
    } else {
      fail(field, "is not a 64-bit integer");
    }
  }

  void count(Json json, const char* field, uint64_t& out) {
    std::string_view digits;
    double real = 0;
    if (json.is_uint64()) {
      out = json.get_uint64().value_unsafe();
    } else if (json.get(digits) == simdjson::SUCCESS) {
      std::optional<uint64_t> number = parse_uint(digits);
      if (!number) return fail(field, "is not an unsigned 64-bit integer");
      out = *number;
    } else if (json.is_double() && json.get(real) == simdjson::SUCCESS && real == std::trunc(real) && real >= 0 &&
               real < 0x1p64) {
      out = static_cast<uint64_t>(real);
    } else {
      fail(field, "is not an unsigned 64-bit integer");
    }
  }

  void time(Json json, const char* field, int64_t& out) {
    uint64_t unix_ns = 0;
    count(json, field, unix_ns);
    out = static_cast<int64_t>(std::min<uint64_t>(unix_ns, std::numeric_limits<int64_t>::max()));
  }

  template <typename T>
  void small(Json json, const char* field, T& out) {
    int64_t number = 0;
    integer(json, field, number);
    if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max())
      return fail(field, "does not fit 32 bits");
    out = static_cast<T>(number);
  }

  void real(Json json, const char* field, double& out) {
    std::string_view digits;
    if (json.get(digits) == simdjson::SUCCESS) {  // "NaN", "Infinity", "-Infinity", or a number in quotes
      std::optional<double> number = parse_double(digits);
      if (!number) return fail(field, "is not a number");
      out = *number;
    } else if (json.get(out) != simdjson::SUCCESS) {
      fail(field, "is not a number");
    }
  }

  // A number, or prefix + one of names (names[i] means i).
  void enumeration(Json json, const char* field, std::string_view prefix, std::initializer_list<std::string_view> names,
                   int32_t& out) {
    std::string_view name;
    if (json.get(name) != simdjson::SUCCESS) return small(json, field, out);
    int32_t number = 0;
    for (std::string_view known : names) {
      if (name.size() == prefix.size() + known.size() && name.starts_with(prefix) && name.ends_with(known)) {
        out = number;
        return;
      }
      ++number;
    }
    fail(field, "is not a name this field knows");
  }

  template <size_t kSize>
  void id(Json json, const char* field, std::array<uint8_t, kSize>& out) {
    static constexpr const char* kWrong = kSize == 16 ? "is not 32 hex digits" : "is not 16 hex digits";
    std::string_view digits;
    out.fill(0);
    if (json.get(digits) != simdjson::SUCCESS) return fail(field, kWrong);
    if (digits.empty()) return;
    if (digits.size() != 2 * kSize) return fail(field, kWrong);
    for (size_t i = 0; i < kSize; ++i) {
      int high = hex_digit(digits[2 * i]);
      int low = hex_digit(digits[2 * i + 1]);
      if (high < 0 || low < 0) return fail(field, kWrong);
      out[i] = static_cast<uint8_t>(high << 4 | low);
    }
  }

  // Standard or URL-safe, padded or not: protobuf's JSON reads all four.
  void base64(Json json, const char* field, std::string& out) {
    std::string_view letters;
    if (json.get(letters) != simdjson::SUCCESS) return fail(field, "is not a string");
    std::optional<std::string> bytes = decode_any_base64(letters);
    if (!bytes) return fail(field, "is not base64");
    out = std::move(*bytes);
  }

  void value(Json json, Value& out, int depth) {
    if (depth > kNestingMax) return fail("a value", "is nested too deeply (limit 32)");
    fields(json, "a value", [&](std::string_view key, Json member) {
      if (key == "stringValue") {
        text(member, "stringValue", out.data.emplace<std::string>());
      } else if (key == "boolValue") {
        boolean(member, "boolValue", out.data.emplace<bool>());
      } else if (key == "intValue") {
        integer(member, "intValue", out.data.emplace<int64_t>());
      } else if (key == "doubleValue") {
        real(member, "doubleValue", out.data.emplace<double>());
      } else if (key == "bytesValue") {
        base64(member, "bytesValue", out.data.emplace<Value::Bytes>().data);
      } else if (key == "arrayValue") {
        ValueList& list = out.data.emplace<ValueList>();
        fields(member, "arrayValue", [&](std::string_view name, Json values) {
          if (name == "values")
            items(values, "arrayValue.values", [&](Json item) { value(item, list.emplace_back(), depth + 1); });
        });
      } else if (key == "kvlistValue") {
        Attributes& map = out.data.emplace<Attributes>();
        fields(member, "kvlistValue", [&](std::string_view name, Json values) {
          if (name == "values") attributes(values, "kvlistValue.values", map, depth + 1);
        });
      }
    });
  }

  void attributes(Json json, const char* field, Attributes& out, int depth = 1) {
    items(json, field, [&](Json item) {
      Attribute& attribute = out.emplace_back();
      fields(item, field, [&](std::string_view key, Json member) {
        if (key == "key") {
          text(member, "key", attribute.key);
        } else if (key == "value") {
          value(member, attribute.value, depth);
        }
      });
    });
  }

  void log(Json json, LogRecord& out) {
    fields(json, "a log record", [&](std::string_view key, Json member) {
      if (key == "timeUnixNano")
        time(member, "timeUnixNano", out.time_unix_ns);
      else if (key == "observedTimeUnixNano")
        time(member, "observedTimeUnixNano", out.observed_unix_ns);
      else if (key == "severityNumber")
        severity(member, out.severity);
      else if (key == "severityText")
        text(member, "severityText", out.severity_text);
      else if (key == "eventName")
        text(member, "eventName", out.event_name);
      else if (key == "body")
        value(member, out.body, 1);
      else if (key == "attributes")
        attributes(member, "attributes", out.attributes);
      else if (key == "traceId")
        id(member, "traceId", out.trace_id);
      else if (key == "spanId")
        id(member, "spanId", out.span_id);
      else if (key == "flags")
        small(member, "flags", out.flags);
    });
  }

  void severity(Json json, int32_t& out) {
    enumeration(json, "severityNumber", "SEVERITY_NUMBER_",
                {"UNSPECIFIED", "TRACE",  "TRACE2", "TRACE3", "TRACE4", "DEBUG",  "DEBUG2", "DEBUG3", "DEBUG4",
                 "INFO",        "INFO2",  "INFO3",  "INFO4",  "WARN",   "WARN2",  "WARN3",  "WARN4",  "ERROR",
                 "ERROR2",      "ERROR3", "ERROR4", "FATAL",  "FATAL2", "FATAL3", "FATAL4"},
                out);
  }

  void span(Json json, Span& out) {
    fields(json, "a span", [&](std::string_view key, Json member) {
      if (key == "traceId")
        id(member, "traceId", out.trace_id);
      else if (key == "spanId")
        id(member, "spanId", out.span_id);
      else if (key == "parentSpanId")
        id(member, "parentSpanId", out.parent_span_id);
      else if (key == "traceState")
        text(member, "traceState", out.trace_state);
      else if (key == "name")
        text(member, "name", out.name);
      else if (key == "kind")
        enumeration(member, "kind", "SPAN_KIND_",
                    {"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}, out.kind);
      else if (key == "startTimeUnixNano")
        time(member, "startTimeUnixNano", out.start_unix_ns);
      else if (key == "endTimeUnixNano")
        time(member, "endTimeUnixNano", out.end_unix_ns);
      else if (key == "attributes")
        attributes(member, "attributes", out.attributes);
      else if (key == "events")
        items(member, "events", [&](Json item) { span_event(item, out.events.emplace_back()); });
      else if (key == "links")
        items(member, "links", [&](Json item) { span_link(item, out.links.emplace_back()); });
      else if (key == "status")
        span_status(member, out);
    });
  }

  void span_event(Json json, SpanEvent& out) {
    fields(json, "a span event", [&](std::string_view key, Json member) {
      if (key == "timeUnixNano")
        time(member, "timeUnixNano", out.time_unix_ns);
      else if (key == "name")
        text(member, "name", out.name);
      else if (key == "attributes")
        attributes(member, "attributes", out.attributes);
    });
  }

  void span_link(Json json, SpanLink& out) {
    fields(json, "a span link", [&](std::string_view key, Json member) {
      if (key == "traceId")
        id(member, "traceId", out.trace_id);
      else if (key == "spanId")
        id(member, "spanId", out.span_id);
      else if (key == "attributes")
        attributes(member, "attributes", out.attributes);
    });
  }

  void span_status(Json json, Span& out) {
    fields(json, "status", [&](std::string_view key, Json member) {
      if (key == "message")
        text(member, "message", out.status_message);
      else if (key == "code")
        enumeration(member, "code", "STATUS_CODE_", {"UNSET", "OK", "ERROR"}, out.status_code);
    });
  }

  void counts(Json json, const char* field, std::vector<uint64_t>& out) {
    out.clear();
    items(json, field, [&](Json item) { count(item, field, out.emplace_back()); });
  }

  void exponential_buckets(Json json, const char* field, int32_t& offset, std::vector<uint64_t>& out) {
    fields(json, field, [&](std::string_view key, Json member) {
      if (key == "offset")
        small(member, "offset", offset);
      else if (key == "bucketCounts")
        counts(member, "bucketCounts", out);
    });
  }

  // All five kinds of points: their names mean the same wherever they occur.
  void point(Json json, MetricPoint& out) {
    const bool histogram = out.kind == MetricKind::kHistogram || out.kind == MetricKind::kExponentialHistogram;
    if (histogram) out.value = std::numeric_limits<double>::quiet_NaN();  // until the sender gives a sum
    const bool number = out.kind == MetricKind::kGauge || out.kind == MetricKind::kSum;
    fields(json, "a data point", [&](std::string_view key, Json member) {
      if (key == "attributes")
        attributes(member, "attributes", out.attributes);
      else if (key == "startTimeUnixNano")
        time(member, "startTimeUnixNano", out.start_unix_ns);
      else if (key == "timeUnixNano")
        time(member, "timeUnixNano", out.time_unix_ns);
      else if (key == "flags")
        small(member, "flags", out.flags);
      else if (number && key == "asDouble") {
        real(member, "asDouble", out.value);
        out.int_value = 0;
        out.is_int = false;
      } else if (number && key == "asInt") {
        integer(member, "asInt", out.int_value);
        out.value = static_cast<double>(out.int_value);
        out.is_int = true;
      } else if (!number && key == "count")
        count(member, "count", out.count);
      else if (!number && key == "sum")
        real(member, "sum", out.value);
      else if (out.kind == MetricKind::kHistogram && key == "bucketCounts")
        counts(member, "bucketCounts", out.buckets);
      else if (out.kind == MetricKind::kHistogram && key == "explicitBounds") {
        out.bounds.clear();
        items(member, "explicitBounds", [&](Json item) { real(item, "explicitBounds", out.bounds.emplace_back()); });
      } else if (out.kind == MetricKind::kExponentialHistogram && key == "scale")
        small(member, "scale", out.scale);
      else if (out.kind == MetricKind::kExponentialHistogram && key == "zeroCount")
        count(member, "zeroCount", out.zero_count);
      else if (out.kind == MetricKind::kExponentialHistogram && key == "positive")
        exponential_buckets(member, "positive", out.positive_offset, out.buckets);
      else if (out.kind == MetricKind::kExponentialHistogram && key == "negative")
        exponential_buckets(member, "negative", out.negative_offset, out.negative_buckets);
      else if (out.kind == MetricKind::kSummary && key == "quantileValues") {
        items(member, "quantileValues", [&](Json item) {
          double& quantile = out.bounds.emplace_back();
          double& quantile_value = out.quantile_values.emplace_back();
          fields(item, "quantileValues", [&](std::string_view name, Json part) {
            if (name == "quantile")
              real(part, "quantile", quantile);
            else if (name == "value")
              real(part, "value", quantile_value);
          });
        });
      }
    });
  }

  void metric(Json json, std::vector<MetricPoint>& points) {
    MetricPoint head;
    const size_t first = points.size();
    fields(json, "a metric", [&](std::string_view key, Json member) {
      if (key == "name")
        text(member, "name", head.name);
      else if (key == "unit")
        text(member, "unit", head.unit);
      else if (key == "gauge")
        metric_data(member, "gauge", MetricKind::kGauge, head, points, first);
      else if (key == "sum")
        metric_data(member, "sum", MetricKind::kSum, head, points, first);
      else if (key == "histogram")
        metric_data(member, "histogram", MetricKind::kHistogram, head, points, first);
      else if (key == "exponentialHistogram")
        metric_data(member, "exponentialHistogram", MetricKind::kExponentialHistogram, head, points, first);
      else if (key == "summary")
        metric_data(member, "summary", MetricKind::kSummary, head, points, first);
    });
    if (!copies_.take(head.name.size() + head.unit.size(), points.size() - first))
      return fail("a metric", "has a name too long for its many points");
    if (!take_memory((head.name.size() + head.unit.size()) * (points.size() - first))) return;
    for (size_t i = first; i < points.size(); ++i) {
      points[i].name = head.name;
      points[i].unit = head.unit;
      points[i].temporality = head.temporality;
      points[i].monotonic = head.monotonic;
    }
  }

  void metric_data(Json json, const char* field, MetricKind kind, MetricPoint& head, std::vector<MetricPoint>& points,
                   size_t first) {
    points.resize(first);  // the last of a oneof is the one that counts
    head.temporality = Temporality::kUnspecified;
    head.monotonic = false;
    fields(json, field, [&](std::string_view key, Json member) {
      if (key == "dataPoints") {
        items(member, "dataPoints", [&](Json item) {
          points.emplace_back().kind = kind;
          point(item, points.back());
        });
      } else if (key == "aggregationTemporality" && kind != MetricKind::kGauge && kind != MetricKind::kSummary) {
        int32_t number = 0;
        enumeration(member, "aggregationTemporality", "AGGREGATION_TEMPORALITY_",
                    {"UNSPECIFIED", "DELTA", "CUMULATIVE"}, number);
        head.temporality = number == 1 || number == 2 ? static_cast<Temporality>(number) : Temporality::kUnspecified;
      } else if (key == "isMonotonic" && kind == MetricKind::kSum) {
        boolean(member, "isMonotonic", head.monotonic);
      }
    });
  }

  void scope_records(Json json, Signal signal, ResourceGroup& group) {
    fields(json, "a scope", [&](std::string_view key, Json member) {
      if (key == "scope") {
        fields(member, "scope", [&](std::string_view name, Json part) {
          if (name == "name")
            text(part, "scope.name", group.scope_name);
          else if (name == "version")
            text(part, "scope.version", group.scope_version);
        });
      } else if (key == "logRecords" && signal == Signal::kLogs) {
        items(member, "logRecords", [&](Json item) { log(item, group.logs.emplace_back()); });
      } else if (key == "spans" && signal == Signal::kSpans) {
        items(member, "spans", [&](Json item) { span(item, group.spans.emplace_back()); });
      } else if (key == "metrics" && signal == Signal::kMetrics) {
        items(member, "metrics", [&](Json item) { metric(item, group.points); });
      }
    });
  }

  void resource_records(Json json, Batch& batch) {
    const char* scopes = batch.signal == Signal::kLogs    ? "scopeLogs"
                         : batch.signal == Signal::kSpans ? "scopeSpans"
                                                          : "scopeMetrics";
    Attributes resource;
    const size_t first = batch.groups.size();
    fields(json, "a resource", [&](std::string_view key, Json member) {
      if (key == "resource") {
        fields(member, "resource", [&](std::string_view name, Json part) {
          if (name == "attributes") attributes(part, "resource.attributes", resource);
        });
      } else if (key == scopes) {
        items(member, scopes, [&](Json item) { scope_records(item, batch.signal, batch.groups.emplace_back()); });
      }
    });
    if (const uint64_t bytes = copied_bytes(resource, batch.groups.size() - first);
        bytes <= kCopiedBytesMax && !take_memory(bytes))
      return;
    if (!copies_.share_resource(std::move(resource), batch.groups, first))
      fail("a resource", "is too large for its many scopes");
  }

  std::string error_;
  size_t items_ = 0;
  CopyBudget copies_;
  MemoryLease* const lease_;
  size_t memory_left_ = 0;
};

}  // namespace

Result<Batch> decode_json(Signal signal, std::string_view text, MemoryLease* lease) {
  // The parser's tape and indexes are up to twelve bytes for one of text.
  if (lease != nullptr && !lease->add(12 * text.size())) return Error{kMemorySpent};
  Batch batch;
  batch.signal = signal;
  simdjson::dom::parser parser;
  Json root;
  if (auto error = parser.parse(text.data(), text.size()).get(root); error != simdjson::SUCCESS) {
    return Error{format("otlp %s: not valid JSON: %s", to_text(signal), simdjson::error_message(error))};
  }
  JsonDecoder decoder(lease);
  decoder.request(root, batch);
  if (!decoder.error().empty()) return Error{format("otlp %s as JSON: %s", to_text(signal), decoder.error().c_str())};
  return batch;
}

}  // namespace lockstep::otlp
