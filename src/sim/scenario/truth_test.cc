#include "sim/scenario/truth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace lockstep::sim {
namespace {

std::vector<Truth> truths_of(const std::string& faults, const std::string& more = "") {
  Result<Scenario> scenario =
      parse_scenario("topology: {hosts_per_leaf: 4}\njobs: [{tp: 4, pp: 4, dp: 8, micro_batches: 16}]\nfaults: [" +
                         faults + "]\n" + more,
                     "test.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error();
  return scenario.ok() ? truths(*scenario) : std::vector<Truth>(1);
}

bool has(const std::vector<Layer>& layers, Layer layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

TEST(Truth, ASlowGpuIsItsRankAndTheGpuLayerAndNothingElse) {
  const Truth truth = truths_of("{cause: throttle-thermal, rank: 17, severity: 0.3}").front();
  EXPECT_EQ(truth.kind, VerdictKind::kSlow);
  EXPECT_EQ(truth.ranks, std::vector<Rank>{17_rank});
  EXPECT_EQ(truth.layers, std::vector<Layer>{Layer::kGpu});
  EXPECT_EQ(truth.causes, std::vector<Cause>{Cause::kThrottleThermal});
  EXPECT_FALSE(truth.below_notice);
}

TEST(Truth, NoRankIsToBlameForALeafOrAWholeJob) {
  EXPECT_TRUE(truths_of("{cause: congestion, leaf: 8}").front().ranks.empty());
  EXPECT_TRUE(truths_of("{cause: code-regression}").front().ranks.empty());
  EXPECT_TRUE(truths_of("{cause: sequence-imbalance}").front().ranks.empty());
  EXPECT_EQ(truths_of("{cause: stage-imbalance, stage: 3}").front().ranks.size(), 32u);
  EXPECT_EQ(truths_of("{cause: memory-pressure, host: 2}").front().ranks.size(), 8u);
}

TEST(Truth, WhatCostsLittleIsBelowNotice) {
  EXPECT_TRUE(truths_of("{cause: slow-compute, rank: 3, severity: 0.02}").front().below_notice);
  EXPECT_FALSE(truths_of("{cause: slow-compute, rank: 3, severity: 0.2}").front().below_notice);
  EXPECT_TRUE(truths_of("{cause: nic-degraded, rank: 3, severity: 0.2}").front().below_notice);
  EXPECT_FALSE(truths_of("{cause: nic-degraded, rank: 3, severity: 3}").front().below_notice);
  EXPECT_FALSE(truths_of("{cause: rank-dead, rank: 3}").front().below_notice);
}

TEST(Truth, ADelayThatVanishesInThePipelinesBubbleIsBelowNotice) {
  // As many stages as micro-batches: the first stage has time while the last one works.
  Result<Scenario> scenario = parse_scenario(
      "jobs: [{tp: 1, pp: 8, dp: 2, micro_batches: 8}]\nfaults: [{cause: slow-compute, rank: 0, severity: 0.3}]\n",
      "test.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  EXPECT_TRUE(truths(*scenario).front().below_notice);
  scenario->jobs[0].micro_batches = 64;
  EXPECT_FALSE(truths(*scenario).front().below_notice);
}

TEST(Truth, CostIsWhatTheJobsStepGetsLongerBy) {
  const double alone = truths_of("{cause: data-loader, rank: 3, severity: 0.2}").front().cost;
  EXPECT_NEAR(alone, 0.2, 0.03);
  // In a noisy job others are late as well, and hide a part of it.
  Result<Scenario> noisy = parse_scenario(
      "jobs: [{tp: 4, pp: 4, dp: 8, micro_batches: 16, noise: {times: 6, tails: heavy}}]\n"
      "faults: [{cause: data-loader, rank: 3, severity: 0.2}]\n",
      "test.yaml");
  ASSERT_TRUE(noisy.ok()) << noisy.error();
  EXPECT_LT(truths(*noisy).front().cost, alone - 0.01);
  EXPECT_DOUBLE_EQ(truths_of("{cause: rank-dead, rank: 3}").front().cost, 1);
}

TEST(Truth, OneLayerIsRightUnlessTwoCannotBeToldApart) {
  const std::vector<std::string> faults = {"cause: gc",
                                           "cause: storage",
                                           "cause: checkpoint",
                                           "cause: link-flap, rank: 1",
                                           "cause: congestion, leaf: 8",
                                           "cause: pfc-storm, leaf: 8",
                                           "cause: tcp-fallback",
                                           "cause: nan-source, rank: 1",
                                           "cause: pcie-degraded, rank: 1"};
  for (const std::string& fault : faults) EXPECT_EQ(truths_of("{" + fault + "}").front().layers.size(), 1u) << fault;
  EXPECT_EQ(truths_of("{cause: nic-degraded, rank: 1}").front().layers, (std::vector{Layer::kNic, Layer::kLink}));
  EXPECT_EQ(truths_of("{cause: checkpoint}").front().layers, std::vector{Layer::kInput});
  EXPECT_EQ(truths_of("{cause: checkpoint, rank: 1}").front().layers, std::vector{Layer::kHost});
  // Without a node's metrics nobody can say on which side a bad bus is.
  EXPECT_EQ(truths_of("{cause: pcie-degraded, rank: 1}", "telemetry: {no_metrics: 1}\n").front().layers.size(), 2u);
  // A dead process may have left or been killed, unless the kernel says that it killed it.
  std::set<size_t> seen;
  for (int seed = 1; seed < 30; ++seed)
    seen.insert(truths_of("{cause: rank-dead, rank: 1}", format("seed: %d\n", seed)).front().layers.size());
  EXPECT_EQ(seen, (std::set<size_t>{1, 2}));
}

TEST(Truth, ASilentCulpritMayBeUnknown) {
  const std::string fault = "{cause: ecc, rank: 3}";
  EXPECT_FALSE(has(truths_of(fault).front().layers, Layer::kUnknown));
  const Truth silent = truths_of(fault, "telemetry: {guilty_agent_lost: true}\n").front();
  EXPECT_TRUE(has(silent.layers, Layer::kUnknown));
  EXPECT_EQ(silent.ranks.front(), 3_rank);
  EXPECT_EQ(silent.ranks.size(), 8u) << "which rank of a silent host it is cannot be told";
}

TEST(Truth, TwoEndsOfTheOnlyWireAreAlikeWhereNobodyReadsTheirCounters) {
  auto ranks = [](const std::string& more) {
    Result<Scenario> scenario = parse_scenario(
        "topology: {gpus_per_host: 4}\njobs: [{dp: 12}]\nfaults: [{cause: nic-degraded, rank: 3}]\n" + more, "t.yaml");
    EXPECT_TRUE(scenario.ok()) << scenario.error();
    return truths(*scenario).front().ranks;
  };
  EXPECT_EQ(ranks(""), (std::vector{3_rank}));
  EXPECT_EQ(ranks("telemetry: {no_metrics: 1}\n"), (std::vector{3_rank, 4_rank}));
  EXPECT_EQ(ranks("telemetry: {guilty_agent_lost: true}\n"), (std::vector{3_rank, 4_rank}));
}

TEST(Truth, AProcessStoppedForGoodIsAHangAndPausesAreSlow) {
  EXPECT_EQ(truths_of("{cause: process-paused, rank: 3}").front().kind, VerdictKind::kHang);
  EXPECT_EQ(truths_of("{cause: process-paused, rank: 3, shape: intermittent}").front().kind, VerdictKind::kSlow);
}

TEST(Truth, EveryCauseHasALabel) {
  for (const char* fault : {"cause: slow-compute, rank: 1",
                            "cause: throttle-thermal, rank: 1",
                            "cause: throttle-power, rank: 1",
                            "cause: ecc, rank: 1",
                            "cause: xid, rank: 1",
                            "cause: foreign-process, rank: 1",
                            "cause: pcie-degraded, rank: 1",
                            "cause: cpu-contention, rank: 1",
                            "cause: memory-pressure, host: 1",
                            "cause: process-paused, rank: 1",
                            "cause: gc",
                            "cause: data-loader, rank: 1",
                            "cause: storage",
                            "cause: checkpoint",
                            "cause: nvlink-degraded, rank: 1",
                            "cause: nic-degraded, rank: 1",
                            "cause: link-flap, rank: 1",
                            "cause: congestion, leaf: 8",
                            "cause: pfc-storm, leaf: 8",
                            "cause: tcp-fallback",
                            "cause: stage-imbalance, stage: 1",
                            "cause: sequence-imbalance",
                            "cause: rank-missing, rank: 1",
                            "cause: op-mismatch, rank: 1",
                            "cause: deadlock, rank: 1",
                            "cause: rank-dead, rank: 1",
                            "cause: code-regression",
                            "cause: nan-source, rank: 1"}) {
    const Truth truth = truths_of("{" + std::string(fault) + "}").front();
    EXPECT_FALSE(truth.layers.empty()) << fault;
    ASSERT_FALSE(truth.causes.empty()) << fault;
    EXPECT_EQ(std::string(fault).find(std::string("cause: ") + to_text(truth.causes.front())), 0u) << fault;
  }
}

TEST(Truth, WorkloadMayBeSaidWhereTheWorkIsUneven) {
  Result<Scenario> scenario =
      parse_scenario("jobs: [{dp: 8}, {job: b, dp: 8}]\noddities: [{kind: packing}, {kind: garbage}]\n", "t.yaml");
  ASSERT_TRUE(scenario.ok());
  EXPECT_TRUE(allowed(*scenario, "sim", Layer::kWorkload));
  EXPECT_FALSE(allowed(*scenario, "sim", Layer::kGpu));
  EXPECT_FALSE(allowed(*scenario, "b", Layer::kWorkload));
}

TEST(Truth, WhereSwitchesReportTheRightLinkOrSwitchIsAskedFor) {
  const std::string network = "topology: {hosts_per_leaf: 4, switches: true}\njobs: [{tp: 8, dp: 16}]\nfaults: [";
  auto places = [&](const std::string& fault) {
    Result<Scenario> scenario = parse_scenario(network + fault + "]\n", "test.yaml");
    EXPECT_TRUE(scenario.ok()) << scenario.error();
    return scenario.ok() ? truths(*scenario).front().places : std::vector<std::string>();
  };
  EXPECT_EQ(places("{cause: congestion, leaf: 8}"), std::vector<std::string>{"leaf:leaf-8"});
  EXPECT_EQ(places("{cause: congestion, spine: 2}"), std::vector<std::string>{"spine:spine-2"});
  EXPECT_EQ(places("{cause: nic-degraded, rank: 43}"),
            (std::vector<std::string>{"nic:node-05:mlx5_3", "link:leaf-11:Ethernet1/2"}));
  EXPECT_TRUE(places("{cause: slow-compute, rank: 43}").empty());
  EXPECT_TRUE(truths_of("{cause: congestion, leaf: 8}").front().places.empty()) << "no switch reports";
}

}  // namespace
}  // namespace lockstep::sim
