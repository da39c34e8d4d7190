#include "diagnosis/detectors/slow_flows/slow_flows.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::PlannedGroup;
using testing::RankPlan;

TEST(SlowFlows, OneSlowLinkOfManyIsNamedThoughItIsOnlyAQuarterSlower) {
  MadeUpJob job(64);
  job.ring_flows = true;
  job.flow_wire_ms = 20;
  JobWindow window;
  job.play(window, 0_step, 30_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step >= 15_step) ranks[9].wire_ms = 26;
  });
  std::vector<Finding> findings = find_slow_flows_of_large_jobs(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{9_rank});
  EXPECT_EQ(findings[0].layer, Layer::kLink);
  EXPECT_EQ(findings[0].since_step, 15_step);
}

TEST(SlowFlows, SlowFlowsOfManyHostsAreTheSwitches) {
  MadeUpJob job(64);
  job.ring_flows = true;
  job.flow_wire_ms = 20;
  JobWindow window;
  job.play(window, 0_step, 30_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step < 15_step) return;
    for (size_t rank : {7u, 15u, 23u, 31u}) ranks[rank].wire_ms = 40;
  });
  std::vector<Finding> findings = find_slow_flows_of_large_jobs(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kSwitch);
  EXPECT_EQ(findings[0].cause, Cause::kCongestion);
}

TEST(SlowFlows, AGroupInsideAHostThatTransfersSlowerThanItsLikeIsItsNvlinks) {
  MadeUpJob job(128);
  for (int32_t host = 0; host < 16; ++host) {
    PlannedGroup group{.comm_id = CommId{0x200 + static_cast<uint64_t>(host)}, .transfer_ms = host == 5 ? 14.0 : 10.0};
    for (Rank rank : all_ranks(8)) group.ranks.push_back(rank + host * 8);
    job.groups.insert(job.groups.begin(), group);
  }
  JobWindow window;
  job.play(window, 0_step, 30_step);
  std::vector<Finding> findings = find_slow_flows_of_large_jobs(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kNvlink);
  EXPECT_EQ(findings[0].ranks.front(), 40_rank);
  EXPECT_EQ(findings[0].ranks.size(), 8u);
}

TEST(SlowFlows, EqualFlowsAccuseNobody) {
  MadeUpJob job(64);
  job.ring_flows = true;
  JobWindow window;
  job.play(window, 0_step, 30_step);
  EXPECT_TRUE(find_slow_flows_of_large_jobs(window, {}).empty());
}

}  // namespace
}  // namespace lockstep
