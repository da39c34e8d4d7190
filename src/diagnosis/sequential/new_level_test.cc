#include "diagnosis/sequential/new_level.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "diagnosis/sequential/shift_monitor.h"

namespace lockstep {
namespace {

std::vector<double> noise(size_t count, double scale, uint32_t seed, int freedom = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::student_t_distribution<double> heavy(freedom);
  std::vector<double> values(count);
  for (double& value : values) value = freedom > 0 ? scale * heavy(random) : normal(random);
  return values;
}

TEST(NewLevel, NothingIsUsualWhereNothingWasSeen) {
  EXPECT_EQ(nats_of_level(usual_of({}), std::vector<double>{1, 1, 1}), 0);
}

TEST(NewLevel, TellsWhatIsUsualWhateverAFewValuesAre) {
  std::vector<double> values = noise(200, 0.02, 1);
  for (size_t i = 0; i < 20; ++i) values[10 * i] = 0.5;
  const Usual usual = usual_of(values);
  EXPECT_NEAR(usual.middle, 0, 0.005);
  EXPECT_NEAR(usual.scale, 0.025, 0.006);
  EXPECT_NEAR(usual.tail_share, 21.0 / 201, 1e-9);
}

TEST(NewLevel, AlikeValuesHaveAScaleAllTheSame) {
  EXPECT_GT(usual_of(std::vector<double>(24, 0.0)).scale, 0);
}

// At one second a step: what is plain is suspected after two steps or three, and sure after one more.
TEST(NewLevel, EvidenceGrowsWithEachStepAndFewStepsOfWhatIsPlainAreEnough) {
  const Usual usual = usual_of(noise(24, 0.02, 2));
  double before = 0;
  for (size_t steps : {1u, 2u, 3u, 4u}) {
    const double nats = nats_of_level(usual, std::vector<double>(steps, 0.5));
    EXPECT_GT(nats, before + (steps > 1 ? 4 : 0)) << steps;
    EXPECT_EQ(nats >= threshold_nats(kConfirmedPerJobHour, 1, 3600), steps >= 4) << steps;
    before = nats;
  }
  EXPECT_GE(nats_of_level(usual, std::vector<double>(3, 0.5)), threshold_nats(kSuspectedPerJobHour, 1, 3600));
}

TEST(NewLevel, WhatWasSeenBeforeIsLessOfASurprise) {
  std::vector<double> values = noise(100, 0.02, 3);
  const std::vector<double> slow(3, 0.5);
  const double alone = nats_of_level(usual_of(values), slow);
  for (size_t i = 0; i < 10; ++i) values[10 * i] = 0.5;
  EXPECT_LT(nats_of_level(usual_of(values), slow), alone - 4);
}

TEST(NewLevel, AnOddStepInBetweenDoesNotEndItAndAReturnDoes) {
  const Usual usual = usual_of(noise(100, 0.02, 4));
  const double steady = nats_of_level(usual, std::vector<double>{0.5, 0.5, 0.5, 0.5});
  EXPECT_GT(nats_of_level(usual, std::vector<double>{0.5, 0.5, 0.0, 0.5, 0.5}), steady - 8);
  EXPECT_LT(nats_of_level(usual, std::vector<double>{0.5, 0.0, 0.0, 0.0}),
            nats_of_level(usual, std::vector<double>{0.5}) - 4);
}

TEST(NewLevel, ValuesAreNoLevelWhereEachIsElsewhere) {
  const Usual usual = usual_of(noise(100, 0.02, 5));
  EXPECT_LT(nats_of_level(usual, std::vector<double>{0.2, 0.9, 0.4, 1.4}),
            nats_of_level(usual, std::vector<double>{0.7, 0.7, 0.7, 0.7}) - 5);
}

// Of healthy values, heavy tails too, stretches of three beyond the threshold are as rare as is promised.
TEST(NewLevel, HealthyStretchesAreToldNoOftenerThanStated) {
  constexpr size_t kTries = 4'000;
  constexpr double kNats = 5;
  for (int freedom : {0, 3}) {
    size_t told = 0;
    for (size_t i = 0; i < kTries; ++i) {
      const std::vector<double> values = noise(27, 0.02, static_cast<uint32_t>(i), freedom);
      const Usual usual = usual_of({values.begin(), values.end() - 3});
      told += nats_of_level(usual, std::span(values).last(3)) >= kNats ? 1 : 0;
    }
    EXPECT_LE(static_cast<double>(told), kTries * std::exp(-kNats)) << freedom;
  }
}

}  // namespace
}  // namespace lockstep
