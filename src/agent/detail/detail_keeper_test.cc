#include "agent/detail/detail_keeper.h"

#include <gtest/gtest.h>

#include "agent/counters_table.h"
#include "agent/detail/packed_detail.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct DetailKeeperTest : ::testing::Test {
  Counters counters{kAgentCounters};

  static Identity rank(int32_t number, std::string job = "job") {
    return {
        .job_id = std::move(job), .attempt = 1, .rank = Rank{number}, .world_size = 8, .host = number < 4 ? "a" : "b"};
  }
  static RankKey key(int32_t number) { return {"job", 1, Rank{number}}; }
  static StepDetail step(StepNumber number, size_t ops = 10) {
    StepDetail detail{.step = number, .start_unix_ns = number.value() * kSecond, .duration_ns = kSecond};
    for (size_t i = 0; i < ops; ++i)
      detail.ops.push_back(
          {.comm_id = CommId{1}, .function = "AllReduce", .start_unix_ns = number.value() * kSecond, .timed = true});
    return detail;
  }
  int64_t left_out(const char* reason) const {
    return counters.value("lockstep_agent_detail_left_out_total", std::string("reason=\"") + reason + "\"");
  }
  int64_t held() const { return counters.value("lockstep_agent_detail_held"); }
  void expect_balance() const {
    EXPECT_EQ(counters.value("lockstep_agent_detail_steps_total"),
              counters.sum("lockstep_agent_detail_sent_total") + counters.sum("lockstep_agent_detail_left_out_total") +
                  held());
  }
};

TEST_F(DetailKeeperTest, GivesBackWhatItKept) {
  DetailKeeper keeper({}, counters);
  keeper.keep(rank(3), step(7_step), 0);
  std::optional<DetailKeeper::Taken> taken = keeper.take(key(3), 7_step, SampledFor::kAsked);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->detail, step(7_step));
  EXPECT_EQ(taken->identity, rank(3));
  expect_balance();
}

TEST_F(DetailKeeperTest, GivesNothingTwiceAndRemembersThatItDid) {
  DetailKeeper keeper({}, counters);
  keeper.keep(rank(3), step(7_step), 0);
  EXPECT_EQ(keeper.state(key(3), 7_step), DetailKeeper::State::kHeld);
  EXPECT_TRUE(keeper.take(key(3), 7_step, SampledFor::kPeriodic));
  EXPECT_EQ(keeper.state(key(3), 7_step), DetailKeeper::State::kSent);
  EXPECT_FALSE(keeper.take(key(3), 7_step, SampledFor::kAsked));
  EXPECT_EQ(keeper.state(key(3), 8_step), DetailKeeper::State::kNotHere);
  EXPECT_EQ(keeper.state(key(2), 7_step), DetailKeeper::State::kNotHere);
  EXPECT_EQ(counters.sum("lockstep_agent_detail_sent_total"), 1);
  expect_balance();
}

TEST_F(DetailKeeperTest, LetsTheOldestGoFirstWhenMemoryIsFull) {
  DetailKeeper keeper({.bytes_max = 4000, .age_ns = 1000 * kSecond}, counters);
  for (StepNumber number = 0_step; number < 100_step; ++number) {
    keeper.keep(rank(static_cast<int32_t>(number % 2)), step(number), number.value());
    EXPECT_LE(keeper.bytes(), 4000u);
    EXPECT_EQ(keeper.state(key(static_cast<int32_t>(number % 2)), number), DetailKeeper::State::kHeld);
  }
  EXPECT_EQ(keeper.state(key(0), 0_step), DetailKeeper::State::kNotHere);
  EXPECT_EQ(left_out("bytes"), 100 - held());
  EXPECT_GT(held(), 5);
  expect_balance();
}

TEST_F(DetailKeeperTest, ManySentStepsDoNotFillMemoryEither) {
  DetailKeeper keeper({.bytes_max = 4000, .age_ns = 1000 * kSecond}, counters);
  for (StepNumber number = 0_step; number < 1000_step; ++number) {
    keeper.keep(rank(0), step(number), number.value());
    EXPECT_TRUE(keeper.take(key(0), number, SampledFor::kPeriodic));
    EXPECT_LE(keeper.bytes(), 4000u);
  }
  expect_balance();
}

