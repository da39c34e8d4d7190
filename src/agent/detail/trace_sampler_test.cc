#include "agent/detail/trace_sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

Identity rank_of(Rank rank, int32_t world) {
  return {.job_id = "job", .attempt = 0, .rank = rank, .world_size = world};
}

StepDetail step_of(StepNumber step, size_t ops, int64_t duration_ns = 1'000'000'000) {
  StepDetail detail{.step = step, .start_unix_ns = 1'763'000'000'000'000'000, .duration_ns = duration_ns};
  detail.ops.resize(ops);
  return detail;
}

// Steps of these ranks that are sent, of `steps` in a row.
std::set<StepNumber> sampled(TraceSampler& sampler, Rank rank, int32_t world, int64_t steps, size_t ops) {
  std::set<StepNumber> chosen;
  const Identity identity = rank_of(rank, world);
  StepDetail detail = step_of(0_step, ops);
  for (; detail.step < StepNumber{steps}; ++detail.step) {
    if (sampler.wants(identity, detail)) chosen.insert(detail.step);
  }
  return chosen;
}

TEST(TraceSampler, ChoosesTheSameStepsOnEveryAgent) {
  TraceSampler one(40), other(40);
  EXPECT_EQ(sampled(one, 0_rank, 64, 1000, 200), sampled(other, 63_rank, 64, 1000, 200));
}

TEST(TraceSampler, OfAgentsThatCameToDifferentRatesTheSparserChoosesAmongTheOthersSteps) {
  TraceSampler cheap(40), dear(40);
  const std::set<StepNumber> many = sampled(cheap, 0_rank, 64, 2000, 100), few = sampled(dear, 8_rank, 64, 2000, 500);
  EXPECT_GT(many.size(), few.size());
  EXPECT_GT(few.size(), 2u);
  for (StepNumber step : few) EXPECT_TRUE(many.contains(step)) << step;
}

TEST(TraceSampler, StaysWithinItsBudget) {
  for (int32_t world : {8, 512, 4096}) {
    TraceSampler sampler(40);
    constexpr int64_t kSteps = 200'000;
    const size_t sent = sampled(sampler, 0_rank, world, kSteps, 200).size();
    const double bytes_s = static_cast<double>(sent) * 201 * TraceSampler::kWireBytesPerSpan / kSteps;
    EXPECT_LE(bytes_s, 41) << world;
    EXPECT_GE(bytes_s, 15) << world;  // and uses it
  }
}

TEST(TraceSampler, GivesEveryRankItsTurnExactlyOnceInARound) {
  constexpr int32_t kWorld = 4096;
  const int64_t turns = TraceSampler::turns(kWorld);
  for (int64_t every : {1, 8, 1024}) {
    std::map<Rank, int> seen;
    for (int64_t turn = 1; turn <= turns; ++turn) {
      int32_t now = 0;
      for (Rank rank : all_ranks(kWorld)) {
        if (!TraceSampler::has_turn(StepNumber{turn * every}, rank, kWorld)) continue;
        ++seen[rank];
        ++now;
      }
      EXPECT_GT(now, 0);
      EXPECT_LE(now, TraceSampler::kRanksAtOnce);
    }
    ASSERT_EQ(seen.size(), static_cast<size_t>(kWorld));
    for (const auto& [rank, times] : seen) ASSERT_EQ(times, 1) << rank;
  }
}

TEST(TraceSampler, TakesNeighboursTogetherAndSmallJobsWhole) {
  for (Rank rank : all_ranks(1024))
    EXPECT_EQ(TraceSampler::has_turn(128_step, rank, 1024), TraceSampler::has_turn(128_step, rank - rank % 8, 1024));
  for (Rank rank : all_ranks(64)) EXPECT_TRUE(TraceSampler::has_turn(7_step, rank, 64));
}

