#include "diagnosis/detectors/straggler/straggler.h"

#include <gtest/gtest.h>

#include <random>

#include "diagnosis/roles.h"
#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::PlannedGroup;
using testing::RankPlan;
using testing::StepPlan;

std::vector<Rank> named(const std::vector<Finding>& findings) {
  std::vector<Rank> ranks;
  for (const Finding& finding : findings) ranks.insert(ranks.end(), finding.ranks.begin(), finding.ranks.end());
  return ranks;
}

std::vector<Finding> stragglers_of(MadeUpJob& job, const StepPlan& plan, int64_t steps = 30) {
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps - 1}, plan);
  return find_stragglers(window, {});
}

// Own work of these ranks takes so much longer, all the time.
StepPlan slow(std::vector<size_t> who, double more_ms = 50) {
  return [=](StepNumber, std::vector<RankPlan>& ranks) {
    for (size_t rank : who) ranks[rank].own_ms += more_ms;
  };
}

bool has_claim(const Finding& finding, ClaimKind kind, std::string_view words) {
  return std::any_of(finding.chain.begin(), finding.chain.end(), [&](const Claim& entry) {
    return entry.kind == kind && entry.claim.find(words) != std::string::npos;
  });
}

// A job whose communication nobody reports: all ranks keep one pace, and what they wait is in the backward pass.
// `extra`: what rank 2 takes longer, in this phase.
std::vector<Finding> found_unseen(int32_t ranks, Phase phase, double extra_ms) {
  JobWindow window;
  for (StepNumber number = 0_step; number < 30_step; ++number) {
    for (Rank rank : all_ranks(ranks)) {
      StepSummary row;
      row.step = number;
      auto ms = [&](Phase one) -> int64_t& { return row.phase_ns[static_cast<size_t>(one)]; };
      const int64_t jitter = (rank.value() * 7 + number.value() * 3) % 5 * 100'000;
      ms(Phase::kInput) = 1'000'000;
      ms(Phase::kForward) = 10'000'000 + jitter;
      ms(Phase::kBackward) = 20'000'000;
      ms(rank == 2_rank ? phase : Phase::kBackward) += static_cast<int64_t>(extra_ms * 1e6);
      for (int64_t ns : row.phase_ns) row.duration_ns += ns;
      row.self_ns = row.duration_ns;
      window.add_step(testing::MadeUpJob(ranks).identity(rank), row);
    }
  }
  return find_stragglers(window, {});
}

TEST(StragglerDetector, NamesTheSlowInputWhereNobodyReportsCommunication) {
  std::vector<Finding> findings = found_unseen(4, Phase::kInput, 60);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(findings[0].layer, Layer::kInput);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_EQ(findings[0].victims, (std::vector<Rank>{0_rank, 1_rank, 3_rank}));
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 60e6, 1e6);
  for (const Claim& claim : findings[0].chain) EXPECT_EQ(claim.claim.find("Not its GPU"), std::string::npos);
}

TEST(StragglerDetector, NamesTheSlowHostWhereNobodyReportsCommunication) {
  std::vector<Finding> findings = found_unseen(4, Phase::kForward, 30);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
}

TEST(StragglerDetector, NamesNobodyWhereAllTakeEquallyLongAndNobodyReportsCommunication) {
  EXPECT_TRUE(found_unseen(4, Phase::kBackward, 30).empty());
}

TEST(StragglerDetector, NamesTheSlowRankNotTheRanksWaitingForIt) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, slow({5}));
  ASSERT_EQ(named(findings), std::vector<Rank>{5_rank});
  EXPECT_TRUE(findings[0].sure);
  EXPECT_EQ(findings[0].kind, VerdictKind::kSlow);
  EXPECT_EQ(findings[0].victims, (std::vector<Rank>{0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 6_rank, 7_rank}));
  EXPECT_EQ(findings[0].coverage, 1);
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kWaitsFor, "it arrives last"));
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kCounterfactual, "Without it"));
}

TEST(StragglerDetector, PricesAStepByWhatItWouldTakeWithoutTheRank) {
  MadeUpJob job(8);
  job.noise = 0;
  std::vector<Finding> findings = stragglers_of(job, slow({5}));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NEAR(static_cast<double>(findings[0].step_ns), 170e6, 1e6);
  EXPECT_NEAR(static_cast<double>(findings[0].step_without_ns), 120e6, 1e6);
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 50e6, 1e6);
}

