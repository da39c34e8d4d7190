#include "fabric/wait_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"

namespace lockstep::fabric {
namespace {

constexpr int64_t kMinuteNs = WaitStore::kMinuteNs;

RankWait wait(int32_t waiter, int32_t awaited, double seconds) {
  return {Rank{waiter}, Rank{awaited}, seconds};
}

std::vector<std::string> worst(const WaitStore& store, int64_t from_minute, int64_t to_minute) {
  std::vector<std::string> all;
  for (const RankWait& one : store.worst("llama", from_minute * kMinuteNs, to_minute * kMinuteNs))
    all.push_back(format("%d-%d %.3g", one.waiter.value(), one.awaited.value(), one.seconds));
  return all;
}

TEST(WaitStore, AddsUpByMinuteAndPutsTheLongestFirst) {
  WaitStore store;
  for (int64_t minute : {5, 6, 7}) {
    const std::vector<RankWait> waits = {wait(1, 5, 0.5), wait(2, 5, 1.5), wait(5, 3, 0.25)};
    store.add("llama", waits, minute * kMinuteNs + 1);
    store.add("llama", waits, minute * kMinuteNs + 2);
  }
  EXPECT_EQ(worst(store, 5, 7), (std::vector<std::string>{"2-5 9", "1-5 3", "5-3 1.5"}));
  EXPECT_EQ(worst(store, 6, 6), (std::vector<std::string>{"2-5 3", "1-5 1", "5-3 0.5"}));
  EXPECT_TRUE(worst(store, 8, 9).empty());
  EXPECT_TRUE(store.worst("qwen", 0, 9 * kMinuteNs).empty());
}

TEST(WaitStore, OfARankThatWaitsForManyTheLongestAreKept) {
  WaitStore store;
  std::vector<RankWait> waits;
  for (int32_t other = 1; other <= 9; ++other) waits.push_back(wait(0, other, other));
  store.add("llama", waits, kMinuteNs);
  EXPECT_EQ(worst(store, 1, 1), (std::vector<std::string>{"0-9 9", "0-8 8", "0-7 7", "0-6 6"}));
}

TEST(WaitStore, OfAMinuteThatIsOverTheWorstAreKeptAndOfAnHourAgoNothing) {
  WaitStore store;
  std::vector<RankWait> waits;
  for (int32_t rank = 1; rank <= 5'000; ++rank) waits.push_back(wait(rank, 0, rank));
  store.add("llama", waits, 0);
  EXPECT_EQ(worst(store, 0, 0).size(), 5'000u) << "the newest minutes have every rank";
  const std::vector<RankWait> one = {wait(1, 0, 1)};
  for (int64_t minute = 1; minute < 60; ++minute) store.add("llama", one, minute * kMinuteNs);
  ASSERT_EQ(worst(store, 0, 0).size(), WaitStore::kWorstPerJob);
  EXPECT_EQ(worst(store, 0, 0).front(), "5000-0 5e+03");
  store.add("llama", one, 60 * kMinuteNs);
  EXPECT_TRUE(worst(store, 0, 0).empty());
}

TEST(WaitStore, AClockThatIsSetBackTakesTheFutureWithIt) {
  WaitStore store;
  const std::vector<RankWait> one = {wait(1, 0, 1)};
  store.add("llama", one, 1'000 * kMinuteNs);
  store.add("llama", one, 10 * kMinuteNs);
  EXPECT_TRUE(worst(store, 1'000, 1'000).empty());
  EXPECT_EQ(worst(store, 10, 10).size(), 1u);
  store.add("llama", one, 9 * kMinuteNs);
  EXPECT_EQ(worst(store, 9, 10), (std::vector<std::string>{"1-0 2"})) << "a moment before is no other time";
}

TEST(WaitStore, NumbersThatAreNoneAndWaitsForOneselfAreNotTaken) {
  WaitStore store;
  const std::vector<RankWait> bad = {wait(1, 0, std::nan("")), wait(1, 0, std::numeric_limits<double>::infinity()),
                                     wait(1, 0, -1), wait(1, 1, 5)};
  store.add("llama", bad, 0);
  store.add("llama", std::vector<RankWait>{wait(1, 0, 5)}, -1);
  EXPECT_TRUE(worst(store, 0, 9).empty());
}

TEST(WaitStore, BeyondItsRoomTheJobThatIsSilentLongestGoes) {
  WaitStore store;
  const std::vector<RankWait> one = {wait(1, 0, 1)};
  for (size_t i = 0; i <= WaitStore::kJobsMax; ++i) store.add(format("job-%zu", i), one, static_cast<int64_t>(i));
  EXPECT_TRUE(store.worst("job-0", 0, kMinuteNs).empty());
  EXPECT_EQ(store.worst("job-1", 0, kMinuteNs).size(), 1u);
}

TEST(WaitStore, WaitsOfRanksForWhichThereIsNoRowAreCounted) {
  WaitStore store(100);
  std::vector<RankWait> all;
  for (int32_t rank = 1; rank <= 107; ++rank) all.push_back(wait(rank, 0, 1));
  store.add("llama", all, 0);
  EXPECT_EQ(store.left_out(), 7u);
  for (int64_t minute : {1, 2}) store.add("llama", std::vector<RankWait>{wait(1, 0, 1)}, minute * kMinuteNs);
  store.add("llama", all, 3 * kMinuteNs);
  EXPECT_EQ(worst(store, 3, 3).size(), 99u) << "minutes that are over have made room";
}

// Minutes that a clock opens again and again are counted once: beyond a limit everybody's older minutes make room.
TEST(WaitStore, AClockThatGoesBackAndForthTakesNoRoomOfOthers) {
  WaitStore store(WaitStore::kRowsMax, 3 * WaitStore::kWorstPerJob);
  store.add("qwen", std::vector<RankWait>{wait(1, 0, 1)}, 0);
  store.add("qwen", std::vector<RankWait>{wait(1, 0, 1)}, 3 * kMinuteNs);
  std::vector<RankWait> many;
  for (int32_t rank = 1; rank <= 3'000; ++rank) many.push_back(wait(rank, 0, rank));
  for (int turn = 0; turn < 10; ++turn)
    for (const int64_t minute : {1, 2, 3, 2}) store.add("llama", many, minute * kMinuteNs);
  EXPECT_FALSE(store.worst("qwen", 0, 0).empty());
}

}  // namespace
}  // namespace lockstep::fabric
