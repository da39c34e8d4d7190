#include "diagnosis/detectors/pause/pause.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;
using testing::StepPlan;

std::vector<Finding> pauses_of(MadeUpJob& job, const StepPlan& plan, int64_t steps = 60,
                               const std::vector<AttributedRange>& explained = {}) {
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps - 1}, plan);
  return find_pauses(window, explained);
}

bool eventful(StepNumber step) {
  return step >= 10_step && step % 8 == 0;
}

// The rank stops for 200 ms while the collective runs: what comes to it and what it sends stands.
void stop(std::vector<RankPlan>& ranks, size_t rank) {
  ranks[rank].wire_longest_ms = 200;
  ranks[(rank + ranks.size() - 1) % ranks.size()].wire_longest_ms = 200;
}

TEST(PauseDetector, NamesTheRankThatIsLateNowAndThen) {
  MadeUpJob job(8);
  std::vector<Finding> findings = pauses_of(
      job, [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].own_ms += eventful(step) ? 200 : 0; });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_LT(findings[0].steps_hit, 0.3);
  EXPECT_EQ(findings[0].since_step, 16_step);
  EXPECT_EQ(findings[0].through_step, 56_step);
  EXPECT_EQ(findings[0].coverage, 1);
  EXPECT_TRUE(std::any_of(findings[0].chain.begin(), findings[0].chain.end(),
                          [](const Claim& entry) { return entry.kind == ClaimKind::kExclusion; }));
}

TEST(PauseDetector, WhoAlwaysComesALittleLaterDoesNotStopWhenItIsLaterStill) {
  for (bool always : {true, false}) {
    MadeUpJob job(8);
    std::vector<Finding> findings = pauses_of(job, [=](StepNumber step, std::vector<RankPlan>& ranks) {
      ranks[3].own_ms += always ? 15 : 0;
      if (step >= 10_step && step % 5 == 0) ranks[3].own_ms += always ? 10 : 25;
    });
    EXPECT_EQ(findings.empty(), always);
  }
}

// Stopped inside collectives, which are all of the step: nobody is late, but one process makes no call.
TEST(PauseDetector, NamesTheProcessThatMakesNoCallLongerThanAnyOther) {
  MadeUpJob job(8);
  auto plan = [](double others_ms) {
    return [=](StepNumber step, std::vector<RankPlan>& ranks) {
      if (step < 10_step || step % 2 != 0) return;
      for (RankPlan& rank : ranks) rank.quiet_ms = others_ms;
      ranks[3].quiet_ms = 150;
    };
  };
  std::vector<Finding> findings = pauses_of(job, plan(90));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_EQ(findings[0].cause, Cause::kProcessPaused);
  EXPECT_TRUE(findings[0].sure);
  // What it alone was quiet is little: the others were quiet by themselves.
  MadeUpJob alike(8);
  EXPECT_TRUE(pauses_of(alike, plan(140)).empty());
}

TEST(PauseDetector, WhoseCompanionsAreNotHeardOfIsNotAccusedOfItsSilence) {
  MadeUpJob job(8);
  job.groups.clear();
  for (int32_t pair = 0; pair < 4; ++pair)
    job.groups.push_back({.comm_id = CommId{static_cast<uint64_t>(100 + pair)},
                          .ranks = {Rank{2 * pair}, Rank{2 * pair + 1}},
                          .transfer_ms = 100});
  auto plan = [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[2].silent = true;
    if (step < 10_step || step % 2 != 0) return;
    for (RankPlan& rank : ranks) rank.quiet_ms = 90;
    ranks[3].quiet_ms = 150;
  };
  EXPECT_TRUE(pauses_of(job, plan, 80).empty());
}

// The first stage of a pipeline waits longest in every step, by its place.
TEST(PauseDetector, DoesNotTakeAQuietPlaceForAPausedProcess) {
  MadeUpJob job(2);
  EXPECT_TRUE(pauses_of(job, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[0].quiet_ms = 90; }).empty());
}

TEST(PauseDetector, NamesTheRankThatLeavesArrivedDataLyingWhileTransfersStand) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (!eventful(step)) return;
    stop(ranks, 3);
    ranks[3].undrained_longest_ms = 200;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_EQ(findings[0].cause, Cause::kProcessPaused);
}

TEST(PauseDetector, NamesTheRankOnWhoseBothSidesTransfersStand) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (eventful(step)) stop(ranks, 3);
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
}

TEST(PauseDetector, NamesTheRankThatIsLateInSomeEventsAndStopsTransfersInOthers) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (!eventful(step)) return;
    if (step % 16 == 0) {
      ranks[3].own_ms += 200;
    } else {
      stop(ranks, 3);
    }
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
}

TEST(PauseDetector, CallsStallsOfOnePairALink) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = pauses_of(
      job, [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].wire_longest_ms = eventful(step) ? 200 : 0; });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kLink);
  EXPECT_EQ(findings[0].component, "link between rank 3 and rank 4");
}

