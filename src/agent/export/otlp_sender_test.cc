#include "agent/export/otlp_sender.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>

#include "agent/export/otlp_sender_testing.h"
#include "agent/testing.h"
#include "base/protobuf_wire.h"
#include "net/grpc_message.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using Outcome = SendResult::Outcome;
using testing::ScriptedGrpc;
using GrpcScript = std::vector<HeaderList>;
using testing::ScriptedHttp;
using HttpScript = std::vector<ScriptedHttp::Response>;
using testing::TemporaryFolder;

std::unique_ptr<OtlpSender> open_sender(const OtlpSettings& settings, const OtelVariables& environment = {}) {
  Result<OtlpTargets> targets = choose_otlp_targets(settings, environment);
  EXPECT_TRUE(targets.ok()) << targets.error();
  Result<std::unique_ptr<OtlpSender>> sender = OtlpSender::open(*targets);
  EXPECT_TRUE(sender.ok());
  return std::move(sender).value();
}

std::string payload() {
  Batch batch;
  batch.groups.resize(1);
  batch.groups[0].logs.resize(3);
  return otlp::encode(batch);
}

TEST(OtlpSender, SpeaksOtlpOverHttp) {
  ScriptedHttp server(HttpScript{});
  auto sender = open_sender({.server = server.url() + "/base", .token = "secret", .headers = {"X-Team=a%20b"}});
  const SendResult result = sender->send(Signal::kSpans, payload());
  EXPECT_EQ(result.outcome, Outcome::kDelivered);
  EXPECT_EQ(result.code, "200");
  EXPECT_GT(result.bytes, 0u);
  const ScriptedHttp::Request request = server.requests().at(0);
  EXPECT_TRUE(request.head.starts_with("POST /base/v1/traces HTTP/1.1\r\n")) << request.head;
  EXPECT_NE(request.head.find("Content-Type: application/x-protobuf\r\n"), std::string::npos);
  EXPECT_NE(request.head.find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_NE(request.head.find("x-team: a b\r\n"), std::string::npos);
  EXPECT_EQ(*decompress(sender->encoding(Signal::kSpans), request.body, 1 << 20), payload());
}

TEST(OtlpSender, SpeaksOtlpOverGrpc) {
  ScriptedGrpc server(GrpcScript{});
  auto sender =
      open_sender({.server = server.url(), .protocol = "grpc", .token = "secret", .headers = {"X-Team=a%20b"}});
  const SendResult result = sender->send(Signal::kMetrics, payload());
  EXPECT_EQ(result.outcome, Outcome::kDelivered) << result.why;
  EXPECT_EQ(result.code, "grpc_0");
  const ScriptedGrpc::Request request = server.requests().at(0);
  EXPECT_EQ(request.header(":path"), "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
  EXPECT_EQ(request.header("authorization"), "Bearer secret");
  EXPECT_EQ(request.header("x-team"), "a b");
  EXPECT_EQ(request.header("grpc-timeout").back(), 'm');
  EXPECT_EQ(*decompress(*parse_encoding(request.header("grpc-encoding")), request.message, 1 << 20), payload());
}

TEST(OtlpSender, KnowsWhatOtlpSaysOfEveryHttpStatus) {
  const struct {
    const char* answer;
    Outcome outcome;
    int64_t retry_after_ms;
  } cases[] = {
      {"200 OK", Outcome::kDelivered, -1},
      {"202 Accepted", Outcome::kDelivered, -1},
      {"301 Moved\r\nLocation: /", Outcome::kRefused, -1},
      {"400 Bad", Outcome::kRefused, -1},
      {"401 Who", Outcome::kRefused, -1},
      {"404 Not Found", Outcome::kRefused, -1},
      {"413 Large", Outcome::kRefused, -1},
      {"429 Slow\r\nRetry-After: 30", Outcome::kRetry, 30'000},
      {"500 Oops", Outcome::kRefused, -1},
      {"502 Bad", Outcome::kRetry, -1},
      {"503 Busy\r\nRetry-After: 0", Outcome::kRetry, 0},
      {"503 Busy\r\nRetry-After: 86400", Outcome::kRetry, OtlpSender::kRetryAfterMsMax},
      {"504 Late", Outcome::kRetry, -1},
  };
  for (const auto& one : cases) {
    ScriptedHttp server(HttpScript{{one.answer, ""}});
    const SendResult result = open_sender({.server = server.url()})->send(Signal::kLogs, payload());
    EXPECT_EQ(result.outcome, one.outcome) << one.answer;
    EXPECT_EQ(result.retry_after_ms, one.retry_after_ms) << one.answer;
    EXPECT_EQ(result.code, std::string(one.answer).substr(0, 3));
    EXPECT_EQ(result.reason, one.outcome == Outcome::kRefused ? "http_" + result.code : "") << one.answer;
    // Where there is no such path, it is asked whether it is another port of a Lockstep server.
    EXPECT_EQ(server.requests().size(), result.code == "404" ? 2u : 1u) << one.answer;
  }
}

TEST(OtlpSender, KnowsWhatOtlpSaysOfEveryGrpcCode) {
  const Outcome outcomes[] = {
      Outcome::kDelivered, Outcome::kRetry,   Outcome::kRefused, Outcome::kRefused, Outcome::kRetry,  Outcome::kRefused,
      Outcome::kRefused,   Outcome::kRefused, Outcome::kRefused, Outcome::kRefused, Outcome::kRetry,  Outcome::kRetry,
      Outcome::kRefused,   Outcome::kRefused, Outcome::kRetry,   Outcome::kRetry,   Outcome::kRefused};
  for (int code = 0; code <= 16; ++code) {
    const std::string text = std::to_string(code);
    ScriptedGrpc server(std::vector<HeaderList>(3, {{"grpc-status", text}, {"grpc-message", "50%25 full"}}));
    const SendResult result = open_sender({.server = server.url(), .protocol = "grpc"})->send(Signal::kLogs, payload());
    EXPECT_EQ(result.outcome, outcomes[code]) << code;
    EXPECT_EQ(result.code, "grpc_" + text);
    EXPECT_EQ(result.why.find(": 50% full") == std::string::npos, code == 0) << result.why;
  }
}

TEST(OtlpSender, ComesBackToAnExhaustedServerOnlyIfItSaysWhen) {
  for (int code : {8, 14}) {
    ScriptedGrpc server(GrpcScript{
        {{"grpc-status", std::to_string(code)}, {"grpc-status-details-bin", grpc_retry_details(code, "full", 2'500)}}});
    const SendResult result = open_sender({.server = server.url(), .protocol = "grpc"})->send(Signal::kLogs, payload());
    EXPECT_EQ(result.outcome, Outcome::kRetry) << code;
    EXPECT_EQ(result.retry_after_ms, 2'500) << code;
  }
}

TEST(OtlpSender, ReadsWhatOfARequestWasRejected) {
  const std::string body = otlp::encode_response(Signal::kLogs, 2, "too\nold");
  ScriptedHttp server(HttpScript{{"200 OK", body}});
  const SendResult result = open_sender({.server = server.url()})->send(Signal::kLogs, payload());
  EXPECT_EQ(result.outcome, Outcome::kDelivered);
  EXPECT_EQ(result.rejected, 2);
  EXPECT_EQ(result.why, "too old");
}

TEST(OtlpSender, RepeatsWhatTheServerSaysOfARefusal) {
  ScriptedHttp server(
      HttpScript{{"400 Bad\r\nContent-Type: application/x-protobuf", otlp::encode_status(3, "no such field")},
                 {"500 Oops\r\nContent-Type: text/plain", "panic:\nat line 1"}});
  auto sender = open_sender({.server = server.url()});
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).why, "server answered 400: no such field");
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).why, "server answered 500: panic: at line 1");
}

std::string encoding_of(const ScriptedHttp::Request& request) {
  const size_t at = request.head.find("Content-Encoding: ");
  return at == std::string::npos ? "none" : request.head.substr(at + 18, request.head.find("\r\n", at) - at - 18);
}

TEST(OtlpSender, FallsBackToACompressionThatTheServerTakesAndRemembersIt) {
  if (!available(Encoding::kZstd) || !available(Encoding::kGzip)) GTEST_SKIP() << "built without";
  ScriptedHttp server(HttpScript{{"415 Unsupported", ""}});
  auto sender = open_sender({.server = server.url()});
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kDelivered);
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kDelivered);
  ASSERT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(encoding_of(server.requests()[0]), "zstd");
  EXPECT_EQ(encoding_of(server.requests()[1]), "gzip");
  EXPECT_EQ(encoding_of(server.requests()[2]), "gzip");
  EXPECT_EQ(*decompress(Encoding::kGzip, server.requests()[1].body, 1 << 20), payload());
}

TEST(OtlpSender, FallsBackWhereA400SpeaksOfCompressionAndDownToNone) {
  if (!available(Encoding::kZstd) || !available(Encoding::kGzip)) GTEST_SKIP() << "built without";
  ScriptedHttp server(
      HttpScript{{"400 Bad", "unsupported compression: zstd. Only \"gzip\" or no compression supported"},
                 {"415 Unsupported", ""},
                 {"200 OK", ""}});
  auto sender = open_sender({.server = server.url()});
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kDelivered);
  ASSERT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(encoding_of(server.requests()[2]), "none");
  EXPECT_EQ(server.requests()[2].body, payload());
  EXPECT_EQ(sender->encoding(Signal::kLogs), Encoding::kIdentity);
}

TEST(OtlpSender, FallsBackOverGrpcAndForgetsWhatDidNotHelp) {
  if (!available(Encoding::kZstd) || !available(Encoding::kGzip)) GTEST_SKIP() << "built without";
  const HeaderList unknown = {{"grpc-status", "12"}};
  ScriptedGrpc server(GrpcScript{unknown, unknown, unknown, unknown});
  auto sender = open_sender({.server = server.url(), .protocol = "grpc"});
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kRefused);  // it is not the compression
  EXPECT_EQ(sender->encoding(Signal::kLogs), Encoding::kZstd);
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kDelivered);
  ASSERT_EQ(server.requests().size(), 5u);
  EXPECT_EQ(server.requests()[2].header("grpc-encoding"), "");
  EXPECT_EQ(server.requests()[4].header("grpc-encoding"), "gzip");
  EXPECT_EQ(sender->encoding(Signal::kLogs), Encoding::kGzip);
}

