// Export*ServiceRequest to Batch in one walk over the bytes. Each message is one function with one switch over the tags
// it knows; field numbers are those of opentelemetry/proto v1 (docs/formats/events.md lists what is left out).
//
// Protobuf lets a sender put fields in any order and write a message in pieces, so what a group or a point shares with
// its neighbours (resource, metric name) is filled in when the message around it has ended. Text is taken as it comes:
// checking UTF-8 is left to whoever shows it.
#include <algorithm>
#include <limits>

#include "base/protobuf_wire.h"
#include "base/text.h"
#include "wire/copy_budget.h"
#include "wire/otlp.h"

namespace lockstep::otlp {
namespace {

using namespace protobuf;

struct Context {
  WireError error;
  CopyBudget copies;
};

// OTLP times are unsigned. One past the year 2262 becomes the last moment we can say, which no clock check lets pass.
int64_t time_of(uint64_t unix_ns) {
  return static_cast<int64_t>(std::min<uint64_t>(unix_ns, std::numeric_limits<int64_t>::max()));
}

// Room for `count` more; at least doubling, so that many small pieces stay linear.
template <typename T>
void reserve_more(std::vector<T>& items, size_t count) {
  size_t needed = items.size() + count;
  if (needed > items.capacity()) items.reserve(std::max(needed, items.capacity() * 2));
}

// Reserving is a convenience, not a promise: more elements than this grow the vector as they come.
constexpr size_t kReserveMax = 65'536;

// A new element for the repeated message `in` stands at; nullptr: there is no memory for it.
template <typename T>
T* append(std::vector<T>& items, WireReader& in) {
  if (!in.take_memory(sizeof(T))) return nullptr;
  if (items.empty()) reserve_more(items, std::min(in.run_length(), kReserveMax));
  return &items.emplace_back();
}

// Text is copied out of the request.
void assign(std::string& to, WireReader& in) {
  const std::string_view text = in.bytes();
  if (text.size() < sizeof(std::string) || in.take_memory(text.size())) to = text;
}

template <size_t kSize>
void decode_id(WireReader& in, std::array<uint8_t, kSize>& id) {
  std::string_view bytes = in.bytes();
  if (bytes.size() == kSize) {
    std::memcpy(id.data(), bytes.data(), kSize);
  } else if (bytes.empty()) {
    id.fill(0);
  } else {
    in.fail(kSize == 16 ? "a trace id that is not 16 bytes long" : "a span id that is not 8 bytes long");
  }
}

void decode_value(WireReader in, Value& value, int depth);

void decode_attribute(WireReader in, Attribute& attribute, int depth) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        assign(attribute.key, in);
        break;
      case tag_of(2, kBytes):
        decode_value(in.message(), attribute.value, depth);
        break;
      default:
        in.skip();
    }
  }
}

void decode_list(WireReader in, ValueList& list, int depth) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      if (Value* value = append(list, in)) decode_value(in.message(), *value, depth);
    } else {
      in.skip();
    }
  }
}

// KeyValueList and Resource.
void decode_map(WireReader in, Attributes& map, int depth) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      if (Attribute* attribute = append(map, in)) decode_attribute(in.message(), *attribute, depth);
    } else {
      in.skip();
    }
  }
}

void append_attribute(WireReader& in, Attributes& attributes) {
  if (Attribute* attribute = append(attributes, in)) decode_attribute(in.message(), *attribute, 1);
}

// The alternative of the oneof, kept where it is already that one: a list written in pieces is one list.
template <typename T>
T& alternative(Value& value) {
  if (T* kept = std::get_if<T>(&value.data)) return *kept;
  return value.data.emplace<T>();
}

void decode_value(WireReader in, Value& value, int depth) {
  if (depth > kNestingMax) {
    in.fail("a value nested too deeply (limit 32)");
    static_assert(kNestingMax == 32);
    return;
  }
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        assign(alternative<std::string>(value), in);
        break;
      case tag_of(2, kVarint):
        value.data = in.varint() != 0;
        break;
      case tag_of(3, kVarint):
        value.data = static_cast<int64_t>(in.varint());
        break;
      case tag_of(4, kFixed64):
        value.data = in.real();
        break;
      case tag_of(5, kBytes):
        decode_list(in.message(), alternative<ValueList>(value), depth + 1);
        break;
      case tag_of(6, kBytes):
        decode_map(in.message(), alternative<Attributes>(value), depth + 1);
        break;
      case tag_of(7, kBytes):
        assign(alternative<Value::Bytes>(value).data, in);
        break;
      default:
        in.skip();
    }
  }
}

