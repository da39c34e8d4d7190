#include "sim/scenario/scenario.h"

#include <gtest/gtest.h>

#include <set>

#include "base/files.h"

namespace lockstep::sim {
namespace {

std::string error_of(const std::string& yaml) {
  Result<Scenario> scenario = parse_scenario(yaml, "night.yaml");
  return scenario.ok() ? "" : scenario.error();
}

constexpr const char* kFull = R"(# every field
name: everything
seed: 42
steps: 200
topology: {gpus_per_host: 4, hosts_per_leaf: 2, rails: false, spines: 2, nvlink_gb_s: 450, nic_gb_s: 25}
jobs:
  - job: train
    tp: 2
    pp: 2
    dp: 4
    cp: 2
    ep: 4
    micro_batches: 16
    schedule: interleaved
    model_chunks: 4
    step_ms: 750
    overlap: 0.5
    communication: 0.2
    first_host: 3
  - {job: other, dp: 8}
faults:
  - {cause: throttle-thermal, rank: 5, from_step: 60, steps: 30, severity: 0.3, shape: pulsed, period_steps: 6}
  - {cause: storage, job: other, host: 12}
  - cause: tcp-fallback
oddities:
  - {kind: packing, amount: 0.3}
  - {kind: checkpoints, job: other, every_steps: 50}
telemetry: {lost_agents: 0.1, guilty_agent_lost: true, late_share: 0.2, late_ms: 3000, clock_error_us: 100,
            no_plugin: 0.05, no_metrics: 0.5, duplicated: 0.01}
)";

TEST(Scenario, EveryFieldIsRead) {
  Result<Scenario> scenario = parse_scenario(kFull, "everything.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  EXPECT_EQ(scenario->name, "everything");
  EXPECT_EQ(scenario->seed, 42u);
  EXPECT_EQ(scenario->steps, 200);
  EXPECT_EQ(
      scenario->topology,
      (Topology{
          .gpus_per_host = 4, .hosts_per_leaf = 2, .rails = false, .spines = 2, .nvlink_gb_s = 450, .nic_gb_s = 25}));
  ASSERT_EQ(scenario->jobs.size(), 2u);
  const JobPlan& job = scenario->jobs[0];
  EXPECT_EQ(job.world_size(), 32);
  EXPECT_EQ(job.ep, 4);
  EXPECT_EQ(job.schedule, Schedule::kInterleaved);
  EXPECT_EQ(job.model_chunks, 4);
  EXPECT_EQ(job.overlap, 0.5);
  EXPECT_EQ(job.first_host, 3);
  EXPECT_EQ(scenario->jobs[1].first_host, 11) << "behind the first: 32 ranks on hosts 3 to 10";
  ASSERT_EQ(scenario->faults.size(), 3u);
  const ScenarioFault& fault = scenario->faults[0];
  EXPECT_EQ(fault.cause, Cause::kThrottleThermal);
  EXPECT_EQ(fault.target.job, "train");
  EXPECT_EQ(fault.target.rank, 5_rank);
  EXPECT_EQ(fault.steps, 30);
  EXPECT_EQ(fault.shape, Shape::kPulsed);
  EXPECT_EQ(fault.line, 22);
  EXPECT_EQ(scenario->faults[2].from_step, 0_step) << "a fallback is there from the start";
  EXPECT_EQ(scenario->oddities[1].every_steps, 50);
  EXPECT_EQ(scenario->telemetry.late_ms, 3000);
  EXPECT_TRUE(scenario->telemetry.guilty_agent_lost);
}

TEST(Scenario, AShardedJobAndItsNoiseAreRead) {
  Result<Scenario> scenario = parse_scenario(
      "jobs: [{dp: 12, sharding: full, layers: 5, overlap: 0.9, "
      "noise: {times: 3, tails: heavy, rank_spread: 0.01, shocks: 0.02}}, {job: b, dp: 6, sharding: full}]\n",
      "test.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  const JobShape shape = shape_of(*scenario, scenario->jobs[0], 0, 12);
  EXPECT_EQ(shape.sharding, Sharding::kFull);
  EXPECT_EQ(shape.layers, 5);
  EXPECT_EQ(shape.noise, (JobNoise{.times = 3, .heavy_tails = true, .rank_spread = 0.01, .shocks = 0.02}));
  EXPECT_EQ(scenario->jobs[1].layers, 8) << "where none are given";
  EXPECT_EQ(scenario->jobs[1].noise, JobNoise{});
  EXPECT_EQ(error_of("jobs: [{dp: 4, pp: 2, sharding: full}]"),
            "night.yaml:1: job sim: full sharding and pipeline stages together are not possible");
  EXPECT_EQ(error_of("jobs: [{dp: 4, layers: 3}]"), "night.yaml:1: job sim: layers needs full sharding");
  EXPECT_EQ(error_of("jobs: [{tp: 4, sharding: full}]"),
            "night.yaml:1: job sim: full sharding needs dp or cp of at least 2");
  EXPECT_EQ(error_of("jobs: [{dp: 4, noise: {time: 3}}]"), "night.yaml:1: noise has no \"time\". Did you mean times?");
}

TEST(Scenario, TakesAsManyJobsAsAServerHas) {
  auto jobs = [](size_t count) {
    std::string yaml = "jobs:\n";
    for (size_t i = 0; i < count; ++i) yaml += "  - {job: j" + std::to_string(i) + ", dp: 16}\n";
    return yaml;
  };
  const Result<Scenario> scenario = parse_scenario(jobs(1'000), "many.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  EXPECT_EQ(scenario->jobs.size(), 1'000u);
  EXPECT_NE(error_of(jobs(kScenarioJobsMax + 1)).find("more than 4096 jobs"), std::string::npos);
}

TEST(Scenario, ANameIsTakenFromTheFileWhereNoneIsGiven) {
  Result<Scenario> scenario = parse_scenario("jobs: [{dp: 8}]", "tests/scenarios/slow_nic.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  EXPECT_EQ(scenario->name, "slow_nic");
}

TEST(Scenario, MistakesAreNamedWithTheirLine) {
  struct Case {
    const char* yaml;
    const char* expected;
  };
  for (const Case& wrong : {
           Case{"", "night.yaml:1: the file is empty"},
           Case{"jobs:\n  - {dp: 8\nfoo", "night.yaml:3: not YAML"},
           Case{"name: a\n", "night.yaml:1: a scenario needs at least one job"},
           Case{"jobs:\n  - dp: 8\n    micro_batch: 4\n",
                "night.yaml:3: a job has no \"micro_batch\". Did you mean micro_batches?"},
           Case{"jobs:\n  - dp: 8\n    dp: 9\n", "night.yaml:3: \"dp\" is given twice"},
           Case{"jobs:\n  - dp: eight\n", "night.yaml:2: dp must be a whole number from 1"},
           Case{"jobs:\n  - dp: 2.5\n", "night.yaml:2: dp must be a whole number"},
           Case{"jobs:\n  - {dp: 8, overlap: 1.5}\n", "night.yaml:2: overlap must be a number from 0 to 1"},
           Case{"jobs:\n  - {dp: 8, ep: 3}\n", "night.yaml:2: job sim: ep 3 does not divide dp x cp = 8"},
           Case{"jobs:\n  - {dp: 8, schedule: 1f2b}\n", "night.yaml:2: \"1f2b\": no schedule. Did you mean 1f1b?"},
           Case{"jobs:\n  - {dp: 8, pp: 2, micro_batches: 7, schedule: interleaved}\n", "multiple of pp"},
           Case{"jobs:\n  - {dp: 100000, tp: 8}\n", "makes more than"},
           Case{"jobs:\n  - {dp: 8}\n  - {dp: 8}\n", "night.yaml:3: there are two jobs named sim"},
           Case{"jobs:\n  - {dp: 8}\n  - {job: b, dp: 8, first_host: 0}\n",
                "night.yaml:3: job b is on hosts 0-0, where job sim is already"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {rank: 3}\n", "night.yaml:3: a fault needs a cause"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - cause: throttle-termal\n    rank: 3\n",
                "night.yaml:3: \"throttle-termal\": no cause. Did you mean throttle-thermal?"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - cause: ecc\n    rank: 8\n",
                "night.yaml:4: there is no rank 8 in job sim (0 to 7)"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: ecc, rank: 1.5}\n", "night.yaml:3: rank must be a whole number"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: ecc, rank: 1, from_step: 1.5}\n",
                "night.yaml:3: from_step must be a whole number"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: ecc}\n", "night.yaml:3: ecc needs a target: rank"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: ecc, host: 0}\n",
                "night.yaml:3: ecc cannot hit a host; it hits rank"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: gc, host: 0, rank: 1}\n", "two targets"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: ecc, rank: 1, job: x}\n", "night.yaml:3: there is no job x"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: nic-degraded, rank: 1}\n",
                "rank 1 sends nothing to another host"},
           Case{"jobs: [{dp: 16}]\nfaults:\n  - {cause: nvlink-degraded, rank: 1}\n",
                "rank 1 has no group inside its host"},
           Case{"jobs: [{dp: 16}]\nfaults:\n  - {cause: congestion, leaf: 1}\n",
                "nothing of the job goes through the uplinks of leaf 1"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: stage-imbalance, stage: 0}\n", "one stage only"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: expert-imbalance, expert: 0}\n", "needs ep"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: deadlock, rank: 0}\n", "two groups"},
           Case{"jobs: [{dp: 8}]\nfaults:\n  - {cause: rank-dead, rank: 0, shape: ramp}\n", "it has no shape"},
           Case{"jobs: [{dp: 8}]\noddities:\n  - {kind: expert-skew}\n", "night.yaml:3: expert-skew: needs ep"},
           Case{"jobs: [{dp: 8}]\noddities: packing\n", "night.yaml:2: oddities must be a list"},
           Case{"jobs: [{dp: 8}]\ntelemetry: {lost_agent: 1}\n", "Did you mean lost_agents?"},
           Case{"jobs: [{dp: 8}]\ntelemetry: {guilty_agent_lost: yes}\n", "must be true or false"},
       }) {
    const std::string error = error_of(wrong.yaml);
    EXPECT_NE(error.find(wrong.expected), std::string::npos) << "wanted: " << wrong.expected << "\n   got: " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << "one line";
  }
}

