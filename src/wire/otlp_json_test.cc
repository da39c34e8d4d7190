#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "model/events.h"
#include "wire/otlp.h"

namespace lockstep::otlp {
namespace {

Batch decoded(Signal signal, std::string_view text) {
  Result<Batch> batch = decode_json(signal, text);
  EXPECT_TRUE(batch.ok()) << (batch.ok() ? "" : batch.error());
  return batch.ok() ? *batch : Batch{};
}
std::string error_of(std::string_view text, Signal signal = Signal::kLogs) {
  Result<Batch> batch = decode_json(signal, text);
  return batch.ok() ? "accepted" : batch.error();
}
std::string log_request(std::string_view record) {
  return R"({"resourceLogs":[{"scopeLogs":[{"logRecords":[)" + std::string(record) + "]}]}]}";
}
std::string metric_request(std::string_view metric) {
  return R"({"resourceMetrics":[{"scopeMetrics":[{"metrics":[)" + std::string(metric) + "]}]}]}";
}
Value body(std::string_view value) {
  Batch batch = decoded(Signal::kLogs, log_request(R"({"body":)" + std::string(value) + "}"));
  return batch.record_count() == 1 ? batch.groups[0].logs[0].body : Value("none");
}
std::string body_error(std::string_view value) {
  return error_of(log_request(R"({"body":)" + std::string(value) + "}"));
}

TEST(OtlpJson, ReadsLogs) {
  Batch batch = decoded(Signal::kLogs, R"({
    "resourceLogs": [{
      "schemaUrl": "ignored",
      "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "trainer"}}], "droppedAttributesCount": 2},
      "scopeLogs": [{
        "scope": {"name": "scope", "version": "1.0", "attributes": []},
        "logRecords": [
          {"timeUnixNano": "1700000000000000000", "observedTimeUnixNano": 1700000000000000001,
           "severityNumber": 13, "severityText": "WARN", "eventName": "train.step", "traceId": "0102030405060708090A0B0C0D0E0F10",
           "spanId": "eee19b7ec3c1b174", "flags": 1, "body": {"stringValue": "text"}, "notInOtlp": {"deep": [1]},
           "attributes": [{"key": "step", "value": {"intValue": "12"}}, {"key": "nothing", "value": {}}, {"key": "no value"}]},
          {"severityNumber": "SEVERITY_NUMBER_FATAL4", "traceId": "", "spanId": null, "body": null}
        ]}]}]})");
  ASSERT_EQ(batch.groups.size(), 1u);
  const ResourceGroup& group = batch.groups[0];
  EXPECT_EQ(group.resource, (Attributes{{"service.name", "trainer"}}));
  EXPECT_EQ(group.scope_name, "scope");
  EXPECT_EQ(group.scope_version, "1.0");
  LogRecord first;
  first.time_unix_ns = 1700000000000000000;
  first.observed_unix_ns = 1700000000000000001;
  first.severity = 13;
  first.severity_text = "WARN";
  first.event_name = "train.step";
  first.trace_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  first.span_id = {0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74};
  first.flags = 1;
  first.body = "text";
  first.attributes = {{"step", 12}, {"nothing", Value()}, {"no value", Value()}};
  LogRecord second;
  second.severity = 24;
  EXPECT_EQ(group.logs, (std::vector<LogRecord>{first, second}));
}

TEST(OtlpJson, ReadsSpans) {
  Batch batch = decoded(Signal::kSpans, R"({"resourceSpans": [{"scopeSpans": [{"spans": [
    {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "parentSpanId": "eee19b7ec3c1b173", "traceState": "a=b",
     "name": "step", "kind": "SPAN_KIND_SERVER", "startTimeUnixNano": "5", "endTimeUnixNano": "7",
     "attributes": [{"key": "rank", "value": {"intValue": 3}}],
     "events": [{"timeUnixNano": "6", "name": "event", "attributes": [{"key": "k", "value": {"boolValue": true}}]}],
     "links": [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b172", "attributes": []}],
     "status": {"code": 2, "message": "failed"}}]}]}]})");
  ASSERT_EQ(batch.record_count(), 1u);
  const Span& span = batch.groups[0].spans[0];
  EXPECT_EQ(to_hex(span.trace_id), "5b8efff798038103d269b633813fc60c");
  EXPECT_EQ(to_hex(span.span_id), "eee19b7ec3c1b174");
  EXPECT_EQ(to_hex(span.parent_span_id), "eee19b7ec3c1b173");
  EXPECT_EQ(span.trace_state, "a=b");
  EXPECT_EQ(span.name, "step");
  EXPECT_EQ(span.kind, 2);
  EXPECT_EQ(span.start_unix_ns, 5);
  EXPECT_EQ(span.end_unix_ns, 7);
  EXPECT_EQ(find_int(span.attributes, "rank"), 3);
  EXPECT_EQ(span.events, (std::vector<SpanEvent>{{6, "event", {{"k", true}}}}));
  ASSERT_EQ(span.links.size(), 1u);
  EXPECT_EQ(to_hex(span.links[0].span_id), "eee19b7ec3c1b172");
  EXPECT_EQ(span.status_code, 2);
  EXPECT_EQ(span.status_message, "failed");
}

