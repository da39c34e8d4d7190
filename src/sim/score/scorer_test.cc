#include "sim/score/scorer.h"

#include <gtest/gtest.h>

#include "sim/score/score_testing.h"

namespace lockstep::sim {
namespace {

using testing::MadeUpCase;

TEST(Scorer, MeasuresFromTheHarmToTheSuspicionAndToTheVerdict) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(43, "a", VerdictState::kSuspected, {5_rank});
  made.saw(47.5, "a", VerdictState::kConfirmed, {5_rank});
  const CaseScore score = made.score();
  ASSERT_EQ(score.faults.size(), 1u);
  const FaultScore& fault = score.faults[0];
  EXPECT_DOUBLE_EQ(fault.detected_s, 3);
  EXPECT_EQ(fault.detected_steps, 3);  // steps 40, 41 and 42 had been told
  EXPECT_DOUBLE_EQ(fault.confirmed_s, 7.5);
  EXPECT_TRUE(fault.rank_first && fault.layer && fault.cause_right && fault.layer_at_last);
  EXPECT_EQ(fault.repeated, 0);
  EXPECT_TRUE(score.wrong.empty());
  EXPECT_TRUE(score.wrong_suspicions.empty());
  EXPECT_DOUBLE_EQ(score.healthy_s, 40);
  EXPECT_DOUBLE_EQ(score.played_s, 100);
  EXPECT_EQ(score.parallelism, "tp8 dp8");
}

TEST(Scorer, StepsBetweenTwoHarmsAreNotCountedThoseAfterTheLastAre) {
  MadeUpCase made;
  made.slow_gpu();
  made.harmed_only_in({40_step, 52_step, 70_step});
  made.saw(54.5, "a", VerdictState::kSuspected, {5_rank});  // steps up to 53 had been told
  made.saw(59.5, "a", VerdictState::kConfirmed, {5_rank});
  const FaultScore fault = made.score().faults[0];
  EXPECT_EQ(fault.detected_steps, 3);
  EXPECT_EQ(fault.confirmed_steps, 8);
}

TEST(Scorer, ComparesThePriceWithWhatTheFaultCosts) {
  MadeUpCase made;
  made.slow_gpu().cost = 0.25;  // of a healthy step: a fifth of one as it is
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank});
  made.priced("a", 0.22);
  EXPECT_NEAR(made.score().faults[0].price_error, 0.02, 1e-9);
  made.slow_gpu();  // another one beside it: nobody knows what each costs
  EXPECT_EQ(made.score().faults[0].price_error, -1);
}

TEST(Scorer, AWrongRankIsAWrongVerdictAndAMissedFault) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {6_rank});
  const CaseScore score = made.score();
  EXPECT_FALSE(score.faults[0].detected());
  EXPECT_FALSE(score.faults[0].rank_first);
  EXPECT_FALSE(score.faults[0].layer);
  ASSERT_EQ(score.wrong.size(), 1u);
  EXPECT_FALSE(score.wrong[0].while_healthy);
  EXPECT_EQ(score.wrong[0].ranks, std::vector<Rank>{6_rank});
}

TEST(Scorer, ARightAnswerAfterAWrongOneIsNotTheFirstAnswer) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {6_rank});
  made.saw(50, "b", VerdictState::kConfirmed, {5_rank});
  const CaseScore score = made.score();
  EXPECT_TRUE(score.faults[0].confirmed());
  EXPECT_FALSE(score.faults[0].rank_first);
  EXPECT_TRUE(score.faults[0].rank_among_three);
  EXPECT_EQ(score.wrong.size(), 1u);
}

TEST(Scorer, AWrongAnswerAfterTheRightOneDoesNotTakeItBack) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank});
  made.saw(50, "b", VerdictState::kConfirmed, {6_rank});
  const CaseScore score = made.score();
  EXPECT_TRUE(score.faults[0].rank_first);
  EXPECT_EQ(score.wrong.size(), 1u);
}

TEST(Scorer, TheRightRankAmongTheAlternativesOfAWrongVerdictIsTopThree) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {6_rank}).alternatives = {"host of rank 7", "GPU of rank 5", "rank 9"};
  EXPECT_TRUE(made.score().faults[0].rank_among_three);
  EXPECT_FALSE(made.score().faults[0].rank_first);

  MadeUpCase fourth;
  fourth.slow_gpu();
  fourth.saw(45, "a", VerdictState::kConfirmed, {6_rank}).alternatives = {"rank 7", "rank 8", "rank 5"};
  EXPECT_FALSE(fourth.score().faults[0].rank_among_three);
}

TEST(Scorer, TheLayerIsThatOfTheFirstConfirmedVerdict) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kSuspected, {5_rank}, Layer::kUnknown);
  made.saw(47, "a", VerdictState::kConfirmed, {5_rank}, Layer::kHost);
  made.saw(60, "a", VerdictState::kConfirmed, {5_rank}, Layer::kGpu);
  const FaultScore fault = made.score().faults[0];
  EXPECT_FALSE(fault.layer);
  EXPECT_EQ(fault.said_layer, "host");
  EXPECT_TRUE(fault.layer_at_last);
  EXPECT_TRUE(fault.rank_first);
  EXPECT_EQ(fault.repeated, 0);  // it is one verdict that changes its mind
}

