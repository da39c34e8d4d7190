#include "agent/detail/step_traces.h"

#include <gtest/gtest.h>

#include <set>

#include "agent/counters_table.h"
#include "model/events.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct StepTracesTest : ::testing::Test {
  Counters counters{kAgentCounters};

  static Identity rank(int32_t number) {
    return {.job_id = "job", .attempt = 0, .rank = Rank{number}, .world_size = 8, .host = "a"};
  }
  static StepDetail step(StepNumber number, size_t ops = 3) {
    StepDetail detail{.step = number, .start_unix_ns = number.value() * kSecond, .duration_ns = kSecond};
    detail.phases = {{Phase::kForward, "", detail.start_unix_ns, 5}};
    for (size_t i = 0; i < ops; ++i)
      detail.ops.push_back({.comm_id = CommId{1},
                            .function = "AllReduce",
                            .enqueued_unix_ns = detail.start_unix_ns + static_cast<int64_t>(i),
                            .start_unix_ns = detail.start_unix_ns + static_cast<int64_t>(i),
                            .timed = true});
    return detail;
  }
  // Everything that waits, as (rank, step) of the steps' own spans; *spans: how many there were in all.
  static std::multiset<std::pair<Rank, StepNumber>> take_all(StepTraces& traces, size_t* spans = nullptr) {
    std::multiset<std::pair<Rank, StepNumber>> steps;
    for (std::vector<ResourceGroup> groups = traces.take(0); !groups.empty(); groups = traces.take(0)) {
      size_t piece = 0;
      for (const ResourceGroup& group : groups) {
        piece += group.spans.size();
        for (const Span& span : group.spans) {
          if (span.name == kStepSpanName)
            steps.emplace(identity_from_resource(group.resource)->rank, find_int(span.attributes, "lockstep.step"));
        }
      }
      EXPECT_LE(piece, StepTraces::kSpansAtOnce + 2);
      if (spans != nullptr) *spans += piece;
    }
    return steps;
  }
  int64_t asked(const char* result) const {
    return counters.value("lockstep_agent_detail_asked_total", std::string("result=\"") + result + "\"");
  }
};

TEST_F(StepTracesTest, SendsWhatTheServerAsksForAndNothingElse) {
  StepTraces traces({.kept = {}, .budget_bytes_s = 0}, counters);
  for (StepNumber number = 0_step; number < 20_step; ++number) {
    for (int32_t one = 0; one < 8; ++one) traces.add(rank(one), step(number), 0);
  }
  EXPECT_TRUE(take_all(traces).empty());
  traces.ask({.job_id = "job", .attempt = 0, .from_step = 7_step, .to_step = 8_step, .ranks = {2_rank, 5_rank}});
  EXPECT_EQ(take_all(traces), (std::multiset<std::pair<Rank, StepNumber>>{
                                  {2_rank, 7_step}, {2_rank, 8_step}, {5_rank, 7_step}, {5_rank, 8_step}}));
  EXPECT_EQ(asked("sent"), 4);
}

TEST_F(StepTracesTest, SendsNoStepOfARankTwice) {
  StepTraces traces({.kept = {}, .budget_bytes_s = 0}, counters);
  traces.add(rank(2), step(7_step), 0);
  const DetailRequest request{.job_id = "job", .attempt = 0, .from_step = 7_step, .to_step = 7_step, .ranks = {}};
  traces.ask(request);
  traces.ask(request);  // before the first was sent
  EXPECT_EQ(take_all(traces).size(), 1u);
  traces.ask(request);  // and after
  EXPECT_TRUE(take_all(traces).empty());
  EXPECT_EQ(asked("sent"), 1);
  EXPECT_EQ(asked("sent_before"), 2);
}

