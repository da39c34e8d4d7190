// Batches that use every field we keep, for tests and benchmarks.
#pragma once

#include <limits>

#include "model/events.h"
#include "model/telemetry.h"

namespace lockstep::test {

inline constexpr int64_t kTime = 1'700'000'000'000'000'000;

inline TraceId trace_id() {
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
}
inline SpanId span_id(uint8_t first) {
  return {first, 2, 3, 4, 5, 6, 7, 8};
}

inline Attributes rich_attributes() {
  return {{"text", "grüße"},
          {"empty text", ""},
          {"yes", true},
          {"no", false},
          {"zero", 0},
          {"least", std::numeric_limits<int64_t>::min()},
          {"most", std::numeric_limits<int64_t>::max()},
          {"real", -0.125},
          {"bytes", Value::Bytes{std::string("\0\xff", 2)}},
          {"nothing", Value()},
          {"list", ValueList{1, "two", 3.0, Value(), ValueList{}, ValueList{true}}},
          {"map", Attributes{{"inner", Attributes{{"list", ValueList{-1}}}}, {"", "empty key"}}},
          {"long", std::string(1'000, 'x')}};
}

inline Batch rich_batch(Signal signal) {
  Batch batch;
  batch.signal = signal;
  batch.groups.resize(2);
  batch.groups[0].resource = rich_attributes();
  batch.groups[0].scope_name = "scope";
  batch.groups[0].scope_version = "1.0";
  ResourceGroup& group = batch.groups[0];
  if (signal == Signal::kLogs) {
    LogRecord log;
    log.time_unix_ns = kTime;
    log.observed_unix_ns = kTime + 1;
    log.severity = 17;
    log.severity_text = "ERROR";
    log.event_name = "train.step";
    log.body = "body";
    log.attributes = rich_attributes();
    log.trace_id = trace_id();
    log.span_id = span_id(1);
    log.flags = 0x80000001;
    group.logs = {log, LogRecord{}};
    batch.groups[1].logs = {log};
  }
  if (signal == Signal::kSpans) {
    Span span;
    span.trace_id = trace_id();
    span.span_id = span_id(1);
    span.parent_span_id = span_id(2);
    span.trace_state = "a=b";
    span.name = "step";
    span.kind = 3;
    span.start_unix_ns = kTime;
    span.end_unix_ns = kTime + 5;
    span.attributes = rich_attributes();
    span.events = {{kTime + 1, "event", rich_attributes()}, {}};
    span.links = {{trace_id(), span_id(9), rich_attributes()}, {}};
    span.status_code = 2;
    span.status_message = "failed";
    group.spans = {span, Span{}};
    batch.groups[1].spans = {span};
  }
  if (signal == Signal::kMetrics) {
    MetricPoint gauge;
    gauge.name = "gpu.power";
    gauge.unit = "W";
    gauge.attributes = rich_attributes();
    gauge.start_unix_ns = kTime;
    gauge.time_unix_ns = kTime + 1;
    gauge.value = 411.5;
    MetricPoint second = gauge;
    second.value = -0.5;
    second.flags = 1;
    MetricPoint sum = gauge;
    sum.name = "tokens";
    sum.kind = MetricKind::kSum;
    sum.temporality = Temporality::kCumulative;
    sum.monotonic = true;
    sum.is_int = true;
    sum.int_value = (int64_t{1} << 53) + 1;  // does not fit a double
    sum.value = static_cast<double>(sum.int_value);
    MetricPoint histogram;
    histogram.name = "step.duration";
    histogram.kind = MetricKind::kHistogram;
    histogram.temporality = Temporality::kDelta;
    histogram.attributes = {{"phase", "forward"}};
    histogram.time_unix_ns = kTime;
    histogram.count = 6;
    histogram.value = 42.5;
    histogram.bounds = {5, 10};
    histogram.buckets = {1, 2, 3};
    MetricPoint exponential;
    exponential.name = "gradient";
    exponential.kind = MetricKind::kExponentialHistogram;
    exponential.temporality = Temporality::kCumulative;
    exponential.time_unix_ns = kTime;
    exponential.count = 310;
    exponential.value = -1;
    exponential.scale = -3;
    exponential.zero_count = 4;
    exponential.positive_offset = -7;
    exponential.buckets = {1, 0, std::numeric_limits<uint64_t>::max()};
    exponential.negative_offset = 9;
    exponential.negative_buckets = {5};
    MetricPoint summary;
    summary.name = "latency";
    summary.kind = MetricKind::kSummary;
    summary.time_unix_ns = kTime;
    summary.count = 10;
    summary.value = 100;
    summary.bounds = {0.5, 0.99};
    summary.quantile_values = {9, 20};
    group.points = {gauge, second, sum, histogram, exponential, summary};
    batch.groups[1].points = {sum};
  }
  return batch;
}

inline StepSummary step_summary(StepNumber step) {
  StepSummary summary;
  summary.step = step;
  summary.start_unix_ns = kTime + step.value() * 1'000'000'000;
  summary.duration_ns = 540'000'000;
  summary.phase_ns = {0, 11'000'000, 150'000'000, 300'000'000, 60'000'000, 0, 0, 7'000'000};
  summary.self_ns = 410'000'000;
  summary.comm_ns = 130'000'000;
  summary.queue_ns = 2'000'000;
  summary.quiet_ns = 40'000'000;
  summary.quiet_from_unix_ns = summary.start_unix_ns + 1000;
  summary.inferred = true;
  summary.records_lost = 3;
  for (uint64_t i = 0; i < 4; ++i) {
    summary.comms.push_back({CommId{0xfeed'0000'0000'0000 + i}, 64, 5, i == 3, 120, 9'000'000'000, 120'000'000, 900'000,
                             2'000'000, summary.start_unix_ns + 5'000'000, summary.start_unix_ns + 500'000'000,
                             12'000'000});
    summary.flows.push_back({CommId{0xfeed'0000'0000'0000 + i}, 6, i % 2 == 0, 4096, 2'000'000'000, 90'000'000,
                             10'000'000, 20'000'000, 1'000'000, 500'000});
  }
  return summary;
}

}  // namespace lockstep::test