TEST(StragglerDetector, NamesTheRankThatMakesTheDelayThroughGroupsItIsNotIn) {
  // Pairs first, then columns of the pairs' members: 0 and 2 never meet rank 1 in their second group, and wait all the
  // same.
  MadeUpJob job(4);
  job.groups = {{.comm_id = CommId{1}, .ranks = {0_rank, 1_rank}},
                {.comm_id = CommId{2}, .ranks = {2_rank, 3_rank}},
                {.comm_id = CommId{3}, .ranks = {0_rank, 2_rank}},
                {.comm_id = CommId{4}, .ranks = {1_rank, 3_rank}}};
  std::vector<Finding> findings = stragglers_of(job, slow({1}));
  ASSERT_EQ(named(findings), std::vector<Rank>{1_rank});
  EXPECT_EQ(findings[0].victims, (std::vector<Rank>{0_rank, 2_rank, 3_rank}));
}

TEST(StragglerDetector, NamesOneOfTwoRanks) {
  MadeUpJob job(2);
  EXPECT_EQ(named(stragglers_of(job, slow({1}))), std::vector<Rank>{1_rank});
}

TEST(StragglerDetector, SaysNothingOfAHealthyJobWithNoise) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    MadeUpJob job(16, seed);
    job.noise = 0.04;
    EXPECT_EQ(named(stragglers_of(job, {}, 60)), std::vector<Rank>{}) << "seed " << seed;
  }
}

TEST(StragglerDetector, SaysNothingOfADifferenceTooSmallToMatter) {
  MadeUpJob job(8);
  job.noise = 0.001;
  EXPECT_EQ(named(stragglers_of(job, slow({5}, 3))), std::vector<Rank>{});
}

// From step 40 on.
StepPlan slower(size_t who, double more_ms) {
  return [=](StepNumber number, std::vector<RankPlan>& ranks) { ranks[who].own_ms += number >= 40_step ? more_ms : 0; };
}

TEST(StragglerDetector, NamesWhoHasBecomeALittleSlowerByEvidence) {
  MadeUpJob job(16);
  job.noise = 0.008;
  std::vector<Finding> findings = stragglers_of(job, slower(5, 3), 80);  // of some 120
  ASSERT_EQ(named(findings), std::vector<Rank>{5_rank});
  EXPECT_TRUE(findings[0].sure);
  EXPECT_NEAR(static_cast<double>(findings[0].since_step.value()), 40, 4);
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "of a step slower than before"));
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "Among 16 healthy ranks"));
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "once in 1,000 hours"));
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 3e6, 1e6);
}

TEST(StragglerDetector, SuspectsSmallShiftsSoonerThanItIsSureOfThem) {
  int64_t suspected = 0, sure = 0;
  for (int64_t steps = 41; steps < 80 && sure == 0; ++steps) {
    MadeUpJob job(16);
    job.noise = 0.008;
    std::vector<Finding> findings = stragglers_of(job, slower(5, 5), steps);
    if (findings.empty()) continue;
    EXPECT_EQ(named(findings), std::vector<Rank>{5_rank});
    if (suspected == 0) suspected = steps;
    if (findings[0].sure) sure = steps;
  }
  EXPECT_GE(suspected, 42);
  EXPECT_LE(suspected, 52);
  EXPECT_GT(sure, suspected);
  EXPECT_LE(sure, 56);
}

TEST(StragglerDetector, SaysNothingOfWhoIsLateBehindALaterOneOfItsGroup) {
  for (bool shares : {true, false}) {
    MadeUpJob job(8);
    const Rank second = shares ? 1_rank : 2_rank;
    for (int32_t i = 0; i < 4; ++i)
      job.groups.push_back({.comm_id = CommId{10 + static_cast<uint64_t>(i)}, .ranks = {Rank{2 * i}, Rank{2 * i + 1}}});
    std::vector<Finding> findings = stragglers_of(job, [&](StepNumber, std::vector<RankPlan>& ranks) {
      ranks[0].own_ms += 80;
      ranks[static_cast<size_t>(second.value())].own_ms += 40;
    });
    EXPECT_EQ(named(findings), shares ? (std::vector<Rank>{0_rank}) : (std::vector<Rank>{0_rank, 2_rank}));
  }
}

