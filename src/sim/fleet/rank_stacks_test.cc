#include "sim/fleet/rank_stacks.h"

#include <gtest/gtest.h>

#include <map>

#include "model/stack_groups.h"

namespace lockstep::sim {
namespace {

const JobShape kShape{.job_id = "job", .tp = 2, .pp = 2, .dp = 4, .step_ms = 100};

TEST(RankStacks, OfAHangStandAtThreePlacesAndOneOfThemIsTheMissingRanks) {
  Fleet fleet(kShape, 1'700'000'000'000'000'000);
  const Fault fault{.kind = FaultKind::kMissingRank, .rank = 4_rank, .severity = 1};
  ASSERT_FALSE(fleet.play_step(std::span(&fault, 1)));
  std::map<Rank, RankStack> stacks;
  for (Rank rank : all_ranks(kShape.world_size())) {
    // As it comes through the wire.
    const Result<RankStack> read =
        rank_stack_from_record(to_record(stack_of(fleet, rank, fleet.now_unix_ns() + 3'000'000'000)));
    ASSERT_TRUE(read.ok()) << read.error();
    stacks[rank] = *read;
  }
  const std::vector<StackGroup> groups = group_stacks(stacks);
  ASSERT_EQ(groups.size(), 3u) << groups_text(groups, 8);
  EXPECT_EQ(groups[0].ranks.size(), 12u) << "all others wait in the whole job's collective";
  EXPECT_EQ(groups[1].ranks, (std::vector<Rank>{0_rank, 2_rank, 6_rank})) << "its peers wait for its gradients";
  EXPECT_EQ(groups[2].ranks, std::vector<Rank>{4_rank});
  EXPECT_EQ(groups[2].where, "in acquire at batches.py:88");
}

}  // namespace
}  // namespace lockstep::sim
