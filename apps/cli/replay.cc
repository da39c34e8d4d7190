// `lockstep replay DIR`: makes recorded NCCL callbacks again into the real plugin, for an agent that is running.
// `lockstep replay DIR --why`: brings its own server and agent, over a temporary folder, and ends with their verdicts.
#include "sim/replay/replay.h"

#include <signal.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/own_daemon.h"
#include "apps/cli/server_call.h"
#include "apps/cli/why.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/process.h"
#include "base/text.h"
#include "model/verdict_terms.h"
#include "net/http_client.h"

namespace lockstep::cli {
namespace {

using replay::Recording;
using replay::Replay;

// --why: a recording longer than this is played faster, so that an answer takes no longer than people wait.
constexpr double kWhySecondsMax = 20.0;
constexpr int64_t kPollUs = 200'000;
// How long the answer must stay the same to be the answer: shorter once the server knows that the job is over.
constexpr double kStableSeconds = 2.0;
constexpr double kStableAfterEndSeconds = 1.0;
constexpr double kHangSeconds = 20.0;      // a hang is confirmed well within this, or not at all
constexpr double kLastStepSeconds = 10.0;  // for the last steps to come through before stillness counts
constexpr double kCaughtUpSeconds = 30.0;

volatile sig_atomic_t interrupted = 0;

double now_s() {
  return static_cast<double>(SystemClock().monotonic_ns()) / 1e9;
}

int fail(const std::string& message, int code = kExitFailed) {
  fprintf(stderr, "%s\n", message.c_str());
  return code;
}

struct Options {
  std::string directory;
  double speed = 0;  // 0: not given
  std::string job;
  std::string plugin;
  int64_t linger_s = 30;
  bool skip_bad = false;
  bool no_steps = false;
  bool why = false;
  bool json = false;
};

// What the server says about the job, as far as waiting for it needs to know.
struct Diagnosis {
  std::string body;
  std::vector<std::string> verdicts;  // as the server wrote them; what came and went during the run is among them
  std::string state;
  std::string fingerprint;  // changes when the answer does
  StepNumber last_step = kNoStep;
  bool hang_confirmed = false;
};

template <typename T>
T value_or(const simdjson::simdjson_result<simdjson::dom::element>& field, T fallback) {
  T value{};
  return field.get(value) == simdjson::SUCCESS ? value : fallback;
}

Result<Diagnosis> read_diagnosis(std::string body) {
  Diagnosis answer;
  simdjson::dom::parser parser;
  simdjson::dom::element whole;
  if (const auto problem = parser.parse(body).get(whole)) {
    return Error{format("replay: the server's answer is not JSON: %s", simdjson::error_message(problem))};
  }
  answer.state = value_or<std::string_view>(whole["job"]["state"], "");
  answer.last_step = StepNumber{value_or<int64_t>(whole["job"]["last_step"], -1)};
  const std::string health(value_or<std::string_view>(whole["health"], ""));
  answer.fingerprint =
      format("%s %s %lld\n", answer.state.c_str(), health.c_str(), static_cast<long long>(answer.last_step.value()));

  // Once more, keeping each verdict's own text.
  simdjson::ondemand::parser text_parser;
  const simdjson::padded_string padded(body);
  simdjson::ondemand::document document;
  simdjson::ondemand::array verdicts;
  if (text_parser.iterate(padded).get(document) || document["verdicts"].get_array().get(verdicts)) {
    return Error{"replay: the server's answer has no verdicts array"};
  }
  for (auto element : verdicts) {
    simdjson::ondemand::object object;
    std::string_view raw;
    if (element.get_object().get(object) || object.raw_json().get(raw)) {
      return Error{"replay: a verdict in the server's answer is not an object"};
    }
    answer.fingerprint += raw;
    simdjson::dom::parser verdict_parser;
    simdjson::dom::element verdict;
    if (verdict_parser.parse(raw.data(), raw.size()).get(verdict)) continue;
    const auto verdict_state = term_of<VerdictState>(value_or<std::string_view>(verdict["state"], ""));
    const auto kind = term_of<VerdictKind>(value_or<std::string_view>(verdict["kind"], ""));
    answer.verdicts.emplace_back(raw);
    if (kind == VerdictKind::kHang && verdict_state == VerdictState::kConfirmed) answer.hang_confirmed = true;
  }
  answer.body = std::move(body);
  return answer;
}

// Asks until the answer is final for what was played.
Result<Diagnosis> await_diagnosis(const std::string& server_url, const std::string& job, bool lingering,
                                  StepNumber last_step) {
  const Url url = LOCKSTEP_TRY(parse_url(server_url, 7070));
  HttpClient client(url);
  HttpRequest request;
  request.path = "/api/jobs/" + url_part(job) + "/why";
  std::optional<Diagnosis> answer;
  std::string problem = "the server has not heard of the job";
  const double began = now_s();
  double changed = began;
  while (!interrupted) {
    const Result<HttpResponse> response = client.send(request);
    const double now = now_s();
    if (!response.ok()) {
      problem = response.error();
    } else if (response->status != 200) {
      problem = format("the server answers %d: %s", response->status, response->body.c_str());
    } else {
      Diagnosis latest = LOCKSTEP_TRY(read_diagnosis(response->body));
      if (!answer || answer->fingerprint != latest.fingerprint) changed = now;
      answer = std::move(latest);
    }
    if (answer && lingering) {
      if (answer->hang_confirmed || now - began >= kHangSeconds) return *std::move(answer);
    } else if (answer) {
      const double still = now - changed;
      const bool complete = answer->last_step >= last_step || now - began >= kLastStepSeconds;
      if (answer->state == "ended" && complete && still >= kStableAfterEndSeconds) return *std::move(answer);
      if (complete && still >= kStableSeconds) return *std::move(answer);
    }
    if (now - began >= kCaughtUpSeconds) {
      if (!answer) return Error{format("replay: no answer after %.0f s: %s", kCaughtUpSeconds, problem.c_str())};
      fprintf(stderr, "replay: the answer still changed after %.0f s; this is the latest\n", kCaughtUpSeconds);
      return *std::move(answer);
    }
    usleep(kPollUs);
  }
  return Error{"replay: interrupted"};
}

// Plays until every rank is through, with a line a second for the person who waits.
Result<Replay::Progress> play(Replay& running, const Recording& recording) {
  double reported = now_s();
  while (!interrupted) {
    Replay::Progress progress = LOCKSTEP_TRY(running.progress());
    const double percent =
        100.0 * static_cast<double>(progress.calls_passed) / static_cast<double>(recording.calls_total);
    if (progress.through || now_s() - reported >= 1.0) {
      fprintf(stderr, "replay: %.0f %%, %s callbacks made\n", percent,
              with_thousands(static_cast<int64_t>(progress.calls_made)).c_str());
      reported = now_s();
    }
    if (progress.through) return progress;
    usleep(20'000);
  }
  return Error{"replay: interrupted"};
}

StepNumber last_step_of(const Recording& recording) {
  StepNumber last = kNoStep;
  for (const replay::RankRecording& rank : recording.ranks) {
    if (!rank.steps.empty()) last = std::max(last, rank.steps.back().step);
  }
  return last;
}

int replay_into_running_agent(const Options& options, const Recording& recording, replay::ReplayOptions how) {
  how.speed = options.speed > 0 ? options.speed : 1.0;
  fprintf(stderr, "replay: job %s, %zu ranks, %s callbacks\n", how.job_id.c_str(), recording.ranks.size(),
          with_thousands(static_cast<int64_t>(recording.calls_total)).c_str());
  Result<Replay> running = Replay::start(recording, how);
  if (!running.ok()) return fail(running.error());
  const Result<Replay::Progress> progress = play(*running, recording);
  if (!progress.ok()) return fail(progress.error());
  if (progress->ranks_lingering == 0) return kExitOk;
  fprintf(stderr, "replay: %u ranks never finished in the recording; they stay, silent, for %lld s\n",
          progress->ranks_lingering, static_cast<long long>(options.linger_s));
  const double until = now_s() + static_cast<double>(options.linger_s);
  while (!interrupted && now_s() < until) usleep(20'000);
  return kExitOk;
}

int replay_and_ask(const Options& options, const Recording& recording, replay::ReplayOptions how) {
  const double seconds = static_cast<double>(recording.last_ns - recording.first_ns) / 1e9;
  how.speed = options.speed > 0 ? options.speed : std::max(1.0, seconds / kWhySecondsMax);

  Result<TemporaryFolder> folder = TemporaryFolder::make("lockstep-replay");
  if (!folder.ok()) return fail("replay: " + folder.error());
  how.recorder_directory = folder->path() + "/recorder";
  if (const Result<void> made = make_directories(how.recorder_directory); !made.ok()) return fail(made.error());
  Result<Daemon> server = start_daemon("lockstepd",
                                       {"--data", folder->path() + "/server", "--http", "127.0.0.1:0", "--otlp-http",
                                        "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"},
                                       folder->path());
  if (!server.ok()) return fail("replay: " + server.error());
  Result<Daemon> agent =
      start_daemon("lockstep-agent",
                   {"--data", folder->path() + "/agent", "--server", "http://" + server->receivers["otlp_http"],
                    "--metrics", "127.0.0.1:0", "--node", "off"},  // this machine has no part in what was recorded
                   folder->path());
  if (!agent.ok()) return fail("replay: " + agent.error());

  Result<Replay> running = Replay::start(recording, how);
  if (!running.ok()) return fail(running.error());
  const Result<Replay::Progress> progress = play(*running, recording);
  if (!progress.ok()) return fail(progress.error());

  const std::string server_url = "http://" + server->receivers["http"];
  const Result<Diagnosis> answer = await_diagnosis(server_url, how.job_id, progress->ranks_lingering > 0,
                                                   options.no_steps ? kLastStep : last_step_of(recording));
  for (const auto& [name, daemon] : {std::pair("lockstepd", &*server), std::pair("lockstep-agent", &*agent)}) {
    if (daemon->process.running()) continue;
    return fail(format("replay: %s ended during the replay; its last word: %s", name,
                       last_log_line(folder->path() + "/" + name + ".log").c_str()));
  }
  if (!answer.ok()) return fail(answer.error());
  if (options.json) {
    std::string array;
    for (const std::string& verdict : answer->verdicts) array += (array.empty() ? "" : ",\n ") + verdict;
    printf("[%s]\n", array.c_str());
  } else {
    print_why(answer->body, {.history = true});  // no link: the server is about to end
  }
  fflush(stdout);
  running->stop();
  agent->process.stop();
  server->process.stop();
  return kExitOk;
}

}  // namespace

int run_replay(const Arguments& arguments) {
  Options options;
  Flags flags("lockstep replay", "makes recorded NCCL callbacks again into the real plugin", "DIR");
  flags
      .decimal(&options.speed, "--speed", "N",
               "N times as fast as recorded (default 1; with --why at most 20 s in all)", 0.01, 1000)
      .text(&options.job, "--job", "NAME", "job id (default: replay- and a hash of the content)")
      .text(&options.plugin, "--plugin", "PATH",
            "profiler plugin (default: libnccl-profiler-lockstep.so of this build)")
      .toggle(&options.skip_bad, "--skip-bad", "leave malformed lines out instead of failing")
      .number(&options.linger_s, "--linger", "SECONDS", "how long ranks that never finished stay (default 30)", 0,
              86'400)
      .toggle(&options.no_steps, "--no-steps", "without the step log: as a job that does not report its steps")
      .toggle(&options.why, "--why", "start server and agent, print the verdicts, end; needs nothing running")
      .toggle(&options.json, "--json", "with --why: the verdicts as a JSON array");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  options.directory = flags.positional().at(0);
  if (options.json && !options.why)
    return fail("lockstep replay: --json is the form of --why's answer; add --why", kExitUsage);

  std::error_code ignored;
  if (!std::filesystem::is_directory(options.directory, ignored)) {
    return fail("replay: " + options.directory + " is not a folder", kExitNotFound);
  }
  const Result<Recording> recording = replay::load_recording(options.directory, {options.skip_bad});
  if (!recording.ok()) return fail("replay: " + recording.error());
  for (const std::string& note : recording->notes) fprintf(stderr, "replay: %s\n", note.c_str());

  replay::ReplayOptions how;
  const std::string libraries = program_directory() + "/../lib/";
  how.plugin_path = options.plugin.empty() ? libraries + "libnccl-profiler-lockstep.so" : options.plugin;
  how.capi_path = options.no_steps ? "" : libraries + "liblockstep.so";
  how.job_id = options.job;
  if (how.job_id.empty()) how.job_id = replay::default_job_id(*recording) + (options.no_steps ? "-no-steps" : "");

  struct sigaction stop {};
  stop.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &stop, nullptr);
  sigaction(SIGTERM, &stop, nullptr);
  return options.why ? replay_and_ask(options, *recording, how) : replay_into_running_agent(options, *recording, how);
}

}  // namespace lockstep::cli