TEST(PauseDetector, EventsWithChangingActorsAccuseNobody) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    MadeUpJob job(8, seed);
    std::mt19937 random(seed);
    EXPECT_TRUE(pauses_of(job,
                          [&](StepNumber step, std::vector<RankPlan>& ranks) {
                            if (step % 2 == 0) ranks[random() % ranks.size()].own_ms += 200;
                          })
                    .empty())
        << "seed " << seed;
  }
}

TEST(PauseDetector, SaysNothingOfAHealthyJobWithNoise) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    MadeUpJob job(8, seed);
    job.ring_flows = true;
    job.noise = 0.04;
    EXPECT_TRUE(pauses_of(job, {}, 100).empty()) << "seed " << seed;
  }
}

TEST(PauseDetector, TwoEventsAreNotEnough) {
  MadeUpJob job(8);
  EXPECT_TRUE(pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[3].own_ms += step == 20_step || step == 40_step ? 400 : 0;
              }).empty());
}

TEST(PauseDetector, ALongStretchOfLatenessIsNotAPause) {
  MadeUpJob job(8);
  EXPECT_TRUE(pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[3].own_ms += step >= 20_step && step < 40_step ? 200 : 0;
              }).empty());
}

TEST(PauseDetector, LatenessThatHasAVerdictOfItsOwnIsNotAPause) {
  // A slow rank that some of its steps are spared: no unbroken stretch.
  MadeUpJob job(8);
  auto mostly_slow = [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[3].own_ms += step >= 20_step && step < 50_step && step % 3 != 0 ? 200 : 0;
  };
  EXPECT_FALSE(pauses_of(job, mostly_slow).empty());
  MadeUpJob again(8);
  EXPECT_TRUE(pauses_of(again, mostly_slow, 60, {{3_rank, 20_step, 49_step}}).empty());
}

TEST(PauseDetector, WarmUpIsNobodysPause) {
  MadeUpJob job(8);
  EXPECT_TRUE(pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[3].own_ms += step < 6_step && step != 3_step ? 3000 : 0;
              }).empty());
}

TEST(PauseDetector, CheckpointsAndEvaluationsAreNotPauses) {
  for (bool checkpoint : {true, false}) {
    MadeUpJob job(8);
    EXPECT_TRUE(pauses_of(job, [=](StepNumber step, std::vector<RankPlan>& ranks) {
                  if (!eventful(step)) return;
                  ranks[0].own_ms += 300;
                  (checkpoint ? ranks[0].checkpoint_ms : ranks[0].eval_ms) = 280;
                }).empty());
  }
}

TEST(PauseDetector, EverybodyStandingIsNobodyInParticular) {
  MadeUpJob job(8);
  job.ring_flows = true;
  EXPECT_TRUE(pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                for (RankPlan& rank : ranks) rank.wire_longest_ms = eventful(step) ? 200 : 0;
              }).empty());
}

TEST(PauseDetector, EventsTooSeldomToMatterSayNothing) {
  MadeUpJob job(8);
  EXPECT_TRUE(
      pauses_of(
          job, [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].own_ms += step % 30 == 15 ? 25 : 0; }, 98)
          .empty());
}

TEST(PauseDetector, ACheckpointIsOneAlsoWhereItsRankIsUnknown) {
  // Rank 0 saves and everybody's transfers to it stand; of its GPU times nothing is known.
  MadeUpJob job(8);
  job.ring_flows = true;
  EXPECT_TRUE(pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[0].unseen = true;
                if (!eventful(step)) return;
                stop(ranks, 0);
                ranks[0].checkpoint_ms = 200;
              }).empty());
}

// Everybody is quiet for as long, and nobody is late: only who looks at the processes sees which one is stopped.
TEST(PauseDetector, NamesTheProcessThatIsFoundStoppedAgainAndAgain) {
  const auto plan = [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) {
      rank.own_ms = step < 14_step ? 60 : 320;
      rank.quiet_ms = step < 14_step ? 10 : 150;
    }
    if (step >= 14_step && step % 2 == 0) ranks[5].stopped_ms = 250;
  };
  MadeUpJob job(8);
  const std::vector<Finding> findings = pauses_of(job, plan, 24);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].cause, Cause::kProcessPaused);
  EXPECT_EQ(findings[0].since_step, 14_step);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 260e6, 1e6) << "as before it began";
  MadeUpJob young(8);
  EXPECT_FALSE(pauses_of(young, plan, 18).at(0).sure) << "twice is a suspicion";
  MadeUpJob once(8);
  EXPECT_TRUE(pauses_of(once, plan, 16).empty()) << "once may be a debugger";
}

TEST(PauseDetector, WhoWasStoppedLongAgoIsNot) {
  MadeUpJob job(8);
  EXPECT_TRUE(pauses_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[5].stopped_ms = step >= 10_step && step < 20_step ? 250 : 0;
              }).empty());
}

}  // namespace
}  // namespace lockstep