void decode_log(WireReader in, LogRecord& log) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kFixed64):
        log.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(2, kVarint):
        log.severity = static_cast<int32_t>(in.varint());
        break;
      case tag_of(3, kBytes):
        assign(log.severity_text, in);
        break;
      case tag_of(5, kBytes):
        decode_value(in.message(), log.body, 1);
        break;
      case tag_of(6, kBytes):
        append_attribute(in, log.attributes);
        break;
      case tag_of(8, kFixed32):
        log.flags = in.fixed32();
        break;
      case tag_of(9, kBytes):
        decode_id(in, log.trace_id);
        break;
      case tag_of(10, kBytes):
        decode_id(in, log.span_id);
        break;
      case tag_of(11, kFixed64):
        log.observed_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(12, kBytes):
        assign(log.event_name, in);
        break;
      default:
        in.skip();
    }
  }
}

void decode_span_event(WireReader in, SpanEvent& event) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kFixed64):
        event.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(2, kBytes):
        assign(event.name, in);
        break;
      case tag_of(3, kBytes):
        append_attribute(in, event.attributes);
        break;
      default:
        in.skip();
    }
  }
}

void decode_span_link(WireReader in, SpanLink& link) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_id(in, link.trace_id);
        break;
      case tag_of(2, kBytes):
        decode_id(in, link.span_id);
        break;
      case tag_of(4, kBytes):
        append_attribute(in, link.attributes);
        break;
      default:
        in.skip();
    }
  }
}

void decode_span_status(WireReader in, Span& span) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(2, kBytes):
        assign(span.status_message, in);
        break;
      case tag_of(3, kVarint):
        span.status_code = static_cast<int32_t>(in.varint());
        break;
      default:
        in.skip();
    }
  }
}

void decode_span(WireReader in, Span& span) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_id(in, span.trace_id);
        break;
      case tag_of(2, kBytes):
        decode_id(in, span.span_id);
        break;
      case tag_of(3, kBytes):
        assign(span.trace_state, in);
        break;
      case tag_of(4, kBytes):
        decode_id(in, span.parent_span_id);
        break;
      case tag_of(5, kBytes):
        assign(span.name, in);
        break;
      case tag_of(6, kVarint):
        span.kind = static_cast<int32_t>(in.varint());
        break;
      case tag_of(7, kFixed64):
        span.start_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(8, kFixed64):
        span.end_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(9, kBytes):
        append_attribute(in, span.attributes);
        break;
      case tag_of(11, kBytes): {
        if (SpanEvent* event = append(span.events, in)) decode_span_event(in.message(), *event);
        break;
      }
      case tag_of(13, kBytes): {
        if (SpanLink* link = append(span.links, in)) decode_span_link(in.message(), *link);
        break;
      }
      case tag_of(15, kBytes):
        decode_span_status(in.message(), span);
        break;
      default:
        in.skip();
    }
  }
}

void decode_packed_fixed64(WireReader in, std::vector<uint64_t>& numbers) {
  if (!in.take_memory(in.left())) return;
  reserve_more(numbers, in.left() / 8);
  while (!in.at_end()) numbers.push_back(in.fixed64());
}

void decode_packed_real(WireReader in, std::vector<double>& numbers) {
  if (!in.take_memory(in.left())) return;
  reserve_more(numbers, in.left() / 8);
  while (!in.at_end()) numbers.push_back(in.real());
}

void decode_number_point(WireReader in, MetricPoint& point) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(2, kFixed64):
        point.start_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(3, kFixed64):
        point.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(4, kFixed64):
        point.value = in.real();
        point.int_value = 0;
        point.is_int = false;
        break;
      case tag_of(6, kFixed64):
        point.int_value = static_cast<int64_t>(in.fixed64());
        point.value = static_cast<double>(point.int_value);
        point.is_int = true;
        break;
      case tag_of(7, kBytes):
        append_attribute(in, point.attributes);
        break;
      case tag_of(8, kVarint):
        point.flags = static_cast<uint32_t>(in.varint());
        break;
      default:
        in.skip();
    }
  }
}

void decode_histogram_point(WireReader in, MetricPoint& point) {
  point.value = std::numeric_limits<double>::quiet_NaN();  // until the sender gives a sum
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(2, kFixed64):
        point.start_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(3, kFixed64):
        point.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(4, kFixed64):
        point.count = in.fixed64();
        break;
      case tag_of(5, kFixed64):
        point.value = in.real();
        break;
      case tag_of(6, kBytes):
        decode_packed_fixed64(in.message(), point.buckets);
        break;
      case tag_of(6, kFixed64):
        if (in.take_memory(sizeof(uint64_t))) point.buckets.push_back(in.fixed64());
        break;
      case tag_of(7, kBytes):
        decode_packed_real(in.message(), point.bounds);
        break;
      case tag_of(7, kFixed64):
        if (in.take_memory(sizeof(double))) point.bounds.push_back(in.real());
        break;
      case tag_of(9, kBytes):
        append_attribute(in, point.attributes);
        break;
      case tag_of(10, kVarint):
        point.flags = static_cast<uint32_t>(in.varint());
        break;
      default:
        in.skip();
    }
  }
}

