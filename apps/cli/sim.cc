// `lockstep sim`: plays a simulated fleet as real OTLP traffic: a scenario file, or one job with faults on request.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/otlp_receiver.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/text.h"
#include "model/events.h"
#include "sim/fleet/interrupt.h"
#include "sim/fleet/otlp_sender.h"
#include "sim/fleet/player.h"
#include "sim/fleet/send_pool.h"
#include "sim/scenario/scenario_run.h"

namespace lockstep::cli {

namespace {

// Fills in what was not given: --ranks alone gives a usual split, --tp and --pp alone leave the rest to dp.
Result<void> split_ranks(int64_t ranks, int64_t tp, int64_t pp, int64_t dp, sim::JobShape& shape) {
  if (ranks == 0 && dp > 0) ranks = std::max<int64_t>(tp, 1) * std::max<int64_t>(pp, 1) * dp;
  if (ranks == 0) ranks = 64;
  const bool plain = tp == 0 && pp == 0 && dp == 0;
  const int64_t usual = !plain || ranks < 16 ? 1 : ranks < 64 ? 2 : 4;
  if (tp == 0) tp = usual;
  if (pp == 0) pp = usual;
  if (dp == 0) dp = ranks / (tp * pp);
  if (tp * pp * dp != ranks) {
    return Error{format("%lld ranks are not tp %lld x pp %lld x dp; give --tp, --pp and --dp",
                        static_cast<long long>(ranks), static_cast<long long>(tp), static_cast<long long>(pp))};
  }
  shape.tp = static_cast<int32_t>(tp);
  shape.pp = static_cast<int32_t>(pp);
  shape.dp = static_cast<int32_t>(dp);
  return {};
}

int usage_error(const std::string& line) {
  std::fprintf(stderr, "lockstep sim: %s\n", line.c_str());
  return kExitUsage;
}

// The receiver behind any of the server's addresses; nothing, and told why, where there is none. Whatever answers will
// do: it may be another's collector.
std::optional<Url> receiver_of(const std::string& server, int& exit_code) {
  const Result<Url> given = parse_url(server, 4318);
  if (!given.ok()) {
    exit_code = usage_error("--server: " + given.error());
    return std::nullopt;
  }
  const OtlpReceiver found = find_otlp_receiver(server);
  if (!found.problem.empty()) {
    exit_code = usage_error("--server: " + found.problem);
    return std::nullopt;
  }
  if (!found.answers) {
    std::fprintf(stderr, "lockstep sim: no server at %s (lockstepd --data DIR starts one)\n", server.c_str());
    exit_code = kExitUnreachable;
    return std::nullopt;
  }
  return *parse_url(found.url, 4318);
}

int print_totals(const sim::SendTotals& totals) {
  std::printf("           requests: %lld sent, %lld failed, %lld tried again; %s\n",
              static_cast<long long>(totals.requests_sent), static_cast<long long>(totals.requests_failed),
              static_cast<long long>(totals.retries), human_bytes(static_cast<double>(totals.bytes)).c_str());
  std::printf("           records: %lld accepted, %lld rejected, %lld failed\n",
              static_cast<long long>(totals.records_accepted), static_cast<long long>(totals.records_rejected),
              static_cast<long long>(totals.records_failed));
  if (!totals.last_error.empty()) std::fprintf(stderr, "lockstep sim: last error: %s\n", totals.last_error.c_str());
  return totals.requests_failed + totals.records_rejected == 0 ? kExitOk : kExitFailed;
}

// Connections that a scenario is sent over; more than a server's threads help nobody.
constexpr size_t kConnections = 4;

// Each job by name; of many, how far the first and the last are.
std::string describe_progress(const std::map<std::string, int64_t>& at_step) {
  constexpr size_t kNamedMax = 8;
  if (at_step.size() > kNamedMax) {
    const auto [least, most] = std::minmax_element(at_step.begin(), at_step.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
    return format("%zu jobs at steps %lld to %lld", at_step.size(), static_cast<long long>(least->second),
                  static_cast<long long>(most->second));
  }
  std::string text;
  for (const auto& [job, step] : at_step)
    text += format("%s%s at step %lld", text.empty() ? "" : ", ", job.c_str(), static_cast<long long>(step));
  return text;
}

// A scenario on its way to a server: plays it at its own pace and tells how far it is.
class ScenarioPlay {
 public:
  ScenarioPlay(const sim::Scenario& scenario, const Url& url, double speed, int64_t start_ns)
      : scenario_(scenario),
        speed_(speed),
        start_ns_(start_ns),
        run_(scenario, start_ns),
        pool_(url, kConnections),
        reported_(scenario.faults.size()) {}

  // To its end, or until somebody interrupts it.
  void play();
  // What was injected, and what became of the requests.
  int print_end();

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count(); }
  void wait_until(double due) const;
  void note_step(const Batch& batch);
  void print_onsets(int64_t now_unix_ns);
  void print_progress(double behind);

  const sim::Scenario& scenario_;
  const double speed_;
  const int64_t start_ns_;
  sim::ScenarioRun run_;
  sim::Interrupt interrupt_;
  sim::SendPool pool_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::map<std::string, int64_t> at_step_;  // by job
  std::vector<bool> reported_;              // faults
};

void ScenarioPlay::wait_until(double due) const {
  while (seconds() < due && !interrupt_.asked())
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.05, due - seconds())));
}

