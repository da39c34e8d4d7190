// tests/scenarios/smoke: small scenarios that diagnosis has to get exactly right, every time.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/cli/score_product.h"
#include "sim/score/report.h"
#include "sim/score/score_case.h"

namespace lockstep {
namespace {

class Smoke : public ::testing::TestWithParam<const char*> {};

TEST_P(Smoke, NamesTheFaultAndNothingElse) {
  const std::string path = std::string(LOCKSTEP_SCENARIOS "/smoke/") + GetParam() + ".yaml";
  const Result<sim::Scenario> scenario = sim::read_scenario(path);
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  const std::unique_ptr<sim::Subject> product = cli::make_product();
  sim::Subject* const subjects[] = {product.get()};
  const sim::CaseScore score = sim::score_case(*scenario, subjects, {}).front();
  std::string not_right;
  for (const std::string& line : sim::complaints(score)) not_right += line + "\n";
  for (const sim::FaultScore& fault : score.faults) {
    EXPECT_TRUE(fault.began) << "the fault did nothing";
    EXPECT_TRUE(fault.confirmed()) << not_right;
    EXPECT_TRUE(!fault.has_ranks || fault.rank_first) << not_right;
    EXPECT_TRUE(fault.layer) << not_right;
    EXPECT_TRUE(!fault.has_place || fault.place_first) << not_right;
    EXPECT_EQ(fault.repeated, 0) << not_right;
  }
  EXPECT_TRUE(score.wrong.empty()) << not_right;
  EXPECT_EQ(score.faults.empty(), std::string(GetParam()).starts_with("healthy"));
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Smoke,
                         ::testing::Values("slow-gpu", "slow-input", "slow-adapter", "missing-rank", "healthy",
                                           "healthy-packing", "sharded-slow-gpu", "noisy-slow-input", "bad-optic"),
                         [](const ::testing::TestParamInfo<const char*>& file) {
                           std::string name = file.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep
