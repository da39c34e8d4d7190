// The receivers end to end over loopback, with a sink that remembers what it was given.
#include "ingest/otlp/otlp_receivers.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/mutex.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "ingest/otlp/otlp_handler.h"
#include "model/events.h"
#include "net/grpc_message.h"
#include "net/http_client.h"
#include "net/testing/grpc_client.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

using testing::GrpcTestClient;
using testing::GrpcTestResponse;

constexpr int64_t kHour = 3'600'000'000'000;
const char* const kPaths[] = {"/v1/metrics", "/v1/logs", "/v1/traces"};
const char* const kMethods[] = {"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
                                "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
                                "/opentelemetry.proto.collector.trace.v1.TraceService/Export"};

class FakeSink final : public IngestSink {
 public:
  AcceptResult accept(Signal signal, Batch batch, std::string_view bytes, int64_t received_unix_ns) override {
    MutexLock lock(mutex_);
    EXPECT_EQ(batch.signal, signal);
    EXPECT_GT(received_unix_ns, 0);
    if (next_.error == AcceptError::kNone) {
      // The log gets what the stores get.
      Result<Batch> logged = otlp::decode(signal, bytes);
      EXPECT_TRUE(logged && *logged == batch) << (logged ? "the bytes are another batch" : logged.error());
      accepted_.push_back(std::move(batch));
      bytes_.emplace_back(bytes);
    }
    return next_;
  }
  void answer_with(AcceptResult next) {
    MutexLock lock(mutex_);
    next_ = std::move(next);
  }
  std::vector<Batch> accepted() {
    MutexLock lock(mutex_);
    return accepted_;
  }
  std::vector<std::string> bytes() {
    MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  Mutex mutex_;
  AcceptResult next_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Batch> accepted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::string> bytes_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct Receivers {
  SystemClock clock;
  Counters counters{kServerCounters};
  FakeSink sink;
  std::unique_ptr<OtlpReceivers> receivers;

  explicit Receivers(OtlpReceiversOptions options = {}) {
    options.http = {"127.0.0.1", 0};
    options.grpc = {"127.0.0.1", 0};
    Result<std::unique_ptr<OtlpReceivers>> started = OtlpReceivers::start(options, sink, clock, counters);
    EXPECT_TRUE(started) << started.error();
    receivers = std::move(*started);
  }
  ~Receivers() {
    receivers->stop();
    expect_nothing_lost_unseen();
  }

  // received = passed + refused + dropped, per receiver and signal, whatever the test did.
  void expect_nothing_lost_unseen() const {
    for (const char* receiver : {"otlp_http", "otlp_grpc"}) {
      for (const char* signal : {"metrics", "logs", "spans"}) {
        std::string labels = format("receiver=\"%s\",signal=\"%s\"", receiver, signal);
        int64_t refused_or_dropped = 0;
        for (const char* reason : {"future_time", "bad_train_step", "bad_rank_status", "bad_comm_init", "bad_identity",
                                   "store", "overloaded", "unavailable"}) {
          std::string with_reason = format("%s,reason=\"%s\"", labels.c_str(), reason);
          refused_or_dropped += counters.value("lockstep_ingest_refused_records_total", with_reason) +
                                counters.value("lockstep_ingest_dropped_records_total", with_reason);
        }
        EXPECT_EQ(counters.value("lockstep_ingest_received_records_total", labels),
                  counters.value("lockstep_ingest_passed_records_total", labels) + refused_or_dropped)
            << labels;
      }
    }
    EXPECT_EQ(counters.sum("lockstep_ingest_received_records_total"),
              counters.sum("lockstep_ingest_passed_records_total") +
                  counters.sum("lockstep_ingest_refused_records_total") +
                  counters.sum("lockstep_ingest_dropped_records_total"));
  }

  HttpResponse post(const std::string& path, const std::string& content_type, const std::string& body,
                    const std::string& encoding = "", const std::string& method = "POST") {
    HttpRequest request{method, path, {}, body};
    if (!content_type.empty()) request.headers.emplace_back("Content-Type", content_type);
    if (!encoding.empty()) request.headers.emplace_back("Content-Encoding", encoding);
    Result<HttpResponse> answer = HttpClient(*parse_url("http://" + receivers->http_address(), 4318)).send(request);
    EXPECT_TRUE(answer) << answer.error();
    return answer ? *answer : HttpResponse{};
  }
  GrpcTestResponse call(const std::string& path, const std::string& frame, const std::string& encoding = "") {
    GrpcTestClient client(receivers->grpc_address());
    GrpcTestClient::Request request;
    request.path = path;
    request.data = frame;
    request.encoding = encoding;
    return client.wait(client.start(request));
  }
  int64_t undecodable(const char* receiver, const char* reason) const {
    return counters.value("lockstep_ingest_undecodable_requests_total",
                          format("receiver=\"%s\",reason=\"%s\"", receiver, reason));
  }
  int64_t requests(const char* receiver, const char* signal, int code) const {
    return counters.value("lockstep_ingest_requests_total",
                          format("receiver=\"%s\",signal=\"%s\",code=\"%d\"", receiver, signal, code));
  }
};

// Three records of a signal, now.
Batch batch_of(Signal signal) {
  int64_t now_ns = SystemClock().unix_ns();
  Batch batch{signal, {ResourceGroup{}}};
  ResourceGroup& group = batch.groups[0];
  group.resource = {{"service.name", "test"}, {"host.name", "gpu-017"}};
  group.scope_name = "scope";
  for (int i = 0; i < 3; ++i) {
    if (signal == Signal::kMetrics) {
      MetricPoint point;
      point.name = "temperature";
      point.unit = "Cel";
      point.time_unix_ns = now_ns;
      point.value = 20.5 + i;
      point.attributes = {{"gpu", i}};
      group.points.push_back(point);
    } else if (signal == Signal::kLogs) {
      LogRecord record;
      record.time_unix_ns = now_ns;
      record.body = Value("line " + std::to_string(i));
      group.logs.push_back(record);
    } else {
      Span span;
      span.trace_id[0] = 1;
      span.span_id[7] = static_cast<uint8_t>(i + 1);
      span.name = "step";
      span.start_unix_ns = now_ns - 1000;
      span.end_unix_ns = now_ns;
      group.spans.push_back(span);
    }
  }
  return batch;
}

std::string json_of(Signal signal) {
  std::string now = std::to_string(SystemClock().unix_ns());
  std::string resource = R"("resource":{"attributes":[{"key":"service.name","value":{"stringValue":"json"}}]})";
  switch (signal) {
    case Signal::kMetrics:
      return R"({"resourceMetrics":[{)" + resource +
             R"(,"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[{"timeUnixNano":")" + now +
             R"(","asDouble":1.5}]}}]}]}]})";
    case Signal::kLogs:
      return R"({"resourceLogs":[{)" + resource + R"(,"scopeLogs":[{"logRecords":[{"timeUnixNano":")" + now +
             R"(","body":{"stringValue":"hello"}}]}]}]})";
    case Signal::kSpans:
      return R"({"resourceSpans":[{)" + resource +
             R"(,"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"s","startTimeUnixNano":")" +
             now + R"(","endTimeUnixNano":")" + now + R"("}]}]}]})";
  }
  return {};
}

