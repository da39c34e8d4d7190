#include "sim/score/score_case.h"

#include <algorithm>
#include <filesystem>
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

Scenario healthy_scenario(uint64_t seed) {
  // Minimal standard library generator: its sequence is the same everywhere, its distributions are not, so the draws
  // are made by hand.
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + 1);
  const auto draw = [&](uint64_t below) { return random() % below; };
  const auto share = [&] { return static_cast<double>(random() >> 11) * 0x1.0p-53; };

  Scenario scenario;
  scenario.name = format("healthy-%llu", static_cast<unsigned long long>(seed));
  scenario.seed = seed;
  JobPlan job;
  job.job_id = "job";
  struct Split {
    int32_t tp, pp, dp, cp, ep;
  };
  constexpr Split kSplits[] = {{1, 1, 8, 1, 1}, {4, 1, 2, 1, 1}, {2, 2, 2, 1, 1}, {1, 1, 16, 1, 1},
                               {4, 2, 2, 1, 1}, {1, 1, 8, 1, 4}, {2, 1, 2, 2, 1}};
  const Split& split = kSplits[draw(std::size(kSplits))];
  job.tp = split.tp;
  job.pp = split.pp;
  job.dp = split.dp;
  job.cp = split.cp;
  job.ep = split.ep;
  job.micro_batches = job.pp > 1 ? 4 : 1 + static_cast<int32_t>(draw(2));
  job.step_ms = 1000 * (1 + static_cast<double>(draw(8)));
  job.overlap = draw(2) == 0 ? 0 : 0.5;
  job.communication = 0.05 + 0.25 * share();
  scenario.steps = static_cast<int64_t>(3'600'000 / job.step_ms);
  scenario.telemetry.clock_error_us = draw(4) == 0 ? 5000 : 50;

  // A third has nothing odd, the rest one or two oddities of their own size.
  const uint64_t oddities = draw(3);
  for (uint64_t i = 0; i < oddities; ++i) {
    Oddity oddity;
    oddity.job = job.job_id;
    oddity.kind = static_cast<OddityKind>(draw(static_cast<uint64_t>(OddityKind::kMasterRank) + 1));
    if (oddity.kind == OddityKind::kExpertSkew && job.ep == 1) oddity.kind = OddityKind::kPacking;
    if (oddity.kind == OddityKind::kStageUneven && job.pp == 1) oddity.kind = OddityKind::kGarbage;
    const bool twice = std::any_of(scenario.oddities.begin(), scenario.oddities.end(),
                                   [&](const Oddity& other) { return other.kind == oddity.kind; });
    if (twice) continue;
    // A master rank has a few milliseconds more to do; one that costs everybody a tenth of a step is no oddity.
    const bool small = oddity.kind == OddityKind::kDailyHeat || oddity.kind == OddityKind::kMasterRank;
    oddity.amount = small ? 0.01 + 0.01 * share() : 0.05 + 0.2 * share();
    oddity.every_steps = 20 + static_cast<int64_t>(draw(180));
    scenario.oddities.push_back(std::move(oddity));
  }
  scenario.jobs.push_back(std::move(job));
  return scenario;
}

}  // namespace lockstep::sim
