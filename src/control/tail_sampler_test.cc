#include "control/tail_sampler.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "diagnosis/testing.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;
using testing::MadeUpJob;
using testing::RankPlan;
using testing::StepPlan;

struct TestAsker final : DetailRequester {
  struct One {
    std::string host;
    DetailRequest request;
  };
  std::vector<One> asked;
  bool takes = true;
  bool ask(const std::string& host, const DetailRequest& request) override {
    if (takes) asked.push_back({host, request});
    return takes;
  }
  std::set<StepNumber> steps() const {
    std::set<StepNumber> all;
    for (const One& one : asked) all.insert(one.request.from_step);
    return all;
  }
  std::set<Rank> ranks(StepNumber step) const {
    std::set<Rank> all;
    for (const One& one : asked) {
      if (one.request.from_step == step) all.insert(one.request.ranks.begin(), one.request.ranks.end());
    }
    return all;
  }
};

struct TailSamplerTest : ::testing::Test {
  Counters counters{kStoreCounters};
  MemoryStepStore steps{{}, counters};
  TestAsker asker;
  TailSampler tail{steps, asker, counters};
  int64_t now = kEpochNs;

  // Plays steps [from, to], one a second.
  void play(MadeUpJob& job, StepNumber from, StepNumber to, const StepPlan& plan = {}) {
    for (StepNumber step = from; step <= to; ++step) {
      now += kSecondNs;
      for (const auto& [identity, summary] : job.step(step, plan)) {
        steps.append_step(identity, summary, now);
        tail.on_step(identity, summary, now);
      }
      tail.tick(now);
    }
  }
  static StepPlan slow(StepNumber from, StepNumber to, Rank rank, double own_ms) {
    return [=](StepNumber step, std::vector<RankPlan>& ranks) {
      if (step >= from && step <= to) ranks[index_of(rank)].own_ms = own_ms;
    };
  }
  Verdict verdict(std::string id, StepNumber since, std::vector<Rank> ranks,
                  VerdictState state = VerdictState::kSuspected) const {
    Verdict one;
    one.id = std::move(id);
    one.job_id = "job";
    one.state = state;
    one.kind = VerdictKind::kSlow;
    one.since_step = since;
    one.culprit.ranks = std::move(ranks);
    return one;
  }
  int64_t left_out(const char* reason) const {
    return counters.value("lockstep_detail_asks_left_out_total", format("reason=\"%s\"", reason));
  }
};

TEST_F(TailSamplerTest, AsksForAStepThatTurnedOutSlowOfAllRanksOfASmallJob) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 0_step, 40_step, slow(30_step, 30_step, 5_rank, 250));
  EXPECT_EQ(asker.steps(), std::set<StepNumber>{30_step});
  ASSERT_EQ(asker.asked.size(), 2u) << "each host for its own ranks";
  EXPECT_EQ(asker.asked[0].host, "node-0");
  EXPECT_EQ(asker.asked[0].request.ranks,
            (std::vector<Rank>{0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank, 6_rank, 7_rank}));
  EXPECT_EQ(asker.asked[1].request.ranks.front(), 8_rank);
  EXPECT_EQ(counters.value("lockstep_detail_asks_total", "reason=\"slow_step\""), 1);
}

TEST_F(TailSamplerTest, OfALargeJobItAsksForTheSlowestAndAFewMedianRanks) {
  tail.go_live();
  MadeUpJob job(256);
  play(job, 0_step, 35_step, slow(30_step, 30_step, 77_rank, 250));
  const std::set<Rank> ranks = asker.ranks(30_step);
  EXPECT_TRUE(ranks.contains(77_rank));
  EXPECT_EQ(ranks.size(), TailSampler::kSlowestRanks + TailSampler::kMedianRanks);
}

TEST_F(TailSamplerTest, AHealthyJobIsNotAskedFor) {
  tail.go_live();
  MadeUpJob job(16);
  job.noise = 0.03;
  play(job, 0_step, 300_step);
  EXPECT_TRUE(asker.asked.empty());
}

TEST_F(TailSamplerTest, CheckpointsAndEvaluationExplainThemselves) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 0_step, 60_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) {
      if (step % 20 == 19) rank = {.own_ms = rank.own_ms + 400, .checkpoint_ms = 400};
    }
  });
  EXPECT_TRUE(asker.asked.empty());
}

TEST_F(TailSamplerTest, OfAStretchOfSlowStepsItAsksForTheFirstAndForOneThatIsMuchSlower) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 0_step, 120_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step >= 40_step) ranks[3].own_ms = step == 50_step ? 400 : 200;  // slow for good
  });
  EXPECT_EQ(asker.steps(), (std::set<StepNumber>{40_step, 50_step}));
}

