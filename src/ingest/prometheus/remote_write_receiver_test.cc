#include "ingest/prometheus/remote_write_receiver.h"

#include <gtest/gtest.h>

#include <thread>

#include "ingest/counters_table.h"
#include "ingest/testing/recording_metric_writer.h"
#include "net/http_client.h"
#include "wire/compression.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

using protobuf::WireWriter;

constexpr const char* kType1 = "application/x-protobuf;proto=prometheus.WriteRequest";
constexpr const char* kType2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

std::string series(const Labels& labels, int64_t time_ms, double value) {
  std::string request;
  const std::string raw = remote_write::raw_labels_of(labels);
  remote_write::append_series(request, {.raw_labels = raw, .times_ms = {&time_ms, 1}, .values = {&value, 1}});
  return request;
}

ServerRequest post(const std::string& plain, const char* content_type = kType1) {
  ServerRequest request;
  request.method = "POST";
  request.path = kRemoteWritePath;
  request.headers = {
      {"content-type", content_type}, {"content-encoding", "snappy"}, {"x-prometheus-remote-write-version", "0.1.0"}};
  request.body = *snappy_compress(plain);
  return request;
}

// Two samples of up{instance="a"}, one of a series whose references lead nowhere, one empty series, one exemplar.
std::string request_2(bool with_bad) {
  std::string bytes;
  WireWriter out(bytes);
  for (const char* symbol : {"", "__name__", "up", "instance", "a", "trace_id", "abc"}) out.bytes(4, symbol);
  auto one = [&](std::vector<uint32_t> refs, int samples) {
    const size_t began = out.begin(5);
    const size_t packed = out.begin(1);
    for (uint32_t ref : refs) out.raw_varint(ref);
    out.end(packed);
    for (int i = 0; i < samples; ++i) {
      const size_t sample = out.begin(2);
      out.real(1, i);
      out.varint(2, 1'700'000'000'000 + static_cast<uint64_t>(i));
      out.end(sample);
    }
    const size_t exemplar = out.begin(4);
    out.varint(1, 5);
    out.varint(1, 6);
    out.real(2, 1);
    out.end(exemplar);
    out.end(began);
  };
  one({1, 2, 3, 4}, 2);
  if (with_bad) {
    one({1, 99}, 1);
    one({1, 2}, 0);
  }
  return bytes;
}

class RemoteWriteReceiverTest : public ::testing::Test {
 protected:
  void expect_nothing_lost() {
    EXPECT_EQ(
        counters.sum("lockstep_ingest_received_records_total"),
        counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"));
  }
  SystemClock clock;
  Counters counters{kServerCounters};
  testing::RecordingMetricWriter writer;
  MetricIntake intake{writer, clock, counters};
  RemoteWriteReceiver receiver{intake, clock, counters, 1 << 20};
};

TEST_F(RemoteWriteReceiverTest, StoresARequestOfRemoteWrite1AndAnswers204) {
  for (const char* type : {kType1, "application/x-protobuf", "Application/X-Protobuf"}) {
    EXPECT_EQ(receiver.handle(post(series({{"__name__", "up"}, {"instance", "a:9100"}}, 5, 1), type)).status, 204)
        << type;
  }
  // What a form of any web page could send.
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}) {
    EXPECT_EQ(receiver.handle(post(series({{"__name__", "up"}, {"instance", "a:9100"}}, 5, 1), type)).status, 415)
        << type;
  }
  ASSERT_EQ(writer.samples.size(), 1u);
  EXPECT_EQ(writer.samples["up{instance=\"a:9100\"}"].size(), 3u);
  EXPECT_EQ(writer.asked, 1u);  // the same bytes are not read again
  EXPECT_EQ(counters.value("lockstep_ingest_passed_records_total", "receiver=\"remote_write\",signal=\"samples\""), 3);
  expect_nothing_lost();
}

TEST_F(RemoteWriteReceiverTest, KeepsTenantsApartWhateverTheirSeriesSay) {
  for (const char* tenant : {"acme", "other", ""}) {
    ServerRequest request = post(series({{"__name__", "up"}, {"tenant", "forged"}}, 5, 1));
    if (*tenant != 0) request.headers.emplace_back("x-scope-orgid", tenant);
    EXPECT_EQ(receiver.handle(request).status, 204);
  }
  EXPECT_EQ(writer.samples.size(), 3u);
  EXPECT_EQ(writer.samples["up{tenant=\"acme\"}"].size(), 1u);
  EXPECT_EQ(writer.samples["up{tenant=\"other\"}"].size(), 1u);
  EXPECT_EQ(writer.samples["up{tenant=\"forged\"}"].size(), 1u);
}

