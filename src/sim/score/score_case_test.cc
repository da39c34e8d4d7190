#include "sim/score/score_case.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "sim/score/baselines.h"
#include "sim/score/report.h"
#include "testing/temporary_folder.h"

namespace lockstep::sim {
namespace {

// A job of eight ranks, one of them half as slow again.
Scenario slow_gpu() {
  const Result<Scenario> scenario = parse_scenario(
      "name: slow\nseed: 3\nsteps: 70\njobs:\n  - job: job\n    dp: 8\n    micro_batches: 2\n    step_ms: 250\n"
      "faults:\n  - cause: throttle-thermal\n    rank: 5\n    from_step: 40\n    severity: 0.5\n",
      "made-up.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error();
  return scenario.ok() ? *scenario : Scenario{};
}

// Keeps every byte it is given.
struct Recorder : Subject {
  std::string all;
  void receive(Signal signal, std::string_view otlp, int64_t now_unix_ns) override {
    all += std::to_string(now_unix_ns) + to_text(signal) + std::string(otlp);
  }
  void tick(int64_t) override {}
  std::string verdicts(std::string_view) override { return "[]"; }
};

std::string bytes_of(const Scenario& scenario) {
  Recorder recorder;
  Subject* const subjects[] = {&recorder};
  score_case(scenario, subjects, {});
  return recorder.all;
}

TEST(ScoreCase, TheTruthIsNotInTheBytes) {
  Scenario scenario = slow_gpu();
  const std::string bytes = bytes_of(scenario);
  ASSERT_GT(bytes.size(), 10'000u);
  for (const char* word : {"throttle-thermal", "culprit", "scenario", "made-up"})
    EXPECT_EQ(bytes.find(word), std::string::npos) << word;
  scenario.name = "throttle-thermal-on-rank-5";
  scenario.faults[0].line = 99;
  EXPECT_EQ(bytes_of(scenario), bytes);
}

TEST(ScoreCase, OtherAnswersChangeTheScoreAndNothingElse) {
  const Scenario scenario = slow_gpu();
  Baselines rules;
  Subject* const subjects[] = {&rules};
  ScenarioRun run(scenario, kScoreStartUnixNs);
  const std::vector<Observed> observed = observe([&] { return run.next(); }, subjects, {});
  Answers answers = answers_of(scenario);
  ASSERT_EQ(answers.truths.size(), 1u);
  EXPECT_TRUE(compare(scenario, answers, run.onsets(), observed[0]).faults[0].rank_first);
  answers.truths[0].ranks = {2_rank};
  const CaseScore renamed = compare(scenario, answers, run.onsets(), observed[0]);
  EXPECT_FALSE(renamed.faults[0].confirmed());
  EXPECT_EQ(renamed.wrong.size(), 1u);
}

TEST(ScoreCase, TheSameScenarioGivesTheSameScoreToTheDigit) {
  const auto once = [] {
    Baselines rules;
    BaselineView guess(rules, Rule::kRandomGuess);
    Subject* const subjects[] = {&rules, &guess};
    std::vector<CaseScore> scores = score_case(slow_gpu(), subjects, {});
    return json({{"a", {scores[0]}}, {"b", {scores[1]}}}) + markdown({{"a", {scores[0]}}}, "Score");
  };
  EXPECT_EQ(once(), once());
}

TEST(ScoreCase, FindsScenariosInFoldersInOrderOfTheirNames) {
  const lockstep::testing::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  std::filesystem::create_directories(folder / "b");
  for (const char* name : {"z.yaml", "a.yaml", "b/c.yml", "notes.txt"}) std::ofstream(folder / name) << "x";
  const Result<std::vector<std::string>> files = scenario_files({folder.string()});
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 3u);
  EXPECT_TRUE(files->front().ends_with("a.yaml"));
  EXPECT_FALSE(scenario_files({(folder / "nothing").string()}).ok());
  std::filesystem::create_directories(folder / "empty");
  EXPECT_FALSE(scenario_files({(folder / "empty").string()}).ok());
}

TEST(HealthyScenario, IsAboutAnHourAndHasNoFaults) {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    const Scenario scenario = healthy_scenario(seed);
    ASSERT_EQ(scenario.jobs.size(), 1u);
    EXPECT_TRUE(scenario.faults.empty());
    EXPECT_TRUE(truths(scenario).empty());
    EXPECT_NEAR(static_cast<double>(scenario.steps) * scenario.jobs[0].step_ms, 3'600'000, 10'000);
    const JobPlan& job = scenario.jobs[0];
    EXPECT_TRUE(check(shape_of(scenario, job, 0, job.dp)).ok()) << seed;
    for (const Oddity& oddity : scenario.oddities) {
      if (oddity.kind != OddityKind::kResize) continue;
      EXPECT_TRUE(check(shape_of(scenario, job, 1, resized_dp(job, oddity.amount))).ok()) << seed;
    }
  }
}

TEST(HealthyScenario, DrawsEveryOddityNoiseAndShape) {
  std::set<OddityKind> kinds;
  std::set<double> noises, steps;
  std::set<int32_t> gpus;
  std::set<bool> tails, rails, sharded, shocks;
  for (uint64_t seed = 1; seed < 400; ++seed) {
    const Scenario scenario = healthy_scenario(seed);
    const JobPlan& job = scenario.jobs[0];
    for (const Oddity& oddity : scenario.oddities) kinds.insert(oddity.kind);
    noises.insert(job.noise.times);
    steps.insert(job.step_ms);
    gpus.insert(scenario.topology.gpus_per_host);
    tails.insert(job.noise.heavy_tails);
    rails.insert(scenario.topology.rails);
    sharded.insert(job.sharding == Sharding::kFull);
    shocks.insert(job.noise.shocks > 0);
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(OddityKind::kMasterRank) + 1);
  EXPECT_EQ(noises, (std::set<double>{1, 3, 6}));
  EXPECT_EQ(*steps.begin(), 100);
  EXPECT_EQ(*steps.rbegin(), 30'000);
  EXPECT_EQ(gpus, (std::set<int32_t>{4, 8}));
  for (const std::set<bool>& both : {tails, rails, sharded, shocks}) EXPECT_EQ(both.size(), 2u);
}

}  // namespace
}  // namespace lockstep::sim