TEST(Scorer, AVerdictFromBeforeTheHarmIsFalseEvenIfTheRankIsHitLater) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(20, "a", VerdictState::kConfirmed, {5_rank});
  const CaseScore score = made.score();
  ASSERT_EQ(score.wrong.size(), 1u);
  EXPECT_TRUE(score.wrong[0].while_healthy);
  EXPECT_DOUBLE_EQ(score.wrong[0].at_s, 20);
  EXPECT_FALSE(score.faults[0].confirmed());
}

TEST(Scorer, AVerdictLongAfterTheEndIsFalse) {
  MadeUpCase made;
  made.fault(Cause::kSlowCompute, VerdictKind::kSlow, {5_rank}, {Layer::kGpu}, 20, 30);
  made.saw(59, "a", VerdictState::kConfirmed, {5_rank});
  EXPECT_TRUE(made.score().faults[0].confirmed());

  MadeUpCase late;
  late.fault(Cause::kSlowCompute, VerdictKind::kSlow, {5_rank}, {Layer::kGpu}, 20, 30);
  late.saw(61, "a", VerdictState::kConfirmed, {5_rank});
  EXPECT_FALSE(late.score().faults[0].confirmed());
  ASSERT_EQ(late.score().wrong.size(), 1u);
  EXPECT_TRUE(late.score().wrong[0].while_healthy);
}

TEST(Scorer, ASecondVerdictForTheSameFaultIsRepeated) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank});
  made.saw(50, "a", VerdictState::kCleared, {5_rank});
  made.saw(55, "b", VerdictState::kSuspected, {5_rank});
  made.saw(56, "b", VerdictState::kConfirmed, {5_rank});
  made.saw(57, "c", VerdictState::kConfirmed, {5_rank}, Layer::kSoftware,
           VerdictKind::kHang);  // another kind, the same culprit
  const CaseScore score = made.score();
  EXPECT_EQ(score.faults[0].repeated, 2);
  EXPECT_TRUE(score.wrong.empty());
  EXPECT_DOUBLE_EQ(score.faults[0].confirmed_s, 5);
}

TEST(Scorer, AnotherKindDoesNotNameAFault) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank}, Layer::kSoftware, VerdictKind::kHang);
  EXPECT_FALSE(made.score().faults[0].detected());
}

TEST(Scorer, WrongSuspicionsAreCountedApart) {
  MadeUpCase made;
  made.saw(20, "a", VerdictState::kSuspected, {3_rank});
  made.saw(24, "a", VerdictState::kCleared, {3_rank});
  const CaseScore score = made.score();
  EXPECT_TRUE(score.wrong.empty());
  EXPECT_EQ(score.wrong_suspicions.size(), 1u);
  EXPECT_DOUBLE_EQ(score.healthy_s, 100);
}

TEST(Scorer, AVerdictThatIsOnlyEverSeenClearedAccusesNobody) {
  MadeUpCase made;
  made.saw(20, "a", VerdictState::kCleared, {3_rank});
  EXPECT_TRUE(made.score().wrong.empty());
  EXPECT_TRUE(made.score().wrong_suspicions.empty());
}

TEST(Scorer, AVerdictThatMovesToAnInnocentRankIsWrongToo) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank});
  made.saw(60, "a", VerdictState::kConfirmed, {6_rank});
  made.saw(61, "a", VerdictState::kConfirmed, {7_rank});
  const CaseScore score = made.score();
  EXPECT_TRUE(score.faults[0].rank_first);
  EXPECT_EQ(score.wrong.size(), 1u);  // one verdict, one mistake
}

TEST(Scorer, AFaultOfNoRankIsNamedByItsLayerOrByAccusingNobody) {
  const auto leaf = [](std::vector<Rank> ranks, Layer layer) {
    MadeUpCase made;
    made.fault(Cause::kCongestion, VerdictKind::kSlow, {}, {Layer::kSwitch, Layer::kLink}, 40);
    made.saw(45, "a", VerdictState::kConfirmed, std::move(ranks), layer);
    return made.score();
  };
  EXPECT_TRUE(leaf({}, Layer::kSwitch).faults[0].layer);
  EXPECT_TRUE(leaf({12_rank}, Layer::kLink).faults[0].layer);
  EXPECT_TRUE(leaf({}, Layer::kSoftware).faults[0].confirmed());
  EXPECT_FALSE(leaf({}, Layer::kSoftware).faults[0].layer);
  EXPECT_FALSE(leaf({12_rank}, Layer::kGpu).faults[0].confirmed());
  EXPECT_EQ(leaf({12_rank}, Layer::kGpu).wrong.size(), 1u);
  EXPECT_FALSE(leaf({}, Layer::kSwitch).faults[0].has_ranks);
}