TEST_F(RemoteWriteReceiverTest, TellsRemoteWrite2WhatWasWritten) {
  const HttpResponse answer = receiver.handle(post(request_2(false), kType2));
  EXPECT_EQ(answer.status, 204) << answer.body;
  EXPECT_EQ(answer.header("x-prometheus-remote-write-samples-written"), "2");
  EXPECT_EQ(answer.header("x-prometheus-remote-write-histograms-written"), "0");
  EXPECT_EQ(answer.header("x-prometheus-remote-write-exemplars-written"), "1");
  EXPECT_EQ(writer.samples["up{instance=\"a\"}"].size(), 2u);
  EXPECT_EQ(writer.exemplars["up{instance=\"a\"}"][0].labels, (Labels{{"trace_id", "abc"}}));
}

TEST_F(RemoteWriteReceiverTest, RefusesSomeAndKeepsTheRest) {
  const HttpResponse answer = receiver.handle(post(request_2(true), kType2));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.header("x-prometheus-remote-write-samples-written"), "2");
  EXPECT_NE(answer.body.find("refused 1 of 3 samples: labels_invalid (1)"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("a series without samples"), std::string::npos) << answer.body;
  EXPECT_EQ(writer.samples["up{instance=\"a\"}"].size(), 2u);
  EXPECT_EQ(counters.value("lockstep_ingest_refused_records_total",
                           "receiver=\"remote_write\",signal=\"samples\",reason=\"labels_invalid\""),
            1);
  expect_nothing_lost();
}

TEST_F(RemoteWriteReceiverTest, SaysWhatItDoesNotUnderstand) {
  EXPECT_EQ(receiver.handle(post("", "application/json")).status, 415);
  EXPECT_EQ(receiver.handle(post("", "application/x-protobuf;proto=io.prometheus.write.v3.Request")).status, 415);
  ServerRequest gzip = post("");
  gzip.headers[1].second = "gzip";
  EXPECT_EQ(receiver.handle(gzip).status, 415);
  ServerRequest get = post("");
  get.method = "GET";
  EXPECT_EQ(receiver.handle(get).status, 405);
  ServerRequest plain = post("");
  plain.body = "not snappy at all";
  EXPECT_EQ(receiver.handle(plain).status, 400);
  EXPECT_EQ(receiver.handle(post("\x0a\x05")).status, 400);
  EXPECT_EQ(receiver.handle(post(std::string((1 << 20) + 1, 'x'))).status, 413);
  EXPECT_EQ(counters.sum("lockstep_ingest_undecodable_requests_total"), 6);
  EXPECT_TRUE(writer.samples.empty());
}

TEST_F(RemoteWriteReceiverTest, AsksToComeBackWhileTheStoreTakesNothing) {
  writer.refuse_all("disk full");
  const HttpResponse answer = receiver.handle(post(series({{"__name__", "up"}}, 5, 1)));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("retry-after"), "5");
  EXPECT_EQ(answer.body, "disk full\n");
  EXPECT_EQ(counters.value("lockstep_ingest_refused_records_total",
                           "receiver=\"remote_write\",signal=\"samples\",reason=\"unavailable\""),
            1);
  expect_nothing_lost();
}

TEST_F(RemoteWriteReceiverTest, AsksToComeBackWhileThereIsNoMemoryAndGivesBackWhatItTook) {
  MemoryBudget budget(4u << 20, [] { return 0; });
  RemoteWriteReceiver small(intake, clock, counters, 32u << 20, &budget);
  EXPECT_EQ(small.handle(post(series({{"__name__", "up"}}, 5, 1))).status, 204);
  // A few bytes of references, each to 4000 bytes of text.
  std::string bytes;
  WireWriter out(bytes);
  for (const std::string& symbol : {std::string(), std::string("__name__"), std::string(4000, 'x')})
    out.bytes(4, symbol);
  for (int i = 0; i < 2000; ++i) {
    const size_t began = out.begin(5);
    const size_t packed = out.begin(1);
    for (int k = 0; k < 3; ++k) {
      out.raw_varint(1);
      out.raw_varint(2);
    }
    out.end(packed);
    const size_t sample = out.begin(2);
    out.varint(2, 1);
    out.end(sample);
    out.end(began);
  }
  const HttpResponse answer = small.handle(post(bytes, kType2));
  EXPECT_EQ(answer.status, 429) << answer.body;
  EXPECT_EQ(answer.header("retry-after"), "1");
  EXPECT_EQ(counters.value("lockstep_ingest_undecodable_requests_total", "receiver=\"remote_write\",reason=\"memory\""),
            1);
  EXPECT_EQ(budget.taken(MemoryUse::kDecoding), 0u);
  EXPECT_EQ(small.handle(post(series({{"__name__", "up"}}, 6, 1))).status, 204);
  expect_nothing_lost();
}

