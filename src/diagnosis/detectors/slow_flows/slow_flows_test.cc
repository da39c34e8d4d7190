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

TEST(SlowFlows, WhoDoesNotTakeWhatArrivesIsNamedAndNoLink) {
  MadeUpJob job(64);
  job.ring_flows = true;
  job.flow_wire_ms = 20;
  const auto found = [&](std::vector<size_t> slow, double handing_on_ms, double own_ms) {
    JobWindow window;
    job.play(window, 0_step, 30_step, [&](StepNumber step, std::vector<RankPlan>& ranks) {
      for (size_t rank : step >= 15_step ? slow : std::vector<size_t>{}) {
        ranks[rank].handing_on_ms = handing_on_ms;
        ranks[rank].own_ms += own_ms;
      }
    });
    return find_slow_flows_of_large_jobs(window, {});
  };
  const std::vector<Finding> findings = found({9}, 40, 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{9_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_EQ(findings[0].cause, Cause::kCpuContention);
  EXPECT_EQ(findings[0].since_step, 15_step);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_TRUE(found({9}, 2, 0).empty()) << "it costs next to nothing";
  EXPECT_TRUE(found({9, 10, 11}, 40, 0).empty()) << "something that they share";
  EXPECT_TRUE(found({9}, 40, 60).empty()) << "it is late, and that has a name";
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
