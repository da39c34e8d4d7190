// plugin_bench: what NCCL profiler plugins cost the job they are loaded into. Ours, a null plugin and any others, in
// one run on one machine. Exit status 1: ours broke a promise (report.h); a missed time budget is only printed.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/clock.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/process.h"
#include "base/text.h"
#include "bench/plugin/host.h"
#include "bench/plugin/parts.h"
#include "bench/plugin/report.h"
#include "net/http_client.h"
#include "testing/temporary_folder.h"

namespace lockstep::plugin_bench {
namespace {

struct Options {
  std::vector<Plugin> others;
  std::string ours = program_directory() + "/../lib/libnccl-profiler-lockstep.so";
  std::string agent = program_directory() + "/lockstep-agent";
  std::string recordings = LOCKSTEP_RECORDINGS;
  std::string out;
  int64_t collectives = 20'000;
  int64_t seconds = 10;
  std::string one;  // this is a part's process
  bool check_recorder = false;
};

Result<void> read_environment(const std::string& file, Plugin& plugin) {
  std::ifstream in(file);
  if (!in) return Error{"plugin_bench: --env " + file + ": cannot be read"};
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{"plugin_bench: --env " + file + ": \"" + line + "\" is not KEY=VALUE"};
    }
    plugin.environment.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return {};
}

Plugin plugin_of(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals != std::string::npos) return {.name = word.substr(0, equals), .path = word.substr(equals + 1)};
  return {.name = std::filesystem::path(word).stem().string(), .path = word};
}

// --env belongs to the --plugin before it, so these two are taken in their order; the rest is left to Flags.
Result<std::vector<std::string>> take_plugins(const std::vector<std::string>& arguments, std::vector<Plugin>& plugins) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, equals);
    if (flag != "--plugin" && flag != "--env") {
      rest.push_back(arguments[i]);
      continue;
    }
    if (equals == std::string::npos && ++i == arguments.size())
      return Error{"plugin_bench: " + flag + " needs a value"};
    const std::string word = equals == std::string::npos ? arguments[i] : arguments[i].substr(equals + 1);
    if (flag == "--plugin") {
      plugins.push_back(plugin_of(word));
      const std::string& name = plugins.back().name;
      if (plugins.back().ours() || plugins.back().spin() || name == kNullPlugin) {
        return Error{"plugin_bench: --plugin " + word + ": the name " + name + " is taken; give it one with NAME=PATH"};
      }
    } else if (plugins.empty()) {
      return Error{"plugin_bench: --env stands behind the --plugin that it is for"};
    } else {
      LOCKSTEP_TRY(read_environment(word, plugins.back()));
    }
  }
  return rest;
}