TEST(OtlpReceivers, TakesEverySignalInProtobufInEveryEncoding) {
  Receivers receivers;
  std::vector<Batch> sent;
  for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans}) {
    for (Encoding encoding : {Encoding::kIdentity, Encoding::kGzip, Encoding::kZstd}) {
      SCOPED_TRACE(format("%s %s", to_text(signal), to_text(encoding)));
      ASSERT_TRUE(available(encoding));
      sent.push_back(batch_of(signal));
      std::string bytes = otlp::encode(sent.back());
      HttpResponse answer =
          receivers.post(kPaths[static_cast<int>(signal)], "application/x-protobuf", *compress(encoding, bytes),
                         encoding == Encoding::kIdentity ? "" : to_text(encoding));
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.header("content-type"), "application/x-protobuf");
      EXPECT_EQ(answer.body, "");
      EXPECT_EQ(receivers.sink.bytes().back(), bytes);  // as sent, not encoded again
    }
    EXPECT_EQ(receivers.counters.value("lockstep_ingest_passed_records_total",
                                       format("receiver=\"otlp_http\",signal=\"%s\"", to_text(signal))),
              9);
    EXPECT_EQ(receivers.requests("otlp_http", to_text(signal), 200), 3);
  }
  EXPECT_EQ(receivers.sink.accepted(), sent);
}