void decode_exponential_buckets(WireReader in, int32_t& offset, std::vector<uint64_t>& counts) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kVarint):
        offset = static_cast<int32_t>(zigzag_decode(static_cast<uint32_t>(in.varint())));
        break;
      case tag_of(2, kVarint):
        if (in.take_memory(sizeof(uint64_t))) counts.push_back(in.varint());
        break;
      case tag_of(2, kBytes): {
        WireReader packed = in.message();
        if (!in.take_memory(packed.left() * sizeof(uint64_t))) break;
        while (!packed.at_end()) counts.push_back(packed.varint());
        break;
      }
      default:
        in.skip();
    }
  }
}

void decode_exponential_point(WireReader in, MetricPoint& point) {
  point.value = std::numeric_limits<double>::quiet_NaN();  // until the sender gives a sum
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        append_attribute(in, point.attributes);
        break;
      case tag_of(2, kFixed64):
        point.start_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(3, kFixed64):
        point.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(4, kFixed64):
        point.count = in.fixed64();
        break;
      case tag_of(5, kFixed64):
        point.value = in.real();
        break;
      case tag_of(6, kVarint):
        point.scale = static_cast<int32_t>(zigzag_decode(static_cast<uint32_t>(in.varint())));
        break;
      case tag_of(7, kFixed64):
        point.zero_count = in.fixed64();
        break;
      case tag_of(8, kBytes):
        decode_exponential_buckets(in.message(), point.positive_offset, point.buckets);
        break;
      case tag_of(9, kBytes):
        decode_exponential_buckets(in.message(), point.negative_offset, point.negative_buckets);
        break;
      case tag_of(10, kVarint):
        point.flags = static_cast<uint32_t>(in.varint());
        break;
      default:
        in.skip();
    }
  }
}

void decode_quantile(WireReader in, MetricPoint& point) {
  double quantile = 0;
  double value = 0;
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kFixed64):
        quantile = in.real();
        break;
      case tag_of(2, kFixed64):
        value = in.real();
        break;
      default:
        in.skip();
    }
  }
  if (!in.take_memory(2 * sizeof(double))) return;
  point.bounds.push_back(quantile);
  point.quantile_values.push_back(value);
}

void decode_summary_point(WireReader in, MetricPoint& point) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(2, kFixed64):
        point.start_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(3, kFixed64):
        point.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(4, kFixed64):
        point.count = in.fixed64();
        break;
      case tag_of(5, kFixed64):
        point.value = in.real();
        break;
      case tag_of(6, kBytes):
        decode_quantile(in.message(), point);
        break;
      case tag_of(7, kBytes):
        append_attribute(in, point.attributes);
        break;
      case tag_of(8, kVarint):
        point.flags = static_cast<uint32_t>(in.varint());
        break;
      default:
        in.skip();
    }
  }
}

// What all points of a metric share.
struct MetricHead {
  std::string_view name;
  std::string_view unit;
  uint32_t data_field = 0;  // which of the oneof; 0: none yet
  Temporality temporality = Temporality::kUnspecified;
  bool monotonic = false;
};

// Gauge, Sum, Histogram, ExponentialHistogram, Summary: their points are all field 1.
void decode_metric_data(WireReader in, MetricHead& head, std::vector<MetricPoint>& points) {
  bool reserved = false;
  const bool has_temporality = head.data_field == 7 || head.data_field == 9 || head.data_field == 10;
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      if (!in.take_memory(sizeof(MetricPoint))) return;
      if (!reserved) reserve_more(points, std::min(in.run_length(), kReserveMax));
      reserved = true;
      MetricPoint& point = points.emplace_back();
      switch (head.data_field) {
        case 9:
          decode_histogram_point(in.message(), point);
          break;
        case 10:
          decode_exponential_point(in.message(), point);
          break;
        case 11:
          decode_summary_point(in.message(), point);
          break;
        default:
          decode_number_point(in.message(), point);
      }
    } else if (in.tag() == tag_of(2, kVarint) && has_temporality) {
      int32_t number = static_cast<int32_t>(in.varint());
      head.temporality = number == 1 || number == 2 ? static_cast<Temporality>(number) : Temporality::kUnspecified;
    } else if (in.tag() == tag_of(3, kVarint) && head.data_field == 7) {
      head.monotonic = in.varint() != 0;
    } else {
      in.skip();
    }
  }
}

MetricKind kind_of(uint32_t data_field) {
  switch (data_field) {
    case 7:
      return MetricKind::kSum;
    case 9:
      return MetricKind::kHistogram;
    case 10:
      return MetricKind::kExponentialHistogram;
    case 11:
      return MetricKind::kSummary;
    default:
      return MetricKind::kGauge;
  }
}