TEST(Scorer, TwoFaultsGetAVerdictEach) {
  MadeUpCase made;
  made.slow_gpu();
  made.fault(Cause::kDataLoader, VerdictKind::kSlow, {20_rank, 21_rank}, {Layer::kInput}, 50);
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank});
  made.saw(58, "b", VerdictState::kConfirmed, {21_rank}, Layer::kInput);
  const CaseScore score = made.score();
  EXPECT_TRUE(score.faults[0].rank_first && score.faults[0].layer);
  EXPECT_TRUE(score.faults[1].rank_first && score.faults[1].layer);
  EXPECT_DOUBLE_EQ(score.faults[1].confirmed_s, 8);
  EXPECT_TRUE(score.wrong.empty());
  EXPECT_DOUBLE_EQ(score.healthy_s, 40);  // overlapping faults count once
}

TEST(Scorer, WhatTheTruthAllowsIsNotWrong) {
  MadeUpCase made;
  made.allow(Layer::kWorkload);
  made.saw(30, "a", VerdictState::kConfirmed, {3_rank}, Layer::kWorkload);
  EXPECT_TRUE(made.score().wrong.empty());
  EXPECT_EQ(made.score().allowed, 1);

  MadeUpCase hardware;
  hardware.allow(Layer::kWorkload);
  hardware.saw(30, "a", VerdictState::kConfirmed, {3_rank}, Layer::kGpu);
  EXPECT_EQ(hardware.score().wrong.size(), 1u);
}

TEST(Scorer, ARampThatIsNamedBeforeItDoesHarmIsNamedAtOnce) {
  MadeUpCase made;
  made.slow_gpu();
  made.acted_since(30);
  made.saw(35, "a", VerdictState::kConfirmed, {5_rank});
  const CaseScore score = made.score();
  EXPECT_TRUE(score.faults[0].rank_first);
  EXPECT_DOUBLE_EQ(score.faults[0].detected_s, 0);
  EXPECT_DOUBLE_EQ(score.faults[0].confirmed_s, 0);
  EXPECT_TRUE(score.wrong.empty());
  EXPECT_DOUBLE_EQ(score.healthy_s, 30);
}

TEST(Scorer, AFaultThatDidNoHarmIsNotMissed) {
  MadeUpCase made;
  made.fault(Cause::kSlowCompute, VerdictKind::kSlow, {5_rank}, {Layer::kGpu}, -1000);  // began_unix_ns becomes 0
  const CaseScore score = made.score();
  EXPECT_FALSE(score.faults[0].began);
  EXPECT_DOUBLE_EQ(score.healthy_s, 100);
}

TEST(Scorer, SaysWhatIsDamaged) {
  TelemetryDamage damage;
  EXPECT_TRUE(damage_of(damage).empty());
  damage.lost_agents = 0.1;
  damage.clock_error_us = 10'000;
  EXPECT_EQ(damage_of(damage), (std::vector<std::string>{"lost agents", "clock error"}));
}

TEST(Scorer, APlaceInTheNetworkIsTheFirstThatAConfirmedVerdictNames) {
  MadeUpCase made;
  made.scenario().topology.switches = true;
  made.fault(Cause::kLinkDegraded, VerdictKind::kSlow, {}, {Layer::kLink}, 40).places = {"link:leaf-3:up1"};
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank}, Layer::kLink);
  made.saw(52, "a", VerdictState::kConfirmed, {5_rank}, Layer::kLink).place = "link:leaf-3:up1";
  EXPECT_TRUE(made.score().faults[0].place_first);
  MadeUpCase other;
  other.scenario().topology.switches = true;
  other.fault(Cause::kLinkDegraded, VerdictKind::kSlow, {}, {Layer::kLink}, 40).places = {"link:leaf-3:up1"};
  other.saw(45, "a", VerdictState::kConfirmed, {5_rank}, Layer::kLink).place = "link:leaf-3:up0";
  other.saw(52, "a", VerdictState::kConfirmed, {5_rank}, Layer::kLink).place = "link:leaf-3:up1";
  EXPECT_FALSE(other.score().faults[0].place_first);
  EXPECT_EQ(other.score().faults[0].said_place, "link:leaf-3:up0");
}

TEST(Scorer, BlamingTheNetworkForASlowGpuIsADecoyThatWorked) {
  MadeUpCase made;
  made.slow_gpu();
  made.scenario().topology.switches = true;
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank}, Layer::kLink);
  EXPECT_EQ(made.score().decoyed.size(), 1u);
  MadeUpCase right;
  right.slow_gpu();
  right.scenario().topology.switches = true;
  right.saw(45, "a", VerdictState::kConfirmed, {5_rank});
  EXPECT_TRUE(right.score().decoyed.empty());
}

}  // namespace
}  // namespace lockstep::sim