TEST(OtlpJson, ReadsEveryKindOfMetric) {
  Batch batch = decoded(Signal::kMetrics, metric_request(R"(
    {"gauge": {"dataPoints": [{"asDouble": 1.5, "timeUnixNano": "9"}, {"asInt": "-3"}, {"asDouble": "NaN", "flags": 1}]}, "name": "g", "unit": "W"},
    {"name": "s", "sum": {"aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE", "isMonotonic": true, "dataPoints": [{"asInt": 5}]}},
    {"name": "h", "histogram": {"aggregationTemporality": 1, "dataPoints": [{"count": "6", "sum": 4, "bucketCounts": ["1", 2, "3"], "explicitBounds": [5, 7.5], "min": 1}]}},
    {"name": "h2", "histogram": {"dataPoints": [{"count": 2}]}},
    {"name": "e", "exponentialHistogram": {"dataPoints": [{"count": 4, "sum": 2.5, "scale": -1, "zeroCount": "1",
        "positive": {"offset": -2, "bucketCounts": ["1"]}, "negative": {"offset": 3, "bucketCounts": [2]}}]}},
    {"name": "q", "summary": {"dataPoints": [{"count": 4, "sum": 2.5, "quantileValues": [{"quantile": 0.5, "value": 9}, {}]}]}})"));
  ASSERT_EQ(batch.record_count(), 8u);
  const std::vector<MetricPoint>& points = batch.groups[0].points;
  EXPECT_EQ(points[0].name, "g");
  EXPECT_EQ(points[0].unit, "W");
  EXPECT_EQ(points[0].value, 1.5);
  EXPECT_EQ(points[0].time_unix_ns, 9);
  EXPECT_TRUE(points[1].is_int);
  EXPECT_EQ(points[1].int_value, -3);
  EXPECT_EQ(points[1].value, -3);
  EXPECT_TRUE(std::isnan(points[2].value));
  EXPECT_EQ(points[2].flags, 1u);
  EXPECT_EQ(points[3].kind, MetricKind::kSum);
  EXPECT_EQ(points[3].temporality, Temporality::kCumulative);
  EXPECT_TRUE(points[3].monotonic);
  EXPECT_EQ(points[4].kind, MetricKind::kHistogram);
  EXPECT_EQ(points[4].temporality, Temporality::kDelta);
  EXPECT_EQ(points[4].count, 6u);
  EXPECT_EQ(points[4].value, 4);
  EXPECT_EQ(points[4].buckets, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(points[4].bounds, (std::vector<double>{5, 7.5}));
  EXPECT_TRUE(std::isnan(points[5].value));
  EXPECT_EQ(points[6].kind, MetricKind::kExponentialHistogram);
  EXPECT_EQ(points[6].scale, -1);
  EXPECT_EQ(points[6].zero_count, 1u);
  EXPECT_EQ(points[6].positive_offset, -2);
  EXPECT_EQ(points[6].buckets, std::vector<uint64_t>{1});
  EXPECT_EQ(points[6].negative_offset, 3);
  EXPECT_EQ(points[6].negative_buckets, std::vector<uint64_t>{2});
  EXPECT_EQ(points[7].kind, MetricKind::kSummary);
  EXPECT_EQ(points[7].bounds, (std::vector<double>{0.5, 0}));
  EXPECT_EQ(points[7].quantile_values, (std::vector<double>{9, 0}));
}

TEST(OtlpJson, ReadsEveryKindOfValue) {
  EXPECT_EQ(body(R"({"boolValue": false})"), Value(false));
  EXPECT_EQ(body(R"({"intValue": "-9223372036854775808"})"), Value(INT64_MIN));
  EXPECT_EQ(body(R"({"intValue": 1e3})"), Value(1000));
  EXPECT_EQ(body(R"({"doubleValue": 3})"), Value(3.0));
  EXPECT_EQ(body(R"({"doubleValue": "-Infinity"})"), Value(-INFINITY));
  EXPECT_EQ(body(R"({"bytesValue": "AP8="})"), Value(Value::Bytes{std::string("\0\xff", 2)}));
  EXPECT_EQ(body(R"({"bytesValue": "AP8"})"), Value(Value::Bytes{std::string("\0\xff", 2)}));
  EXPECT_EQ(body(R"({"bytesValue": "-_-_"})"), Value(Value::Bytes{"\xfb\xff\xbf"}));
  EXPECT_EQ(body(R"({"bytesValue": ""})"), Value(Value::Bytes{}));
  EXPECT_EQ(body(R"({"arrayValue": {"values": [{"intValue": 1}, {}]}})"), Value(ValueList{1, Value()}));
  EXPECT_EQ(body(R"({"arrayValue": {}})"), Value(ValueList{}));
  EXPECT_EQ(body(R"({"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "b"}}]}})"),
            Value(Attributes{{"a", "b"}}));
  EXPECT_EQ(body(R"({"someLaterValue": 1})"), Value());
}