TEST(OtlpReceivers, TakesEverySignalInJsonAndLogsItAsProtobuf) {
  Receivers receivers;
  size_t count = 0;
  for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans}) {
    for (Encoding encoding : {Encoding::kIdentity, Encoding::kGzip, Encoding::kZstd}) {
      SCOPED_TRACE(format("%s %s", to_text(signal), to_text(encoding)));
      HttpResponse answer = receivers.post(kPaths[static_cast<int>(signal)], "application/json; charset=utf-8",
                                           *compress(encoding, json_of(signal)), to_text(encoding));
      EXPECT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(answer.header("content-type"), "application/json");
      EXPECT_EQ(answer.body, "{}");
      ASSERT_EQ(receivers.sink.accepted().size(), ++count);  // FakeSink has compared the protobuf with the batch
      EXPECT_EQ(receivers.sink.accepted().back().record_count(), 1u);
    }
  }
}

TEST(OtlpReceivers, TakesEverySignalOverGrpcInEveryEncoding) {
  Receivers receivers;
  std::vector<Batch> sent;
  for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans}) {
    for (Encoding encoding : {Encoding::kIdentity, Encoding::kGzip, Encoding::kZstd}) {
      SCOPED_TRACE(format("%s %s", to_text(signal), to_text(encoding)));
      sent.push_back(batch_of(signal));
      std::string frame = grpc_frame(*compress(encoding, otlp::encode(sent.back())), encoding != Encoding::kIdentity);
      GrpcTestResponse answer = receivers.call(kMethods[static_cast<int>(signal)], frame, to_text(encoding));
      EXPECT_EQ(answer.status(), 0) << answer.message();
      EXPECT_EQ(answer.data, grpc_frame(""));
    }
    EXPECT_EQ(receivers.requests("otlp_grpc", to_text(signal), 0), 3);
  }
  EXPECT_EQ(receivers.sink.accepted(), sent);
}

TEST(OtlpReceivers, AnEmptyRequestIsFineAndReachesNobody) {
  Receivers receivers;
  EXPECT_EQ(receivers.post("/v1/logs", "application/x-protobuf", "").status, 200);
  EXPECT_EQ(receivers.post("/v1/logs", "application/json", "{}").status, 200);
  EXPECT_EQ(receivers.call(kMethods[1], grpc_frame("")).status(), 0);
  EXPECT_TRUE(receivers.sink.accepted().empty());
}

