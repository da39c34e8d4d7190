// Prints how far shares of loss and MFU are from what was injected, as a table: scenario_shares [--sentences] PATH...
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "sim/score/score_case.h"
#include "tests/scenarios/shares.h"

namespace lockstep {
namespace {

constexpr int32_t kRanksMax = 64;  // every set of faults is played: larger fleets say the same, later

std::string percent(double share) {
  return format("%.1f", 100 * share + 0.0001);
}

// What is odd by itself has no step without it to compare with; nor has what stops.
bool can_be_compared(const sim::Scenario& scenario) {
  const bool stops = std::any_of(scenario.faults.begin(), scenario.faults.end(), [](const sim::ScenarioFault& fault) {
    return sim::is_hang(fault.cause) || fault.cause == Cause::kXid || fault.cause == Cause::kNanSource;
  });
  return !stops && scenario.oddities.empty() && scenario.jobs.size() == 1 &&
         scenario.jobs.front().world_size() <= kRanksMax;
}

// How far off it was, in all.
struct Errors {
  std::vector<double> shares, missed, losts, mfus;
  int left_out = 0;

  void add(const SharesCheck& check) {
    losts.push_back(std::fabs(check.lost_reported - check.lost_truth));
    mfus.push_back(std::fabs(check.mfu_reported - check.mfu_truth));
    // A fault without a verdict has to be in what is unexplained, so it counts in the column of that.
    for (const FaultShare& fault : check.faults)
      (fault.reported > 0 ? shares : missed).push_back(std::fabs(fault.reported - fault.truth));
  }
};

void print_check(const SharesCheck& check) {
  for (size_t i = 0; i < std::max<size_t>(1, check.faults.size()); ++i) {
    std::string row = i == 0 ? format("| %s | %s | %s ", check.name.c_str(), percent(check.lost_truth).c_str(),
                                      percent(check.lost_reported).c_str())
                             : "| | | ";
    row += check.faults.empty() ? "| none | | "
                                : format("| %s | %.0f | %.0f ", check.faults[i].fault.c_str(),
                                         100 * check.faults[i].truth, 100 * check.faults[i].reported);
    row += i == 0 ? format("| %.0f | %s | %s | %s | %s |", 100 * check.unexplained_reported,
                           percent(check.mfu_truth).c_str(), percent(check.mfu_reported).c_str(),
                           percent(check.stragglers_truth).c_str(), percent(check.stragglers_reported).c_str())
                  : "| | | | | |";
    std::printf("%s\n", row.c_str());
  }
}

void print_sentences(const SharesCheck& check) {
  std::printf(
      "<!-- %s\n     %s\n     %s\n     stragglers %.1f of %.1f, clocks %.1f, bars %.3f, shares %.3f, others' %.2f "
      "-->\n",
      check.cost_sentence.c_str(), check.mfu_sentence.c_str(), check.change_sentence.c_str(),
      100 * check.stragglers_reported, 100 * check.stragglers_truth, 100 * check.clocks_reported, check.bars_sum,
      check.sum_reported, check.other_reported);
}

void print_errors(const Errors& errors) {
  const auto quantile = [](std::vector<double> values, double q) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    return 100 * values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  };
  const auto line = [&](const char* what, const std::vector<double>& values) {
    std::printf("| %s | %zu | %.1f | %.1f | %.1f |\n", what, values.size(), quantile(values, 0.5),
                quantile(values, 0.9), quantile(values, 1));
  };
  std::printf("\n| error in points | cases | median | 90th percentile | worst |\n|---|---|---|---|---|\n");
  line("lost, of the job's time", errors.losts);
  line("share of a fault with a verdict, of what is lost", errors.shares);
  line("MFU", errors.mfus);
  std::printf(
      "\n%zu scenarios played; %zu faults without a verdict, whose cost is in *unexplained*; %d files left out: hangs, "
      "several jobs or attempts, more than 64 ranks, uneven by themselves.\n",
      errors.losts.size(), errors.missed.size(), errors.left_out);
}

int run(std::vector<std::string> paths) {
  const bool sentences = std::erase(paths, "--sentences") > 0;
  const auto failed = [](const std::string& why) {
    std::fprintf(stderr, "scenario_shares: %s\n", why.c_str());
    return 4;
  };
  const Result<std::vector<std::string>> files = sim::scenario_files(paths);
  if (!files.ok()) return failed(files.error());
  std::printf(
      "| scenario | lost, injected | told | fault | share of it, injected | told | unexplained | MFU | told | points "
      "lost to faults | told as stragglers and links |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  Errors errors;
  for (const std::string& file : *files) {
    const Result<sim::Scenario> scenario = sim::read_scenario(file);
    if (!scenario.ok()) return failed(scenario.error());
    const SharesCheck check = can_be_compared(*scenario) ? check_shares(*scenario) : SharesCheck{.restarted = true};
    if (check.restarted) {
      ++errors.left_out;
      continue;
    }
    errors.add(check);
    print_check(check);
    if (sentences) print_sentences(check);
    std::fflush(stdout);
  }
  print_errors(errors);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run({argv + 1, argv + argc});
}
