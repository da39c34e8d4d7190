#include "sim/score/report.h"

#include <gtest/gtest.h>

#include "sim/score/score_testing.h"

namespace lockstep::sim {
namespace {

using testing::MadeUpCase;

CaseScore named_after(double seconds_after) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(40 + seconds_after, "a", VerdictState::kConfirmed, {5_rank});
  return made.score();
}

CaseScore missed() {
  MadeUpCase made;
  made.slow_gpu();
  return made.score();
}

TEST(Report, AMissedFaultIsAWrongRankAndADelayThatNeverEnds) {
  std::vector<CaseScore> cases;
  for (int i = 0; i < 8; ++i) cases.push_back(named_after(2));
  cases.push_back(missed());
  cases.push_back(missed());
  const Totals totals = total(cases);
  EXPECT_EQ(totals.faults, 10);
  EXPECT_EQ(totals.rank_first, 8);
  EXPECT_DOUBLE_EQ(totals.detected_p50_s, 2);
  EXPECT_DOUBLE_EQ(totals.detected_p90_s, -1);
  EXPECT_DOUBLE_EQ(totals.found_p90_s, 2);
  EXPECT_EQ(totals.detected_in_time, 8);
}

TEST(Report, DetectionAndVerdictAreInTimeByTheClockOrByTheStep) {
  EXPECT_EQ(total({named_after(2.9)}).detected_in_time, 1);
  EXPECT_EQ(total({named_after(3.5)}).detected_in_time, 0);
  EXPECT_EQ(total({named_after(9.9)}).confirmed_in_time, 1);
  CaseScore long_steps = named_after(30);
  long_steps.faults[0].detected_steps = 2;
  EXPECT_EQ(total({long_steps}).detected_in_time, 1);
  EXPECT_EQ(total({long_steps}).confirmed_in_time, 0);
  long_steps.faults[0].confirmed_steps = 4;
  EXPECT_EQ(total({long_steps}).confirmed_in_time, 1);
}

TEST(Report, OnlyPlainFaultsMustBeDetectedAtOnce) {
  CaseScore small = named_after(8);
  small.faults[0].cost = 0.1;
  EXPECT_EQ(total({small}).plain, 0);
  EXPECT_EQ(total({small, named_after(2)}).plain, 1);
  EXPECT_NE(terminal({{"lockstep", {small, named_after(2)}}}).find("met         faults of 20 % and more"),
            std::string::npos);
}

TEST(Report, TheCurveSaysHowSoonFaultsAreFoundByCostAndNoise) {
  CaseScore soon = named_after(2), late = named_after(2), none = missed(), noisy = named_after(2);
  soon.faults[0].detected_steps = 6;
  late.faults[0].detected_steps = 19;
  for (CaseScore* each : {&soon, &late, &none, &noisy}) each->faults[0].cost = 0.045;
  noisy.noise = 3;
  noisy.faults[0].detected_steps = 61;
  const std::vector<CaseScore> cases{soon, late, none, noisy};
  const std::vector<CurvePoint> curve = small_fault_curve(cases);
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_DOUBLE_EQ(curve[0].cost, 0.04);
  EXPECT_EQ(curve[0].faults, 3);
  EXPECT_EQ(curve[0].found_within, (std::array<int64_t, 4>{0, 1, 2, 2}));
  EXPECT_EQ(curve[1].found_within, (std::array<int64_t, 4>{0, 0, 0, 0}));
  EXPECT_EQ(curve[1].found, 1);
  const std::string text = markdown({{"lockstep", cases}}, "Score");
  EXPECT_NE(text.find("| x1 | 4 % | 3 | 0.0 % | 33.3 % | 66.7 % | 66.7 % | 66.7 % | 66.7 % |"), std::string::npos)
      << text;
  EXPECT_NE(text.find("| faults of 4 % found within 20 steps, noise x1 | >= 90 % | 66.7 % | not met |"),
            std::string::npos)
      << text;
}

TEST(Report, WhatCostsTheJobNothingIsNotInTheCurve) {
  CaseScore hidden = missed();
  hidden.faults[0].cost = 0.004;
  EXPECT_TRUE(small_fault_curve({hidden}).empty());
  hidden.faults[0].cost = 0.02;
  hidden.faults[0].shape = "pulsed";
  EXPECT_TRUE(small_fault_curve({hidden}).empty());
}

TEST(Report, FaultsTooSmallToNoticeCountInTheCurveAlone) {
  MadeUpCase made;
  made.slow_gpu().below_notice = true;
  const CaseScore small = made.score();
  EXPECT_EQ(total({small}).faults, 0);
  EXPECT_EQ(total({small}).small_faults, 1);
  EXPECT_TRUE(complaints(small).empty());
  const std::string text = markdown({{"lockstep", {small}}}, "Score");
  EXPECT_NE(text.find("By severity"), std::string::npos);
  EXPECT_NE(text.find("| 20 % | 1 | 0.0 % |"), std::string::npos) << text;
}

TEST(Report, FalseVerdictsAreCountedPerThousandHealthyHours) {
  MadeUpCase made;
  made.saw(20, "a", VerdictState::kConfirmed, {3_rank});
  const Totals totals = total({made.score()});
  EXPECT_EQ(totals.wrong_while_healthy, 1);
  EXPECT_NEAR(totals.healthy_hours, 100.0 / 3600, 1e-9);
  EXPECT_NE(terminal({{"lockstep", {made.score()}}}).find("36000.0 (1 in 0.03 h)"), std::string::npos);
}

TEST(Report, ListsEverythingThatWasNotRightWithTheSentenceGiven) {
  MadeUpCase made;
  made.slow_gpu();
  made.saw(45, "a", VerdictState::kConfirmed, {5_rank}, Layer::kHost);
  made.saw(50, "b", VerdictState::kConfirmed, {6_rank});
  const std::vector<std::string> lines = complaints(made.score());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("slow-compute on rank 5"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("was called host/slow-compute: said so"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("wrong after 50.0 s: rank 6"), std::string::npos) << lines[1];
  EXPECT_TRUE(complaints(named_after(2)).empty());
}

TEST(Report, StandsBesideTheSimpleRules) {
  const std::string text = markdown({{"lockstep", {named_after(2)}}, {"slowest rank", {missed()}}}, "Score");
  EXPECT_NE(text.find("| lockstep | 100.0 % |"), std::string::npos) << text;
  EXPECT_NE(text.find("| slowest rank | 0.0 % |"), std::string::npos) << text;
  EXPECT_NE(json({{"lockstep", {named_after(2)}}}).find("\"rank\":1"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::sim