void ScenarioPlay::note_step(const Batch& batch) {
  if (batch.groups.empty() || batch.groups[0].logs.empty()) return;
  const ResourceGroup& group = batch.groups[0];
  if (group.logs.back().event_name != kEventTrainStep) return;
  at_step_[std::string(find_string(group.resource, "lockstep.job_id"))] =
      find_int(group.logs.back().attributes, "step");
}

void ScenarioPlay::print_onsets(int64_t now_unix_ns) {
  for (size_t i = 0; i < reported_.size(); ++i) {
    const sim::ScenarioRun::Onset& onset = run_.onsets()[i];
    if (reported_[i] || onset.began_unix_ns == 0 || onset.began_unix_ns > now_unix_ns) continue;
    reported_[i] = true;
    std::printf("%7.1f s  step %-7lld inject %s\n", seconds(), static_cast<long long>(onset.harmed.front().value()),
                sim::describe(scenario_.faults[i]).c_str());
    std::fflush(stdout);
  }
}

void ScenarioPlay::print_progress(double behind) {
  const sim::SendTotals totals = pool_.totals();
  std::printf(
      "%7.1f s  %s; %lld requests sent%s%s\n", seconds(), describe_progress(at_step_).c_str(),
      static_cast<long long>(totals.requests_sent),
      totals.requests_failed > 0 ? format(", %lld failed", static_cast<long long>(totals.requests_failed)).c_str() : "",
      behind > 1 ? format(", %.0f s behind its time", behind).c_str() : "");
  std::fflush(stdout);
}

void ScenarioPlay::play() {
  double progress_at = 5;
  std::stop_source stop;
  while (!interrupt_.asked()) {
    std::optional<sim::Sent> sent = run_.next();
    if (!sent) break;
    const double due = static_cast<double>(sent->at_unix_ns - start_ns_) / 1e9 / speed_;
    wait_until(due);
    const double behind = seconds() - due;
    note_step(sent->batch);
    print_onsets(sent->at_unix_ns);
    pool_.send(std::move(sent->batch), stop.get_token());
    if (seconds() < progress_at) continue;
    progress_at = seconds() + 5;
    print_progress(behind);
  }
  pool_.drain();
}

int ScenarioPlay::print_end() {
  std::printf("%7.1f s  %s of the job's time played\n", seconds(),
              human_duration(static_cast<double>(run_.now_unix_ns() - start_ns_)).c_str());
  auto after = [&](int64_t at_ns) { return static_cast<double>(at_ns - start_ns_) / 1e9; };
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    const sim::ScenarioRun::Onset& onset = run_.onsets()[i];
    std::string when = "not reached";
    if (onset.began_unix_ns != 0)
      when = format("from step %lld (%.1f s) %s", static_cast<long long>(onset.harmed.front().value()),
                    after(onset.began_unix_ns),
                    onset.ended_unix_ns != 0 ? format("to %.1f s", after(onset.ended_unix_ns)).c_str() : "to the end");
    std::printf("           injected: %s: %s\n", sim::describe(scenario_.faults[i]).c_str(), when.c_str());
  }
  return print_totals(pool_.totals());
}