TEST(OtlpJson, NamesTheFieldThatHasTheWrongType) {
  EXPECT_EQ(body_error(R"({"intValue": "1.5"})"), "otlp logs as JSON: intValue is not a 64-bit integer");
  EXPECT_EQ(body_error(R"({"intValue": 9223372036854775808})"), "otlp logs as JSON: intValue is not a 64-bit integer");
  EXPECT_EQ(body_error(R"({"boolValue": "true"})"), "otlp logs as JSON: boolValue is not true or false");
  EXPECT_EQ(body_error(R"({"stringValue": 1})"), "otlp logs as JSON: stringValue is not a string");
  EXPECT_EQ(body_error(R"({"doubleValue": "fast"})"), "otlp logs as JSON: doubleValue is not a number");
  EXPECT_EQ(body_error(R"({"bytesValue": "A"})"), "otlp logs as JSON: bytesValue is not base64");
  EXPECT_EQ(body_error(R"({"bytesValue": "!!!!"})"), "otlp logs as JSON: bytesValue is not base64");
  EXPECT_EQ(body_error(R"("text")"), "otlp logs as JSON: a value is not an object");
  EXPECT_EQ(error_of(log_request(R"({"timeUnixNano": -1})")),
            "otlp logs as JSON: timeUnixNano is not an unsigned 64-bit integer");
  EXPECT_EQ(error_of(log_request(R"({"severityNumber": "LOUD"})")),
            "otlp logs as JSON: severityNumber is not a name this field knows");
  EXPECT_EQ(error_of(log_request(R"({"severityNumber": 4294967296})")),
            "otlp logs as JSON: severityNumber does not fit 32 bits");
  EXPECT_EQ(error_of(log_request(R"({"traceId": "5b8e"})")), "otlp logs as JSON: traceId is not 32 hex digits");
  EXPECT_EQ(error_of(log_request(R"({"spanId": "zzzzzzzzzzzzzzzz"})")),
            "otlp logs as JSON: spanId is not 16 hex digits");
  EXPECT_EQ(error_of(log_request(R"({"attributes": {}})")), "otlp logs as JSON: attributes is not an array");
  EXPECT_EQ(error_of(R"([])"), "otlp logs as JSON: the request is not an object");
  EXPECT_EQ(error_of(R"({"resourceLogs": 1})"), "otlp logs as JSON: resourceLogs is not an array");
}

