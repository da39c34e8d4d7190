#include "diagnosis/sequential/chance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep {
namespace {

double nats(size_t hits, size_t steps, size_t others_hits, size_t others_steps) {
  return nats_of({.hits = hits, .steps = steps, .others_hits = others_hits, .others_steps = others_steps});
}

TEST(Chance, SaysNothingWhereNothingHappened) {
  EXPECT_EQ(nats(0, 100, 0, 700), 0);
  EXPECT_EQ(nats(1, 0, 0, 0), 0);
}

TEST(Chance, SaysLittleOfWhoIsHitAsOftenAsOthers) {
  EXPECT_LT(nats(5, 100, 35, 700), 1);
}

TEST(Chance, CountsEveryHitAlikeAgainstWhatTheOthersHave) {
  EXPECT_NEAR(nats(3, 40, 0, 280), 3 * std::log(8.0), 1e-9);  // they would have a seventh of a hit each
  EXPECT_NEAR(nats(3, 40, 6, 280), 3 * std::log(2.0), 1e-9);  // one
}

TEST(Chance, FallsWithEachHitMoreAndRisesWithTheOthers) {
  EXPECT_GT(nats(5, 40, 0, 280), nats(4, 40, 0, 280));
  EXPECT_GT(nats(5, 40, 0, 280), nats(5, 40, 1, 280));
}

TEST(Chance, IsSmallerForWhatIsLargerThanAnythingSeen) {
  const Repetition alike{.hits = 3, .steps = 40, .size = 10, .others_steps = 280, .others_largest = 10};
  Repetition large = alike;
  large.size = 200;
  EXPECT_NEAR(nats_of(alike), nats(3, 40, 0, 280), 1e-9);
  EXPECT_NEAR(nats_of(large), nats(3, 40, 0, 2800), 1e-9);  // a tail is not followed further than to a tenth
  large.others_hits = 8;                                    // of that size: it was seen
  EXPECT_LT(nats_of(large), nats_of(alike));
}

TEST(Chance, OfAShareIsThatOfAllEventsHittingOneHoweverTheyCome) {
  EXPECT_NEAR(nats_of_share(4, 4, 5), 4 * std::log(5.0), 1e-9);
  EXPECT_EQ(nats_of_share(1, 5, 5), 0);  // its share
  EXPECT_EQ(nats_of_share(0, 0, 5), 0);
  EXPECT_EQ(nats_of_share(7, 7, 1), 0);  // there is nobody else
  EXPECT_GT(nats_of_share(10, 12, 4), nats_of_share(8, 12, 4));
  // 10 and more of 12 by chance, one in four: 3.8e-5. The bound errs to the careful side.
  EXPECT_LT(nats_of_share(10, 12, 4), -std::log(3.8e-5));
  EXPECT_GT(nats_of_share(10, 12, 4), 7);
}

// The bound holds: of many ranks that are hit at random, the most unlucky one seldom gets more than it says.
TEST(Chance, IsNotLessOftenThanItSays) {
  constexpr size_t kRanks = 8, kSteps = 96, kTrials = 20'000;
  constexpr double kNats = 6;
  std::mt19937_64 random(7);
  size_t beyond = 0;
  for (size_t trial = 0; trial < kTrials; ++trial) {
    size_t hits[kRanks] = {}, all = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      if (random() % 5 != 0) continue;
      ++hits[random() % kRanks];
      ++all;
    }
    for (size_t of_one : hits) beyond += nats(of_one, kSteps, all - of_one, (kRanks - 1) * kSteps) >= kNats ? 1 : 0;
  }
  EXPECT_LE(static_cast<double>(beyond), 1.2 * kRanks * kTrials * std::exp(-kNats));
}

TEST(Chance, IsAskedForOnceInAWindow) {
  EXPECT_EQ(nats_of_windows(0), 0);
  EXPECT_NEAR(nats_of_windows(96), std::log(96.0), 1e-9);
}

TEST(Chance, WeighsASignalAsAFactorOfTen) {
  EXPECT_NEAR(witness_nats(), std::log(10.0), 1e-9);
}

}  // namespace
}  // namespace lockstep