// Two groups of experts; the second spans two hosts and is slower for good, one of it a little more than the others.
TEST(StragglerDetector, IsNotSureOfWhoIsAsLateForGoodAsItsGroupAcrossHosts) {
  for (bool group : {true, false}) {
    MadeUpJob job(12);
    for (int32_t first : {0, 6}) {
      PlannedGroup experts{.comm_id = CommId{10 + static_cast<uint64_t>(first)}};
      for (int32_t i = 0; i < 6; ++i) experts.ranks.push_back(Rank{first + i});
      job.groups.push_back(experts);
    }
    std::vector<Finding> findings = stragglers_of(
        job,
        [&](StepNumber, std::vector<RankPlan>& ranks) {
          for (size_t rank = 6; rank < 12; ++rank) ranks[rank].own_ms += group ? 8 : 0;
          ranks[8].own_ms += group ? 3 : 11;
        },
        80);
    const bool sure =
        std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.sure; });
    EXPECT_EQ(sure, !group);
  }
}

// Two of twelve were never otherwise: with the later one repaired a step takes hardly less, and healthy ranks differ by as much.
TEST(StragglerDetector, WhatWasNeverOtherwiseAndCostsLittleCallsNobody) {
  for (bool two : {true, false}) {
    MadeUpJob job(12);
    std::vector<Finding> findings = stragglers_of(
        job,
        [=](StepNumber, std::vector<RankPlan>& ranks) {
          ranks[2].own_ms += 11;
          ranks[5].own_ms += two ? 8 : 0;
        },
        120);
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].ranks, std::vector<Rank>{2_rank});
    EXPECT_EQ(findings[0].sure, !two);
    EXPECT_TRUE(findings[0].sure_with_signals);
  }
}

// Load that is routed now here, now there stays on one rank for a dozen steps: large, lasting, and as ever.
TEST(StragglerDetector, WhatMovesFromRankToRankIsNoneOfTheirs) {
  MadeUpJob job(12);
  JobWindow window;
  bool sure = false;
  for (StepNumber step = 0_step; step < 400_step; ++step) {
    job.play(window, step, step, [](StepNumber number, std::vector<RankPlan>& ranks) {
      std::minstd_rand luck(static_cast<unsigned>(number.value() / 14 + 1));
      for (RankPlan& rank : ranks) rank.own_ms += luck() % 5 == 0 ? 18 : 0;
    });
    if (step < 150_step) continue;
    for (const Finding& finding : find_stragglers(window, {})) sure |= finding.sure;
  }
  EXPECT_FALSE(sure);
}

TEST(StragglerDetector, SaysNothingOfASmallShiftBehindALargerOne) {
  MadeUpJob job(16);
  job.noise = 0.004;
  std::vector<Finding> findings = stragglers_of(
      job,
      [](StepNumber number, std::vector<RankPlan>& ranks) {
        ranks[9].own_ms += number >= 40_step ? 3 : 0;
        ranks[5].own_ms += number >= 40_step ? 60 : 0;
      },
      80);
  EXPECT_EQ(named(findings), std::vector<Rank>{5_rank});
}

TEST(StragglerDetector, SaysNothingWhenAThirdOfTheRanksAreSlowTogether) {
  MadeUpJob job(9);
  EXPECT_EQ(named(stragglers_of(job, slow({6, 7, 8}))), std::vector<Rank>{});
}

TEST(StragglerDetector, SaysNothingWhenHalfOfTheRanksAreSlowTogether) {
  MadeUpJob job(8);
  EXPECT_EQ(named(stragglers_of(job, slow({4, 5, 6, 7}))), std::vector<Rank>{});
}

TEST(StragglerDetector, SaysNothingWhenHalfOfARoleIsSlowTogether) {
  // The last stage of a pipeline: four ranks with a group of their own, two of them with the head of the model as well.
  MadeUpJob job(16);
  job.groups.push_back(
      {.comm_id = CommId{2}, .ranks = {12_rank, 13_rank, 14_rank, 15_rank}, .transfer_ms = 5, .bytes = 1'000'000});
  EXPECT_EQ(named(stragglers_of(job, slow({14, 15}))), std::vector<Rank>{});
}

TEST(StragglerDetector, NamesTwoSlowRanksApart) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, slow({2, 6}));
  EXPECT_EQ(findings.size(), 2u);
  EXPECT_EQ(named(findings), (std::vector<Rank>{2_rank, 6_rank}));
}

