// `lockstep score DIR`: plays every scenario of a folder, shows the bytes to diagnosis, and compares its verdicts with
// what was true; simple rules on the same bytes stand beside it. docs/guide/score.md says how to read the result.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/score_product.h"
#include "apps/cli/score_receivers.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "sim/fleet/interrupt.h"
#include "sim/score/baselines.h"
#include "sim/score/report.h"
#include "sim/score/score_case.h"

namespace lockstep::cli {
namespace {

struct Options {
  std::string json, markdown, filter;
  int64_t jobs = 0;
  int64_t healthy_hours = 0;
  int64_t seed = 1;
  int64_t steps = 0;  // 0: all of them
  double delay_ms = 20;
  bool receivers = false;
  bool no_rules = false;
  bool truth = false;
};

int fail(const std::string& line, int code = kExitFailed) {
  std::fprintf(stderr, "lockstep score: %s\n", line.c_str());
  return code;
}

struct Work {
  sim::Scenario scenario;
  std::string file;
};

// Where scenarios come from: files that were read, or healthy ones made up one by one.
class Set {
 public:
  static Result<Set> from_files(const std::vector<std::string>& paths, const std::string& filter) {
    Set set;
    std::vector<std::string> files = LOCKSTEP_TRY(sim::scenario_files(paths));
    std::string problems;  // of every file, so that they can be mended in one go
    for (const std::string& file : files) {
      Result<sim::Scenario> scenario = sim::read_scenario(file);
      if (!scenario.ok()) {
        problems += (problems.empty() ? "" : "\n") + scenario.error();
        continue;
      }
      if (!filter.empty() && file.find(filter) == std::string::npos && scenario->name.find(filter) == std::string::npos)
        continue;
      set.work_.push_back({std::move(*scenario), file});
    }
    if (!problems.empty()) return Error{problems};
    if (set.work_.empty()) return Error{"no scenario's name has \"" + filter + "\" in it"};
    return set;
  }
  // Each is about an hour of one job.
  static Set healthy(int64_t hours, int64_t seed) {
    Set set;
    for (int64_t i = 0; i < hours; ++i)
      set.work_.push_back({sim::healthy_scenario(static_cast<uint64_t>(seed + i)), ""});
    return set;
  }
  void shorten(int64_t steps) {
    for (Work& one : work_) one.scenario.steps = std::min(one.scenario.steps, steps);
  }
  size_t size() const { return work_.size(); }
  const Work& at(size_t i) const { return work_[i]; }

