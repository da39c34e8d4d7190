#include "wire/otlp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/protobuf_wire.h"
#include "wire/otlp_metric_walk.h"
#include "wire/test_batches.h"

namespace lockstep::otlp {
namespace {

using protobuf::WireWriter;

constexpr Signal kSignals[] = {Signal::kMetrics, Signal::kLogs, Signal::kSpans};

// A message built by hand: message(1, message(2, ...)).
std::string message(uint32_t field, std::string_view content) {
  std::string bytes;
  WireWriter(bytes).bytes(field, content);
  return bytes;
}
std::string varint(uint32_t field, uint64_t value) {
  std::string bytes;
  WireWriter(bytes).varint(field, value);
  return bytes;
}
std::string fixed64(uint32_t field, uint64_t value) {
  std::string bytes;
  WireWriter(bytes).fixed64(field, value);
  return bytes;
}
std::string request(std::string_view record) {
  return message(1, message(2, message(2, record)));
}

Batch decoded(Signal signal, std::string_view bytes) {
  Result<Batch> batch = decode(signal, bytes);
  EXPECT_TRUE(batch.ok()) << (batch.ok() ? "" : batch.error());
  return batch.ok() ? *batch : Batch{};
}
LogRecord decoded_log(std::string_view record) {
  Batch batch = decoded(Signal::kLogs, request(record));
  return batch.record_count() == 1 ? batch.groups[0].logs[0] : LogRecord{};
}
std::string error_of(Signal signal, std::string_view bytes) {
  Result<Batch> batch = decode(signal, bytes);
  return batch.ok() ? "accepted" : batch.error();
}

TEST(Otlp, KeepsEveryFieldOfEverySignalThroughARoundTrip) {
  for (Signal signal : kSignals) {
    Batch batch = test::rich_batch(signal);
    EXPECT_EQ(decoded(signal, encode(batch)), batch) << to_text(signal);
  }
}

TEST(Otlp, WritesPointsOfOneMetricThatStandTogetherAsOneMetric) {
  Batch batch = test::rich_batch(Signal::kMetrics);
  std::string bytes = encode(batch);
  size_t times = 0;
  for (size_t at = bytes.find("gpu.power"); at != std::string::npos; at = bytes.find("gpu.power", at + 1)) ++times;
  EXPECT_EQ(times, 1u);
}

TEST(Otlp, ReadsAnEmptyRequestAsAnEmptyBatch) {
  for (Signal signal : kSignals) EXPECT_EQ(decoded(signal, "").groups.size(), 0u);
}

TEST(Otlp, GivesTheResourceToEveryScopeEvenWhenItComesLast) {
  std::string resource = message(1, message(1, message(1, "host") + message(2, message(1, "node-1"))));
  std::string scopes = message(2, message(1, message(1, "a")) + message(2, "")) +
                       message(2, message(1, message(1, "b")) + message(2, ""));
  Batch batch = decoded(Signal::kLogs, message(1, scopes + resource));
  ASSERT_EQ(batch.groups.size(), 2u);
  EXPECT_EQ(batch.groups[0].scope_name, "a");
  EXPECT_EQ(batch.groups[1].scope_name, "b");
  for (const ResourceGroup& group : batch.groups) EXPECT_EQ(find_string(group.resource, "host"), "node-1");
}

TEST(Otlp, NamesTheMetricOfEveryPointEvenWhenTheNameComesLast) {
  std::string sum = message(7, message(1, fixed64(6, 7)) + varint(2, 2) + message(1, "") + varint(3, 1));
  Batch batch = decoded(Signal::kMetrics, request(sum + message(3, "By") + message(1, "bytes")));
  ASSERT_EQ(batch.record_count(), 2u);
  for (const MetricPoint& point : batch.groups[0].points) {
    EXPECT_EQ(point.name, "bytes");
    EXPECT_EQ(point.unit, "By");
    EXPECT_EQ(point.kind, MetricKind::kSum);
    EXPECT_EQ(point.temporality, Temporality::kCumulative);
    EXPECT_TRUE(point.monotonic);
  }
  EXPECT_EQ(batch.groups[0].points[0].int_value, 7);
}

TEST(Otlp, LetsTheLastKindOfAMetricWin) {
  std::string sum = message(7, message(1, "") + varint(2, 2) + varint(3, 1));
  std::string gauge = message(5, message(1, fixed64(6, 3)));
  Batch batch = decoded(Signal::kMetrics, request(sum + gauge));
  ASSERT_EQ(batch.record_count(), 1u);
  EXPECT_EQ(batch.groups[0].points[0].kind, MetricKind::kGauge);
  EXPECT_EQ(batch.groups[0].points[0].temporality, Temporality::kUnspecified);
  EXPECT_FALSE(batch.groups[0].points[0].monotonic);
}

TEST(Otlp, JoinsAListThatIsWrittenInPieces) {
  std::string one = message(5, message(1, varint(3, 1)));
  std::string two = message(5, message(1, varint(3, 2)));
  EXPECT_EQ(decoded_log(message(5, one + two)).body, Value(ValueList{1, 2}));
  EXPECT_EQ(decoded_log(message(5, one) + message(5, two)).body, Value(ValueList{1, 2}));
  EXPECT_EQ(decoded_log(message(5, one + message(1, "text") + two)).body, Value(ValueList{2}));
}

TEST(Otlp, ReadsAttributesOfAPointThatDoNotStandTogether) {
  std::string bytes;
  protobuf::WireWriter out(bytes);
  const size_t group = out.begin(1), scope = out.begin(2), metric = out.begin(2), gauge = out.begin(5),
               point = out.begin(1);
  put_attribute(bytes, 7, {"a", 1});
  out.fixed64(3, 5);
  put_attribute(bytes, 7, {"b", "two"});
  out.real(4, 2.5);
  put_attribute(bytes, 7, {"c", true});
  for (size_t began : {point, gauge, metric, scope, group}) out.end(began);
  const Result<Batch> batch = decode(Signal::kMetrics, bytes);
  ASSERT_TRUE(batch.ok()) << batch.error();
  ASSERT_EQ(batch->record_count(), 1u);
  EXPECT_EQ(batch->groups[0].points[0].attributes, (Attributes{{"a", 1}, {"b", "two"}, {"c", true}}));
  EXPECT_EQ(batch->groups[0].points[0].value, 2.5);
}

TEST(Otlp, RefusesAnExemplarThatIsMalformed) {
  std::string bytes;
  protobuf::WireWriter out(bytes);
  const size_t group = out.begin(1), scope = out.begin(2), metric = out.begin(2), gauge = out.begin(5),
               point = out.begin(1);
  out.bytes(5, "\x11\x01");  // a time cut short
  for (size_t began : {point, gauge, metric, scope, group}) out.end(began);
  EXPECT_FALSE(decode_metrics(bytes).ok());
}

TEST(OtlpMetrics, MakesObjectsOnlyOfPointsThatAreAskedForAndKeepsEveryResource) {
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(2);
  for (size_t i = 0; i < 2; ++i) {
    batch.groups[i].resource = {{"host.name", i == 0 ? "n0" : "n1"}};
    batch.groups[i].points.resize(2);
    batch.groups[i].points[0].name = i == 0 ? "wanted" : "other";
    batch.groups[i].points[1].name = "other";
  }
  const std::string bytes = encode(batch);
  const Result<MetricsRequest> request = decode_metrics(bytes);
  ASSERT_TRUE(request.ok()) << request.error();
  EXPECT_EQ(request->points.size(), 4u);
  EXPECT_EQ(to_batch(*request), batch);
  const Batch wanted = to_batch(*request, [](std::string_view name) { return name == "wanted"; });
  ASSERT_EQ(wanted.groups.size(), 2u);
  EXPECT_EQ(wanted.record_count(), 1u);
  EXPECT_EQ(wanted.groups[0].points[0], batch.groups[0].points[0]);
  EXPECT_EQ(wanted.groups[1].resource, batch.groups[1].resource);
}

TEST(OtlpMetrics, PointsThatAreNotKeptAreOfNoMetric) {
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(1);
  for (int i = 0; i < 5; ++i) {
    MetricPoint& point = batch.groups[0].points.emplace_back();
    point.name = i < 3 ? "a" : "b";
    point.value = i;
  }
  const std::string bytes = encode(batch);
  MetricsRequest request = *decode_metrics(bytes);
  request.keep_points({false, true, false, false, true});
  const Batch kept = to_batch(request);
  ASSERT_EQ(kept.record_count(), 2u);
  EXPECT_EQ(kept.groups[0].points[0].value, 1);
  EXPECT_EQ(kept.groups[0].points[1].name, "b");
  EXPECT_EQ(kept.groups[0].points[1].value, 4);
}

TEST(Otlp, SkipsFieldsItDoesNotKnowAndKnownFieldsOfAnotherType) {
  std::string group = "\xdb\x06" + message(3, "inside") + "\xdc\x06";  // field 107, group
  std::string unknown =
      varint(100, 1) + fixed64(101, 2) + message(102, "x") + std::string("\xbd\x06\1\2\3\4", 6) + group;
  std::string severity_as_text = message(2, "WARN");
  EXPECT_EQ(decoded_log(unknown + severity_as_text + message(3, "kept") + unknown).severity_text, "kept");
}

TEST(Otlp, ReadsBucketsPackedAndUnpacked) {
  auto real = [](double value) { return std::bit_cast<uint64_t>(value); };
  std::string packed_counts = fixed64(1, 4).substr(1) + fixed64(1, 5).substr(1);
  std::string point =
      fixed64(6, 3) + message(6, packed_counts) + fixed64(7, real(0.5)) + message(7, fixed64(1, real(1.5)).substr(1));
  Batch batch = decoded(Signal::kMetrics, request(message(9, message(1, point))));
  ASSERT_EQ(batch.record_count(), 1u);
  EXPECT_EQ(batch.groups[0].points[0].buckets, (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_EQ(batch.groups[0].points[0].bounds, (std::vector<double>{0.5, 1.5}));

  std::string buckets = varint(1, 13) + varint(2, 300) + message(2, std::string("\x01\xac\x02", 3));
  batch = decoded(Signal::kMetrics, request(message(10, message(1, varint(6, 3) + message(8, buckets)))));
  ASSERT_EQ(batch.record_count(), 1u);
  EXPECT_EQ(batch.groups[0].points[0].scale, -2);
  EXPECT_EQ(batch.groups[0].points[0].positive_offset, -7);
  EXPECT_EQ(batch.groups[0].points[0].buckets, (std::vector<uint64_t>{300, 1, 300}));
  EXPECT_NE(error_of(Signal::kMetrics, request(message(9, message(1, message(6, "seven b"))))), "accepted");
}

TEST(Otlp, SaysNanForAHistogramWithoutASumAndSendsNoSumOn) {
  Batch batch = decoded(Signal::kMetrics, request(message(9, message(1, fixed64(4, 2)))));
  ASSERT_EQ(batch.record_count(), 1u);
  EXPECT_TRUE(std::isnan(batch.groups[0].points[0].value));
  EXPECT_EQ(encode(batch), request(message(9, message(1, fixed64(4, 2)))));
}

TEST(Otlp, KeepsATimePastTheYear2262InTheFuture) {
  EXPECT_EQ(decoded_log(fixed64(1, UINT64_MAX)).time_unix_ns, INT64_MAX);
}

TEST(Otlp, TakesAnEmptyIdAsZeroAndRefusesAnyOtherWrongLength) {
  EXPECT_EQ(decoded_log(message(9, std::string(16, 'x')) + message(9, "")).trace_id, TraceId{});
  EXPECT_EQ(error_of(Signal::kLogs, request(message(9, std::string(15, 'x')))),
            "otlp logs: a trace id that is not 16 bytes long at byte 23 of 23");
  EXPECT_EQ(error_of(Signal::kSpans, request(message(4, std::string(9, 'x')))),
            "otlp spans: a span id that is not 8 bytes long at byte 17 of 17");
}

TEST(Otlp, NamesWhatIsMalformedAndWhere) {
  EXPECT_EQ(error_of(Signal::kLogs, "\x0a\x05xx"), "otlp logs: a length that goes past the end at byte 2 of 4");
  EXPECT_EQ(error_of(Signal::kLogs, std::string_view("\0", 1)), "otlp logs: field number 0 at byte 1 of 1");
  EXPECT_EQ(error_of(Signal::kSpans, "\x0f"), "otlp spans: an unknown wire type at byte 1 of 1");
  EXPECT_EQ(error_of(Signal::kSpans, "\x0c"), "otlp spans: an end of a group that never began at byte 1 of 1");
  EXPECT_EQ(error_of(Signal::kMetrics, "\x1b"), "otlp metrics: a group that does not end at byte 1 of 1");
  EXPECT_EQ(error_of(Signal::kMetrics, "\x10" + std::string(11, '\xff')),
            "otlp metrics: a number longer than its type at byte 11 of 12");
  EXPECT_EQ(error_of(Signal::kLogs, "not protobuf at all").find('\n'), std::string::npos);
}

// Every record cut at every byte, with the lengths around it put right again: only a cut between two fields leaves a
// record that protobuf calls whole.
TEST(Otlp, RefusesARecordThatIsCutInsideAField) {
  for (Signal signal : kSignals) {
    Batch batch = decoded(signal, encode(test::rich_batch(signal)));
    std::string bytes = encode(batch);
    protobuf::WireError error;
    protobuf::WireReader groups(bytes, error);
    ASSERT_TRUE(groups.next());
    protobuf::WireReader group = groups.message();
    ASSERT_TRUE(group.next() && (group.skip(), group.next()));  // past the resource
    protobuf::WireReader records = group.message();
    ASSERT_TRUE(records.next());  // past the scope
    records.skip();
    while (records.next()) {
      std::string_view record = records.bytes();
      std::vector<bool> whole(record.size() + 1);
      whole[0] = true;
      protobuf::WireReader fields(record, error);
      while (fields.next()) {
        fields.skip();
        whole[record.size() - fields.left()] = true;
      }
      for (size_t size = 0; size < record.size(); ++size) {
        std::string cut = request(record.substr(0, size));
        ASSERT_EQ(decode(signal, cut).ok(), whole[size])
            << to_text(signal) << " cut at " << size << " of " << record.size();
      }
    }
  }
}

std::string nested_lists(int depth) {
  std::string value = varint(3, 1);
  for (int i = 1; i < depth; ++i) value = message(5, message(1, value));
  return value;
}
std::string nested_maps(int depth) {
  std::string value = varint(3, 1);
  for (int i = 1; i < depth; ++i) value = message(6, message(1, message(2, value)));
  return value;
}

TEST(Otlp, RefusesValuesNestedDeeperThanTheLimit) {
  for (auto nested : {nested_lists, nested_maps}) {
    EXPECT_TRUE(decode(Signal::kLogs, request(message(5, nested(kNestingMax)))).ok());
    EXPECT_NE(error_of(Signal::kLogs, request(message(5, nested(kNestingMax + 1)))).find("nested too deeply"),
              std::string::npos);
    EXPECT_NE(error_of(Signal::kLogs, request(message(5, nested(10'000)))).find("nested too deeply"),
              std::string::npos);
  }
  std::string groups(1'000'000, '\x1b');
  EXPECT_NE(error_of(Signal::kLogs, groups).find("nested too deeply"), std::string::npos);
}

TEST(Otlp, RefusesToMultiplyALargeResourceOrNameByManySmallParts) {
  std::string resource = message(1, message(1, message(1, std::string(1 << 20, 'k'))));
  std::string scopes;
  for (int i = 0; i < 100'000; ++i) scopes += message(2, message(2, ""));
  EXPECT_NE(error_of(Signal::kLogs, message(1, resource + scopes)).find("a resource too large"), std::string::npos);

  std::string points;
  for (int i = 0; i < 100'000; ++i) points += message(1, "");
  std::string metric = message(5, points) + message(1, std::string(1 << 20, 'n'));
  EXPECT_NE(error_of(Signal::kMetrics, request(metric)).find("a name too long"), std::string::npos);
}

TEST(Otlp, StaysLinearOnManySmallPiecesOfOneList) {
  std::string point;
  for (int i = 0; i < 300'000; ++i) point += message(6, std::string(8, '\1'));
  Batch batch = decoded(Signal::kMetrics, request(message(9, message(1, point))));
  ASSERT_EQ(batch.record_count(), 1u);
  EXPECT_EQ(batch.groups[0].points[0].buckets.size(), 300'000u);
}

TEST(Otlp, AnswersWithNothingWhenAllWasTaken) {
  for (Signal signal : kSignals) {
    EXPECT_EQ(encode_response(signal, 0, ""), "");
    EXPECT_EQ(encode_response_json(signal, 0, ""), "{}");
  }
  EXPECT_EQ(decode_response("")->rejected, 0);
}

TEST(Otlp, SaysInItsAnswerWhatWasRejected) {
  Result<PartialSuccess> partial = decode_response(encode_response(Signal::kLogs, 300, "too old"));
  ASSERT_TRUE(partial.ok());
  EXPECT_EQ(partial->rejected, 300);
  EXPECT_EQ(partial->message, "too old");
  EXPECT_EQ(encode_response_json(Signal::kLogs, 3, "too old"),
            R"({"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"too old"}})");
  EXPECT_EQ(encode_response_json(Signal::kSpans, 3, ""), R"({"partialSuccess":{"rejectedSpans":"3"}})");
  EXPECT_EQ(encode_response_json(Signal::kMetrics, 0, "slow down"),
            R"({"partialSuccess":{"errorMessage":"slow down"}})");
  EXPECT_FALSE(decode_response("\x0a\x05").ok());
}

TEST(Otlp, WritesAnErrorAsAStatus) {
  EXPECT_EQ(encode_status(3, "bad"), std::string("\x08\x03\x12\x03"
                                                 "bad"));
  EXPECT_EQ(encode_status_json(3, "a \"bad\" one"), R"({"code":3,"message":"a \"bad\" one"})");
}

// What decoding takes of the server's memory, where there is enough.
uint64_t taken_by(const Batch& batch) {
  MemoryBudget budget(8ull << 30, [] { return 0; });
  MemoryLease lease(&budget, MemoryUse::kDecoding);
  const Result<Batch> read = decode(batch.signal, encode(batch), &lease);
  EXPECT_TRUE(read.ok()) << read.error();
  EXPECT_TRUE(read.ok() && *read == batch);
  return lease.bytes();
}

// As much as its parts are in memory; besides, what is taken ahead.
void expect_taken(uint64_t taken, uint64_t need) {
  EXPECT_GE(taken, need);
  EXPECT_LE(taken, need + need / 2 + (32u << 20));
}

Batch batch_of(Signal signal) {
  Batch batch;
  batch.signal = signal;
  batch.groups.resize(1);
  return batch;
}

TEST(OtlpMemory, PointsArePaidForWithTheNameAndUnitThatEachOfThemHas) {
  constexpr size_t kPoints = 40'000, kText = 400;
  Batch batch = batch_of(Signal::kMetrics);
  for (size_t i = 0; i < kPoints; ++i) {
    MetricPoint& point = batch.groups[0].points.emplace_back();
    point.name = std::string(kText, i < kPoints / 2 ? 'a' : 'b');  // two metrics
    point.unit = std::string(kText, 'u');
    point.kind = MetricKind::kGauge;
    point.time_unix_ns = 1;
  }
  expect_taken(taken_by(batch), kPoints * (sizeof(MetricPoint) + 2 * kText));
}

TEST(OtlpMemory, BucketsBoundsAndQuantilesArePaidFor) {
  constexpr size_t kPoints = 20'000, kBuckets = 100;
  Batch batch = batch_of(Signal::kMetrics);
  for (size_t i = 0; i < kPoints; ++i) {
    MetricPoint& point = batch.groups[0].points.emplace_back();
    point.name = "a";
    point.kind = MetricKind::kHistogram;
    point.time_unix_ns = 1;
    point.buckets.assign(kBuckets, 1);
    point.count = kBuckets;
    point.bounds.resize(kBuckets - 1);
    for (size_t k = 0; k + 1 < kBuckets; ++k) point.bounds[k] = static_cast<double>(k);
  }
  expect_taken(taken_by(batch), kPoints * (sizeof(MetricPoint) + (2 * kBuckets - 1) * 8));
}

TEST(OtlpMemory, LogsSpansAndTheirAttributesArePaidFor) {
  constexpr size_t kRecords = 30'000, kText = 500;
  const Attributes attributes = {{std::string(kText, 'k'), Value(std::string(kText, 'v'))}};
  Batch logs = batch_of(Signal::kLogs);
  for (size_t i = 0; i < kRecords; ++i) {
    LogRecord& record = logs.groups[0].logs.emplace_back();
    record.body = Value(std::string(kText, 'b'));
    record.attributes = attributes;
  }
  expect_taken(taken_by(logs), kRecords * (sizeof(LogRecord) + sizeof(Attribute) + 3 * kText));
  Batch spans = batch_of(Signal::kSpans);
  for (size_t i = 0; i < kRecords; ++i) {
    Span& span = spans.groups[0].spans.emplace_back();
    span.trace_id = {1};
    span.span_id = {1};
    span.name = std::string(kText, 'n');
    span.attributes = attributes;
  }
  expect_taken(taken_by(spans), kRecords * (sizeof(Span) + sizeof(Attribute) + 3 * kText));
}

}  // namespace
}  // namespace lockstep::otlp
