#include "diagnosis/detectors/slow_flows/slow_flows.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
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

TEST(SlowFlows, EqualFlowsAccuseNobody) {
  MadeUpJob job(64);
  job.ring_flows = true;
  JobWindow window;
  job.play(window, 0_step, 30_step);
  EXPECT_TRUE(find_slow_flows_of_large_jobs(window, {}).empty());
}

}  // namespace
}  // namespace lockstep
