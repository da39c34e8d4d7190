#include "analysis/step/slowest_ranks.h"

#include <gtest/gtest.h>

#include "analysis/step/step_testing.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

TEST(SlowestRanks, AreThoseWithMoreWorkOfTheirOwnAndSayHowOftenOthersWaitedForThem) {
  Counters counters(kStoreCounters);
  MemoryStepStore store({}, counters);
  for (StepNumber step = 10_step; step < 20_step; ++step) {
    testing::PlayedStep played(4, step);
    played.all_own(100);
    played.own(2_rank, step == 15_step ? 90 : 30);
    if (step % 2 == 0) played.own(1_rank, 40);
    played.collective(CommId{0xA0}, {0_rank, 1_rank, 2_rank, 3_rank}, 10);
    played.end();
    for (StepRow row : played.rows()) {
      if (row.identity.rank == 3_rank && step == 12_step) row.summary.records_lost = 1;
      store.append_step(row.identity, row.summary, 1);
    }
  }
  const SlowestRanks slowest = slowest_ranks(store, "job", 0_step, 100_step);
  EXPECT_EQ(slowest.from_step, 10_step);
  EXPECT_EQ(slowest.to_step, 19_step);
  EXPECT_EQ(slowest.steps, 10);
  ASSERT_EQ(slowest.ranks.size(), 4u);
  const SlowRank& first = slowest.ranks[0];
  EXPECT_EQ(first.rank, 2_rank);
  EXPECT_EQ(first.steps, 10);
  EXPECT_EQ(first.last, 5) << "in even steps rank 1 comes later";
  EXPECT_EQ(first.meetings, 10);
  EXPECT_EQ(first.worst_step, 15_step);
  EXPECT_NEAR(first.worst_excess_ns, 90e6, 1e6);
  EXPECT_EQ(first.last_comm_id, CommId{0xA0});
  EXPECT_EQ(slowest.ranks[1].rank, 1_rank);
  EXPECT_EQ(slowest.ranks[1].last, 5);
  for (const SlowRank& rank : slowest.ranks) {
    if (rank.rank != 3_rank) continue;
    EXPECT_EQ(rank.steps, 9);
    EXPECT_EQ(rank.unknown, 1);
    EXPECT_EQ(rank.last, 0);
  }
  EXPECT_TRUE(slowest_ranks(store, "nobody", 0_step, 100_step).ranks.empty());
}

}  // namespace
}  // namespace lockstep