TEST(OtlpReceivers, RefusesWrongEnvelopesWithOneLine) {
  Receivers receivers;
  std::string bytes = otlp::encode(batch_of(Signal::kLogs));
  for (const char* type : {"", "text/plain", "application/xml", "application/x-protobuffer", "application/grpc"}) {
    HttpResponse answer = receivers.post("/v1/logs", type, bytes);
    EXPECT_EQ(answer.status, 415) << type;
    EXPECT_EQ(std::count(answer.body.begin(), answer.body.end(), '\n'), 1) << answer.body;
  }
  EXPECT_EQ(receivers.post("/v1/logs", "Application/X-Protobuf", bytes).status, 200);
  EXPECT_EQ(receivers.post("/v1/logs", "application/x-protobuf", bytes, "br").status, 415);
  EXPECT_EQ(receivers.post("/v1/other", "application/x-protobuf", bytes).status, 404);
  HttpResponse get = receivers.post("/v1/logs", "", "", "", "GET");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.header("allow"), "POST");
  EXPECT_EQ(receivers.sink.accepted().size(), 1u);
  EXPECT_EQ(receivers.undecodable("otlp_http", "content_type"), 5);
  EXPECT_EQ(receivers.undecodable("otlp_http", "content_encoding"), 1);
  EXPECT_EQ(receivers.requests("otlp_http", "logs", 415), 6);
}

TEST(OtlpReceivers, RefusesMalformedContentInTheRequestsOwnEncoding) {
  Receivers receivers;
  std::string bytes = otlp::encode(batch_of(Signal::kLogs));
  HttpResponse truncated = receivers.post("/v1/logs", "application/x-protobuf", bytes.substr(0, bytes.size() - 3));
  EXPECT_EQ(truncated.status, 400);
  EXPECT_EQ(truncated.header("content-type"), "application/x-protobuf");
  EXPECT_EQ(truncated.body.substr(0, 3), "\x08\x03\x12");  // google.rpc.Status: code 3, then the message
  HttpResponse json = receivers.post("/v1/logs", "application/json", R"({"resourceLogs": [)");
  EXPECT_EQ(json.status, 400);
  EXPECT_EQ(json.header("content-type"), "application/json");
  EXPECT_NE(json.body.find("\"code\":3"), std::string::npos) << json.body;
  EXPECT_NE(json.body.find("\"message\":"), std::string::npos) << json.body;
  EXPECT_EQ(receivers.post("/v1/logs", "application/x-protobuf", "not gzip", "gzip").status, 400);
  EXPECT_EQ(
      receivers.post("/v1/logs", "application/x-protobuf", compress(Encoding::kZstd, bytes)->substr(0, 20), "zstd")
          .status,
      400);
  EXPECT_EQ(receivers.call(kMethods[1], grpc_frame(bytes.substr(0, bytes.size() - 3))).status(), kGrpcInvalidArgument);
  EXPECT_EQ(receivers.call(kMethods[1], grpc_frame("not gzip", true), "gzip").status(), kGrpcInvalidArgument);
  EXPECT_EQ(receivers.call("/opentelemetry.proto.collector.logs.v1.LogsService/Other", grpc_frame("")).status(),
            kGrpcUnimplemented);
  EXPECT_EQ(receivers.undecodable("otlp_http", "protobuf"), 1);
  EXPECT_EQ(receivers.undecodable("otlp_http", "json"), 1);
  EXPECT_EQ(receivers.undecodable("otlp_http", "compression"), 2);
  EXPECT_EQ(receivers.undecodable("otlp_grpc", "protobuf"), 1);
  EXPECT_EQ(receivers.undecodable("otlp_grpc", "compression"), 1);
  EXPECT_EQ(receivers.requests("otlp_http", "logs", 400), 4);
  EXPECT_TRUE(receivers.sink.accepted().empty());
  EXPECT_EQ(receivers.counters.sum("lockstep_ingest_received_records_total"), 0);
}