TEST_F(DetailKeeperTest, LetsGoOfWhatIsTooOldAndOfItsRank) {
  DetailKeeper keeper({.bytes_max = 1 << 20, .age_ns = 300 * kSecond}, counters);
  keeper.keep(rank(0), step(1_step), 0);
  keeper.keep(rank(5), step(1_step), 200 * kSecond);
  EXPECT_EQ(keeper.hosts(), (std::vector<std::string>{"a", "b"}));
  keeper.expire(300 * kSecond);
  EXPECT_EQ(held(), 2);
  keeper.expire(301 * kSecond);
  EXPECT_EQ(held(), 1);
  EXPECT_EQ(left_out("age"), 1);
  EXPECT_EQ(keeper.hosts(), std::vector<std::string>{"b"});
  EXPECT_EQ(keeper.ranks_of("job", 1), std::vector<RankKey>{key(5)});
  keeper.expire(1000 * kSecond);
  EXPECT_EQ(keeper.bytes(), 0u);
  EXPECT_TRUE(keeper.hosts().empty());
  expect_balance();
}

TEST_F(DetailKeeperTest, AStepThatIsDoneAgainTakesThePlaceOfTheFirst) {
  DetailKeeper keeper({.bytes_max = 1 << 20, .age_ns = 300 * kSecond}, counters);
  keeper.keep(rank(0), step(7_step, 1), 0);
  keeper.keep(rank(0), step(7_step, 2), 100 * kSecond);
  EXPECT_EQ(left_out("replaced"), 1);
  keeper.expire(350 * kSecond);  // the first goes, its successor stays
  std::optional<DetailKeeper::Taken> taken = keeper.take(key(0), 7_step, SampledFor::kAsked);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->detail.ops.size(), 2u);
  keeper.expire(1000 * kSecond);
  EXPECT_EQ(keeper.bytes(), 0u);
  expect_balance();
}

TEST_F(DetailKeeperTest, WhatDoesNotFitOrIsNotWantedIsCounted) {
  DetailKeeper tiny({.bytes_max = 300, .age_ns = kSecond}, counters);
  tiny.keep(rank(0), step(1_step, 500), 0);
  EXPECT_EQ(left_out("too_large"), 1);
  DetailKeeper off({.bytes_max = 0, .age_ns = kSecond}, counters);
  off.keep(rank(0), step(1_step), 0);
  EXPECT_EQ(left_out("off"), 1);
  EXPECT_EQ(held(), 0);
  expect_balance();
}

TEST_F(DetailKeeperTest, HoldsWhatFitsToTheByteAndSaysHowMuchThatIs) {
  constexpr size_t kEntry = DetailKeeper::kEntryBytes;
  const size_t bytes = kEntry + pack(step(1_step)).size();
  const auto said = [&] { return static_cast<size_t>(counters.value("lockstep_agent_detail_bytes")); };
  DetailKeeper exact({.bytes_max = 2 * bytes, .age_ns = kSecond}, counters);
  exact.keep(rank(0), step(1_step), 0);
  EXPECT_EQ(said(), bytes);
  exact.keep(rank(0), step(2_step), 0);
  EXPECT_EQ(held(), 2) << "all of the room";
  EXPECT_EQ(said(), 2 * bytes);
  exact.keep(rank(1), step(3_step), 0);
  EXPECT_EQ(held(), 2);
  EXPECT_EQ(exact.state(key(0), 1_step), DetailKeeper::State::kNotHere);
  EXPECT_EQ(exact.ranks_of("job", 1), (std::vector<RankKey>{key(0), key(1)}));
  ASSERT_TRUE(exact.take(key(0), 2_step, SampledFor::kAsked));
  EXPECT_EQ(said(), bytes + kEntry) << "that it was sent is remembered";
  exact.keep(rank(0), step(2_step), 0);
  EXPECT_EQ(left_out("bytes"), 1) << "what was sent makes room first";
  EXPECT_EQ(exact.state(key(1), 3_step), DetailKeeper::State::kHeld);
  EXPECT_EQ(exact.bytes(), 2 * bytes);
  EXPECT_EQ(exact.ranks_of("job", 2), std::vector<RankKey>{});
  DetailKeeper one({.bytes_max = bytes, .age_ns = kSecond}, counters);
  one.keep(rank(0), step(1_step), 0);
  EXPECT_EQ(one.state(key(0), 1_step), DetailKeeper::State::kHeld);
  DetailKeeper none({.bytes_max = bytes - 1, .age_ns = kSecond}, counters);
  none.keep(rank(0), step(1_step), 0);
  EXPECT_EQ(left_out("too_large"), 1);
}

}  // namespace
}  // namespace lockstep
