#include "sim/fleet/otlp_sender.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/counters.h"
#include "model/events.h"
#include "net/http_server.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

constexpr CounterDescriptor kCounters[] = {
    {"lockstep_http_requests_total", "counter", Severity::kInfo, "requests"},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "connections"},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice, "bad requests"}};

Batch two_records() {
  Batch batch{.signal = Signal::kLogs};
  batch.groups.push_back(
      {.resource = {{"lockstep.job_id", "j"}},
       .logs = {job_start_record(1), job_end_record({.time_unix_ns = 2, .clean = true, .exit = {}})}});
  return batch;
}

struct Server {
  explicit Server(HttpHandler handler) : counters(kCounters) {
    auto started = HttpServer::start({.address = {.host = "127.0.0.1", .port = 0}, .threads = 1, .name = "test"},
                                     std::move(handler), counters);
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error());
    if (started.ok()) server = std::move(*started);
  }
  Url url() const { return *parse_url("http://" + server->address(), 4318); }
  Counters counters;
  std::unique_ptr<HttpServer> server;
};

TEST(OtlpSender, TriesAgainWhileTheServerIsBusyAndCountsIt) {
  std::atomic<int> calls = 0;
  std::string seen_path;
  Result<Batch> seen = Error{"nothing came"};
  Server server([&](const ServerRequest& request) {
    if (++calls <= 2) return HttpResponse{.status = calls == 1 ? 503 : 429};
    Result<Encoding> encoding = parse_encoding(request.header("content-encoding"));
    seen_path = request.path;
    seen = otlp::decode(Signal::kLogs, *decompress(*encoding, request.body, 1 << 20));
    return HttpResponse{.status = 200, .body = otlp::encode_response(Signal::kLogs, 1, "one is too old")};
  });
  OtlpSender sender(server.url());
  EXPECT_TRUE(sender.send(two_records(), {}));
  ASSERT_TRUE(seen.ok()) << seen.error();
  EXPECT_EQ(seen_path, "/v1/logs");
  EXPECT_EQ(seen->record_count(), 2u);
  EXPECT_EQ(sender.totals().retries, 2);
  EXPECT_EQ(sender.totals().requests_sent, 1);
  EXPECT_EQ(sender.totals().records_accepted, 1);
  EXPECT_EQ(sender.totals().records_rejected, 1);
  EXPECT_EQ(sender.totals().last_error, "one is too old");
}

TEST(OtlpSender, GivesUpAtOnceWhereTheServerRefusesTheRequest) {
  std::atomic<int> calls = 0;
  Server server([&](const ServerRequest&) {
    ++calls;
    return HttpResponse{.status = 400, .body = "malformed"};
  });
  OtlpSender sender(server.url());
  EXPECT_FALSE(sender.send(two_records(), {}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(sender.totals().records_failed, 2);
  EXPECT_NE(sender.totals().last_error.find("malformed"), std::string::npos);
}

TEST(OtlpSender, GivesUpOnAServerThatIsNotThereWhenItsPatienceEnds) {
  std::string address;
  {
    Server server([](const ServerRequest&) { return HttpResponse{.status = 200}; });
    address = server.server->address();
    server.server->stop();
  }
  OtlpSender sender(*parse_url("http://" + address, 4318), 400);
  EXPECT_FALSE(sender.send(two_records(), {}));
  EXPECT_GE(sender.totals().retries, 1);
  EXPECT_EQ(sender.totals().requests_failed, 1);
  const int64_t retries = sender.totals().retries;
  EXPECT_FALSE(sender.send(two_records(), {}));
  EXPECT_EQ(sender.totals().retries, retries) << "once it has given up it tries each further batch once";
  EXPECT_EQ(sender.totals().records_failed, 4);
}

}  // namespace
}  // namespace lockstep::sim