int play_scenario(const std::string& path, const std::string& server, double speed, int64_t steps) {
  Result<sim::Scenario> scenario = sim::read_scenario(path);
  if (!scenario.ok()) return usage_error(scenario.error());
  if (steps > 0) scenario->steps = steps;
  int exit_code = kExitOk;
  const std::optional<Url> url = receiver_of(server, exit_code);
  if (!url) return exit_code;

  // Backdated where it is played faster than real time, so that nothing lies in the server's future.
  const double length_ns = static_cast<double>(scenario->steps) * scenario->jobs.front().step_ms * 1e6;
  const int64_t start_ns = SystemClock().unix_ns() - static_cast<int64_t>(speed > 1 ? length_ns * (1 - 1 / speed) : 0);
  int64_t ranks = 0;
  for (const sim::JobPlan& job : scenario->jobs) ranks += job.world_size();
  std::printf("scenario %s: %zu %s, %s ranks, %lld steps, %zu faults, %zu oddities, seed %llu, to %s\n",
              scenario->name.c_str(), scenario->jobs.size(), scenario->jobs.size() == 1 ? "job" : "jobs",
              with_thousands(ranks).c_str(), static_cast<long long>(scenario->steps), scenario->faults.size(),
              scenario->oddities.size(), static_cast<unsigned long long>(scenario->seed), server.c_str());
  std::fflush(stdout);
  ScenarioPlay play(*scenario, *url, speed, start_ns);
  play.play();
  return play.print_end();
}

struct SimArguments {
  int64_t ranks = 0, tp = 0, pp = 0, dp = 0, seed = -1, steps = -1;
  std::vector<std::string> faults;
};

// What --ranks and the like say of a job, into its shape and options.
Result<void> check_job(const SimArguments& given, sim::JobShape& shape, sim::PlayerOptions& options) {
  options.steps = given.steps < 0 ? 400 : given.steps;
  LOCKSTEP_TRY(split_ranks(given.ranks, given.tp, given.pp, given.dp, shape));
  shape.seed = static_cast<uint64_t>(given.seed < 0 ? 1 : given.seed);
  LOCKSTEP_TRY(sim::check(shape));
  if (options.speed > 1 && options.steps == 0)
    return Error{"--speed above 1 needs --steps, or the job would run into the future"};
  const sim::Fleet fleet(shape, 0);
  for (const std::string& text : given.faults) {
    const sim::Fault fault = LOCKSTEP_TRY(sim::parse_fault(text));
    LOCKSTEP_TRY(fleet.check(fault));
    options.faults.push_back(fault);
  }
  return {};
}

// One job, until its last step or Ctrl-C.
int play_job(const sim::JobShape& shape, sim::PlayerOptions options, const Url& url, const std::string& server) {
  sim::Interrupt interrupt;
  sim::OtlpSender sender(url);
  const auto started = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(); };
  options.deliver = [&](const Batch& batch, std::stop_token stop) { sender.send(batch, stop); };
  options.on_fault = [&](const sim::FaultChange& change) {
    std::printf("%7.1f s  step %-7lld %s %s\n", seconds(), static_cast<long long>(change.step.value()),
                change.began ? "inject" : "clear ",
                change.began
                    ? sim::describe(change.fault).c_str()
                    : format("%s on rank %d", sim::to_text(change.fault.kind), change.fault.rank.value()).c_str());
    std::fflush(stdout);
  };
  sim::Player player(shape, options);
  std::printf("job %s: %d ranks (tp %d, pp %d, dp %d), step %.0f ms, seed %lld, to %s\n", shape.job_id.c_str(),
              shape.world_size(), shape.tp, shape.pp, shape.dp, shape.step_ms, static_cast<long long>(shape.seed),
              server.c_str());
  std::fflush(stdout);

  std::atomic<bool> over = false;
  std::jthread thread([&](std::stop_token stop) {
    player.run(stop);
    over = true;
  });
  double progress_at = 5;
  while (!over) {
    if (interrupt.asked()) thread.request_stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (seconds() < progress_at || over) continue;
    progress_at += 5;
    const sim::SendTotals totals = sender.totals();
    std::printf("%7.1f s  step %-7lld %s%lld requests sent%s\n", seconds(),
                static_cast<long long>(player.step().value()), player.hung() ? "stuck, " : "",
                static_cast<long long>(totals.requests_sent),
                totals.requests_failed + totals.retries > 0
                    ? format(", %lld tried again, %lld failed", static_cast<long long>(totals.retries),
                             static_cast<long long>(totals.requests_failed))
                          .c_str()
                    : "");
    std::fflush(stdout);
  }
  thread.join();
  std::printf("%7.1f s  end: %lld steps\n", seconds(), static_cast<long long>((player.step() + 1).value()));
  return print_totals(sender.totals());
}

}  // namespace

