#include "diagnosis/detectors/slow_flows/slow_groups.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::PlannedGroup;

// Groups of so many ranks side by side, before the whole job's.
MadeUpJob job_of_groups(int32_t ranks, int32_t size) {
  MadeUpJob job(ranks);
  for (int32_t first = 0; first < ranks; first += size) {
    PlannedGroup group{.comm_id = CommId{0x200 + static_cast<uint64_t>(first)}, .transfer_ms = 10};
    for (Rank rank : all_ranks(size)) group.ranks.push_back(rank + first);
    job.groups.insert(job.groups.begin(), group);
  }
  return job;
}

PlannedGroup& group_of(MadeUpJob& job, Rank rank) {
  return *std::find_if(job.groups.begin(), job.groups.end(), [&](const PlannedGroup& group) {
    return std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
  });
}

std::vector<Finding> findings_after(MadeUpJob& job, int64_t healthy, int64_t slow, double transfer_ms) {
  JobWindow window;
  if (healthy > 0) job.play(window, 0_step, StepNumber{healthy - 1});
  group_of(job, 9_rank).transfer_ms = transfer_ms;
  job.play(window, StepNumber{healthy}, StepNumber{healthy + slow - 1});
  window.remember(0);
  return find_slow_groups(window, {});
}

TEST(SlowGroups, AGroupInsideAHostThatTransfersSlowerThanItsLikeIsItsNvlinks) {
  MadeUpJob job = job_of_groups(128, 8);
  const std::vector<Finding> findings = findings_after(job, 0, 30, 14);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kNvlink);
  EXPECT_EQ(findings[0].ranks.front(), 8_rank);
  EXPECT_EQ(findings[0].ranks.size(), 8u);
  EXPECT_TRUE(findings[0].sure);
}

TEST(SlowGroups, WhatIsPlainIsSureAfterThreeStepsAlsoInASmallJob) {
  for (int64_t slow : {1, 2, 3}) {
    MadeUpJob job = job_of_groups(24, 4);
    const std::vector<Finding> findings = findings_after(job, 40, slow, 60);
    ASSERT_EQ(findings.size(), slow < 2 ? 0u : 1u) << slow;
    if (findings.empty()) continue;
    EXPECT_EQ(findings[0].ranks, (std::vector<Rank>{8_rank, 9_rank, 10_rank, 11_rank}));
    EXPECT_EQ(findings[0].since_step, 40_step);
    EXPECT_EQ(findings[0].sure, slow == 3);
    EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 50e6, 5e6);
  }
}

TEST(SlowGroups, TheFirstStepsOfAJobAreEnoughWhereItWasSlowFromTheStart) {
  MadeUpJob job = job_of_groups(24, 4);
  const std::vector<Finding> findings = findings_after(job, 0, 2, 60);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].since_step, 0_step);
}

TEST(SlowGroups, GroupsThatDifferByLittleOrOnMostHostsAccuseNobody) {
  MadeUpJob little = job_of_groups(24, 4);
  EXPECT_TRUE(findings_after(little, 40, 10, 11.5).empty());
  MadeUpJob most = job_of_groups(24, 4);
  for (Rank rank : {1_rank, 5_rank, 17_rank}) group_of(most, rank).transfer_ms = 60;
  EXPECT_TRUE(findings_after(most, 0, 30, 60).empty());
}

// Who is not heard of may be late: the others spend their time in the collective waiting for it.
TEST(SlowGroups, AGroupOfWhichAMemberIsSilentAccusesNobody) {
  MadeUpJob job = job_of_groups(24, 4);
  JobWindow window;
  job.play(window, 0_step, 60_step, [](StepNumber step, std::vector<testing::RankPlan>& ranks) {
    if (step < 40_step) return;
    ranks[9].own_ms += 60;
    ranks[9].silent = true;
  });
  EXPECT_TRUE(find_slow_groups(window, {}).empty());
}

TEST(SlowGroups, OneHostAloneHasNobodyToBeComparedWith) {
  MadeUpJob job = job_of_groups(8, 2);
  for (Rank rank : {6_rank}) group_of(job, rank).transfer_ms = 60;
  JobWindow window;
  job.play(window, 0_step, 30_step);
  EXPECT_TRUE(find_slow_groups(window, {}).empty());
}

}  // namespace
}  // namespace lockstep
