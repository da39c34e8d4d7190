#include "egress/remote_write_out.h"

#include <gtest/gtest.h>

#include "ingest/counters_table.h"
#include "ingest/metric_intake.h"
#include "ingest/prometheus/remote_write_receiver.h"
#include "ingest/testing/recording_metric_writer.h"
#include "net/http_server.h"
#include "wire/compression.h"
#include "wire/exposition.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

// The other side is our own receiver before a store of its own.
class RemoteWriteOutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(
        {.address = {"127.0.0.1", 0}, .name = "http"},
        [this](const ServerRequest& request) {
          tenant_sent = std::string(request.header("x-scope-orgid"));
          if (failures_left-- > 0) return HttpResponse{failure, {}, "not now\n"};
          return receiver.handle(request);
        },
        there_counters);
    ASSERT_TRUE(started.ok()) << started.error();
    server = std::move(*started);
    Result<Url> url = parse_url("http://" + server->address() + std::string(kRemoteWritePath), 80);
    ASSERT_TRUE(url.ok());
    options.url = *url;
  }
  void TearDown() override { server->stop(); }

  Result<PushOutcome> push(MetricWriter& out, const std::string& raw, double value, int64_t time_ms = 5) {
    const PushedSeries series{.raw_labels = raw, .times_ms = {&time_ms, 1}, .values = {&value, 1}};
    return out.push("stream", {&series, 1}, [&](size_t) {
      return raw[0] == 'T' ? exposition::Walk::labels_of(raw) : remote_write::Walk::labels_of(raw);
    });
  }
  int64_t count(const char* result) {
    return counters.value("lockstep_remote_write_out_samples_total", std::string("result=\"") + result + "\"");
  }

  SystemClock clock;
  Counters counters{kServerCounters}, there_counters{kServerCounters};
  testing::RecordingMetricWriter store, there;
  MetricIntake intake{there, clock, there_counters};
  RemoteWriteReceiver receiver{intake, clock, there_counters};
  std::unique_ptr<HttpServer> server;
  RemoteWriteOutOptions options;
  std::atomic<int> failures_left{0};
  int failure = 503;
  std::string tenant_sent;  // read once the other server has answered
};

const std::string kUp = remote_write::raw_labels_of({{"__name__", "up"}, {"instance", "a"}});

TEST_F(RemoteWriteOutTest, SendsWhatTheStoreTookWhicheverDoorItCameThrough) {
  RemoteWriteOut out(store, options, clock, counters);
  ASSERT_TRUE(push(out, kUp, 1).ok());
  ASSERT_TRUE(push(out, exposition::target_prefix({{"instance", "b"}}, false) + "up{x=\"y\"}", 2).ok());
  out.stop();
  EXPECT_EQ(store.samples.size(), 2u);
  EXPECT_EQ(there.samples["up{instance=\"a\"}"].size(), 1u);
  EXPECT_EQ(there.samples["up{instance=\"b\",x=\"y\"}"][0].value, 2);
  EXPECT_EQ(count("sent"), 2);
  EXPECT_EQ(count("queued"), 2);
}

TEST_F(RemoteWriteOutTest, SendsTheTenantAsTheLabelThatTheStoreHas) {
  RemoteWriteOut out(store, options, clock, counters);
  MetricIntake from(out, clock, counters);
  RemoteWriteReceiver first(from, clock, counters);
  for (const char* tenant : {"acme", "other", ""}) {
    const int64_t time_ms = clock.unix_ns() / 1'000'000;
    const double value = 1;
    ServerRequest request;
    request.method = "POST";
    request.path = kRemoteWritePath;
    request.headers = {{"content-type", "application/x-protobuf"}};
    if (*tenant != 0) request.headers.emplace_back("x-scope-orgid", tenant);
    std::string body;
    remote_write::append_series(body, {.raw_labels = kUp, .times_ms = {&time_ms, 1}, .values = {&value, 1}});
    request.body = *snappy_compress(body);
    EXPECT_EQ(first.handle(request).status, 204);
  }
  out.stop();
  EXPECT_EQ(there.samples["up{instance=\"a\",tenant=\"acme\"}"].size(), 1u);
  EXPECT_EQ(there.samples["up{instance=\"a\",tenant=\"other\"}"].size(), 1u);
  EXPECT_EQ(there.samples["up{instance=\"a\"}"].size(), 1u);
  EXPECT_EQ(there.samples.size(), store.samples.size());
}

TEST_F(RemoteWriteOutTest, SaysWhoseSamplesTheyAreWhereTheyAreATenants) {
  for (const char* tenant : {"", "acme"}) {
    options.tenant = tenant;
    RemoteWriteOut out(store, options, clock, counters);
    ASSERT_TRUE(push(out, kUp, 1).ok());
    out.stop();
    EXPECT_EQ(tenant_sent, tenant);
  }
  EXPECT_EQ(count("sent"), 2);
}

TEST_F(RemoteWriteOutTest, TriesAgainWhileTheOtherServerCannot) {
  failures_left = 3;
  RemoteWriteOut out(store, options, clock, counters);
  ASSERT_TRUE(push(out, kUp, 1).ok());
  out.stop();
  EXPECT_EQ(there.samples["up{instance=\"a\"}"].size(), 1u);
  EXPECT_EQ(count("sent"), 1);
}

TEST_F(RemoteWriteOutTest, DoesNotSendAgainWhatWasRefused) {
  failures_left = 1;
  failure = 400;
  RemoteWriteOut out(store, options, clock, counters);
  ASSERT_TRUE(push(out, kUp, 1).ok());
  out.stop();
  EXPECT_TRUE(there.samples.empty());
  EXPECT_EQ(count("refused"), 1);
}

TEST_F(RemoteWriteOutTest, DropsAndCountsWhatDoesNotFitAndNeverHoldsUpTheStore) {
  failures_left = 1'000'000;
  options.queue_bytes_max = 1000;
  options.request_bytes_max = 100;
  options.drain_ms = 0;
  RemoteWriteOut out(store, options, clock, counters);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(push(out, kUp, i, i).ok());
  out.stop();
  EXPECT_EQ(store.samples["up{instance=\"a\"}"].size(), 100u);
  EXPECT_GT(count("dropped"), 50);
  EXPECT_EQ(count("queued") + count("dropped"), 100);
  EXPECT_EQ(count("queued"), count("sent") + count("refused"));
}

TEST_F(RemoteWriteOutTest, SendsNothingThatTheStoreDidNotTake) {
  store.refuse_all("disk full");
  RemoteWriteOut out(store, options, clock, counters);
  EXPECT_FALSE(push(out, kUp, 1).ok());
  out.stop();
  EXPECT_TRUE(there.samples.empty());
  EXPECT_EQ(count("queued"), 0);
}

}  // namespace
}  // namespace lockstep
