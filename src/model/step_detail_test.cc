#include "model/step_detail.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

Identity rank5() {
  return {.job_id = "llama-70b", .attempt = 1, .rank = 5_rank, .world_size = 64, .host = "node-0"};
}

StepDetail detail_of_two_ops() {
  StepDetail detail;
  detail.step = 12_step;
  detail.start_unix_ns = 1'700'000'000'000'000'000;
  detail.duration_ns = 540'000'000;
  detail.left_out = 3;
  detail.phases = {{Phase::kInput, "", detail.start_unix_ns, 11'000'000},
                   {Phase::kOther, "rollout", detail.start_unix_ns + 20'000'000, 5'000'000}};
  detail.ops = {{.comm_id = CommId{0xfee0000000000001},
                 .comm_size = 64,
                 .rank_in_comm = 5,
                 .function = "AllReduce",
                 .datatype = "bfloat16",
                 .seq = 7,
                 .ordinal = 8,
                 .bytes = 1 << 20,
                 .enqueued_unix_ns = detail.start_unix_ns + 30'000'000,
                 .start_unix_ns = detail.start_unix_ns + 31'000'000,
                 .duration_ns = 2'000'000,
                 .timed = true},
                {.comm_id = CommId{3},
                 .comm_size = 2,
                 .p2p = true,
                 .function = "Send",
                 .datatype = "float32",
                 .ordinal = 1,
                 .peer = 1,
                 .bytes = 4096,
                 .enqueued_unix_ns = detail.start_unix_ns + 50'000'000,
                 .start_unix_ns = detail.start_unix_ns + 50'000'000}};
  detail.notes = {{detail.start_unix_ns + 5, "learning rate dropped"}};
  return detail;
}

TEST(StepDetail, ComesBackFromItsSpans) {
  const StepDetail detail = detail_of_two_ops();
  StepDetail back;
  std::vector<Span> spans = to_spans(rank5(), detail, SampledFor::kAsked);
  ASSERT_EQ(spans.size(), 5u);
  for (auto at = spans.rbegin(); at != spans.rend(); ++at) {  // in any order
    std::optional<StepSpanPart> part = part_of(*at);
    ASSERT_TRUE(part.has_value());
    add_to(back, std::move(*part));
  }
  finish(back);
  EXPECT_EQ(back, detail);
}

TEST(StepDetail, AStepHasOneTraceOnAllRanksAndAnotherForEveryOtherStep) {
  TraceId trace = step_trace_id("llama-70b", 1, 12_step);
  EXPECT_EQ(trace, step_trace_id("llama-70b", 1, 12_step));
  EXPECT_NE(trace, step_trace_id("llama-70b", 1, 13_step));
  EXPECT_NE(trace, step_trace_id("llama-70b", 2, 12_step));
  EXPECT_NE(trace, step_trace_id("llama-70c", 1, 12_step));
  EXPECT_NE(StepSpanIds(trace, 1_rank).step(), StepSpanIds(trace, 2_rank).step());
}

// The derivation is public (docs/formats/spans.md): these bytes must not change.
TEST(StepDetail, TheIdOfAStepIsWhatTheDocumentSays) {
  EXPECT_EQ(to_hex(step_trace_id("a", 0, 0_step)), "34783bbc0483d94f708145260f6d19fc");
  EXPECT_EQ(to_hex(StepSpanIds(step_trace_id("a", 0, 0_step), 0_rank).step()), "afb7fceca4b86456");
}

TEST(StepDetail, EverySpanOfAStepHasItsOwnIdAndTheRankAsParent) {
  std::vector<Span> spans = to_spans(rank5(), detail_of_two_ops(), SampledFor::kPeriodic);
  std::set<SpanId> ids;
  for (const Span& span : spans) {
    ids.insert(span.span_id);
    EXPECT_EQ(span.parent_span_id, &span == &spans[0] ? SpanId{} : spans[0].span_id);
  }
  EXPECT_EQ(ids.size(), spans.size());
}

TEST(StepDetail, SpansOfOthersAreNoneOfOurs) {
  Span span;
  span.name = "GET /";
  EXPECT_FALSE(part_of(span).has_value());
  span.attributes = {{"lockstep.kind", "collective"}};
  EXPECT_FALSE(part_of(span).has_value()) << "no step";
  span.attributes = {{"lockstep.kind", "phase"}, {"lockstep.step", 3}, {"lockstep.phase", "lunch"}};
  EXPECT_FALSE(part_of(span).has_value()) << "no such phase";
}

}  // namespace
}  // namespace lockstep