TEST(OtlpSender, FallsBackWhereGrpcSaysInternalButSpeaksOfTheEncoding) {
  if (!available(Encoding::kZstd) || !available(Encoding::kGzip)) GTEST_SKIP() << "built without";
  ScriptedGrpc server(GrpcScript{{{"grpc-status", "13"}, {"grpc-message", "Error parsing 'grpc-encoding' metadata"}}});
  auto sender = open_sender({.server = server.url(), .protocol = "grpc"});
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kDelivered);
  EXPECT_EQ(sender->encoding(Signal::kLogs), Encoding::kGzip);
}

TEST(OtlpSender, SendsPlainWhereNoneIsAskedFor) {
  ScriptedHttp server(HttpScript{{"415 Unsupported", ""}});
  auto sender = open_sender({.server = server.url(), .compression = "none"});
  EXPECT_EQ(sender->send(Signal::kLogs, payload()).outcome, Outcome::kRefused);
  EXPECT_EQ(server.requests().at(0).body, payload());
}

TEST(OtlpSender, ReadsTheTokenAgainWhenItsFileChanges) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/token";
  std::ofstream(path) << "first";
  chmod(path.c_str(), 0600);
  ScriptedHttp server(HttpScript{});
  auto sender = open_sender({.server = server.url(), .token_file = path});
  sender->send(Signal::kLogs, payload());
  std::ofstream(path) << "second\n";
  sender->send(Signal::kLogs, payload());
  std::ofstream(path) << "";  // in the middle of being written: the old one serves on
  sender->send(Signal::kLogs, payload());
  const char* tokens[] = {"first", "second", "second"};
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NE(server.requests()[i].head.find(std::string("Authorization: Bearer ") + tokens[i] + "\r\n"),
              std::string::npos);
}