TEST(StragglerDetector, WhoIsHiddenBehindALaterOneIsSaidToBe) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[2].own_ms += 60;
    ranks[6].own_ms += 30;
  });
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_NE(findings[0].sentence.find("makes"), std::string::npos) << findings[0].sentence;
  EXPECT_NE(findings[1].sentence.find("hidden behind others"), std::string::npos) << findings[1].sentence;
  EXPECT_TRUE(findings[0].sure);
  EXPECT_TRUE(findings[1].sure) << "with the first repaired it would cost something";
}

TEST(StragglerDetector, WhoIsHiddenBehindNobodyWhoIsNamedCallsNobody) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[2].own_ms *= 1.6;  // it has more to do
    ranks[2].bytes_factor = 1.6;
    ranks[6].own_ms += 30;
  });
  ASSERT_EQ(named(findings), std::vector<Rank>{6_rank});
  EXPECT_NE(findings[0].sentence.find("hidden behind others"), std::string::npos) << findings[0].sentence;
  EXPECT_FALSE(findings[0].sure);
  EXPECT_TRUE(findings[0].sure_with_signals) << "its node may say that something is wrong there";
}

// 32 ranks in stages of four, each rank in a chain with the one 16 further on.
MadeUpJob stages_in_chains() {
  MadeUpJob job(32);
  for (int32_t first = 0; first < 32; first += 4)
    job.groups.push_back({.comm_id = CommId{static_cast<uint64_t>(100 + first)},
                          .ranks = {Rank{first}, Rank{first + 1}, Rank{first + 2}, Rank{first + 3}},
                          .transfer_ms = 2,
                          .bytes = 1'000'000});
  for (int32_t rank = 0; rank < 16; ++rank)
    job.groups.push_back({.comm_id = CommId{static_cast<uint64_t>(200 + rank)},
                          .ranks = {Rank{rank}, Rank{rank + 16}},
                          .transfer_ms = 2,
                          .bytes = 1'000'000,
                          .p2p = true});
  return job;
}

TEST(StragglerDetector, WhoIsHiddenBehindALateRankOfAnotherStageOfItsPipelineIsItsVictim) {
  // Rank 5's stage waits for it; rank 22 is in a chain with rank 6 of that stage. Rank 14 has nothing to do with them.
  const auto late = [](size_t rank, double queue_ms) {
    MadeUpJob job = stages_in_chains();
    return named(stragglers_of(job, [=](StepNumber, std::vector<RankPlan>& ranks) {
      ranks[5].own_ms += 60;
      ranks[rank].own_ms += 30;
      ranks[rank].queue_ms += queue_ms;
    }));
  };
  EXPECT_EQ(late(22, 0), std::vector<Rank>{5_rank});
  EXPECT_EQ(late(22, 30), (std::vector<Rank>{5_rank, 22_rank})) << "its own GPU says that it is late";
  EXPECT_EQ(late(14, 0), (std::vector<Rank>{5_rank, 14_rank}));
}

// The same ranks of all stages of four are in one more group, which reaches everybody: that hides nobody.
TEST(StragglerDetector, WhoMeetsALaterOneAtTheEndOfTheStepAloneIsNotItsVictim) {
  MadeUpJob job = stages_in_chains();
  for (int32_t first = 0; first < 4; ++first) {
    PlannedGroup group{.comm_id = CommId{static_cast<uint64_t>(300 + first)}, .transfer_ms = 2, .bytes = 1'000'000};
    for (int32_t rank = first; rank < 32; rank += 4) group.ranks.push_back(Rank{rank});
    job.groups.push_back(group);
  }
  EXPECT_EQ(named(stragglers_of(job,
                                [](StepNumber, std::vector<RankPlan>& ranks) {
                                  ranks[5].own_ms += 60;
                                  ranks[14].own_ms += 30;
                                })),
            (std::vector<Rank>{5_rank, 14_rank}));
}

TEST(StragglerDetector, ALateRankThatIsAnotherOneInEachStepAccusesNobody) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    MadeUpJob job(8, seed);
    std::mt19937 random(seed);
    auto packing = [&](StepNumber, std::vector<RankPlan>& ranks) { ranks[random() % ranks.size()].own_ms += 60; };
    EXPECT_EQ(named(stragglers_of(job, packing, 60)), std::vector<Rank>{}) << "seed " << seed;
  }
}