 private:
  std::vector<Work> work_;
};

// The scores of one scenario, ours first, then one per rule.
std::vector<sim::CaseScore> play_here(const Work& work, const Options& options, const std::function<bool()>& keep_on) {
  const std::unique_ptr<sim::Subject> product = make_product();
  sim::Baselines rules;
  std::vector<std::unique_ptr<sim::Subject>> views;
  std::vector<sim::Subject*> subjects{product.get()};
  if (!options.no_rules) {
    subjects.push_back(&rules);  // gets the bytes, and answers for the first rule
    for (size_t i = 1; i < sim::kRuleCount; ++i) {
      views.push_back(std::make_unique<sim::BaselineView>(rules, static_cast<sim::Rule>(i)));
      subjects.push_back(views.back().get());
    }
  }
  sim::ObserveOptions how;
  how.network_delay_ns = static_cast<int64_t>(options.delay_ms * 1e6);
  return sim::score_case(work.scenario, subjects, how, keep_on);
}

// Through a server's receivers, or here.
std::vector<sim::CaseScore> play_one(const Work& work, size_t number, const Options& options, ScoreServer* server,
                                     const std::function<bool()>& keep_on) {
  if (server == nullptr) return play_here(work, options, keep_on);
  std::vector<sim::CaseScore> played;
  Result<sim::CaseScore> score = server->play(work.scenario, number, keep_on);
  if (score.ok()) {
    played.push_back(std::move(*score));
  } else {
    played.emplace_back().name = work.scenario.name;
    played.back().problem = score.error();
  }
  return played;
}

// A few at a time, with a line for each. By scenario; what was interrupted has none.
std::vector<std::vector<sim::CaseScore>> play_all(const Set& set, const Options& options, ScoreServer* server,
                                                  const std::function<bool()>& keep_on) {
  std::vector<std::vector<sim::CaseScore>> scores(set.size());
  std::atomic<size_t> next{0}, done{0};
  Mutex mutex;  // for the lines
  const auto worker = [&] {
    for (size_t i = next++; i < set.size() && keep_on(); i = next++) {
      const Work& work = set.at(i);
      std::vector<sim::CaseScore> played = play_one(work, i, options, server, keep_on);
      if (!keep_on()) return;
      for (sim::CaseScore& score : played) score.file = work.file;
      const size_t number = ++done;
      MutexLock lock(mutex);
      std::fprintf(stderr, "%4zu/%zu %s\n", number, set.size(), sim::progress_line(played.front()).c_str());
      scores[i] = std::move(played);
    }
  };
  const size_t threads = std::min<size_t>(
      set.size(), options.jobs > 0 ? static_cast<size_t>(options.jobs)
                                   : std::max<size_t>(server != nullptr ? 8 : 1, std::thread::hardware_concurrency()));
  std::vector<std::jthread> all;
  for (size_t i = 0; i < threads; ++i) all.emplace_back(worker);
  all.clear();  // joins them
  return scores;
}

std::vector<sim::SubjectScores> by_subject(std::vector<std::vector<sim::CaseScore>> scores) {
  std::vector<sim::SubjectScores> subjects(scores.front().size());
  for (size_t subject = 0; subject < subjects.size(); ++subject) {
    subjects[subject].name = subject == 0 ? "lockstep" : sim::to_text(static_cast<sim::Rule>(subject - 1));
    for (std::vector<sim::CaseScore>& played : scores)
      if (subject < played.size()) subjects[subject].cases.push_back(std::move(played[subject]));
  }
  return subjects;
}

// What is true of each scenario, without playing it to anybody: to see that a file is what it should be.
void print_truth(const Set& set) {
  for (size_t i = 0; i < set.size(); ++i) {
    const sim::Scenario& scenario = set.at(i).scenario;
    for (const sim::Truth& truth : sim::truths(scenario)) {
      std::string layers, causes;
      for (Layer layer : truth.layers) layers += (layers.empty() ? "" : " or ") + std::string(to_text(layer));
      for (Cause cause : truth.causes) causes += (causes.empty() ? "" : " or ") + std::string(to_text(cause));
      std::printf("%s: %s: costs %.1f %% of a step%s; %s, %s\n", scenario.name.c_str(),
                  sim::describe(scenario.faults[truth.fault]).c_str(), 100 * truth.cost,
                  truth.below_notice ? " (below notice)" : "", layers.c_str(), causes.c_str());
    }
    if (scenario.faults.empty()) std::printf("%s: healthy\n", scenario.name.c_str());
  }
}

// Of the Markdown: what was played, and the command. paths: empty where the jobs were made up.
std::string title_of(const Arguments& arguments, const std::vector<std::string>& paths, const Options& options) {
  std::string title = "Score";
  if (paths.empty())
    title += ": healthy jobs";
  else
    for (const std::string& path : paths) title += (title == "Score" ? ": " : ", ") + path;
  if (options.receivers) title += ", through the receivers in real time";
  title += "\n\n`lockstep score";
  for (const std::string& word : arguments) title += " " + word;
  title += "`";
  return title;
}

Result<void> write_result(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  return write_file_atomically(path, text);
}

}  // namespace

int run_score(const Arguments& arguments) {
  Options options;
  const bool made_up = std::any_of(arguments.begin(), arguments.end(),
                                   [](const std::string& word) { return word.starts_with("--healthy-hours"); });
  Flags flags("lockstep score", "plays scenarios, and compares the verdicts with what was true",
              made_up ? "" : "PATH...");
  flags.text(&options.json, "--json", "FILE", "write every score as JSON (-: standard output)")
      .text(&options.markdown, "--markdown", "FILE", "write the tables as Markdown (-: standard output)")
      .text(&options.filter, "--filter", "TEXT", "only scenarios whose file or name has this in it")
      .number(&options.jobs, "--jobs", "N", "so many scenarios at once (default: as many as there are cores)", 1, 256)
      .toggle(&options.receivers, "--receivers", "through the receivers of a real server, in real time")
      .toggle(&options.receivers, "--doors", "the former name of --receivers, for one version")
      .toggle(&options.no_rules, "--no-rules", "without the simple rules beside it")
      .toggle(&options.truth, "--truth", "play nothing: say what is true of each scenario, and what its faults cost")
      .decimal(&options.delay_ms, "--delay-ms", "MS", "from agent to server (default 20)", 0, 60'000)
      .number(&options.healthy_hours, "--healthy-hours", "N",
              "instead of files: N job-hours of small healthy jobs, a seed each", 1, 1'000'000)
      .number(&options.seed, "--seed", "S", "the first of these seeds (default 1)", 0, INT64_MAX / 2)
      .number(&options.steps, "--steps", "N", "no more than the first N steps of each", 1, 1'000'000);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (made_up && options.receivers)
    return fail("--receivers plays in real time; --healthy-hours would take hours", kExitUsage);

  Result<Set> set = made_up ? Result<Set>(Set::healthy(options.healthy_hours, options.seed))
                            : Set::from_files(flags.positional(), options.filter);
  if (!set.ok()) return fail(set.error(), kExitNotFound);
  if (options.steps > 0) set->shorten(options.steps);

  if (options.truth) {
    print_truth(*set);
    return kExitOk;
  }

  std::unique_ptr<ScoreServer> server;
  if (options.receivers) {
    Result<std::unique_ptr<ScoreServer>> started = ScoreServer::start();
    if (!started.ok()) return fail(started.error());
    server = std::move(*started);
  }

  set_log_level(LogLevel::kWarn);  // jobs that come and go by the hundred are no news here
  sim::Interrupt interrupt;
  std::vector<std::vector<sim::CaseScore>> scores =
      play_all(*set, options, server.get(), [&] { return !interrupt.asked(); });
  if (interrupt.asked()) return fail("interrupted");

  const std::vector<sim::SubjectScores> subjects = by_subject(std::move(scores));
  std::fprintf(stderr, "\n");
  std::fputs(sim::terminal(subjects).c_str(), options.json == "-" || options.markdown == "-" ? stderr : stdout);
  if (server) std::fprintf(stderr, "%s\n", server->cost().c_str());
  const std::string title = title_of(arguments, flags.positional(), options);
  for (const auto& [path, text] :
       {std::pair(options.json, sim::json(subjects)), std::pair(options.markdown, sim::markdown(subjects, title))}) {
    if (Result<void> written = write_result(path, text); !written.ok()) return fail(written.error());
  }
  return kExitOk;
}

}  // namespace lockstep::cli
