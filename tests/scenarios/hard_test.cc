// tests/scenarios/hard and network: the files say what docs/guide/score.md says of them. They are read here, not played
// to anybody.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "sim/scenario/truth.h"
#include "sim/score/score_case.h"

namespace lockstep {
namespace {

std::vector<sim::Scenario> read_all(const std::string& folder) {
  std::vector<sim::Scenario> scenarios;
  const Result<std::vector<std::string>> files = sim::scenario_files({LOCKSTEP_SCENARIOS "/" + folder});
  EXPECT_TRUE(files.ok()) << files.error();
  for (const std::string& file : files.ok() ? *files : std::vector<std::string>()) {
    Result<sim::Scenario> scenario = sim::read_scenario(file);
    EXPECT_TRUE(scenario.ok()) << scenario.error();
    if (scenario.ok()) scenarios.push_back(std::move(*scenario));
  }
  return scenarios;
}

TEST(HardBoard, HasTheSizesShapesAndNoisesItPromises) {
  int large = 0, from_the_start = 0, on_oddities = 0;
  std::set<double> noises, overlaps, steps;
  std::set<int32_t> gpus, sharded_dp, dp;
  std::set<bool> rails;
  for (const sim::Scenario& scenario : read_all("hard")) {
    const sim::JobPlan& job = scenario.jobs.front();
    large += job.world_size() >= 1024 && job.world_size() <= 8192;
    from_the_start += !scenario.faults.empty() && scenario.faults.front().from_step == 0_step;
    on_oddities += !scenario.faults.empty() && !scenario.oddities.empty();
    noises.insert(job.noise.times);
    overlaps.insert(job.overlap);
    steps.insert(job.step_ms);
    gpus.insert(scenario.topology.gpus_per_host);
    rails.insert(scenario.topology.rails);
    dp.insert(job.dp);
    if (job.sharding == sim::Sharding::kFull) sharded_dp.insert(job.dp);
    EXPECT_TRUE(job.noise.heavy_tails) << scenario.name;
  }
  EXPECT_GE(large, 40);
  EXPECT_GE(from_the_start, 20);
  EXPECT_GE(on_oddities, 20);
  EXPECT_EQ(noises, (std::set<double>{1, 3, 6}));
  EXPECT_EQ(*overlaps.rbegin(), 0.9);
  EXPECT_EQ(*steps.begin(), 100);
  EXPECT_EQ(*steps.rbegin(), 30'000);
  EXPECT_EQ(gpus, (std::set<int32_t>{4, 8}));
  EXPECT_EQ(rails.size(), 2u);
  EXPECT_GE(sharded_dp.size(), 4u);
  for (int32_t odd : {5, 6, 12, 24}) EXPECT_TRUE(dp.contains(odd)) << odd;
}

// "curve-slow-compute-4-x3-...": 0.04.
double cost_in(const std::string& name) {
  const size_t noise = name.find("-x");
  const size_t number = name.rfind('-', noise - 1);
  return std::strtod(name.c_str() + number + 1, nullptr) / 100;
}

TEST(HardBoard, SmallFaultsCostTheJobWhatTheirNamesSay) {
  int rows = 0;
  for (const sim::Scenario& scenario : read_all("hard")) {
    if (!scenario.name.starts_with("curve-")) continue;
    const std::vector<sim::Truth> truths = sim::truths(scenario);
    ASSERT_EQ(truths.size(), 1u);
    EXPECT_NEAR(truths.front().cost / cost_in(scenario.name), 1, 0.15)
        << scenario.name << ": tools/make_scenarios.py --calibrate build/dev/bin/lockstep finds its severity anew";
    EXPECT_EQ(truths.front().ranks.size(), 1u);
    EXPECT_EQ(scenario.faults.front().shape, sim::Shape::kConstant);
    ++rows;
  }
  EXPECT_EQ(rows, 126);
}

TEST(NetworkBoard, HasTheCasesAndTheDecoysItPromises) {
  int network = 0, decoys = 0, receivers = 0;
  std::set<Cause> causes;
  std::set<std::string> kinds;
  for (const sim::Scenario& scenario : read_all("network")) {
    EXPECT_TRUE(scenario.topology.switches) << scenario.name;
    const bool is_decoy = scenario.name.starts_with("decoy-");
    ++(is_decoy ? decoys : network);
    receivers += scenario.name.starts_with("decoy-receiver-") ? 1 : 0;
    for (const sim::Truth& truth : sim::truths(scenario)) {
      EXPECT_FALSE(truth.below_notice) << scenario.name << " costs " << truth.cost;
      if (is_decoy) {
        EXPECT_TRUE(truth.places.empty()) << scenario.name;
        continue;
      }
      causes.insert(scenario.faults[truth.fault].cause);
      for (const std::string& place : truth.places) kinds.insert(place.substr(0, place.find(':')));
    }
  }
  EXPECT_GE(network, 40);
  EXPECT_GE(decoys, 30);
  EXPECT_GE(receivers, 5);
  for (Cause cause : {Cause::kCongestion, Cause::kLinkDegraded, Cause::kPfcStorm, Cause::kNicDegraded,
                      Cause::kSwitchDown, Cause::kLinkFlap, Cause::kTcpFallback, Cause::kNvlinkDegraded})
    EXPECT_TRUE(causes.contains(cause)) << to_text(cause);
  EXPECT_EQ(kinds, (std::set<std::string>{"leaf", "link", "nic", "spine"}));
}

}  // namespace
}  // namespace lockstep