TEST(Scenario, TheGuidesExamplesCanBePlayedAndItNamesEveryWord) {
  Result<std::string> guide = read_file(LOCKSTEP_SOURCE_DIRECTORY "/docs/guide/scenarios.md", kScenarioBytesMax);
  ASSERT_TRUE(guide.ok()) << guide.error();
  int examples = 0;
  const std::string fence = "```yaml\n";
  for (size_t at = guide->find(fence); at != std::string::npos; at = guide->find(fence, at + 1)) {
    const size_t begin = at + fence.size();
    Result<Scenario> scenario = parse_scenario(guide->substr(begin, guide->find("```", begin) - begin), "example.yaml");
    EXPECT_TRUE(scenario.ok()) << scenario.error();
    ++examples;
  }
  EXPECT_EQ(examples, 4);
  for (Cause cause : playable_causes()) {
    const char* name = to_text(cause);
    EXPECT_NE(guide->find(std::string("`") + name + "`"), std::string::npos) << name;
  }
  for (int i = 0; i <= static_cast<int>(OddityKind::kMasterRank); ++i) {
    const char* name = to_text(static_cast<OddityKind>(i));
    EXPECT_NE(guide->find(std::string("`") + name + "`"), std::string::npos) << name;
  }
}

TEST(Scenario, DeepNestingIsRefusedAndNotFollowed) {
  EXPECT_NE(error_of(std::string(100'000, '[')).find("not YAML"), std::string::npos);
  EXPECT_NE(error_of(std::string(kScenarioBytesMax + 1, ' ')).find("too many"), std::string::npos);
}

TEST(Scenario, ShapesSayHowStrongAFaultIsInAStep) {
  auto with = [](Shape shape, int64_t steps) {
    Scenario scenario;
    scenario.steps = 100;
    scenario.faults.push_back(
        {.from_step = 40_step, .steps = steps, .severity = 0.4, .shape = shape, .period_steps = 10});
    return scenario;
  };
  Scenario constant = with(Shape::kConstant, 20);
  EXPECT_EQ(amount_at(constant, 0, 39_step), 0);
  EXPECT_EQ(amount_at(constant, 0, 40_step), 0.4);
  EXPECT_EQ(amount_at(constant, 0, 59_step), 0.4);
  EXPECT_EQ(amount_at(constant, 0, 60_step), 0);
  Scenario pulsed = with(Shape::kPulsed, 0);
  EXPECT_EQ(amount_at(pulsed, 0, 44_step), 0.4);
  EXPECT_EQ(amount_at(pulsed, 0, 45_step), 0);
  EXPECT_EQ(amount_at(pulsed, 0, 50_step), 0.4);
  Scenario ramp = with(Shape::kRamp, 20);
  EXPECT_NEAR(amount_at(ramp, 0, 49_step), 0.2, 1e-9);
  EXPECT_NEAR(amount_at(ramp, 0, 59_step), 0.4, 1e-9);
  Scenario intermittent = with(Shape::kIntermittent, 0);
  int hits = 0;
  for (StepNumber step = 40_step; step < 2040_step; ++step) hits += amount_at(intermittent, 0, step) > 0 ? 1 : 0;
  EXPECT_NEAR(hits, 200, 50) << "once in ten steps, at random";
}

TEST(Scenario, SignsRiseBeforeAFaultAndFalseOnesComeToNothing) {
  Result<Scenario> scenario = parse_scenario(R"(
steps: 300
jobs:
  - {job: train, tp: 8, dp: 2, step_ms: 10000}
faults:
  - {cause: ecc, rank: 5, from_step: 200, precursor_s: 1000}
signs:
  - {cause: nic-degraded, rank: 12, from_step: 50, steps: 100, level: 0.4, then: falls}
  - {cause: ecc, rank: 3}
)",
                                             "night.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  EXPECT_EQ(sign_at(*scenario, 0, 100_step), 0);
  EXPECT_NEAR(sign_at(*scenario, 0, 150_step), 0.5, 1e-9);
  EXPECT_NEAR(sign_at(*scenario, 0, 199_step), 0.99, 1e-9);
  EXPECT_EQ(sign_at(*scenario, 0, 200_step), 0);  // it is there
  ASSERT_EQ(scenario->signs.size(), 2u);
  const FalseSign& falls = scenario->signs[0];
  EXPECT_EQ(sign_at(falls, 50_step), 0);
  EXPECT_NEAR(sign_at(falls, 100_step), 0.2, 1e-9);
  EXPECT_NEAR(sign_at(falls, 150_step), 0.4, 1e-9);
  EXPECT_NEAR(sign_at(falls, 200_step), 0.2, 1e-9);
  EXPECT_EQ(sign_at(falls, 260_step), 0);
  EXPECT_NEAR(sign_at(scenario->signs[1], 1000_step), 0.4, 1e-9);  // stays

  auto with = [](const std::string& lines) { return error_of("jobs:\n  - {job: train, tp: 8, dp: 2}\n" + lines); };
  EXPECT_EQ(with("faults:\n  - {cause: gc, rank: 1, precursor_s: 60}\n"),
            "night.yaml:4: nothing shows before gc comes; signs have slow-compute, throttle-thermal, ecc, "
            "nvlink-degraded, nic-degraded, link-flap");
  EXPECT_EQ(with("faults:\n  - {cause: throttle-thermal, host: 1, precursor_s: 60}\n"),
            "night.yaml:4: signs of throttle-thermal need a rank that they show on");
  EXPECT_EQ(with("faults:\n  - {cause: ecc, rank: 1, precursor_s: -1}\n"),
            "night.yaml:4: precursor_s must be a number from 0 to 1e+06, not \"-1\"");
  EXPECT_EQ(with("signs:\n  - {cause: storage, rank: 1}\n").substr(0, 48),
            "night.yaml:4: nothing shows before storage comes");
  EXPECT_EQ(with("signs:\n  - {cause: ecc, rank: 99}\n"), "night.yaml:4: there is no rank 99 in job train (0 to 15)");
  EXPECT_EQ(with("signs:\n  - {cause: ecc, rank: 9, then: rises}\n"),
            "night.yaml:4: \"rises\": no then. Known: stays, falls");
  EXPECT_EQ(with("signs:\n  - {cause: ecc, rank: 9, severity: 1}\n").substr(0, 40),
            "night.yaml:4: a sign has no \"severity\". ");
}

TEST(Scenario, EveryCauseAndOddityHasAName) {
  std::set<std::string> names;
  for (Cause cause : playable_causes()) EXPECT_TRUE(names.insert(to_text(cause)).second);
  EXPECT_STREQ(to_text(Cause::kSlowCompute), "slow-compute");
  EXPECT_STREQ(to_text(Cause::kNanSource), "nan-source");
  EXPECT_STREQ(to_text(Cause::kTcpFallback), "tcp-fallback");
  EXPECT_STREQ(to_text(OddityKind::kMasterRank), "master-rank");
}

TEST(Scenario, ALeafAndASpineTogetherAreTheLinkBetweenThem) {
  const std::string job = "topology: {hosts_per_leaf: 4}\njobs: [{tp: 2, dp: 64, ep: 32}]\nfaults:\n";
  Result<Scenario> scenario = parse_scenario(job + "  - {cause: link-degraded, leaf: 3, spine: 1}\n", "night.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  EXPECT_TRUE(is_link(scenario->faults[0].target));
  EXPECT_EQ(error_of(job + "  - {cause: link-degraded, leaf: 3}\n"),
            "night.yaml:4: link-degraded cannot hit a leaf; it hits leaf and spine together");
  EXPECT_EQ(error_of(job + "  - {cause: pfc-storm, leaf: 3, spine: 1}\n"),
            "night.yaml:4: pfc-storm cannot hit a link of two switches; it hits leaf");
  EXPECT_EQ(error_of(job + "  - {cause: congestion, spine: 9}\n"),
            "night.yaml:4: there is no spine 9 in job sim (0 to 3)");
  EXPECT_EQ(error_of(job + "  - {cause: slow-compute, rank: 1, threads: proxy}\n"),
            "night.yaml:4: slow-compute takes no CPU from a thread");
}

}  // namespace
}  // namespace lockstep::sim
