// Our decoder against libprotobuf: what one refuses the other refuses, and what both accept means the same. Exceptions,
// all of them ours: the nesting limit, ids of a wrong length, and resources or names multiplied without end.
//
// The input is tried as it is, and as a recipe for a request: random bytes seldom make the interesting ones, where
// fields come twice, in pieces, out of order, packed and unpacked, or under a wrong type.
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "base/protobuf_wire.h"
#include "wire/otlp.h"
#include "wire/otlp_oracle.h"
#include "wire/protobuf_fuzzing.h"

namespace lockstep::otlp {
namespace {

using google::protobuf::Message;
using protobuf_fuzzing::RequestBuilder;
using protobuf_fuzzing::View;

Attributes attributes_of(const View& view, const char* name);

Value value_of(const View& view) {
  if (view.has("text")) return view.text("text");
  if (view.has("flag")) return view.flag("flag");
  if (view.has("number")) return view.int64("number");
  if (view.has("real")) return view.real("real");
  if (view.has("raw")) return Value::Bytes{view.text("raw")};
  if (view.has("map")) return attributes_of(view.message("map"), "items");
  if (!view.has("list")) return {};
  ValueList list;
  view.message("list").each("items", [&](const View& item) { list.push_back(value_of(item)); });
  return list;
}

Attributes attributes_of(const View& view, const char* name) {
  Attributes attributes;
  view.each(name, [&](const View& item) { attributes.push_back({item.text("key"), value_of(item.message("value"))}); });
  return attributes;
}

LogRecord log_of(const View& view) {
  LogRecord log;
  log.time_unix_ns = view.time("time");
  log.observed_unix_ns = view.time("observed");
  log.severity = view.int32("severity");
  log.severity_text = view.text("severity_text");
  log.event_name = view.text("event_name");
  log.body = value_of(view.message("body"));
  log.attributes = attributes_of(view, "attributes");
  view.id("trace_id", log.trace_id);
  view.id("span_id", log.span_id);
  log.flags = view.uint32("flags");
  return log;
}

Span span_of(const View& view) {
  Span span;
  view.id("trace_id", span.trace_id);
  view.id("span_id", span.span_id);
  view.id("parent_span_id", span.parent_span_id);
  span.trace_state = view.text("trace_state");
  span.name = view.text("name");
  span.kind = view.int32("kind");
  span.start_unix_ns = view.time("start");
  span.end_unix_ns = view.time("end");
  span.attributes = attributes_of(view, "attributes");
  view.each("events", [&](const View& item) {
    span.events.push_back({item.time("time"), item.text("name"), attributes_of(item, "attributes")});
  });
  view.each("links", [&](const View& item) {
    SpanLink& link = span.links.emplace_back();
    item.id("trace_id", link.trace_id);
    item.id("span_id", link.span_id);
    link.attributes = attributes_of(item, "attributes");
  });
  span.status_code = view.message("status").int32("code");
  span.status_message = view.message("status").text("message");
  return span;
}

void append_points(const View& metric, std::vector<MetricPoint>& points) {
  static constexpr std::pair<const char*, MetricKind> kKinds[] = {{"gauge", MetricKind::kGauge},
                                                                  {"sum", MetricKind::kSum},
                                                                  {"histogram", MetricKind::kHistogram},
                                                                  {"exponential", MetricKind::kExponentialHistogram},
                                                                  {"summary", MetricKind::kSummary}};
  for (auto [name, kind] : kKinds) {
    if (!metric.has(name)) continue;
    View data = metric.message(name);
    MetricPoint head;
    head.name = metric.text("name");
    head.unit = metric.text("unit");
    head.kind = kind;
    if (kind != MetricKind::kGauge && kind != MetricKind::kSummary) {
      int32_t number = data.int32("temporality");
      if (number == 1 || number == 2) head.temporality = static_cast<Temporality>(number);
    }
    if (kind == MetricKind::kSum) head.monotonic = data.flag("monotonic");
    data.each("points", [&](const View& item) {
      MetricPoint& point = points.emplace_back(head);
      point.attributes = attributes_of(item, "attributes");
      point.start_unix_ns = item.time("start");
      point.time_unix_ns = item.time("time");
      point.flags = item.uint32("flags");
      if (head.kind == MetricKind::kGauge || head.kind == MetricKind::kSum) {
        point.is_int = item.has("as_int");
        point.int_value = item.int64("as_int");
        point.value = point.is_int ? static_cast<double>(point.int_value) : item.real("as_double");
        return;
      }
      point.count = item.uint64("count");
      const bool has_sum = head.kind == MetricKind::kSummary || item.has("sum");
      point.value = has_sum ? item.real("sum") : std::numeric_limits<double>::quiet_NaN();
      if (head.kind == MetricKind::kHistogram) {
        point.buckets = item.counts("buckets");
        point.bounds = item.reals("bounds");
      } else if (head.kind == MetricKind::kExponentialHistogram) {
        point.scale = item.int32("scale");
        point.zero_count = item.uint64("zero_count");
        point.positive_offset = item.message("positive").int32("offset");
        point.buckets = item.message("positive").counts("counts");
        point.negative_offset = item.message("negative").int32("offset");
        point.negative_buckets = item.message("negative").counts("counts");
      } else {
        item.each("quantiles", [&](const View& quantile) {
          point.bounds.push_back(quantile.real("quantile"));
          point.quantile_values.push_back(quantile.real("value"));
        });
      }
    });
  }
}

Batch batch_of(Signal signal, const Message& request) {
  Batch batch;
  batch.signal = signal;
  View(request).each("groups", [&](const View& resource) {
    resource.each("scopes", [&](const View& scope) {
      ResourceGroup& group = batch.groups.emplace_back();
      group.resource = attributes_of(resource.message("resource"), "attributes");
      group.scope_name = scope.message("scope").text("name");
      group.scope_version = scope.message("scope").text("version");
      scope.each("records", [&](const View& record) {
        if (signal == Signal::kLogs) group.logs.push_back(log_of(record));
        if (signal == Signal::kSpans) group.spans.push_back(span_of(record));
        if (signal == Signal::kMetrics) append_points(record, group.points);
      });
    });
  });
  return batch;
}

bool is_own_limit(const std::string& error) {
  for (const char* limit :
       {"nested too deeply", "too many elements", "id that is not", "too large for its", "too long for its"}) {
    if (error.find(limit) != std::string::npos) return true;
  }
  return false;
}

void compare(Oracle& oracle, Signal signal, std::string_view bytes) {
  Result<Batch> ours = decode(signal, bytes);
  if (!ours.ok() && is_own_limit(ours.error())) return;
  std::unique_ptr<Message> theirs = oracle.parse(signal, bytes);
  if (ours.ok() != (theirs != nullptr)) {
    std::fprintf(stderr, "%s: we say %s, libprotobuf %s\n", to_text(signal), ours.ok() ? "yes" : ours.error().c_str(),
                 theirs ? "yes" : "no");
    std::abort();
  }
  if (!ours.ok()) return;
  // Compared as bytes: NaN is equal to itself there.
  if (encode(*ours) != encode(batch_of(signal, *theirs))) {
    std::fprintf(stderr, "%s: read differently\n%s\n", to_text(signal), theirs->DebugString().c_str());
    std::abort();
  }
}

}  // namespace
}  // namespace lockstep::otlp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static lockstep::otlp::Oracle oracle;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (lockstep::Signal signal : {lockstep::Signal::kMetrics, lockstep::Signal::kLogs, lockstep::Signal::kSpans}) {
    lockstep::otlp::compare(oracle, signal, bytes);
    lockstep::protobuf_fuzzing::RequestBuilder builder(data, size);
    lockstep::otlp::compare(oracle, signal, builder.message(oracle.request_type(signal), 0));
  }
  return 0;
}