TEST(StragglerDetector, ARankWithAsMuchMoreToDoIsNotSlow) {
  MadeUpJob job(8);
  auto more = [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms *= 1.5;
    ranks[5].bytes_factor = 1.5;
  };
  EXPECT_EQ(named(stragglers_of(job, more)), std::vector<Rank>{});
}

TEST(StragglerDetector, ARankFarSlowerThanItsExtraWorkIsNamed) {
  MadeUpJob job(8);
  auto more = [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms *= 3;
    ranks[5].bytes_factor = 1.5;
  };
  EXPECT_EQ(named(stragglers_of(job, more)), std::vector<Rank>{5_rank});
}

TEST(StragglerDetector, BlamesTheInputWhenTheInputPhaseIsLong) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += 50;
    ranks[5].input_ms += 48;
  });
  ASSERT_EQ(named(findings), std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].layer, Layer::kInput);
  EXPECT_EQ(findings[0].cause, Cause::kDataLoader);
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "Not its GPU"));
}

TEST(StragglerDetector, BlamesTheGpuWhenOperationsWaitBehindItsKernels) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += 50;
    ranks[5].queue_ms += 45;
  });
  ASSERT_EQ(named(findings), std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].layer, Layer::kGpu);
  EXPECT_EQ(findings[0].cause, Cause::kSlowCompute);
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "Not the input"));
}

TEST(StragglerDetector, BlamesTheHostWhenNeitherInputNorGpuIsBehind) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, slow({5}));
  ASSERT_EQ(named(findings), std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "Not its GPU"));
}

TEST(StragglerDetector, EveryFindingExcludesSomethingAndNamesTheQueryOfEachClaim) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = stragglers_of(job, slow({5}));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(has_claim(findings[0], ClaimKind::kExclusion, "Not the network"));
  EXPECT_FALSE(findings[0].next.empty());
  EXPECT_FALSE(findings[0].alternatives.empty());
  for (const Claim& entry : findings[0].chain) EXPECT_TRUE(entry.query.starts_with("/api/jobs/{job}/")) << entry.claim;
}

TEST(StragglerDetector, CheckpointAndEvaluationAreNotLateness) {
  for (bool checkpoint : {true, false}) {
    MadeUpJob job(8);
    auto saving = [=](StepNumber, std::vector<RankPlan>& ranks) {
      ranks[0].own_ms += 300;
      (checkpoint ? ranks[0].checkpoint_ms : ranks[0].eval_ms) = 300;
    };
    EXPECT_EQ(named(stragglers_of(job, saving)), std::vector<Rank>{});
  }
}

TEST(StragglerDetector, WarmUpStepsAccuseNobody) {
  MadeUpJob job(8);
  auto compiling = [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].own_ms += step < 4_step ? 5000 : 0; };
  JobWindow window;
  for (StepNumber step = 0_step; step < 40_step; ++step) {
    job.play(window, step, step, compiling);
    EXPECT_EQ(named(find_stragglers(window, {})), std::vector<Rank>{}) << "after step " << step;
  }
}

TEST(StragglerDetector, SuspectsWhoIsSlowFromTheFirstStepAfterTwoAndIsSureAfterFour) {
  for (bool host : {false, true}) {
    MadeUpJob job(24);
    JobWindow window;
    for (StepNumber step = 0_step; step < 8_step; ++step) {
      job.play(window, step, step, [&](StepNumber, std::vector<RankPlan>& ranks) {
        for (size_t rank = 8; rank < (host ? 16u : 9u); ++rank) ranks[rank].own_ms += 40;
      });
      const std::vector<Finding> findings = find_stragglers(window, {});
      EXPECT_EQ(findings.size(), step < 1_step ? 0u : 1u) << "after step " << step;
      for (const Finding& finding : findings) {
        EXPECT_EQ(finding.ranks.size(), host ? 8u : 1u);
        EXPECT_EQ(finding.ranks.front(), 8_rank);
        EXPECT_EQ(finding.sure, step >= 3_step) << "after step " << step;
        EXPECT_EQ(finding.since_step, step < 5_step ? 0_step : finding.since_step);
      }
    }
  }
}

TEST(StragglerDetector, IsNotSureOfASlownessThatEndsWithTheWarmUp) {
  MadeUpJob job(8);
  JobWindow window;
  for (StepNumber step = 0_step; step < 40_step; ++step) {
    job.play(window, step, step,
             [](StepNumber number, std::vector<RankPlan>& ranks) { ranks[3].own_ms += number < 3_step ? 80 : 0; });
    for (const Finding& finding : find_stragglers(window, {})) EXPECT_FALSE(finding.sure) << "after step " << step;
  }
}