TEST(OtlpSender, SignalsThatGoToTheSamePlaceShareALane) {
  auto same = open_sender({.server = "http://127.0.0.1:1"});
  EXPECT_EQ(same->lane(Signal::kMetrics), same->lane(Signal::kSpans));
  auto other = open_sender({}, {{"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1:2/x"}});
  EXPECT_NE(other->lane(Signal::kMetrics), other->lane(Signal::kLogs));
  EXPECT_EQ(other->lane(Signal::kMetrics), other->lane(Signal::kSpans));
}

TEST(OtlpSender, NoAnswerIsTriedAgainLater) {
  for (const char* protocol : {"http/protobuf", "grpc"}) {
    auto sender = open_sender(
        {.server = format("http://127.0.0.1:%d", testing::OtlpReceiver::free_port()), .protocol = protocol});
    const SendResult result = sender->send(Signal::kLogs, payload());
    EXPECT_EQ(result.outcome, Outcome::kRetry);
    EXPECT_EQ(result.code, "0");
    EXPECT_NE(result.why.find("Connection refused"), std::string::npos) << result.why;
  }
}

TEST(RetryAfter, IsSecondsOrADate) {
  const int64_t now_ns = 1'445'412'480'000'000'000;  // Wed, 21 Oct 2015 07:28:00 GMT
  EXPECT_EQ(parse_retry_after("120", now_ns), 120'000);
  EXPECT_EQ(parse_retry_after(" 0 ", now_ns), 0);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:28:09 GMT", now_ns), 9'000);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:27:00 GMT", now_ns), 0);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2099 07:27:00 GMT", now_ns), OtlpSender::kRetryAfterMsMax);
  for (const char* text : {"", "soon", "-1", "1.5", "Wed, 21 Oct 2015 07:28:09 GMT+1"})
    EXPECT_EQ(parse_retry_after(text, now_ns), -1) << text;
}

