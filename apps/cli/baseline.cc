// `lockstep baseline`: runs kept under a name, so that a CI job compares with one whose traces are gone.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "apps/cli/baselines.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/trace_files.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "base/version.h"
#include "profile/baseline/baseline_folder.h"

namespace lockstep::cli {
namespace {

using namespace profile;

constexpr std::string_view kPrefix = "baseline:";

int failed(const char* program, const Error& error) {
  std::fprintf(stderr, "%s: %s\n", program, error.message.c_str());
  return error.code == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
}

// The exit code where the name is none.
std::optional<int> wrong_name(const char* program, const std::string& name) {
  const Result<void> checked = BaselineFolder::check_name(name);
  if (checked.ok()) return std::nullopt;
  std::fprintf(stderr, "%s: %s\n", program, checked.error().c_str());
  return kExitUsage;
}

std::string length_text(const RunSummary& run) {
  const std::string length = human_duration(run.step_ns);
  return run.steps > 0 ? format("%.0f steps, one takes %s", run.steps, length.c_str())
                       : format("no marked steps, the whole takes %s", length.c_str());
}

void say_saved(const BaselineFolder& folder, const std::string& name, const RunSummary& run) {
  std::printf("baseline %s: %llu rank%s, %s, %zu kernels%s; in %s\n", name.c_str(),
              static_cast<unsigned long long>(run.ranks), run.ranks == 1 ? "" : "s", length_text(run).c_str(),
              run.kernels.size(), run.has_shapes ? " with shapes" : "", folder.file_of(name).c_str());
  if (run.steps > 0 && run.steps < 2) {
    std::fprintf(stderr, "lockstep baseline save: a single step: how much steps differ by chance is not known\n");
  }
}

int save(const Arguments& arguments) {
  constexpr const char* kProgram = "lockstep baseline save";
  std::string server = default_server(), baselines = default_baselines();
  Flags flags(kProgram, "keeps what the traces of a run say under a name, to compare later runs with", "NAME RUN...");
  add_server_flags(flags, &server).text(&baselines, "--baselines", "DIR", kBaselinesHelp);
  if (std::optional<int> code =
          answered(flags, arguments,
                   "lockstep baseline save NAME RUN|TRACE...   a baseline of that name is replaced\n\n"
                   "RUN is a trace, a folder with one trace per rank, or JOB/CAPTURE of lockstep profile; several "
                   "traces are one run.\n"
                   "exit codes: 0 kept, 2 wrong usage, 4 no such file, 5 not readable or not written\n"))
    return *code;
  const std::vector<std::string>& words = flags.positional();
  if (words.size() < 2) {
    std::fprintf(stderr, "%s: takes a name and the traces of a run; there are no traces\n", kProgram);
    return kExitUsage;
  }
  const std::string& name = words[0];
  if (const std::optional<int> code = wrong_name(kProgram, name)) return *code;
  const Result<ProfileAnalysis> analysis = analyze_files(kProgram, {words.begin() + 1, words.end()}, server, {});
  if (!analysis.ok()) return failed(kProgram, analysis.failure());
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const Baseline baseline{.written_by = version_line("lockstep"),
                          .saved_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                          .run = summarize(*analysis)};
  if (baseline.run.step_ns <= 0 || baseline.run.calls <= 0)
    return failed(kProgram, Error{"nothing ran in these traces: nothing is kept"});
  const Result<BaselineFolder> folder = BaselineFolder::make(baselines);
  if (!folder.ok()) return failed(kProgram, folder.failure());
  if (const Result<void> written = folder->write(name, baseline); !written.ok())
    return failed(kProgram, written.failure());
  say_saved(*folder, name, baseline.run);
  return kExitOk;
}

std::string entry_json(const std::string& name, const Baseline& baseline) {
  const RunSummary& run = baseline.run;
  JsonWriter json;
  json.begin_object().field("name", name).field("saved", utc_time(baseline.saved_unix_ms));
  json.field("written_by", baseline.written_by).field("ranks", run.ranks).field("world_size", run.world_size);
  json.field("steps", run.steps).field("step_us", run.step_ns / 1000).field("shapes", run.has_shapes);
  json.key("devices").begin_array();
  for (const std::string& device : run.devices) json.string(device);
  json.end_array().key("versions").begin_object();
  for (const auto& [what, version] : run.versions) json.field(what, version);
  json.end_object().end_object();
  return json.take();
}

void print_entry(const std::string& name, const Baseline& baseline) {
  const RunSummary& run = baseline.run;
  std::printf("%-20s  %-16s %6llu %6.0f %9s  %s\n", name.c_str(),
              utc_time(baseline.saved_unix_ms, "%Y-%m-%d %H:%M").c_str(), static_cast<unsigned long long>(run.ranks),
              run.steps, human_duration(run.step_ns).c_str(),
              run.devices.empty() ? "no GPU" : std::string(utf8_prefix(run.devices.front(), 40)).c_str());
}

int list(const Arguments& arguments) {
  constexpr const char* kProgram = "lockstep baseline list";
  std::string baselines = default_baselines();
  bool json = false;
  Flags flags(kProgram, "the baselines in a folder, when each was kept and of what");
  flags.text(&baselines, "--baselines", "DIR", kBaselinesHelp).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments,
                                         "exit codes: 0 listed, 1 there is none, 2 wrong usage, 4 no "
                                         "such folder, 5 one of them cannot be read\n"))
    return *code;
  const Result<BaselineFolder> folder = BaselineFolder::open(baselines);
  if (!folder.ok()) return failed(kProgram, folder.failure());
  const Result<std::vector<std::string>> names = folder->names();
  if (!names.ok()) return failed(kProgram, names.failure());
  int code = names->empty() ? kExitNo : kExitOk;
  std::string rows;
  if (!json && !names->empty())
    std::printf("%-20s  %-16s %6s %6s %9s  %s\n", "NAME", "SAVED (UTC)", "RANKS", "STEPS", "STEP", "GPU");
  for (const std::string& name : *names) {
    const Result<Baseline> baseline = folder->read(name);
    if (!baseline.ok()) {
      code = failed(kProgram, baseline.failure());
    } else if (json) {
      rows += (rows.empty() ? "" : ",") + entry_json(name, *baseline);
    } else {
      print_entry(name, *baseline);
    }
  }
  if (json) std::printf("[%s]\n", rows.c_str());
  if (!json && names->empty()) std::printf("%s holds no baseline\n", baselines.c_str());
  return code;
}