void decode_metric(WireReader in, std::vector<MetricPoint>& points, Context& context) {
  MetricHead head;
  const size_t first = points.size();
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        head.name = in.bytes();
        break;
      case tag_of(3, kBytes):
        head.unit = in.bytes();
        break;
      case tag_of(5, kBytes):
      case tag_of(7, kBytes):
      case tag_of(9, kBytes):
      case tag_of(10, kBytes):
      case tag_of(11, kBytes): {
        uint32_t field = in.tag() >> 3;
        if (field != head.data_field) {  // the last of a oneof is the one that counts
          points.resize(first);
          head.temporality = Temporality::kUnspecified;
          head.monotonic = false;
          head.data_field = field;
        }
        decode_metric_data(in.message(), head, points);
        break;
      }
      default:
        in.skip();
    }
  }
  if (!context.copies.take(head.name.size() + head.unit.size(), points.size() - first)) {
    in.fail("a metric with a name too long for its many points");
    return;
  }
  if (!in.take_memory((head.name.size() + head.unit.size()) * (points.size() - first))) return;
  for (size_t i = first; i < points.size(); ++i) {
    points[i].name = head.name;
    points[i].unit = head.unit;
    points[i].kind = kind_of(head.data_field);
    points[i].temporality = head.temporality;
    points[i].monotonic = head.monotonic;
  }
}

void decode_scope(WireReader in, ResourceGroup& group) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        assign(group.scope_name, in);
        break;
      case tag_of(2, kBytes):
        assign(group.scope_version, in);
        break;
      default:
        in.skip();
    }
  }
}

void decode_scope_records(WireReader in, Signal signal, ResourceGroup& group, Context& context) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_scope(in.message(), group);
        break;
      case tag_of(2, kBytes):
        if (signal == Signal::kLogs) {
          if (LogRecord* log = append(group.logs, in)) decode_log(in.message(), *log);
        } else if (signal == Signal::kSpans) {
          if (Span* span = append(group.spans, in)) decode_span(in.message(), *span);
        } else {
          decode_metric(in.message(), group.points, context);
        }
        break;
      default:
        in.skip();
    }
  }
}

void decode_resource_records(WireReader in, Signal signal, std::vector<ResourceGroup>& groups, Context& context) {
  Attributes resource;
  const size_t first = groups.size();
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_map(in.message(), resource, 1);
        break;  // Resource: attributes are field 1
      case tag_of(2, kBytes): {
        if (!in.take_memory(sizeof(ResourceGroup))) break;
        ResourceGroup& group = groups.emplace_back();
        decode_scope_records(in.message(), signal, group, context);
        break;
      }
      default:
        in.skip();
    }
  }
  if (const uint64_t bytes = copied_bytes(resource, groups.size() - first);
      bytes <= kCopiedBytesMax && !in.take_memory(bytes))
    return;
  if (!context.copies.share_resource(std::move(resource), groups, first)) {
    in.fail("a resource too large for its many scopes");
  }
}

Error error_of(const WireError& error, const char* what, std::string_view bytes) {
  return Error{format("otlp %s: %s at byte %zu of %zu", what, error.what, static_cast<size_t>(error.at - bytes.data()),
                      bytes.size())};
}

}  // namespace

Result<Batch> decode(Signal signal, std::string_view bytes, MemoryLease* lease) {
  Batch batch;
  batch.signal = signal;
  Context context;
  context.error.lease = lease;
  WireReader in(bytes, context.error);
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      decode_resource_records(in.message(), signal, batch.groups, context);
    } else {
      in.skip();
    }
  }
  if (context.error.what != nullptr) return error_of(context.error, to_text(signal), bytes);
  return batch;
}

Result<Attribute> decode_attribute(std::string_view key_value) {
  Attribute attribute;
  WireError error;
  decode_attribute(WireReader(key_value, error), attribute, 1);
  if (error.what != nullptr) return error_of(error, "attribute", key_value);
  return attribute;
}

Result<PartialSuccess> decode_response(std::string_view bytes) {
  PartialSuccess partial;
  WireError error;
  WireReader in(bytes, error);
  while (in.next()) {
    if (in.tag() != tag_of(1, kBytes)) {
      in.skip();
      continue;
    }
    WireReader success = in.message();
    while (success.next()) {
      switch (success.tag()) {
        case tag_of(1, kVarint):
          partial.rejected = static_cast<int64_t>(success.varint());
          break;
        case tag_of(2, kBytes):
          partial.message = success.bytes();
          break;
        default:
          success.skip();
      }
    }
  }
  if (error.what != nullptr) return error_of(error, "response", bytes);
  return partial;
}

}  // namespace lockstep::otlp