// A rank that compiles again and again while the job is young: by chance always the same one of five.
TEST(StragglerDetector, IsNotSureOfWhoIsHitAgainAndAgainByWhatAYoungJobHas) {
  for (bool young : {true, false}) {
    MadeUpJob job(5);
    JobWindow window;
    const StepNumber begin = young ? 0_step : 60_step;
    bool sure = false;
    for (StepNumber step = 0_step; step < begin + 32; ++step) {
      job.play(window, step, step, [&](StepNumber number, std::vector<RankPlan>& ranks) {
        ranks[2].own_ms += number >= begin && number.value() % 5 == 4 ? 400 : 0;
      });
      for (const Finding& finding : find_stragglers(window, {})) sure |= finding.sure;
    }
    EXPECT_EQ(sure, !young);
  }
}

// Of two hosts one is hit oftener by chance; of sixteen hardly.
TEST(StragglerDetector, AHostThatIsHitAgainAndAgainIsComparedWithHostsNotWithRanks) {
  for (int32_t hosts : {2, 16}) {
    MadeUpJob job(8 * hosts);
    std::vector<Finding> findings = stragglers_of(
        job,
        [](StepNumber number, std::vector<RankPlan>& ranks) {
          if (number.value() >= 50 && number.value() % 9 == 3)
            for (size_t rank = 0; rank < 8; ++rank) ranks[rank].own_ms += 30;
        },
        110);
    ASSERT_EQ(findings.size(), 1U) << hosts;
    EXPECT_EQ(findings[0].subject, "host node-0");
    EXPECT_EQ(findings[0].sure, hosts == 16);
  }
}

// Over the limit oftener than others by what comes to all now and then, and not hit.
TEST(StragglerDetector, WhoAlwaysComesALittleLaterDoesNotComeAndGo) {
  for (bool always : {true, false}) {
    MadeUpJob job(5);
    std::vector<Finding> findings = stragglers_of(
        job,
        [&](StepNumber number, std::vector<RankPlan>& ranks) {
          ranks[2].own_ms += always ? 6 : 0;
          if (number.value() >= 50 && number.value() % 5 == 3) ranks[2].own_ms += always ? 6 : 15;
        },
        110);
    EXPECT_EQ(named(findings), always ? std::vector<Rank>{} : std::vector<Rank>{2_rank});
  }
}

// Its tensor-parallel peers wait for it in ways that nobody sees, and are late together in one place of all groups across
// them: that is no place with more to do.
TEST(StragglerDetector, NamesTheRankWhosePeersAreLateByAThirdOfWhatItIs) {
  MadeUpJob job(64);
  for (int32_t place = 0; place < 8; ++place) {
    PlannedGroup across{.comm_id = CommId{0x300 + static_cast<uint64_t>(place)}};
    for (int32_t host = 0; host < 8; ++host) across.ranks.push_back(Rank{host * 8 + place});
    PlannedGroup inside{.comm_id = CommId{0x400 + static_cast<uint64_t>(place)}};
    for (int32_t in_host = 0; in_host < 8; ++in_host) inside.ranks.push_back(Rank{place * 8 + in_host});
    job.groups.insert(job.groups.begin(), {inside, across});
  }
  for (int64_t steps : {44, 60}) {
    std::vector<Finding> findings = stragglers_of(
        job,
        [](StepNumber step, std::vector<RankPlan>& ranks) {
          if (step < 40_step) return;
          for (size_t rank = 16; rank < 24; ++rank) ranks[rank].own_ms += rank == 19 ? 60 : 20;
        },
        steps);
    ASSERT_EQ(named(findings), std::vector<Rank>{19_rank}) << steps;
    EXPECT_TRUE(findings[0].sure);
  }
}

TEST(StragglerDetector, ASlowInputCostsNoMoreThanItTakesLonger) {
  MadeUpJob job(8);
  const std::vector<Finding> findings = stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[2].own_ms += 60;
    ranks[2].input_ms += 40;
  });
  ASSERT_EQ(named(findings), std::vector<Rank>{2_rank});
  EXPECT_EQ(findings[0].layer, Layer::kInput);
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 40e6, 2e6);
}

