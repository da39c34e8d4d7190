#include "sim/fleet/judge.h"

#include <gtest/gtest.h>

#include "model/verdict.h"

namespace lockstep::sim {
namespace {

ReadVerdict verdict_of(const char* id, const char* state, const char* kind, const char* layer,
                       std::vector<Rank> ranks) {
  return {.id = id,
          .sentence = "s",
          .state = term_of<VerdictState>(state),
          .kind = term_of<VerdictKind>(kind),
          .layer = term_of<Layer>(layer),
          .ranks = std::move(ranks)};
}

TEST(Judge, ReadsVerdictsAsTheApiWritesThem) {
  Verdict verdict;
  verdict.id = "v1";
  verdict.state = VerdictState::kConfirmed;
  verdict.kind = VerdictKind::kSlow;
  verdict.sentence = "Rank 5 is slow.";
  verdict.culprit = {.ranks = {5_rank}, .layer = Layer::kGpu};
  Result<std::vector<ReadVerdict>> seen =
      read_verdicts("{\"health\":\"slow\",\"verdicts\":[" + to_json(verdict) + "]}");
  ASSERT_TRUE(seen.ok()) << seen.error();
  ASSERT_EQ(seen->size(), 1u);
  EXPECT_EQ((*seen)[0].ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ((*seen)[0].layer, Layer::kGpu);
  EXPECT_EQ((*seen)[0].sentence, "Rank 5 is slow.");
  EXPECT_FALSE(read_verdicts("{}").ok());
  EXPECT_FALSE(read_verdicts("no json").ok());
}

TEST(Judge, FindsNoMistakeWhenEveryFaultIsNamedRightly) {
  Judge judge;
  judge.injected("a", {.kind = FaultKind::kSlowGpu, .rank = 5_rank}, 40_step, 100);
  judge.injected("a", {.kind = FaultKind::kSlowLink, .rank = 7_rank}, 60_step, 200);
  judge.injected("b", {.kind = FaultKind::kMissingRank, .rank = 2_rank}, 9_step, 300);
  EXPECT_EQ(judge.saw("a", {verdict_of("1", "suspected", "slow", "unknown", {5_rank})}, 42_step, 110).size(), 1u);
  EXPECT_TRUE(judge.saw("a", {verdict_of("1", "suspected", "slow", "unknown", {5_rank})}, 43_step, 120).empty())
      << "nothing new";
  EXPECT_EQ(judge.saw("a", {verdict_of("1", "confirmed", "slow", "gpu", {5_rank})}, 44_step, 130).size(), 1u);
  judge.saw("a",
            {verdict_of("1", "cleared", "slow", "gpu", {5_rank}),
             verdict_of("2", "confirmed", "slow", "nic", {7_rank, 8_rank})},
            66_step, 260);
  EXPECT_EQ(judge.mistakes().size(), 1u) << "the hang is not named yet";
  judge.saw("b", {verdict_of("3", "confirmed", "hang", "software", {2_rank})}, 9_step, 400);
  EXPECT_TRUE(judge.mistakes().empty());
  EXPECT_EQ(judge.trials()[0].suspected_ns, 110);
  EXPECT_EQ(judge.trials()[0].confirmed_ns, 130);
  EXPECT_EQ(judge.trials()[0].named_step, 44_step);
  EXPECT_EQ(judge.trials()[0].verdict_cleared_ns, 260);
}

TEST(Judge, CountsEveryWrongVerdictOnce) {
  const ReadVerdict wrong[] = {
      verdict_of("1", "suspected", "slow", "gpu", {6_rank}),          // another rank
      verdict_of("2", "confirmed", "slow", "input", {5_rank}),        // another layer
      verdict_of("3", "confirmed", "hang", "gpu", {5_rank}),          // another kind
      verdict_of("4", "confirmed", "slow", "gpu", {5_rank, 6_rank}),  // one more
      verdict_of("5", "confirmed", "slow", "gpu", {}),                // nobody
      verdict_of("6", "confirmed", "slow", "unknown", {5_rank}),      // sure, but of what?
  };
  for (const ReadVerdict& verdict : wrong) {
    Judge judge;
    judge.injected("a", {.kind = FaultKind::kSlowGpu, .rank = 5_rank}, 40_step, 100);
    judge.saw("a", {verdict_of("0", "confirmed", "slow", "gpu", {5_rank}), verdict}, 44_step, 130);
    judge.saw("a", {verdict}, 45_step, 140);
    EXPECT_EQ(judge.mistakes().size(), 1u) << "verdict " << verdict.id;
  }
}

TEST(Judge, CallsAVerdictOnAHealthyJobAMistake) {
  Judge judge;
  judge.injected("a", {.kind = FaultKind::kSlowGpu, .rank = 5_rank}, 40_step, 100);
  judge.saw("a", {verdict_of("1", "confirmed", "slow", "gpu", {5_rank})}, 44_step, 130);
  judge.saw("healthy", {verdict_of("1", "confirmed", "slow", "gpu", {5_rank})}, 44_step, 130);
  ASSERT_EQ(judge.mistakes().size(), 1u);
  EXPECT_NE(judge.mistakes()[0].find("healthy"), std::string::npos);
}

TEST(Judge, CallsAVerdictThatIsFirstHeardOfLongAfterTheFaultAMistake) {
  constexpr int64_t kSecond = 1'000'000'000;
  for (int64_t after : {2, 20}) {
    Judge judge;
    size_t trial = judge.injected("a", {.kind = FaultKind::kSlowInput, .rank = 5_rank}, 40_step, 1 * kSecond);
    judge.saw("a", {verdict_of("1", "confirmed", "slow", "input", {5_rank})}, 44_step, 2 * kSecond);
    judge.cleared(trial, 10 * kSecond);
    judge.saw("a", {verdict_of("1", "confirmed", "slow", "input", {5_rank})}, 90_step, 30 * kSecond);
    EXPECT_TRUE(judge.mistakes().empty()) << "the old one may stay for a while";
    judge.saw("a", {verdict_of("2", "confirmed", "slow", "input", {5_rank})}, 99_step, (10 + after) * kSecond);
    EXPECT_EQ(judge.mistakes().size(), after == 2 ? 0u : 1u);
  }
}

TEST(Judge, CallsAFaultThatIsOnlySuspectedNotNamed) {
  Judge judge;
  judge.injected("a", {.kind = FaultKind::kSlowInput, .rank = 5_rank}, 40_step, 100);
  judge.saw("a", {verdict_of("1", "suspected", "slow", "input", {5_rank})}, 44_step, 130);
  EXPECT_EQ(judge.mistakes().size(), 1u);
}

TEST(Judge, ReportsAVerdictAgainWhenItsCauseBecomesKnown) {
  Judge judge;
  const size_t trial = judge.injected("a", {.kind = FaultKind::kSlowGpu, .rank = 5_rank}, 40_step, 100);
  ReadVerdict verdict = verdict_of("1", "confirmed", "slow", "gpu", {5_rank});
  verdict.cause = Cause::kSlowCompute;
  EXPECT_EQ(judge.saw("a", {verdict}, 44_step, 130).size(), 1u);
  EXPECT_FALSE(judge.trials()[trial].is_explained());
  verdict.cause = Cause::kThrottleThermal;
  EXPECT_EQ(judge.saw("a", {verdict}, 46_step, 140).size(), 1u);
  EXPECT_TRUE(judge.saw("a", {verdict}, 47_step, 150).empty());
  EXPECT_TRUE(judge.trials()[trial].is_explained());
  EXPECT_EQ(judge.trials()[trial].confirmed_ns, 130);
  EXPECT_TRUE(judge.mistakes().empty());
}

}  // namespace
}  // namespace lockstep::sim
