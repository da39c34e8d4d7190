// Batch to Export*ServiceRequest, and the answers of a server. Fields in the order of their numbers, default values
// left out, as libprotobuf writes them.
#include <cmath>

#include "base/json_writer.h"
#include "base/protobuf_wire.h"
#include "wire/otlp.h"

namespace lockstep::otlp {
namespace {

using protobuf::WireWriter;
using protobuf::zigzag_encode;

void put_text(WireWriter& out, uint32_t field, std::string_view text) {
  if (!text.empty()) out.bytes(field, text);
}
void put_time(WireWriter& out, uint32_t field, int64_t unix_ns) {
  if (unix_ns > 0) out.fixed64(field, static_cast<uint64_t>(unix_ns));
}
void put_varint(WireWriter& out, uint32_t field, int64_t number) {
  if (number != 0) out.varint(field, static_cast<uint64_t>(number));
}
void put_count(WireWriter& out, uint32_t field, uint64_t count) {
  if (count != 0) out.fixed64(field, count);
}
template <size_t kSize>
void put_id(WireWriter& out, uint32_t field, const std::array<uint8_t, kSize>& id) {
  if (id != std::array<uint8_t, kSize>{}) out.bytes(field, {reinterpret_cast<const char*>(id.data()), kSize});
}

void put_attribute(WireWriter& out, uint32_t field, const Attribute& attribute);

void put_value(WireWriter& out, uint32_t field, const Value& value) {
  struct Visitor {
    WireWriter& out;
    void operator()(std::monostate) {}
    void operator()(const std::string& text) { out.bytes(1, text); }
    void operator()(bool flag) { out.varint(2, flag); }
    void operator()(int64_t number) { out.varint(3, static_cast<uint64_t>(number)); }
    void operator()(double number) { out.real(4, number); }
    void operator()(const ValueList& list) {
      size_t began = out.begin(5);
      for (const Value& item : list) put_value(out, 1, item);
      out.end(began);
    }
    void operator()(const Attributes& map) {
      size_t began = out.begin(6);
      for (const Attribute& item : map) put_attribute(out, 1, item);
      out.end(began);
    }
    void operator()(const Value::Bytes& bytes) { out.bytes(7, bytes.data); }
  };
  size_t began = out.begin(field);
  std::visit(Visitor{out}, value.data);
  out.end(began);
}

bool is_empty(const Value& value) {
  return std::holds_alternative<std::monostate>(value.data);
}

void put_attribute(WireWriter& out, uint32_t field, const Attribute& attribute) {
  size_t began = out.begin(field);
  put_text(out, 1, attribute.key);
  if (!is_empty(attribute.value)) put_value(out, 2, attribute.value);
  out.end(began);
}

void put_attributes(WireWriter& out, uint32_t field, const Attributes& attributes) {
  for (const Attribute& attribute : attributes) put_attribute(out, field, attribute);
}

void put_log(WireWriter& out, const LogRecord& log) {
  size_t began = out.begin(2);
  put_time(out, 1, log.time_unix_ns);
  put_varint(out, 2, log.severity);
  put_text(out, 3, log.severity_text);
  if (!is_empty(log.body)) put_value(out, 5, log.body);
  put_attributes(out, 6, log.attributes);
  if (log.flags != 0) out.fixed32(8, log.flags);
  put_id(out, 9, log.trace_id);
  put_id(out, 10, log.span_id);
  put_time(out, 11, log.observed_unix_ns);
  put_text(out, 12, log.event_name);
  out.end(began);
}

void put_span(WireWriter& out, const Span& span) {
  size_t began = out.begin(2);
  put_id(out, 1, span.trace_id);
  put_id(out, 2, span.span_id);
  put_text(out, 3, span.trace_state);
  put_id(out, 4, span.parent_span_id);
  put_text(out, 5, span.name);
  put_varint(out, 6, span.kind);
  put_time(out, 7, span.start_unix_ns);
  put_time(out, 8, span.end_unix_ns);
  put_attributes(out, 9, span.attributes);
  for (const SpanEvent& event : span.events) {
    size_t event_began = out.begin(11);
    put_time(out, 1, event.time_unix_ns);
    put_text(out, 2, event.name);
    put_attributes(out, 3, event.attributes);
    out.end(event_began);
  }
  for (const SpanLink& link : span.links) {
    size_t link_began = out.begin(13);
    put_id(out, 1, link.trace_id);
    put_id(out, 2, link.span_id);
    put_attributes(out, 4, link.attributes);
    out.end(link_began);
  }
  if (span.status_code != 0 || !span.status_message.empty()) {
    size_t status_began = out.begin(15);
    put_text(out, 2, span.status_message);
    put_varint(out, 3, span.status_code);
    out.end(status_began);
  }
  out.end(began);
}

void put_number_point(WireWriter& out, const MetricPoint& point) {
  put_time(out, 2, point.start_unix_ns);
  put_time(out, 3, point.time_unix_ns);
  if (!point.is_int) out.real(4, point.value);
  if (point.is_int) out.fixed64(6, static_cast<uint64_t>(point.int_value));
  put_attributes(out, 7, point.attributes);
  put_varint(out, 8, point.flags);
}

void put_histogram_point(WireWriter& out, const MetricPoint& point) {
  put_time(out, 2, point.start_unix_ns);
  put_time(out, 3, point.time_unix_ns);
  put_count(out, 4, point.count);
  if (!std::isnan(point.value)) out.real(5, point.value);
  if (!point.buckets.empty()) {
    size_t began = out.begin(6);
    for (uint64_t count : point.buckets) out.raw_fixed(count);
    out.end(began);
  }
  if (!point.bounds.empty()) {
    size_t began = out.begin(7);
    for (double bound : point.bounds) out.raw_fixed(bound);
    out.end(began);
  }
  put_attributes(out, 9, point.attributes);
  put_varint(out, 10, point.flags);
}

void put_exponential_buckets(WireWriter& out, uint32_t field, int32_t offset, const std::vector<uint64_t>& counts) {
  if (offset == 0 && counts.empty()) return;
  size_t began = out.begin(field);
  if (offset != 0) out.varint(1, zigzag_encode(offset));
  if (!counts.empty()) {
    size_t packed = out.begin(2);
    for (uint64_t count : counts) out.raw_varint(count);
    out.end(packed);
  }
  out.end(began);
}

void put_exponential_point(WireWriter& out, const MetricPoint& point) {
  put_attributes(out, 1, point.attributes);
  put_time(out, 2, point.start_unix_ns);
  put_time(out, 3, point.time_unix_ns);
  put_count(out, 4, point.count);
  if (!std::isnan(point.value)) out.real(5, point.value);
  if (point.scale != 0) out.varint(6, zigzag_encode(point.scale));
  put_count(out, 7, point.zero_count);
  put_exponential_buckets(out, 8, point.positive_offset, point.buckets);
  put_exponential_buckets(out, 9, point.negative_offset, point.negative_buckets);
  put_varint(out, 10, point.flags);
}

void put_summary_point(WireWriter& out, const MetricPoint& point) {
  put_time(out, 2, point.start_unix_ns);
  put_time(out, 3, point.time_unix_ns);
  put_count(out, 4, point.count);
  out.real(5, point.value);
  for (size_t i = 0; i < point.bounds.size() && i < point.quantile_values.size(); ++i) {
    size_t began = out.begin(6);
    out.real(1, point.bounds[i]);
    out.real(2, point.quantile_values[i]);
    out.end(began);
  }
  put_attributes(out, 7, point.attributes);
  put_varint(out, 8, point.flags);
}

bool same_metric(const MetricPoint& a, const MetricPoint& b) {
  return a.kind == b.kind && a.temporality == b.temporality && a.monotonic == b.monotonic && a.name == b.name &&
         a.unit == b.unit;
}

// Points of one metric that stand together share one Metric message.
void put_metrics(WireWriter& out, const std::vector<MetricPoint>& points) {
  static constexpr uint32_t kDataField[] = {5, 7, 9, 10, 11};  // by MetricKind
  for (size_t first = 0; first < points.size();) {
    const MetricPoint& head = points[first];
    size_t metric_began = out.begin(2);
    put_text(out, 1, head.name);
    put_text(out, 3, head.unit);
    size_t data_began = out.begin(kDataField[static_cast<size_t>(head.kind)]);
    size_t next = first;
    for (; next < points.size() && same_metric(points[next], head); ++next) {
      size_t point_began = out.begin(1);
      switch (head.kind) {
        case MetricKind::kGauge:
        case MetricKind::kSum:
          put_number_point(out, points[next]);
          break;
        case MetricKind::kHistogram:
          put_histogram_point(out, points[next]);
          break;
        case MetricKind::kExponentialHistogram:
          put_exponential_point(out, points[next]);
          break;
        case MetricKind::kSummary:
          put_summary_point(out, points[next]);
          break;
      }
      out.end(point_began);
    }
    if (head.kind != MetricKind::kGauge && head.kind != MetricKind::kSummary) {
      put_varint(out, 2, static_cast<int64_t>(head.temporality));
      if (head.kind == MetricKind::kSum) put_varint(out, 3, head.monotonic);
    }
    out.end(data_began);
    out.end(metric_began);
    first = next;
  }
}

}  // namespace

void put_attribute(std::string& bytes, uint32_t field, const Attribute& attribute) {
  WireWriter out(bytes);
  put_attribute(out, field, attribute);
}

std::string encode(const Batch& batch) {
  std::string bytes;
  WireWriter out(bytes);
  for (const ResourceGroup& group : batch.groups) {
    size_t group_began = out.begin(1);
    if (!group.resource.empty()) {
      size_t resource_began = out.begin(1);
      put_attributes(out, 1, group.resource);
      out.end(resource_began);
    }
    size_t records_began = out.begin(2);
    if (!group.scope_name.empty() || !group.scope_version.empty()) {
      size_t scope_began = out.begin(1);
      put_text(out, 1, group.scope_name);
      put_text(out, 2, group.scope_version);
      out.end(scope_began);
    }
    switch (batch.signal) {
      case Signal::kMetrics:
        put_metrics(out, group.points);
        break;
      case Signal::kLogs:
        for (const LogRecord& log : group.logs) put_log(out, log);
        break;
      case Signal::kSpans:
        for (const Span& span : group.spans) put_span(out, span);
        break;
    }
    out.end(records_began);
    out.end(group_began);
  }
  return bytes;
}

std::string encode_response(Signal, int64_t rejected, std::string_view message) {
  std::string bytes;
  if (rejected == 0 && message.empty()) return bytes;
  WireWriter out(bytes);
  size_t began = out.begin(1);
  put_varint(out, 1, rejected);
  put_text(out, 2, message);
  out.end(began);
  return bytes;
}

std::string encode_response_json(Signal signal, int64_t rejected, std::string_view message) {
  JsonWriter json;
  json.begin_object();
  if (rejected != 0 || !message.empty()) {
    const char* name = signal == Signal::kMetrics ? "rejectedDataPoints"
                       : signal == Signal::kLogs  ? "rejectedLogRecords"
                                                  : "rejectedSpans";
    json.key("partialSuccess").begin_object();
    if (rejected != 0) json.field(name, std::to_string(rejected));  // 64-bit integers are strings in protobuf's JSON
    if (!message.empty()) json.field("errorMessage", message);
    json.end_object();
  }
  json.end_object();
  return json.take();
}

std::string encode_status(int code, std::string_view message) {
  std::string bytes;
  WireWriter out(bytes);
  put_varint(out, 1, code);
  put_text(out, 2, message);
  return bytes;
}

std::string encode_status_json(int code, std::string_view message) {
  JsonWriter json;
  json.begin_object().field("code", code).field("message", message).end_object();
  return json.take();
}

}  // namespace lockstep::otlp