TEST_F(StepTracesTest, CountsWhatItNoLongerHas) {
  StepTraces traces({.kept = {.bytes_max = 1 << 20, .age_ns = 10 * kSecond}, .budget_bytes_s = 0}, counters);
  traces.add(rank(2), step(7_step), 0);
  traces.add(rank(2), step(8_step), 9 * kSecond);
  (void)traces.take(11 * kSecond);
  traces.ask({.job_id = "job", .attempt = 0, .from_step = 7_step, .to_step = 8_step, .ranks = {2_rank, 100_rank}});
  EXPECT_EQ(take_all(traces).size(), 1u);
  EXPECT_EQ(asked("gone"), 3);  // step 7 of rank 2, both of rank 100
  traces.ask({.job_id = "job", .attempt = 1, .from_step = 8_step, .to_step = 8_step, .ranks = {2_rank}});
  EXPECT_EQ(asked("gone"), 4) << "another attempt is another job";
}

TEST_F(StepTracesTest, SendsALongStepInPiecesThatMakeAWhole) {
  StepTraces traces({.kept = {}, .budget_bytes_s = 0}, counters);
  const size_t ops = StepTraces::kSpansAtOnce * 3 + 17;
  traces.add(rank(2), step(7_step, ops), 0);
  traces.ask({.job_id = "job", .attempt = 0, .from_step = 7_step, .to_step = 7_step, .ranks = {}});
  std::vector<Span> spans;
  for (std::vector<ResourceGroup> groups = traces.take(0); !groups.empty(); groups = traces.take(0)) {
    for (ResourceGroup& group : groups) spans.insert(spans.end(), group.spans.begin(), group.spans.end());
  }
  EXPECT_EQ(spans, to_spans(rank(2), step(7_step, ops), SampledFor::kAsked));
  EXPECT_EQ(counters.value("lockstep_agent_detail_spans_total", "reason=\"asked\""),
            static_cast<int64_t>(spans.size()));
}

TEST_F(StepTracesTest, SampledStepsAreSentUnaskedAndEverythingIsAccountedFor) {
  StepTraces traces({.kept = {.bytes_max = 60'000, .age_ns = 1000 * kSecond}, .budget_bytes_s = 25}, counters);
  size_t spans = 0;
  std::multiset<std::pair<Rank, StepNumber>> sent;
  for (StepNumber number = 0_step; number < 200_step; ++number) {
    for (int32_t one = 0; one < 8; ++one) traces.add(rank(one), step(number), number.value());
    sent.merge(take_all(traces, &spans));
  }
  EXPECT_EQ(sent.count({0_rank, 8_step}), 1u);  // 5 spans of 40 bytes at 25 bytes a second: one step in 8
  EXPECT_EQ(sent.size(), 200u);                 // 25 steps of 8 ranks
  const int64_t held = counters.value("lockstep_agent_detail_held");
  EXPECT_GT(held, 0);
  EXPECT_EQ(counters.value("lockstep_agent_detail_steps_total"), 1600);
  EXPECT_EQ(counters.sum("lockstep_agent_detail_sent_total"), 200);
  EXPECT_EQ(1600, 200 + counters.sum("lockstep_agent_detail_left_out_total") + held);
  EXPECT_EQ(counters.sum("lockstep_agent_detail_spans_total"), static_cast<int64_t>(spans));
}

TEST_F(StepTracesTest, AskedForMoreThanCanWaitItSaysSo) {
  StepTraces traces({.kept = {.bytes_max = 64 << 20, .age_ns = 1000 * kSecond}, .budget_bytes_s = 0}, counters);
  const int64_t steps = static_cast<int64_t>(StepTraces::kPendingMax) / 8 + 8;
  for (StepNumber number = 0_step; number < StepNumber{steps}; ++number) {
    for (int32_t one = 0; one < 8; ++one) traces.add(rank(one), step(number, 0), 0);
  }
  for (int64_t from = 0; from < steps; from += kDetailStepsMax)
    traces.ask({.job_id = "job",
                .attempt = 0,
                .from_step = StepNumber{from},
                .to_step = StepNumber{std::min(from + kDetailStepsMax, steps) - 1},
                .ranks = {}});
  EXPECT_EQ(asked("busy"), 64);
  EXPECT_EQ(take_all(traces).size(), StepTraces::kPendingMax);
}

}  // namespace
}  // namespace lockstep
