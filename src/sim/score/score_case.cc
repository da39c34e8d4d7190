#include "sim/score/score_case.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>

#include "base/text.h"

namespace lockstep::sim {

Answers answers_of(const Scenario& scenario) {
  return {truths(scenario),
          [&scenario](const std::string& job, std::optional<Layer> layer) { return allowed(scenario, job, layer); }};
}

std::vector<CaseScore> score_case(const Scenario& scenario, std::span<Subject* const> subjects,
                                  const ObserveOptions& options, const std::function<bool()>& keep_on) {
  if (scenario.topology.switches) {
    const std::string topology = topology_file(scenario);
    for (Subject* subject : subjects) subject->declare(topology);
  }
  ScenarioRun run(scenario, kScoreStartUnixNs);
  const std::vector<Observed> observed = observe([&] { return run.next(); }, subjects, options, keep_on);
  const Answers answers = answers_of(scenario);
  std::vector<CaseScore> scores;
  for (const Observed& seen : observed) scores.push_back(compare(scenario, answers, run.onsets(), seen));
  return scores;
}

Result<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code problem;
    if (fs::is_regular_file(path, problem)) {
      files.push_back(path);
      continue;
    }
    if (!fs::is_directory(path, problem)) return Error{path + " is neither a folder nor a file"};
    std::vector<std::string> found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path, problem)) {
      const std::string end = entry.path().extension().string();
      if (entry.is_regular_file(problem) && (end == ".yaml" || end == ".yml")) found.push_back(entry.path().string());
    }
    if (found.empty()) return Error{path + " holds no scenario (*.yaml)"};
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

namespace {

// Minimal standard library generator: its sequence is the same everywhere, its distributions are not, so the draws are
// made by hand.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t below(uint64_t limit) { return random_() % limit; }
  double share() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  template <typename T, size_t kCount>
  const T& one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  std::mt19937_64 random_;
};

JobPlan healthy_job(Draws& draws) {
  JobPlan job;
  job.job_id = "job";
  struct Split {
    int32_t tp, pp, dp, cp, ep, micro_batches, layers;  // layers: 0 where it is not sharded
  };
  constexpr Split kSplits[] = {{1, 1, 8, 1, 1, 4, 0},  {4, 1, 2, 1, 1, 4, 0}, {2, 2, 2, 1, 1, 8, 0},
                               {1, 1, 16, 1, 1, 2, 0}, {4, 2, 2, 1, 1, 8, 0}, {1, 1, 8, 1, 4, 2, 0},
                               {2, 1, 2, 2, 1, 4, 0},  {1, 1, 5, 1, 1, 4, 0}, {2, 1, 6, 1, 1, 4, 0},
                               {1, 1, 12, 1, 6, 2, 0}, {1, 1, 8, 1, 1, 1, 6}, {1, 1, 12, 1, 1, 1, 4},
                               {2, 1, 5, 1, 1, 1, 4},  {1, 4, 3, 1, 1, 8, 0}, {1, 1, 8, 1, 4, 1, 4}};
  const Split& split = draws.one_of(kSplits);
  job.tp = split.tp;
  job.pp = split.pp;
  job.dp = split.dp;
  job.cp = split.cp;
  job.ep = split.ep;
  job.micro_batches = split.micro_batches;
  if (split.layers > 0) {
    job.sharding = Sharding::kFull;
    job.layers = split.layers;
  }
  // An hour of short steps takes long to play, so that they are rare; they are what a threshold in seconds gets wrong.
  constexpr double kStepMs[] = {100,  500,  500,  1000, 1000, 1000, 2000, 2000,   2000,   4000,
                                4000, 4000, 8000, 8000, 8000, 8000, 8000, 15'000, 15'000, 30'000};
  job.step_ms = draws.one_of(kStepMs);
  constexpr double kOverlaps[] = {0, 0.5, 0.9};
  job.overlap = draws.one_of(kOverlaps);
  job.communication = 0.05 + 0.25 * draws.share();
  constexpr double kTimes[] = {1, 3, 6};
  job.noise.times = draws.one_of(kTimes);
  job.noise.heavy_tails = draws.below(4) != 0;
  job.noise.rank_spread = draws.below(2) == 0 ? 0.004 : 0.01;
  job.noise.shocks = draws.below(2) == 0 ? 0 : 0.02;
  return job;
}

// Of a size of its own; nothing where the scenario has one of that kind.
std::optional<Oddity> healthy_oddity(const JobPlan& job, const std::vector<Oddity>& others, Draws& draws) {
  Oddity oddity;
  oddity.job = job.job_id;
  oddity.kind = static_cast<OddityKind>(draws.below(static_cast<uint64_t>(OddityKind::kMasterRank) + 1));
  if (oddity.kind == OddityKind::kExpertSkew && job.ep == 1) oddity.kind = OddityKind::kPacking;
  if (oddity.kind == OddityKind::kStageUneven && job.pp == 1) oddity.kind = OddityKind::kGarbage;
  if (oddity.kind == OddityKind::kResize && resized_dp(job, 0.25) == job.dp) oddity.kind = OddityKind::kPacking;
  if (std::any_of(others.begin(), others.end(), [&](const Oddity& other) { return other.kind == oddity.kind; }))
    return std::nullopt;
  // A master rank has a few milliseconds more to do; one that costs everybody a tenth of a step is no oddity.
  const bool small = oddity.kind == OddityKind::kDailyHeat || oddity.kind == OddityKind::kMasterRank;
  // What is counted in steps takes several of them.
  const bool steps = oddity.kind == OddityKind::kCompile || oddity.kind == OddityKind::kEvaluation ||
                     oddity.kind == OddityKind::kCheckpoints;
  oddity.amount = small ? 0.01 + 0.01 * draws.share() : steps ? 0.2 + 5 * draws.share() : 0.05 + 0.2 * draws.share();
  oddity.every_steps = 20 + static_cast<int64_t>(draws.below(180));
  return oddity;
}

}  // namespace

Scenario healthy_scenario(uint64_t seed) {
  Draws draws(seed);
  Scenario scenario;
  scenario.name = format("healthy-%llu", static_cast<unsigned long long>(seed));
  scenario.seed = seed;
  JobPlan job = healthy_job(draws);
  scenario.topology.gpus_per_host = draws.below(2) == 0 ? 4 : 8;
  scenario.topology.rails = draws.below(2) == 0;
  scenario.steps = static_cast<int64_t>(3'600'000 / job.step_ms);
  // No oftener than the job does a step, as in tests/scenarios/hard.
  scenario.telemetry.metrics_every_s = job.step_ms < 4000 ? 5 : job.step_ms < 15'000 ? 15 : 30;
  scenario.telemetry.clock_error_us = draws.below(4) == 0 ? 5000 : 50;
  // A third has nothing odd, the rest one or two oddities.
  const uint64_t oddities = draws.below(3);
  for (uint64_t i = 0; i < oddities; ++i)
    if (std::optional<Oddity> oddity = healthy_oddity(job, scenario.oddities, draws))
      scenario.oddities.push_back(std::move(*oddity));
  scenario.jobs.push_back(std::move(job));
  return scenario;
}

}  // namespace lockstep::sim