// The sum of a counter's lines on a Prometheus page.
double counter_on(const std::string& page, const std::string& name) {
  double sum = 0;
  for (const std::string_view line : split(page, '\n')) {
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    if (line[name.size()] != ' ' && line[name.size()] != '{') continue;
    sum += parse_double(line.substr(line.rfind(' ') + 1)).value_or(0);
  }
  return sum;
}

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {}

  int run() {
    std::vector<Plugin> plugins = {{.name = kOurs, .path = options_.ours},
                                   {.name = "null", .path = kNullPlugin},
                                   {.name = kSpin, .path = kSpinPlugin}};
    for (Plugin& other : options_.others) plugins.push_back(std::move(other));
    // Part by part, so that all plugins meet the machine in the same mood.
    for (const std::string& name : parts()) {
      for (Plugin& plugin : plugins) {
        const auto mean = plugins[0].values.find(name + "/usual_mean");
        if (plugin.spin() && mean != plugins[0].values.end()) plugin.path = kSpinPlugin + format("%.1f", mean->second);
        measure(plugin, name);
      }
    }
    const std::string text = report(plugins);
    std::fputs(text.c_str(), stdout);
    if (!options_.out.empty()) {
      if (Result<void> written = write_file_atomically(options_.out, text); !written.ok()) {
        std::fprintf(stderr, "plugin_bench: --out: %s\n", written.error().c_str());
        return 1;
      }
    }
    return broken_promises(plugins[0]).empty() ? 0 : 1;
  }

 private:
  std::vector<std::string> parts() const {
    std::vector<std::string> parts = {"calls", "batched", "memory"};
    const Result<std::vector<std::string>> recordings = list_directory(options_.recordings);
    if (!recordings.ok()) std::fprintf(stderr, "plugin_bench: --recordings: %s\n", recordings.error().c_str());
    for (const std::string& name : recordings.ok() ? *recordings : std::vector<std::string>()) {
      const std::string folder = options_.recordings + "/" + name;
      if (std::filesystem::is_directory(folder)) parts.push_back("recording:" + folder);
    }
    for (const int count : kCommunicatorCounts) parts.push_back("comms:" + std::to_string(count));
    for (const char* rest : {"threads:1", "threads:2", "threads:4", "paced", "flat"}) parts.push_back(rest);
    return parts;
  }

  void measure(Plugin& plugin, const std::string& name) {
    const bool load = name == "paced" || name == "flat";
    const bool with_agent = plugin.ours() || plugin.path == kNullPlugin || plugin.spin();
    if (load && with_agent) return beside_agent(plugin, name);
    // Batches hold more events open at a time than others make room for; flat out is a matter between ours and its
    // agent.
    if (plugin.spin() || (name == "batched" && !plugin.ours()) || name == "flat") return;
    part(plugin, name);
  }

  void beside_agent(Plugin& plugin, const std::string& load) {
    const testing::TemporaryFolder recorders("/dev/shm"), folder;
    Result<ChildProcess> agent = ChildProcess::start(
        {.arguments = {options_.agent, "--data", folder.path() + "/data", "--recorders", recorders.path(), "--export",
                       "file:" + folder.path() + "/export", "--metrics", "127.0.0.1:0"},
         .environment = {},
         .stderr_path = folder.path() + "/log"});
    const Result<std::string> ready = agent.ok() ? agent->read_line(10'000) : Result<std::string>(agent.failure());
    constexpr std::string_view kReady = "ready metrics=";
    if (!ready.ok() || !ready->starts_with(kReady)) {
      plugin.failures[load] = "no agent";
      std::fprintf(stderr, "plugin_bench: %s does not start; without it this is not measured\n",
                   options_.agent.c_str());
      return;
    }
    const double before = process_cpu_seconds(agent->pid());
    const int64_t from_ns = SystemClock().monotonic_ns();
    part(plugin, load, recorders.path());
    const double seconds = static_cast<double>(SystemClock().monotonic_ns() - from_ns) / 1e9;
    plugin.values[load + "/agent_cpu_percent"] = (process_cpu_seconds(agent->pid()) - before) / seconds * 100;
    const Result<Url> address = parse_url("http://" + ready->substr(kReady.size()), 80);
    if (!address.ok() || !plugin.ours()) return;
    const Result<HttpResponse> page = HttpClient(*address).send({.path = "/metrics"});
    const std::string text = page.ok() ? page->body : "";
    plugin.values[load + "/agent_read"] = counter_on(text, "lockstep_agent_recorder_records_total");
    plugin.values[load + "/agent_lost"] = counter_on(text, "lockstep_agent_recorder_lost_total");
  }

  void part(Plugin& plugin, const std::string& name) {
    const testing::TemporaryFolder recorders("/dev/shm");
    part(plugin, name, recorders.path());
  }

  void part(Plugin& plugin, const std::string& name, const std::string& recorders) {
    // Under the name that its values have.
    const bool recording = name.starts_with("recording:");
    const std::string key = recording ? "recording:" + std::filesystem::path(name.substr(10)).filename().string()
                            : name.starts_with("threads:") ? "threads" + name.substr(8)
                            : name.starts_with("comms:")   ? "comms" + name.substr(6)
                                                           : name;
    std::fprintf(stderr, "plugin_bench: %s, %s\n", plugin.name.c_str(), key.c_str());
    const testing::TemporaryFolder folder;
    std::vector<std::string> arguments = {program_directory() + "/plugin_bench",
                                          "--one",
                                          name,
                                          "--lockstep",
                                          plugin.path,
                                          "--collectives",
                                          std::to_string(options_.collectives),
                                          "--seconds",
                                          std::to_string(options_.seconds)};
    if (plugin.ours() && !recording) arguments.push_back("--check-recorder");
    auto environment = plugin.environment;
    environment.emplace_back("LOCKSTEP_RECORDER_DIR", recorders);
    Result<ChildProcess> child = ChildProcess::start(
        {.arguments = arguments, .environment = environment, .stderr_path = folder.path() + "/stderr"});
    if (!child.ok()) {
      plugin.failures[key] = child.error();
      return;
    }
    const int64_t limit_ms = (120 + options_.seconds) * 1000;
    const int64_t deadline_ms = SystemClock().monotonic_ns() / 1'000'000 + limit_ms;
    const auto left_ms = [&] { return std::max<int64_t>(0, deadline_ms - SystemClock().monotonic_ns() / 1'000'000); };
    for (auto line = child->read_line(left_ms()); line.ok(); line = child->read_line(left_ms())) {
      const size_t tab = line->find('\t');
      const auto number = tab == std::string::npos ? std::nullopt : parse_double(line->substr(tab + 1));
      if (!number) continue;
      const std::string value = line->substr(0, tab);
      plugin.values[value.starts_with("check/") ? key + "/" + value : value] = *number;
    }
    const Result<int> status = child->wait(std::max<int64_t>(left_ms(), 1000));
    if (!status.ok()) {
      plugin.failures[key] = format("did not end in %lld s", static_cast<long long>(limit_ms / 1000));
    } else if (*status > 128) {
      plugin.failures[key] = format("crashed (signal %d)", *status - 128);
    } else if (*status != 0) {
      plugin.failures[key] = format("failed (exit %d)", *status);
    }
    if (plugin.failures.contains(key)) {
      const auto said = read_file(folder.path() + "/stderr", 1 << 20);
      if (said.ok()) std::fputs(said->c_str(), stderr);
    }
  }

  Options options_;
};

