// What faults cost, against what the product says they cost, on small scenarios whose truth is known.
#include "tests/scenarios/shares.h"

#include <gtest/gtest.h>

#include "sim/scenario/scenario.h"

namespace lockstep {
namespace {

SharesCheck check(const std::string& file) {
  const Result<sim::Scenario> scenario = sim::read_scenario(std::string(LOCKSTEP_SCENARIOS "/") + file);
  EXPECT_TRUE(scenario.ok()) << scenario.error();
  return scenario.ok() ? check_shares(*scenario) : SharesCheck{};
}

void expect_near_the_truth(const SharesCheck& check, double share_error) {
  EXPECT_NEAR(check.sum_reported, 1, 1e-9) << check.cost_sentence;
  EXPECT_NEAR(check.bars_sum, 1, 1e-9) << check.mfu_sentence;
  EXPECT_NEAR(check.lost_reported, check.lost_truth, 0.02) << check.cost_sentence;
  for (const FaultShare& fault : check.faults) EXPECT_NEAR(fault.reported, fault.truth, share_error) << fault.fault;
}

TEST(Shares, AHealthyJobLosesNothingToSpeakOf) {
  const SharesCheck healthy = check("smoke/healthy.yaml");
  EXPECT_LT(healthy.lost_reported, 0.015) << healthy.cost_sentence;
  EXPECT_TRUE(healthy.change_sentence.empty()) << healthy.change_sentence;
  EXPECT_NEAR(healthy.mfu_reported, healthy.mfu_truth, 0.005);
}

TEST(Shares, OneFaultExplainsWhatItCosts) {
  expect_near_the_truth(check("smoke/slow-gpu.yaml"), 0.1);
  expect_near_the_truth(check("smoke/slow-input.yaml"), 0.1);
  expect_near_the_truth(check("smoke/slow-adapter.yaml"), 0.15);
}

TEST(Shares, TwoFaultsShareWhatTheyCostTogether) {
  expect_near_the_truth(check("train/several-03-slow-compute-slow-compute.yaml"), 0.2);
}

}  // namespace
}  // namespace lockstep