int run_sim(const Arguments& arguments) {
  const char* const named = std::getenv("LOCKSTEP_SERVER");
  std::string server = named != nullptr && *named != '\0' ? named : "http://127.0.0.1:4318";
  sim::JobShape shape;
  sim::PlayerOptions options;
  SimArguments given;
  bool print_topology = false;
  constexpr int64_t kMost = sim::kWorldSizeMax;
  Flags flags("lockstep sim", "play a simulated fleet as real OTLP traffic: a scenario file, or one job",
              "[FILE.yaml]");
  flags
      .text(&server, "--server", "URL",
            "the server, any of its addresses (default $LOCKSTEP_SERVER, else http://127.0.0.1:4318)")
      .text(&shape.job_id, "--job", "NAME", "name of the job (default sim)")
      .number(&given.ranks, "--ranks", "N", "ranks (default 64: tp 4, pp 4, dp 4)", 1, kMost)
      .number(&given.tp, "--tp", "N", "tensor-parallel ranks", 1, kMost)
      .number(&given.pp, "--pp", "N", "pipeline stages", 1, kMost)
      .number(&given.dp, "--dp", "N", "data-parallel replicas", 1, kMost)
      .number(&given.steps, "--steps", "N", "steps to play (default the file's, or 400; 0: until Ctrl-C)", 0,
              1'000'000'000)
      .decimal(&shape.step_ms, "--step-ms", "MS", "length of a healthy step (default 250)", 10, 600'000)
      .decimal(&options.speed, "--speed", "N", "so many times faster than real (default 1)", 0.01, 10'000)
      .number(&given.seed, "--seed", "S", "same seed, same job (default 1)", 0, INT64_MAX)
      .toggle(&print_topology, "--print-topology",
              "of FILE.yaml: how its switches are cabled, for lockstepd --topology")
      .list(&given.faults, "--fault", "FAULT", "KIND:RANK[:STEP[:STEPS[:SEVERITY]]], may be repeated");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "With FILE.yaml everything but --server, --speed and --steps stands in the file\n"
                   "(docs/guide/scenarios.md). Without:\n"
                   "Faults: slow-gpu (severity: times as long, default 1.6), slow-input (ms, default\n"
                   "0.4 of a step), slow-link (share of the rate, default 0.2), missing-rank. They\n"
                   "begin at step 40 and last to the end unless told.\n"))
    return *code;
  if (print_topology) {
    if (flags.positional().empty()) return usage_error("--print-topology needs a file");
    const Result<sim::Scenario> scenario = sim::read_scenario(flags.positional().front());
    if (!scenario.ok()) return usage_error(scenario.error());
    std::fputs(sim::topology_file(*scenario).c_str(), stdout);
    return kExitOk;
  }
  if (!flags.positional().empty()) {
    if (given.ranks + given.tp + given.pp + given.dp != 0 || !given.faults.empty() || given.seed >= 0)
      return usage_error("the shape of the job, its faults and the seed stand in the file");
    if (given.steps == 0) return usage_error("--steps 0 does not go with a file");
    return play_scenario(flags.positional().front(), server, options.speed, given.steps);
  }
  if (Result<void> possible = check_job(given, shape, options); !possible.ok()) return usage_error(possible.error());
  int exit_code = kExitOk;
  const std::optional<Url> url = receiver_of(server, exit_code);
  if (!url) return exit_code;
  return play_job(shape, std::move(options), *url, server);
}

}  // namespace lockstep::cli