TEST(OtlpReceivers, SurvivesHostileBodies) {
  Receivers receivers;
  std::string nested;  // AnyValue in AnyValue, far deeper than any limit
  for (int i = 0; i < 100'000; ++i) nested += "[{\"arrayValue\":{\"values\":";
  std::string lengths = "\x0a\xff\xff\xff\xff\x7f";  // a field that claims 32 GiB
  for (const char* path : kPaths) {
    EXPECT_EQ(receivers.post(path, "application/x-protobuf", lengths).status, 400);
    EXPECT_EQ(receivers.post(path, "application/x-protobuf", std::string(100'000, '\xff')).status, 400);
    EXPECT_EQ(receivers.post(path, "application/x-protobuf", std::string(100'000, '\x0b')).status, 400);
    EXPECT_EQ(receivers.post(path, "application/json", nested).status, 400);
    EXPECT_EQ(receivers.post(path, "application/json", "[]").status, 400);
  }
  EXPECT_TRUE(receivers.sink.accepted().empty());
}

TEST(OtlpReceivers, RefusesWhatIsOverTheLimitAsSentOrDecompressed) {
  OtlpReceiversOptions options;
  options.body_bytes_max = 100'000;
  Receivers receivers(options);
  EXPECT_EQ(receivers.post("/v1/logs", "application/x-protobuf", std::string(100'001, 'x')).status, 413);
  for (Encoding encoding : {Encoding::kGzip, Encoding::kZstd}) {
    std::string bomb = *compress(encoding, std::string(10'000'000, '\0'));
    ASSERT_LT(bomb.size(), 100'000u);
    EXPECT_EQ(receivers.post("/v1/logs", "application/x-protobuf", bomb, to_text(encoding)).status, 413);
    EXPECT_EQ(receivers.call(kMethods[1], grpc_frame(bomb, true), to_text(encoding)).status(), kGrpcResourceExhausted);
  }
  EXPECT_EQ(receivers.call(kMethods[1], grpc_frame(std::string(100'001, 'x'))).status(), kGrpcResourceExhausted);
  EXPECT_EQ(receivers.undecodable("otlp_http", "too_large"), 2);
  EXPECT_EQ(receivers.undecodable("otlp_grpc", "too_large"), 2);
}

TEST(OtlpReceivers, TellsTheSenderToTryAgainWhereThereIsNoMemoryAndGivesItBack) {
  MemoryBudget budget(24u << 20, [] { return 0; });
  OtlpReceiversOptions options;
  options.memory = &budget;
  Receivers receivers(options);
  const std::string groups = [] {  // four bytes for a group of records
    std::string bytes;
    for (int i = 0; i < 400'000; ++i) bytes += std::string("\x0a\x02\x12\x00", 4);
    return bytes;
  }();
  for (Encoding encoding : {Encoding::kGzip, Encoding::kZstd}) {
    for (const std::string& plain : {groups, std::string(30u << 20, '\0')}) {  // too much when decoded, or before
      const std::string bomb = *compress(encoding, plain);
      HttpResponse refused = receivers.post("/v1/logs", "application/x-protobuf", bomb, to_text(encoding));
      EXPECT_EQ(refused.status, 429) << refused.body;
      EXPECT_EQ(refused.header("retry-after"), "1");
      GrpcTestResponse grpc = receivers.call(kMethods[1], grpc_frame(bomb, true), to_text(encoding));
      EXPECT_EQ(grpc.status(), kGrpcResourceExhausted);
      EXPECT_EQ(grpc.headers["grpc-status-details-bin"], grpc_retry_details(8, kMemorySpent, 1'000));
    }
  }
  std::string json = R"({"resourceLogs":[{"scopeLogs":[{"logRecords":[{})";
  for (int i = 0; i < 60'000; ++i) json += ",{}";
  EXPECT_EQ(receivers.post("/v1/logs", "application/json", json + "]}]}]}").status, 429);
  EXPECT_EQ(receivers.undecodable("otlp_http", "memory"), 5);
  EXPECT_EQ(receivers.undecodable("otlp_grpc", "memory"), 4);
  EXPECT_EQ(receivers.post("/v1/logs", "application/json", json_of(Signal::kLogs)).status, 200);
  receivers.receivers->stop();
  EXPECT_EQ(budget.taken(MemoryUse::kDecoding), 0u);
  EXPECT_EQ(budget.taken(MemoryUse::kBodies), 0u);
}

TEST(OtlpReceivers, TellsTheSenderToTryAgainWhenTheSinkCannotTakeIt) {
  Receivers receivers;
  std::string bytes = otlp::encode(batch_of(Signal::kSpans));
  receivers.sink.answer_with({AcceptError::kOverloaded, 0, "queue is full"});
  HttpResponse overloaded = receivers.post("/v1/traces", "application/x-protobuf", bytes);
  EXPECT_EQ(overloaded.status, 429);
  EXPECT_EQ(overloaded.header("retry-after"), "1");
  EXPECT_EQ(overloaded.body, otlp::encode_status(8, "queue is full"));
  GrpcTestResponse grpc = receivers.call(kMethods[2], grpc_frame(bytes));
  EXPECT_EQ(grpc.status(), kGrpcResourceExhausted);
  EXPECT_EQ(grpc.headers["grpc-status-details-bin"], grpc_retry_details(8, "queue is full", 1'000));

  receivers.sink.answer_with({AcceptError::kUnavailable, 0, "disk full"});
  HttpResponse unavailable = receivers.post("/v1/logs", "application/json", json_of(Signal::kLogs));
  EXPECT_EQ(unavailable.status, 503);
  EXPECT_EQ(unavailable.header("retry-after"), "5");
  EXPECT_EQ(unavailable.body, otlp::encode_status_json(14, "disk full"));
  EXPECT_EQ(receivers.call(kMethods[2], grpc_frame(bytes)).status(), kGrpcUnavailable);

  EXPECT_TRUE(receivers.sink.accepted().empty());
  EXPECT_EQ(receivers.counters.sum("lockstep_ingest_refused_records_total"), 3 + 3 + 1 + 3);
  EXPECT_EQ(receivers.counters.sum("lockstep_ingest_passed_records_total"), 0);
}

TEST(OtlpReceivers, ReportsRefusedRecordsAsPartialSuccessAndKeepsTheRest) {
  Receivers receivers;
  Batch batch = batch_of(Signal::kMetrics);
  batch.groups[0].points[1].time_unix_ns += 5 * kHour + kHour / 2;
  std::string line = "node gpu-017: sample 2 of 3 is 5h ahead of server time (limit 10m); kept 2, refused 1";
  HttpResponse answer = receivers.post("/v1/metrics", "application/x-protobuf", otlp::encode(batch));
  EXPECT_EQ(answer.status, 200);
  Result<otlp::PartialSuccess> partial = otlp::decode_response(answer.body);
  ASSERT_TRUE(partial) << partial.error();
  EXPECT_EQ(partial->rejected, 1);
  EXPECT_EQ(partial->message, line);
  GrpcTestResponse grpc = receivers.call(kMethods[0], grpc_frame(otlp::encode(batch)));
  EXPECT_EQ(grpc.status(), 0);
  EXPECT_EQ(otlp::decode_response(grpc.body())->message, line);
  for (const Batch& accepted : receivers.sink.accepted()) EXPECT_EQ(accepted.record_count(), 2u);
  EXPECT_EQ(receivers.counters.value("lockstep_ingest_refused_records_total",
                                     "receiver=\"otlp_http\",signal=\"metrics\",reason=\"future_time\""),
            1);

  std::string json = json_of(Signal::kSpans);
  size_t at = json.find("endTimeUnixNano\":\"") + 18;
  json.replace(at, json.find('"', at) - at, "9999999999999999999");
  HttpResponse json_answer = receivers.post("/v1/traces", "application/json", json);
  EXPECT_EQ(json_answer.status, 200) << json_answer.body;
  EXPECT_NE(json_answer.body.find("\"rejectedSpans\":"), std::string::npos) << json_answer.body;
  EXPECT_EQ(receivers.sink.accepted().size(), 2u);  // nothing was left of it
}

TEST(OtlpReceivers, RefusesEventsThatCannotBeRead) {
  Receivers receivers;
  Batch batch{Signal::kLogs, {ResourceGroup{}}};
  batch.groups[0].resource = to_resource({"job", 0, 0_rank, 8, 0, "gpu-017", ""});
  StepSummary step;
  step.step = 4_step;
  step.start_unix_ns = SystemClock().unix_ns() - 1'000'000'000;
  step.duration_ns = 1'000'000;
  LogRecord bad = to_record(step);
  std::erase_if(bad.attributes, [](const Attribute& attribute) { return attribute.key == "step"; });
  batch.groups[0].logs = {to_record(step), bad};
  Result<otlp::PartialSuccess> partial =
      otlp::decode_response(receivers.post("/v1/logs", "application/x-protobuf", otlp::encode(batch)).body);
  ASSERT_TRUE(partial) << partial.error();
  EXPECT_EQ(partial->rejected, 1);
  EXPECT_EQ(receivers.sink.accepted().at(0).groups.at(0).logs.size(), 1u);
  EXPECT_EQ(receivers.counters.value("lockstep_ingest_refused_records_total",
                                     "receiver=\"otlp_http\",signal=\"logs\",reason=\"bad_train_step\""),
            1);
}

TEST(OtlpReceivers, PassesOnWhatTheSinkRejected) {
  Receivers receivers;
  receivers.sink.answer_with({AcceptError::kNone, 2, "too many series"});
  HttpResponse answer =
      receivers.post("/v1/metrics", "application/x-protobuf", otlp::encode(batch_of(Signal::kMetrics)));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(otlp::decode_response(answer.body)->rejected, 2);
  EXPECT_EQ(otlp::decode_response(answer.body)->message, "too many series");
  EXPECT_EQ(
      receivers.counters.value("lockstep_ingest_passed_records_total", "receiver=\"otlp_http\",signal=\"metrics\""), 1);
}

TEST(OtlpReceivers, LosesNothingUnderManySendersAtOnce) {
  Receivers receivers;
  std::vector<std::thread> senders;
  for (int t = 0; t < 8; ++t) {
    senders.emplace_back([&, t] {
      Signal signal = static_cast<Signal>(t % 3);
      std::string bytes = otlp::encode(batch_of(signal));
      if (t % 2 == 0) {
        HttpClient client(*parse_url("http://" + receivers.receivers->http_address(), 4318));
        for (int i = 0; i < 50; ++i)
          EXPECT_EQ(client.send({"POST", kPaths[t % 3], {{"Content-Type", "application/x-protobuf"}}, bytes})->status,
                    200);
      } else {
        GrpcTestClient client(receivers.receivers->grpc_address());
        for (int i = 0; i < 50; ++i) EXPECT_EQ(client.call(kMethods[t % 3], bytes).status(), 0);
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(receivers.sink.accepted().size(), 400u);
  EXPECT_EQ(receivers.counters.sum("lockstep_ingest_passed_records_total"), 1200);
}

TEST(OtlpReceivers, SaysWhichDoorCannotBeOpened) {
  Receivers receivers;
  OtlpReceiversOptions options;
  options.http = {"127.0.0.1", 0};
  options.grpc = *parse_listen_address(receivers.receivers->grpc_address());
  Result<std::unique_ptr<OtlpReceivers>> second =
      OtlpReceivers::start(options, receivers.sink, receivers.clock, receivers.counters);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().substr(0, 10), "otlp_grpc:") << second.error();
}

TEST(CounterTable, HasEveryNameOnceWithHelp) {
  std::set<std::string> names;
  for (const CounterDescriptor& row : kServerCounters) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(std::string(row.help).size(), 5u) << row.name;
    bool total = std::string(row.name).ends_with("_total");
    EXPECT_EQ(total, std::string(row.type) == "counter") << row.name;
  }
}

}  // namespace
}  // namespace lockstep