TEST(TraceSampler, FollowsAJobThatChanges) {
  TraceSampler sampler(40);
  sampled(sampler, 0_rank, 8, 50, 100);
  const int64_t before = sampler.every("job", 0);
  for (StepNumber step = 50_step; step < 150_step; ++step)
    (void)sampler.wants(rank_of(0_rank, 8), step_of(step, 100, 10'000'000));
  EXPECT_GE(sampler.every("job", 0), before * 64);  // a hundred times as many steps
  for (StepNumber step = 150_step; step < 400_step; ++step) (void)sampler.wants(rank_of(0_rank, 8), step_of(step, 100));
  EXPECT_LE(sampler.every("job", 0), before * 2) << "back, but for the room to spare";
}

TEST(TraceSampler, RanksOfOneNodeNeverPartOverAStepEvenWhileTheRateChanges) {
  TraceSampler sampler(40);
  std::map<StepNumber, int> ranks_of;
  for (StepNumber step = 0_step; step < 2000_step; ++step) {
    for (Rank rank : all_ranks(8)) {
      const StepNumber own = step - rank.value();  // each a step behind the one before
      if (own < 0_step) continue;
      const size_t ops = own.value() / 100 % 2 == 0 ? 2 : 300;
      if (sampler.wants(rank_of(rank, 8), step_of(own, ops))) ++ranks_of[own];
    }
  }
  EXPECT_GT(ranks_of.size(), 10u);
  for (const auto& [step, ranks] : ranks_of) EXPECT_TRUE(ranks == 8 || step >= 1992_step) << step;
}

TEST(TraceSampler, WithoutABudgetSendsNothing) {
  TraceSampler sampler(0);
  EXPECT_TRUE(sampled(sampler, 0_rank, 8, 100, 10).empty());
  EXPECT_EQ(sampler.every("job", 0), 0);
}

TEST(TraceSampler, ForgetsTheJobHeardOfLongestAgo) {
  TraceSampler sampler(40);
  for (size_t i = 0; i <= TraceSampler::kJobsMax; ++i) {
    Identity identity = rank_of(0_rank, 8);
    identity.job_id = "job-" + std::to_string(i);
    (void)sampler.wants(identity, step_of(1_step, 10));
  }
  EXPECT_EQ(sampler.every("job-0", 0), 0);
  EXPECT_GT(sampler.every("job-1", 0), 0);
}

// The estimate that the rate rests on, against spans as they go over the wire.
TEST(TraceSampler, KnowsWhatASpanCosts) {
  if (!available(Encoding::kZstd)) GTEST_SKIP() << "built without zstd";
  StepDetail detail = step_of(7_step, 0);
  uint64_t state = 1;
  auto random = [&](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state >> 33) % below;
  };
  for (uint64_t i = 0; i < 400; ++i) {
    const int64_t at = detail.start_unix_ns + static_cast<int64_t>(i) * 2'000'000 + random(1'500'000);
    detail.ops.push_back({.comm_id = CommId{0xfeedface00000001 + i % 3},
                          .comm_size = 8,
                          .rank_in_comm = 3,
                          .function = i % 3 == 0 ? "AllReduce" : "ReduceScatter",
                          .datatype = "bfloat16",
                          .seq = 1000 + i / 3,
                          .ordinal = 1001 + i / 3,
                          .bytes = static_cast<int64_t>(1 + i % 5) << 20,
                          .enqueued_unix_ns = at - random(900'000),
                          .start_unix_ns = at,
                          .duration_ns = 100'000 + random(1'000'000),
                          .timed = true});
  }
  Batch batch{.signal = Signal::kSpans, .groups = {}};
  for (Rank rank : all_ranks(8))
    batch.groups.push_back({.resource = {}, .spans = to_spans(rank_of(rank, 8), detail, SampledFor::kPeriodic)});
  Result<std::string> sent = compress(Encoding::kZstd, otlp::encode(batch));
  ASSERT_TRUE(sent.ok());
  const double each = static_cast<double>(sent->size()) / static_cast<double>(batch.record_count());
  EXPECT_LT(each, TraceSampler::kWireBytesPerSpan * 1.25);
  EXPECT_GT(each, TraceSampler::kWireBytesPerSpan / 4);
}

}  // namespace
}  // namespace lockstep