TEST_F(TailSamplerTest, AJobThatStumblesAllTheTimeStaysWithinTheBudget) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 0_step, 29_step);
  for (StepNumber step = 30_step; step < 150_step; ++step)
    play(job, step, step, slow(step, step, 2_rank, step % 5 == 0 ? 300 : 100));
  EXPECT_LE(asker.steps().size(), 2u * TailSampler::kAsksPerMinute);
  EXPECT_GE(asker.steps().size(), static_cast<size_t>(TailSampler::kAsksPerMinute));
  EXPECT_EQ(static_cast<int64_t>(asker.steps().size()) + left_out("budget"), 24);
}

TEST_F(TailSamplerTest, ANewVerdictBringsItsCulpritsTheirPeersAndMedianRanks) {
  tail.go_live();
  MadeUpJob job(256);
  play(job, 0_step, 20_step);
  // Rank 77 is in a pair and in a group of eight.
  for (Rank rank : {77_rank, 78_rank}) steps.append_comm(job.identity(rank), {.comm_id = CommId{1}, .size = 2}, now);
  for (Rank rank = 72_rank; rank < 80_rank; ++rank)
    steps.append_comm(job.identity(rank), {.comm_id = CommId{2}, .size = 8}, now);
  tail.note({verdict("v1", 15_step, {77_rank})});
  tail.tick(now);
  EXPECT_EQ(asker.steps(), (std::set<StepNumber>{14_step, 15_step, 16_step, 17_step}));
  const std::set<Rank> ranks = asker.ranks(15_step);
  for (Rank rank = 72_rank; rank < 80_rank; ++rank) EXPECT_TRUE(ranks.contains(rank)) << rank;
  EXPECT_GT(ranks.size(), 8u);
  EXPECT_LE(ranks.size(), 8 + TailSampler::kMedianRanks);
}

TEST_F(TailSamplerTest, AVerdictThatOnlyChangesItsNumbersIsNotAskedForAgain) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 0_step, 20_step);
  tail.note({verdict("v1", 15_step, {3_rank})});
  tail.tick(now);
  const size_t before = asker.asked.size();
  EXPECT_GT(before, 0u);
  tail.note({verdict("v1", 15_step, {3_rank}, VerdictState::kConfirmed),
             verdict("v1", 15_step, {3_rank}, VerdictState::kCleared)});
  tail.tick(now);
  EXPECT_EQ(asker.asked.size(), before);
}

TEST_F(TailSamplerTest, WhatALogBroughtBackIsNotAskedFor) {
  MadeUpJob job(16);
  play(job, 0_step, 40_step, slow(30_step, 30_step, 5_rank, 250));
  tail.note({verdict("v1", 30_step, {5_rank}, VerdictState::kConfirmed)});
  tail.tick(now);
  tail.go_live();
  tail.tick(now);
  tail.note({verdict("v1", 30_step, {5_rank}, VerdictState::kConfirmed)});
  tail.tick(now);
  EXPECT_TRUE(asker.asked.empty());
  play(job, 41_step, 50_step, slow(45_step, 45_step, 5_rank, 250));
  EXPECT_EQ(asker.steps(), std::set<StepNumber>{45_step}) << "and what comes now is judged by what was usual before";
}

TEST_F(TailSamplerTest, ASilentRankDoesNotHoldUpTheOthers) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 0_step, 20_step);
  play(job, 21_step, 40_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[9].silent = true;
    if (step == 30_step) ranks[5].own_ms = 250;
  });
  EXPECT_EQ(asker.steps(), std::set<StepNumber>{30_step});
}

TEST_F(TailSamplerTest, AJobThatWentBackToACheckpointIsFollowedThere) {
  tail.go_live();
  MadeUpJob job(16);
  play(job, 1000_step, 1030_step);
  play(job, 900_step, 930_step, slow(920_step, 920_step, 5_rank, 250));
  EXPECT_EQ(asker.steps(), std::set<StepNumber>{920_step});
}

TEST_F(TailSamplerTest, WhatTheAgentsCannotBeAskedForIsCounted) {
  tail.go_live();
  asker.takes = false;
  MadeUpJob job(16);
  play(job, 0_step, 40_step, slow(30_step, 30_step, 5_rank, 250));
  EXPECT_EQ(left_out("refused"), 1);
  EXPECT_EQ(counters.sum("lockstep_detail_asks_total"), 0);
}

}  // namespace
}  // namespace lockstep