TEST_F(RemoteWriteReceiverTest, AStreamIsATargetOfATenantWhicheverConnectionItComesThrough) {
  auto push = [&](const Labels& labels, const char* tenant) {
    ServerRequest request = post(series(labels, 5, 1));
    request.headers.emplace_back("x-scope-orgid", tenant);
    EXPECT_EQ(receiver.handle(request).status, 204);
  };
  push({{"__name__", "up"}, {"instance", "a"}, {"job", "node"}}, "t1");
  push({{"__name__", "down"}, {"instance", "a"}, {"job", "node"}}, "t1");
  EXPECT_EQ(writer.streams.size(), 1u);
  push({{"__name__", "up"}, {"instance", "b"}, {"job", "node"}}, "t1");
  push({{"__name__", "up"}, {"instance", "a"}, {"job", "gpu"}}, "t1");
  push({{"__name__", "up"}, {"instance", "a"}, {"job", "node"}}, "t2");
  push({{"__name__", "up"}, {"host", "a"}}, "t1");
  EXPECT_EQ(writer.streams.size(), 5u);
}

TEST_F(RemoteWriteReceiverTest, TellsTheStoreMetadataOnce) {
  std::string family;
  WireWriter out(family);
  const size_t began = out.begin(3);
  out.varint(1, 2);
  out.bytes(2, "up");
  out.bytes(4, "Whether it answers.");
  out.end(began);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receiver.handle(post(family)).status, 204);
  EXPECT_EQ(writer.metadata["up"], "gauge|Whether it answers.|");
  EXPECT_EQ(writer.metadata_calls, 1u);
}

TEST_F(RemoteWriteReceiverTest, ManyConnectionsAtOnceLoseNothing) {
  Result<std::unique_ptr<HttpServer>> server = HttpServer::start(
      {.address = {"127.0.0.1", 0},
       .body_bytes_max = 1000,
       .path_limits = {{std::string(kRemoteWritePath), 1 << 20}},
       .name = "http"},
      [&](const ServerRequest& request) { return receiver.handle(request); }, counters);
  ASSERT_TRUE(server.ok()) << server.error();
  std::vector<std::thread> senders;
  for (int sender = 0; sender < 4; ++sender) {
    senders.emplace_back([&, sender] {
      HttpClient client(*parse_url("http://" + (*server)->address(), 80));
      for (int push = 0; push < 20; ++push) {
        std::string plain;
        for (int k = 0; k < 50; ++k) {
          plain += series({{"__name__", "m" + std::to_string(k)}, {"instance", std::to_string(sender % 2)}}, push, k);
        }
        Result<HttpResponse> answer = client.send({"POST",
                                                   std::string(kRemoteWritePath),
                                                   {{"content-type", kType1}, {"content-encoding", "snappy"}},
                                                   *snappy_compress(plain)});
        ASSERT_TRUE(answer.ok()) << answer.error();
        EXPECT_EQ(answer->status, 204) << answer->body;
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  size_t samples = 0;
  for (const auto& [labels, list] : writer.samples) samples += list.size();
  EXPECT_EQ(samples, 4u * 20 * 50);
  EXPECT_EQ(writer.samples.size(), 100u);
  expect_nothing_lost();
  // Another path keeps the server's own limit.
  HttpClient client(*parse_url("http://" + (*server)->address(), 80));
  Result<HttpResponse> answer = client.send({"POST", "/api/other", {}, std::string(1001, 'x')});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->status, 413);
  EXPECT_NE(answer->body.find("limit of 1000 bytes"), std::string::npos) << answer->body;
  (*server)->stop();
}

}  // namespace
}  // namespace lockstep
