#include "diagnosis/detectors/rotating_stall/busy_hosts.h"

#include <gtest/gtest.h>

#include "diagnosis/detectors/rotating_stall/rotating_stall.h"
#include "diagnosis/signals/testing/made_up_fleet.h"
#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpFleet;
using testing::MadeUpJob;
using testing::RankPlan;

constexpr const char* kPressure = "lockstep_host_pressure{resource=cpu,scope=some}";

// Ranks of four hosts stall by turns, over a fleet of which the test says how busy it is.
Finding finding_where(const std::function<void(MadeUpFleet&)>& change) {
  MadeUpFleet fleet(4);
  change(fleet);
  fleet.run(30);
  MadeUpJob job(32);
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[static_cast<size_t>(step.value() * 7) % ranks.size()].own_ms += 30;
  });
  std::vector<Finding> findings = find_rotating_stall(window, {});
  EXPECT_EQ(findings.size(), 1u);
  if (findings.empty()) return {};
  blame_busy_hosts(window, fleet.book, fleet.now(), findings.front());
  return findings.front();
}

TEST(BusyHosts, WhereTasksWaitForACpuItIsTheHostsAndNoGarbage) {
  const Finding finding = finding_where([](MadeUpFleet& fleet) { fleet.set_all(kPressure, 0.8); });
  EXPECT_EQ(finding.layer, Layer::kHost);
  EXPECT_EQ(finding.cause, Cause::kCpuContention);
  ASSERT_FALSE(finding.chain.empty());
  EXPECT_EQ(finding.chain.front().kind, ClaimKind::kCounter);
  EXPECT_GT(finding.chain.front().value, 50);
  EXPECT_TRUE(finding.chain.front().query.starts_with("/api/signals?signal=cpu_pressure&host=node-"));
  ASSERT_EQ(finding.alternatives.size(), 1u);
}

TEST(BusyHosts, OneBusyHostOfFourOrALittlePressureIsNotTheReason) {
  EXPECT_EQ(finding_where([](MadeUpFleet& fleet) { fleet.set(2, -1, kPressure, 0.9); }).cause, Cause::kGc);
  EXPECT_EQ(finding_where([](MadeUpFleet& fleet) { fleet.set_all(kPressure, 0.1); }).cause, Cause::kGc);
}

TEST(BusyHosts, WhereNoHostSaysHowBusyItIsNothingChanges) {
  EXPECT_EQ(finding_where([](MadeUpFleet& fleet) { fleet.left_out = {kPressure}; }).cause, Cause::kGc);
}

TEST(BusyHosts, WhatIsNoGarbageIsLeftAlone) {
  MadeUpFleet fleet(1);
  fleet.set_all(kPressure, 0.9);
  fleet.run(30);
  Finding other;
  other.cause = Cause::kSlowCompute;
  blame_busy_hosts(JobWindow(), fleet.book, fleet.now(), other);
  EXPECT_EQ(other.cause, Cause::kSlowCompute);
  EXPECT_TRUE(other.chain.empty());
}

}  // namespace
}  // namespace lockstep