int remove(const Arguments& arguments) {
  constexpr const char* kProgram = "lockstep baseline delete";
  std::string baselines = default_baselines();
  Flags flags(kProgram, "removes a baseline", "NAME");
  flags.text(&baselines, "--baselines", "DIR", kBaselinesHelp);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::string& name = flags.positional()[0];
  if (const std::optional<int> code = wrong_name(kProgram, name)) return *code;
  const Result<BaselineFolder> folder = BaselineFolder::open(baselines);
  if (!folder.ok()) return failed(kProgram, folder.failure());
  if (const Result<void> removed = folder->remove(name); !removed.ok()) return failed(kProgram, removed.failure());
  std::printf("baseline %s is deleted\n", name.c_str());
  return kExitOk;
}

}  // namespace

std::string default_baselines() {
  const char* folder = std::getenv("LOCKSTEP_BASELINES");
  return folder != nullptr && *folder != '\0' ? folder : ".lockstep/baselines";
}

bool is_baseline(const std::string& run) {
  return run.starts_with(kPrefix);
}

Result<void> check_run_name(const std::string& run) {
  return is_baseline(run) ? BaselineFolder::check_name(run.substr(kPrefix.size())) : Result<void>();
}

Result<RunSummary> summary_of(const char* program, const std::string& run, const std::string& server,
                              const std::string& baselines) {
  if (is_baseline(run)) {
    const BaselineFolder folder = LOCKSTEP_TRY(BaselineFolder::open(baselines));
    Baseline baseline = LOCKSTEP_TRY(folder.read(run.substr(kPrefix.size())));
    return std::move(baseline.run);
  }
  const ProfileAnalysis analysis = LOCKSTEP_TRY(analyze_files(program, {run}, server, {}));
  return summarize(analysis);
}

int run_baseline(const Arguments& arguments) {
  return run_subcommand("lockstep baseline", "runs kept under a name, for lockstep diff baseline:NAME RUN",
                        {{"save", save}, {"list", list}, {"delete", remove}}, arguments);
}

}  // namespace lockstep::cli