// Results go to the standard output as it was; what the plugin prints does not mix with them.
int run_one(const Options& options) {
  std::FILE* const results = ::fdopen(::dup(STDOUT_FILENO), "w");
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const Result<void> done = run_part({.part = options.one,
                                      .plugin = options.ours,
                                      .collectives = options.collectives,
                                      .seconds = options.seconds,
                                      .check_recorder = options.check_recorder},
                                     [&](const std::string& name, double value) {
                                       std::fprintf(results, "%s\t%.17g\n", name.c_str(), value);
                                       std::fflush(results);
                                     });
  if (!done.ok()) std::fprintf(stderr, "plugin_bench: %s\n", done.error().c_str());
  std::fclose(results);
  return done.ok() ? 0 : 1;
}

int main_of(const std::vector<std::string>& arguments) {
  Options options;
  const Result<std::vector<std::string>> rest = take_plugins(arguments, options.others);
  std::string shown;
  Flags flags("plugin_bench", "what NCCL profiler plugins cost the job they are loaded into, as Markdown");
  flags.text(&shown, "--plugin", "[NAME=]PATH", "another plugin to measure (repeatable)")
      .text(&shown, "--env", "FILE", "KEY=VALUE lines: the environment of the --plugin before it")
      .text(&options.ours, "--lockstep", "PATH", "our plugin (default: of this build)")
      .text(&options.agent, "--agent", "PATH", "lockstep-agent (default: of this build)")
      .text(&options.recordings, "--recordings", "DIR", "recordings to play (default: those of the source tree)")
      .number(&options.collectives, "--collectives", "N", "collectives per shape (default 20000)", 20, 100'000'000)
      .number(&options.seconds, "--seconds", "N", "length of each run under load (default 10)", 1, 3600)
      .text(&options.out, "--out", "FILE", "write the report there, too")
      .text(&options.one, "--one", "PART", "measure one part of --lockstep in this process, as name<TAB>value lines")
      .toggle(&options.check_recorder, "--check-recorder", "with --one: read what the plugin recorded");
  const Result<void> parsed = rest.ok() ? flags.parse(*rest) : Result<void>(rest.failure());
  if (!parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (flags.help_wanted()) {
    std::fputs(flags.help().c_str(), stdout);
    return 0;
  }
  if (!options.one.empty()) return run_one(options);
  return Bench(std::move(options)).run();
}

}  // namespace
}  // namespace lockstep::plugin_bench

int main(int argc, char** argv) {
  return lockstep::plugin_bench::main_of({argv + 1, argv + argc});
}
