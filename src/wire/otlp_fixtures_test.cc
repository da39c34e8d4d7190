// What a real OpenTelemetry SDK serialized (testdata/make_fixtures.py), and what we read from it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "wire/otlp.h"

namespace lockstep::otlp {
namespace {

constexpr int64_t kT0 = 1'700'000'000'000'000'000;

std::string fixture(const char* name) {
  std::ifstream file(std::string(WIRE_TESTDATA) + "/" + name, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  EXPECT_FALSE(bytes.str().empty()) << name;
  return bytes.str();
}

ResourceGroup only_group(Signal signal, const char* name) {
  Result<Batch> batch = decode(signal, fixture(name));
  if (!batch.ok()) ADD_FAILURE() << batch.error();
  if (!batch.ok() || batch->groups.size() != 1) return {};
  ResourceGroup group = batch->groups[0];
  EXPECT_EQ(group.resource, (Attributes{{"service.name", "trainer"},
                                        {"host.name", "node-17"},
                                        {"lockstep.rank", 5},
                                        {"gpu.present", true},
                                        {"load", 0.25},
                                        {"devices", ValueList{"gpu0", "gpu1"}}}));
  EXPECT_EQ(group.scope_name, "fixtures");
  EXPECT_EQ(group.scope_version, "1.2.3");
  return group;
}

const TraceId kTrace{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
const SpanId kSpan{0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18};

TEST(OtlpFromSdk, ReadsLogs) {
  ResourceGroup group = only_group(Signal::kLogs, "sdk_logs.bin");
  ASSERT_EQ(group.logs.size(), 2u);
  const LogRecord& warning = group.logs[0];
  EXPECT_EQ(warning.time_unix_ns, kT0);
  EXPECT_EQ(warning.observed_unix_ns, kT0 + 5);
  EXPECT_EQ(warning.severity, 13);
  EXPECT_EQ(warning.severity_text, "WARN");
  EXPECT_EQ(warning.body, Value("loss is NaN"));
  EXPECT_EQ(warning.trace_id, kTrace);
  EXPECT_EQ(warning.span_id, kSpan);
  EXPECT_EQ(warning.flags, 1u);
  ASSERT_EQ(warning.attributes.size(), 5u);
  EXPECT_EQ(find_int(warning.attributes, "step"), 12);
  EXPECT_TRUE(std::isnan(std::get<double>(find(warning.attributes, "loss")->data)));
  EXPECT_EQ(*find(warning.attributes, "ok"), Value(false));
  EXPECT_EQ(*find(warning.attributes, "tags"), Value(ValueList{"a", "b"}));
  EXPECT_EQ(*find(warning.attributes, "counts"), Value(ValueList{1, -1, INT64_MAX}));

  LogRecord event;
  event.time_unix_ns = kT0 + 1;
  event.observed_unix_ns = kT0 + 6;
  event.severity = 9;
  event.event_name = "train.step";
  event.body = Attributes{{"nested", Attributes{{"list", ValueList{1, 2.5, "three", true}}}},
                          {"raw", Value::Bytes{std::string("\0\xff", 2)}}};
  EXPECT_EQ(group.logs[1], event);
}

TEST(OtlpFromSdk, ReadsSpans) {
  Span span;
  span.trace_id = kTrace;
  span.span_id = kSpan;
  span.parent_span_id = {0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28};
  span.trace_state = "vendor=x1";
  span.name = "step 12";
  span.kind = 3;
  span.start_unix_ns = kT0;
  span.end_unix_ns = kT0 + 7;
  span.attributes = {{"step", 12}};
  span.events = {{kT0 + 2, "checkpoint", {{"bytes", 4096}}}};
  span.links = {{kTrace, {0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38}, {{"why", "follows"}}}};
  span.status_code = 2;
  span.status_message = "NCCL timeout";
  EXPECT_EQ(only_group(Signal::kSpans, "sdk_spans.bin").spans, std::vector<Span>{span});
}

TEST(OtlpFromSdk, ReadsEveryKindOfMetric) {
  auto point = [](const char* name, const char* unit, MetricKind kind) {
    MetricPoint made;
    made.name = name;
    made.unit = unit;
    made.kind = kind;
    made.start_unix_ns = kT0;
    made.time_unix_ns = kT0 + 10;
    return made;
  };
  MetricPoint power = point("gpu.power", "W", MetricKind::kGauge);
  power.start_unix_ns = 0;  // the SDK gives gauges no start
  power.attributes = {{"gpu", "0"}};
  power.value = 412.5;
  MetricPoint negative = power;
  negative.is_int = true;
  negative.int_value = -7;
  negative.value = -7;
  MetricPoint stale = point("gpu.power", "W", MetricKind::kGauge);
  stale.start_unix_ns = 0;
  stale.time_unix_ns = kT0 + 20;
  stale.flags = 1;
  MetricPoint tokens = point("tokens", "{token}", MetricKind::kSum);
  tokens.attributes = {{"gpu", "0"}};
  tokens.temporality = Temporality::kCumulative;
  tokens.monotonic = true;
  tokens.is_int = true;
  tokens.int_value = int64_t{1} << 40;
  tokens.value = static_cast<double>(tokens.int_value);
  MetricPoint duration = point("step.duration", "s", MetricKind::kHistogram);
  duration.attributes = {{"phase", "forward"}};
  duration.temporality = Temporality::kDelta;
  duration.count = 6;
  duration.value = 42.5;
  duration.bounds = {5, 10};
  duration.buckets = {1, 2, 3};
  MetricPoint gradient = point("gradient", "1", MetricKind::kExponentialHistogram);
  gradient.attributes = {{"phase", "backward"}};
  gradient.temporality = Temporality::kCumulative;
  gradient.count = 10;
  gradient.value = -3.5;
  gradient.scale = -2;
  gradient.zero_count = 1;
  gradient.positive_offset = -7;
  gradient.buckets = {1, 0, 300};
  gradient.negative_offset = 4;
  gradient.negative_buckets = {5};
  MetricPoint latency = point("rpc.latency", "ms", MetricKind::kSummary);
  latency.count = 100;
  latency.value = 250;
  latency.bounds = {0.5, 0.99};
  latency.quantile_values = {2, 9.5};

  std::vector<MetricPoint> points = only_group(Signal::kMetrics, "sdk_metrics.bin").points;
  std::vector<MetricPoint> expected = {power, negative, stale, tokens, duration, gradient, latency};
  ASSERT_EQ(points.size(), expected.size());
  for (size_t i = 0; i < points.size(); ++i)
    EXPECT_TRUE(points[i] == expected[i]) << expected[i].name << ", point " << i;
}

TEST(OtlpFromSdk, RefusesTheSameBytesCutAnywhere) {
  for (auto [signal, name] : {std::pair{Signal::kLogs, "sdk_logs.bin"},
                              {Signal::kSpans, "sdk_spans.bin"},
                              {Signal::kMetrics, "sdk_metrics.bin"}}) {
    std::string bytes = fixture(name);
    for (size_t size = 1; size < bytes.size(); ++size) {
      std::string cut = bytes.substr(0, size);
      ASSERT_FALSE(decode(signal, cut).ok()) << name << " cut at " << size;
    }
  }
}

}  // namespace
}  // namespace lockstep::otlp