// A hiccup shortly before is no part of it: what nodes said then is not what they say of it.
TEST(StragglerDetector, SaysSinceWhenAlsoAfterAHiccup) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(
      job,
      [](StepNumber step, std::vector<RankPlan>& ranks) {
        ranks[3].own_ms += step >= 40_step || step == 38_step ? 50 : 0;
      },
      43);
  ASSERT_EQ(named(findings), std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].since_step, 40_step);
}

TEST(StragglerDetector, SaysSinceWhen) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(
      job, [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].own_ms += step >= 40_step ? 50 : 0; }, 80);
  ASSERT_EQ(named(findings), std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].since_step, 40_step);
  EXPECT_EQ(findings[0].through_step, 79_step);
}

TEST(StragglerDetector, NamesTheSlowRankWhileAFifthOfTheRanksAreSilentAndReportsTheCoverage) {
  MadeUpJob job(10);
  std::vector<Finding> findings = stragglers_of(
      job,
      [](StepNumber, std::vector<RankPlan>& ranks) {
        ranks[5].own_ms += 50;
        ranks[1].silent = ranks[8].silent = true;
      },
      60);
  ASSERT_EQ(named(findings), std::vector<Rank>{5_rank});
  EXPECT_DOUBLE_EQ(findings[0].coverage, 0.8);
}

TEST(StragglerDetector, NamesTheSlowRankWhileAFifthOfTheRowsIsMissing) {
  MadeUpJob job(10);
  std::mt19937 random(7);
  std::vector<Finding> findings = stragglers_of(
      job,
      [&](StepNumber, std::vector<RankPlan>& ranks) {
        ranks[5].own_ms += 50;
        for (RankPlan& rank : ranks) rank.silent = random() % 5 == 0;
      },
      60);
  EXPECT_EQ(named(findings), std::vector<Rank>{5_rank});
}

TEST(StragglerDetector, AccusesNobodyWhenTheSlowRankIsTheSilentOne) {
  MadeUpJob job(10);
  EXPECT_EQ(named(stragglers_of(
                job,
                [](StepNumber, std::vector<RankPlan>& ranks) {
                  ranks[5].own_ms += 50;
                  ranks[5].silent = true;
                },
                60)),
            std::vector<Rank>{});
}

TEST(Lateness, IsMeasuredAgainstRanksOfTheSameRole) {
  // Ranks 4 to 7 have a group more and twice the work; one of them is slow even among these.
  MadeUpJob job(8);
  job.noise = 0;
  job.groups.push_back(
      {.comm_id = CommId{2}, .ranks = {4_rank, 5_rank, 6_rank, 7_rank}, .transfer_ms = 5, .bytes = 1'000'000});
  JobWindow window;
  job.play(window, 0_step, 0_step, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (size_t rank = 4; rank < 8; ++rank) ranks[rank].own_ms = 200;
    ranks[6].own_ms = 230;
  });
  std::map<Rank, double> late = lateness(window, *window.step(0_step));
  EXPECT_NEAR(late[1_rank], 0, 1);
  EXPECT_NEAR(late[4_rank], 0, 1);
  EXPECT_NEAR(late[6_rank], 30e6, 1);
}

TEST(Lateness, OfOneRankAloneSaysNothing) {
  MadeUpJob job(1);
  JobWindow window;
  job.play(window, 0_step, 0_step);
  EXPECT_TRUE(lateness(window, *window.step(0_step)).empty());
}

TEST(StragglerDetector, ARankWithoutGpuTimesIsNeitherSlowNorAMeasure) {
  // All of its step looks like own work of its own: 120 ms against 100.
  MadeUpJob job(8);
  EXPECT_TRUE(stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[5].unseen = true; }).empty());
  std::vector<Finding> findings = stragglers_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (size_t rank = 4; rank < 8; ++rank) ranks[rank].unseen = true;
    ranks[2].own_ms += 50;
  });
  ASSERT_EQ(named(findings), std::vector<Rank>{2_rank});
  EXPECT_DOUBLE_EQ(findings[0].coverage, 0.5);
}

TEST(StragglerDetector, ASlowRankIsNamedFromTheStepsThatAreKnown) {
  MadeUpJob job(8);
  std::vector<Finding> findings = stragglers_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += 50;
    ranks[5].unseen = step % 4 == 0;
  });
  EXPECT_EQ(named(findings), std::vector<Rank>{5_rank});
}

}  // namespace
}  // namespace lockstep
