#include "sle/service_watch.h"

#include <gtest/gtest.h>

#include "sle/ledger_query.h"
#include "store/memory_span_store.h"
#include "store/sle_counters.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"

namespace lockstep::sle {
namespace {

constexpr int32_t kBegin = 29'000'000;

class ServiceWatchTest : public ::testing::Test {
 protected:
  ServiceWatchTest() {
    Result<std::unique_ptr<Ledger>> ledger = Ledger::open({}, clock_, sle_counters_);
    ledger_ = std::move(*ledger);
    watch_ = std::make_unique<ServiceWatch>(*ledger_, spans_, metrics_, default_thresholds());
  }
  void minute(int32_t minute, double queue_s, double prefill_s, int requests = 20) {
    for (int i = 0; i < requests; ++i) {
      Span span;
      ++sent_;
      span.trace_id[0] = static_cast<uint8_t>(sent_);
      span.trace_id[1] = static_cast<uint8_t>(sent_ >> 8);
      span.span_id[0] = 1;
      span.name = "llm_request";
      span.start_unix_ns = (kBegin + minute) * kMinuteNs + i * 1'000'000'000ll;
      span.end_unix_ns = span.start_unix_ns + 1'000'000;
      span.attributes = {{"gen_ai.latency.time_in_queue", queue_s},
                         {"gen_ai.latency.time_in_model_prefill", prefill_s},
                         {"gen_ai.latency.time_in_model_decode", 2.0},
                         {"gen_ai.latency.time_to_first_token", queue_s + prefill_s},
                         {"gen_ai.latency.e2e", queue_s + prefill_s + 2.0},
                         {"gen_ai.usage.prompt_tokens", 17},
                         {"gen_ai.usage.completion_tokens", 101}};
      spans_.append({.resource = {{"service.name", "chat"}}, .spans = {span}}, span.end_unix_ns);
    }
    watch_->judge(kBegin + minute);
  }
  SleTotals of(Sle sle) const {
    return ledger_->totals({.from = kBegin, .end = kBegin + 1000})[static_cast<size_t>(sle)];
  }

  lockstep::testing::FakeClock clock_;
  Counters counters_{kStoreCounters};
  Counters sle_counters_{kSleCounters};
  MemorySpanStore spans_{{}, counters_};
  MemoryMetricReader metrics_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<ServiceWatch> watch_;
  int sent_ = 0;
};

TEST_F(ServiceWatchTest, ASlowFirstTokenIsChargedToTheQueueItWaitedIn) {
  for (int32_t m = 0; m < 5; ++m) minute(m, 0.01, 0.09);
  minute(5, 1.0, 0.09);
  EXPECT_EQ(of(Sle::kTtft).minutes, (Minutes{.good = 2, .degraded = 1, .unknown = 3}));
  ASSERT_EQ(of(Sle::kTtft).parts.size(), 1u);
  EXPECT_EQ(of(Sle::kTtft).parts[0].classifier, "queue");
  EXPECT_EQ(of(Sle::kQueue).minutes.degraded, 1);
  EXPECT_EQ(of(Sle::kTpot).minutes.degraded, 0);
}

TEST_F(ServiceWatchTest, AMinuteLookedAtTwiceCountsOnceAndOneWithoutRequestsIsUnknown) {
  for (int32_t m = 0; m < 5; ++m) minute(m, 0.01, 0.09);
  watch_->judge(kBegin + 4);
  EXPECT_EQ(of(Sle::kTtft).minutes.total(), 5);
  watch_->judge(kBegin + 6);
  EXPECT_EQ(of(Sle::kTtft).minutes.unknown, 4);
}

TEST_F(ServiceWatchTest, AClockThatJumpedAndCameBackIsFollowed) {
  for (int32_t m = 0; m < 5; ++m) minute(m, 0.01, 0.09);
  const auto judged = [&](int32_t minute) {
    return !ledger_->cells("service chat", Sle::kTtft, kBegin + minute).empty();
  };
  const auto tick = [&](int32_t minute) { watch_->tick((kBegin + minute + 1) * kMinuteNs + ServiceWatch::kGraceNs); };
  tick(8);
  EXPECT_TRUE(lockstep::testing::eventually([&] { return judged(8); }));
  tick(6);
  EXPECT_TRUE(lockstep::testing::eventually([&] { return judged(6); }));
}

}  // namespace
}  // namespace lockstep::sle