// google.rpc.Status with a RetryInfo of so long among its details, and something beside everywhere.
TEST(RpcStatus, SaysHowLongToWait) {
  const auto status = [](std::string_view type, std::optional<std::pair<uint64_t, uint64_t>> delay) {
    std::string bytes;
    protobuf::WireWriter out(bytes);
    out.varint(1, 8);
    out.bytes(2, "busy");
    const size_t any = out.begin(3);
    out.varint(9, 1);
    out.bytes(1, type);
    const size_t info = out.begin(2);
    out.varint(9, 1);
    if (delay) {
      const size_t duration = out.begin(1);
      out.varint(1, delay->first);
      out.varint(9, 1);
      out.varint(2, delay->second);
      out.end(duration);
    }
    out.end(info);
    out.end(any);
    const Result<RpcStatus> read = decode_rpc_status(bytes);
    EXPECT_TRUE(read.ok());
    EXPECT_EQ(read->message, "busy");
    return read->retry_after_ms;
  };
  constexpr std::string_view kInfo = "type.googleapis.com/google.rpc.RetryInfo";
  EXPECT_EQ(status(kInfo, std::pair(2, 345'678'901)), 2'345);
  EXPECT_EQ(status(kInfo, std::pair(0, 0)), 0);
  EXPECT_EQ(status(kInfo, std::nullopt), 0) << "as soon as you like";
  EXPECT_EQ(status(kInfo, std::pair(1, 5'000'000'000)), 1'999);
  EXPECT_EQ(status(kInfo, std::pair(1'000'000'000'000, 0)), OtlpSender::kRetryAfterMsMax);
  EXPECT_EQ(status(kInfo, std::pair(static_cast<uint64_t>(-5), static_cast<uint64_t>(-7))), 0);
  EXPECT_EQ(status("type.googleapis.com/google.rpc.DebugInfo", std::pair(2, 0)), -1);
}

TEST(RpcStatus, OfGarbageIsAnError) {
  EXPECT_FALSE(decode_rpc_status("\x12\x7f").ok());
  EXPECT_EQ(decode_rpc_status("")->retry_after_ms, -1);
}

}  // namespace
}  // namespace lockstep