TEST(OtlpJson, RefusesWhatIsNotJsonWithOneLine) {
  for (std::string_view text :
       {"", "   ", "{", "nonsense", "{'resourceLogs':[]}", R"({"resourceLogs":[],})", R"({"resourceLogs":[]} extra)",
        R"({"resourceLogs":[{]})", R"({"a":01})", R"({"a":"unfinished)", "{\"a\":\"\xff\"}", "{\"a\":\"\n\"}",
        R"({"a":NaN})", R"({"a":1e999})"}) {
    std::string error = error_of(text);
    EXPECT_EQ(error.find("otlp logs: not valid JSON: "), 0u) << text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(OtlpJson, RefusesNestingBombs) {
  std::string deep(1'000'000, '[');
  EXPECT_EQ(error_of(deep).find("otlp logs: not valid JSON: "), 0u);
  auto nested = [](int depth) {
    std::string value = R"({"intValue":1})";
    for (int i = 1; i < depth; ++i) value = R"({"arrayValue":{"values":[)" + value + "]}}";
    return value;
  };
  EXPECT_EQ(body_error(nested(kNestingMax)), "accepted");
  EXPECT_EQ(body_error(nested(kNestingMax + 1)), "otlp logs as JSON: a value is nested too deeply (limit 32)");
}

TEST(OtlpJson, RefusesToMultiplyALargeResourceByManyScopes) {
  std::string text =
      R"({"resourceLogs":[{"resource":{"attributes":[{"key":")" + std::string(1 << 20, 'k') + R"("}]},"scopeLogs":[{})";
  for (int i = 0; i < 10'000; ++i) text += ",{}";
  EXPECT_EQ(error_of(text + "]}]}"), "otlp logs as JSON: a resource is too large for its many scopes");
}

TEST(OtlpJson, ReadsTheExampleOfTheDocumentation) {
  std::ostringstream page;
  page << std::ifstream(WIRE_EVENTS_PAGE).rdbuf();
  std::string text = page.str();
  size_t begin = text.find("```json\n");
  ASSERT_NE(begin, std::string::npos);
  begin += 8;
  Batch batch = decoded(Signal::kLogs, std::string_view(text).substr(begin, text.find("```", begin) - begin));
  ASSERT_EQ(batch.record_count(), 1u);
  Result<Identity> identity = identity_from_resource(batch.groups[0].resource);
  ASSERT_TRUE(identity.ok()) << identity.error();
  EXPECT_EQ(*identity, (Identity{"llama-70b", 0, 5_rank, 64, 5, "node-17", "GPU-6cbdbcb1"}));
  Result<StepSummary> step = step_from_record(batch.groups[0].logs[0]);
  ASSERT_TRUE(step.ok()) << step.error();
  EXPECT_EQ(step->step, 12_step);
  EXPECT_EQ(step->start_unix_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(step->phase_ns[static_cast<size_t>(Phase::kBackward)], 300'000'000);
  ASSERT_EQ(step->comms.size(), 1u);
  EXPECT_EQ(step->comms[0].comm_id, CommId{0xfee0000000000000});
  EXPECT_EQ(step->comms[0].queue_ns, 12'000'000);
  ASSERT_EQ(step->flows.size(), 1u);
  EXPECT_EQ(step->flows[0].own_gpu_longest_ns, 500'000);
}

TEST(OtlpJson, AnEmptyRequestIsAnEmptyBatch) {
  for (Signal signal : {Signal::kLogs, Signal::kSpans, Signal::kMetrics}) {
    EXPECT_EQ(decoded(signal, "{}").groups.size(), 0u);
    EXPECT_EQ(decoded(signal, R"({"resourceLogs":null,"resourceSpans":null,"resourceMetrics":null})").groups.size(),
              0u);
  }
}

TEST(OtlpJson, PointsArePaidForWithTheNameAndUnitThatEachOfThemHas) {
  constexpr size_t kPoints = 20'000, kText = 1000;
  std::string points;
  for (size_t i = 0; i < kPoints; ++i) points += std::string(i == 0 ? "" : ",") + R"({"asInt":"1"})";
  const std::string text = R"({"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":")" + std::string(kText, 'n') +
                           R"(","unit":")" + std::string(kText, 'u') + R"(","gauge":{"dataPoints":[)" + points +
                           "]}}]}]}]}";
  MemoryBudget budget(8ull << 30, [] { return 0; });
  MemoryLease lease(&budget, MemoryUse::kDecoding);
  const Result<Batch> read = decode_json(Signal::kMetrics, text, &lease);
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->record_count(), kPoints);
  const uint64_t need = 12 * text.size() + kPoints * (sizeof(MetricPoint) + 2 * kText);
  EXPECT_GE(lease.bytes(), need);
  EXPECT_LE(lease.bytes(), need + need / 2 + (32u << 20));
}

}  // namespace
}  // namespace lockstep::otlp
