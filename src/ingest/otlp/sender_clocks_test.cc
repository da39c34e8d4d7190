// What the OTLP receivers make of clocks that are off: the server's, or a sender's.
#include <gtest/gtest.h>

#include <optional>

#include "base/clock_witness.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "ingest/otlp/otlp_handler.h"
#include "testing/fake_clock.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int64_t kDay = 86'400'000'000'000;
constexpr int64_t kTrue = 1'800'000'000'000'000'000;

struct TakingSink final : IngestSink {
  AcceptResult accept(Signal, Batch batch, std::string_view, int64_t) override {
    taken += batch.record_count();
    return {};
  }
  size_t taken = 0;
};

class SenderClocks : public ::testing::Test {
 protected:
  void start(int64_t ahead_ns) {
    clock_.set_ahead(ahead_ns);
    witness_.emplace(clock_);
    handler_.emplace(sink_, clock_, counters_, 1 << 20, &*witness_);
  }
  // One record of `host`, of this time. How many were taken.
  size_t send(Signal signal, const std::string& host, int64_t time_ns) {
    Batch batch;
    batch.signal = signal;
    ResourceGroup& group = batch.groups.emplace_back();
    group.resource = {{"host.name", host}};
    if (signal == Signal::kLogs) {
      group.logs.emplace_back().time_unix_ns = time_ns;
      group.logs[0].body = Value{std::string("line")};
    } else if (signal == Signal::kMetrics) {
      MetricPoint& point = group.points.emplace_back();
      point.name = "power";
      point.time_unix_ns = time_ns;
      point.value = 1;
    } else {
      Span& span = group.spans.emplace_back();
      span.trace_id = {1};
      span.span_id = {1};
      span.name = "get";
      span.start_unix_ns = time_ns - 1;
      span.end_unix_ns = time_ns;
    }
    const char* paths[] = {"/v1/metrics", "/v1/logs", "/v1/traces"};
    ServerRequest request;
    request.method = "POST";
    request.path = paths[static_cast<size_t>(signal)];
    request.headers = {{"content-type", "application/x-protobuf"}};
    request.body = otlp::encode(batch);
    const size_t before = sink_.taken;
    EXPECT_EQ(handler_->handle_http(request).status, 200);
    return sink_.taken - before;
  }
  testing::FakeClock clock_{kTrue};
  TakingSink sink_;
  Counters counters_{kServerCounters};
  std::optional<ClockWitness> witness_;
  std::optional<OtlpHandler> handler_;
};

TEST_F(SenderClocks, AServerThatIsBehindTakesWhatItsSendersAgreeOn) {
  start(-30 * kDay);
  for (const Signal signal : {Signal::kLogs, Signal::kMetrics, Signal::kSpans}) {
    EXPECT_EQ(send(signal, "host-1", kTrue), signal == Signal::kLogs ? 0u : 1u);
    EXPECT_EQ(send(signal, "host-2", kTrue), signal == Signal::kLogs ? 0u : 1u);
    EXPECT_EQ(send(signal, "host-3", kTrue), 1u);  // three are believed
  }
  EXPECT_EQ(counters_.value("lockstep_ingest_refused_records_total",
                            "receiver=\"otlp_http\",signal=\"logs\",reason=\"future_time\""),
            2);
}

TEST_F(SenderClocks, OneSenderFromTheFutureIsRefusedAndChangesNothingForOthers) {
  start(0);
  for (const char* host : {"host-1", "host-2", "host-3"}) EXPECT_EQ(send(Signal::kLogs, host, kTrue), 1u);
  for (const Signal signal : {Signal::kLogs, Signal::kMetrics, Signal::kSpans}) {
    EXPECT_EQ(send(signal, "host-from-the-future", kTrue + 30 * kDay), 0u);
    EXPECT_EQ(send(signal, "host-1", kTrue), 1u);
  }
}

TEST_F(SenderClocks, SendersThatAlsoSendWhatFitsAreNoWitnessesAgainstTheServer) {
  start(0);
  for (const char* host : {"host-1", "host-2", "host-3"}) {
    EXPECT_EQ(send(Signal::kLogs, host, kTrue), 1u);
    EXPECT_EQ(send(Signal::kLogs, host, kTrue + kDay), 0u);  // one program there is a day ahead
    EXPECT_EQ(send(Signal::kLogs, host, kTrue - kDay), 1u);  // or delivers what it kept
  }
  EXPECT_EQ(witness_->report().line, "");
}

TEST_F(SenderClocks, AServerThatJumpsAheadGoesOnTaking) {
  start(0);
  for (const char* host : {"host-1", "host-2", "host-3"}) EXPECT_EQ(send(Signal::kLogs, host, kTrue), 1u);
  clock_.set_ahead(30 * kDay);
  EXPECT_EQ(send(Signal::kLogs, "host-1", kTrue), 1u);
  EXPECT_EQ(witness_->now().earliest_unix_ns, kTrue);
  clock_.set_ahead(-30 * kDay);  // or back
  EXPECT_EQ(send(Signal::kLogs, "host-1", kTrue), 1u);
}

}  // namespace
}  // namespace lockstep
