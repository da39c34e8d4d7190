// What a clock that jumps, of the server or of a sender, does to what is stored: nothing that cannot be made good.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/clock_witness.h"
#include "base/text.h"
#include "store/metrics/engine_world.h"
#include "store/spans/columnar_span_store.h"
#include "store/steps/columnar_step_store.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using metrics::found;
using metrics::TestPush;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMinute = 60 * kSecond;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kDayMs = 86'400'000;

class ClockJump : public ::testing::Test {
 protected:
  ClockJump() {
    metric_options_.folder = folder_.path() + "/metrics";
    metric_options_.keep_ms[0] = 7 * kDayMs;
    metric_options_.merge_ms = INT64_MAX / 2;
    metric_options_.background = false;
    span_options_.folder = folder_.path() + "/spans";
    span_options_.background = false;
    step_options_.folder = folder_.path() + "/steps";
    step_options_.background = false;
    step_options_.hot_rows_max = 0;
  }
  void let_senders_witness() {
    metric_options_.witness = span_options_.witness = step_options_.witness = &witness_;
    senders_speak();
  }
  void senders_speak() {
    for (int i = 0; i < 3; ++i) witness_.note(format("host-%d", i), clock_.true_unix_ns());
  }
  void open() {
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(metric_options_, clock_, counters_);
    ASSERT_TRUE(engine.ok()) << engine.error();
    engine_ = std::move(*engine);
    Result<std::unique_ptr<ColumnarSpanStore>> spans = ColumnarSpanStore::open(span_options_, clock_, counters_);
    ASSERT_TRUE(spans.ok()) << spans.error();
    spans_ = std::move(*spans);
    Result<std::unique_ptr<ColumnarStepStore>> steps = ColumnarStepStore::open(step_options_, clock_, counters_);
    ASSERT_TRUE(steps.ok()) << steps.error();
    steps_ = std::move(*steps);
  }
  int64_t true_ms() const { return clock_.true_unix_ns() / 1'000'000; }
  int64_t server_ms() const { return clock_.unix_ns() / 1'000'000; }
  // The number of samples refused.
  size_t push(const std::string& series, int64_t time_ms) {
    Result<PushOutcome> outcome = TestPush().add(series, time_ms, 1).to(*engine_, series);
    EXPECT_TRUE(outcome.ok());
    return outcome.ok() ? outcome->refused.size() : 0;
  }
  // A day's worth of everything, sealed.
  void live_a_day(int64_t day) {
    EXPECT_EQ(push("power", true_ms()), 0u);
    ASSERT_TRUE(engine_->seal().ok());
    spans::SpanColumnsBuilder builder;
    builder.begin_source({{"service.name", "shop"}}, "", "");
    Span span;
    span.trace_id = {7, static_cast<uint8_t>(day)};
    span.span_id = {1};
    span.start_unix_ns = span.end_unix_ns = clock_.true_unix_ns();
    builder.add(span);
    spans_->append(builder.take(), clock_.unix_ns(), 0);
    ASSERT_TRUE(spans_->seal().ok());
    Identity identity;
    identity.job_id = "job";
    StepSummary step;
    step.step = StepNumber{day};
    step.start_unix_ns = clock_.true_unix_ns();
    step.duration_ns = kSecond;
    steps_->append_step(identity, step, clock_.unix_ns());
    ASSERT_TRUE(steps_->seal().ok());
    clock_.advance(kDay);
    senders_speak();
    maintain();
  }
  void maintain() {
    engine_->retain();
    spans_->maintain();
    steps_->maintain();
  }
  size_t samples() const {
    size_t count = 0;
    for (const auto& [name, columns] : found(*engine_, "power")) count += columns.times_ms.size();
    return count;
  }
  size_t traces() const { return spans_->search({}).total; }
  size_t steps() const { return steps_->steps("job", 0_step, 1000_step).size(); }
  void expect_days_at_least(size_t days) {
    EXPECT_GE(samples(), days);
    EXPECT_GE(traces(), days);
    EXPECT_GE(steps(), days);
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{metrics::kStartNs};
  ClockWitness witness_{clock_};
  Counters counters_{kStoreCounters};
  MetricEngineOptions metric_options_;
  ColumnarSpanStoreOptions span_options_;
  ColumnarStepStoreOptions step_options_;
  std::unique_ptr<MetricEngine> engine_;
  std::unique_ptr<ColumnarSpanStore> spans_;
  std::unique_ptr<ColumnarStepStore> steps_;
};

TEST_F(ClockJump, AheadErasesNoMoreThanADayOfHistoryInAnHour) {
  open();
  for (int64_t day = 0; day < 6; ++day) live_a_day(day);
  clock_.set_ahead(60 * kDay);
  EXPECT_EQ(push("scraped", server_ms()), 0u);  // by the server's own clock
  for (int minute = 0; minute < 60; ++minute) {
    maintain();
    clock_.advance(kMinute);
  }
  expect_days_at_least(4);
  clock_.set_ahead(0);
  const size_t left = samples();
  for (int minute = 0; minute < 60; ++minute) {
    maintain();
    clock_.advance(kMinute);
  }
  EXPECT_EQ(samples(), left);  // nothing more goes, now that the clock is back
  expect_days_at_least(4);
}

TEST_F(ClockJump, AheadAcrossARestartErasesNoMoreThanADayInAnHourEither) {
  open();
  for (int64_t day = 0; day < 6; ++day) live_a_day(day);
  clock_.set_ahead(60 * kDay);
  steps_.reset();
  spans_.reset();
  engine_.reset();
  open();
  maintain();
  clock_.advance(kMinute);
  maintain();
  expect_days_at_least(5);
}

TEST_F(ClockJump, AheadErasesNothingWhileSendersSayOtherwise) {
  let_senders_witness();
  open();
  for (int64_t day = 0; day < 6; ++day) live_a_day(day);
  clock_.set_ahead(60 * kDay);
  EXPECT_EQ(push("scraped", server_ms()), 0u);
  for (int hour = 0; hour < 48; ++hour) {
    senders_speak();
    maintain();
    clock_.advance(kHour);
  }
  // Two days have passed: what has grown old meanwhile may have gone.
  expect_days_at_least(5);
}

TEST_F(ClockJump, AheadRefusesNoTrueSampleThenOrLater) {
  let_senders_witness();
  open();
  EXPECT_EQ(push("power", true_ms()), 0u);
  clock_.set_ahead(60 * kDay);
  EXPECT_EQ(push("scraped", server_ms()), 0u);
  EXPECT_EQ(push("power", true_ms() + 1), 0u);
  clock_.set_ahead(0);
  EXPECT_EQ(push("power", true_ms() + 2), 0u);
  ASSERT_TRUE(engine_->seal().ok());
  steps_.reset();
  spans_.reset();
  engine_.reset();
  open();
  EXPECT_EQ(push("power", true_ms() + 3), 0u);
  EXPECT_EQ(samples(), 4u);
}

TEST_F(ClockJump, AheadIsMadeGoodByTheClocksReturnWithoutAnyWitness) {
  open();
  EXPECT_EQ(push("power", true_ms()), 0u);
  clock_.set_ahead(60 * kDay);
  EXPECT_EQ(push("scraped", server_ms()), 0u);
  clock_.set_ahead(0);
  EXPECT_EQ(push("power", true_ms() + 1), 0u);
  EXPECT_EQ(samples(), 2u);
}

TEST_F(ClockJump, WhatWasStoredAheadHoldsNeitherSealingNorMergingNorRetentionUp) {
  metric_options_.merge_ms = kDayMs / 2;
  open();
  clock_.set_ahead(60 * kDay);
  EXPECT_EQ(push("scraped", server_ms()), 0u);
  clock_.set_ahead(0);
  EXPECT_EQ(push("power", true_ms()), 0u);
  // Blocks are not made at every step because the newest sample is far from the oldest.
  engine_->step();
  engine_->step();
  EXPECT_EQ(counters_.value("lockstep_metric_blocks", "tier=\"raw\""), 0);
  for (int64_t day = 0; day < 20; ++day) {
    live_a_day(day);
    ASSERT_TRUE(engine_->merge().ok());
  }
  // Power has grown old, and what is ahead is still there.
  EXPECT_GE(counters_.value("lockstep_metric_samples_dropped_total", "reason=\"retention\""), 8);
  EXPECT_EQ(found(*engine_, "scraped").begin()->second.times_ms.size(), 1u);
}

TEST_F(ClockJump, AServerThatIsBehindTakesWhatMostSendersSend) {
  clock_.set_ahead(-60 * kDay);
  ClockWitness witness(clock_);  // behind from the start
  metric_options_.witness = &witness;
  open();
  EXPECT_EQ(push("power", true_ms()), 1u);  // nobody knows better yet
  for (int i = 0; i < 3; ++i) witness.note(format("host-%d", i), clock_.true_unix_ns());
  EXPECT_EQ(push("power", true_ms() + 1), 0u);
  EXPECT_EQ(push("own", server_ms()), 0u);  // and its own are no less true
  EXPECT_EQ(samples(), 1u);
  engine_->retain();
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_EQ(samples(), 1u);
}

TEST_F(ClockJump, OneSenderFromTheFutureMovesNothingForOthers) {
  let_senders_witness();
  open();
  EXPECT_EQ(push("power", true_ms()), 0u);
  witness_.note("host-from-the-future", clock_.true_unix_ns() + 60 * kDay);
  EXPECT_EQ(push("ahead", true_ms() + 60 * kDayMs), 1u);
  EXPECT_EQ(push("power", true_ms() + 1), 0u);
}

}  // namespace
}  // namespace lockstep
