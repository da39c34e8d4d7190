// `lockstep demo`: a server, three simulated jobs, faults one after the other, and what Lockstep says about them.
// With --verify it is a test: every fault must be named rightly, and nothing else may be said.
#include <stdlib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/wrapped.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/text.h"
#include "model/rank_text.h"
#include "net/http_client.h"
#include "net/listen_address.h"
#include "sim/fleet/interrupt.h"
#include "sim/fleet/judge.h"
#include "sim/fleet/otlp_sender.h"
#include "sim/fleet/player.h"
#include "sim/fleet/send_pool.h"
#include "sim/fleet/stack_orders.h"
#include "sim/node/job_nodes.h"

namespace lockstep::cli {

namespace {

constexpr const char* kDefaultHttp = "127.0.0.1:7070";

// How long each part lasts, in seconds. When nobody looks on, a fault lasts until it is named.
struct Timing {
  double healthy, named_most, look_at_fault, explained_most, recover_least, recover_most, hang_most, look_at_hang;
};
constexpr Timing kVerify{.healthy = 9,
                         .named_most = 10,
                         .look_at_fault = 1,
                         .explained_most = 10,
                         .recover_least = 4,
                         .recover_most = 5,
                         .hang_most = 14,
                         .look_at_hang = 2};
constexpr Timing kShow{.healthy = 12,
                       .named_most = 20,
                       .look_at_fault = 15,
                       .explained_most = 15,
                       .recover_least = 12,
                       .recover_most = 20,
                       .hang_most = 20,
                       .look_at_hang = 20};

// The server under the demo, on free ports over a temporary folder.
struct DemoServer {
  std::string folder;
  ChildProcess process;
  std::string http;  // "http://127.0.0.1:7070"
  Url otlp;
};

std::string ready_field(const std::string& line, const std::string& name) {
  for (std::string_view word : split(line, ' ')) {
    if (word.substr(0, name.size() + 1) == name + "=") {
      std::string value(word.substr(name.size() + 1));
      return value.rfind("http://", 0) == 0 ? value : "http://" + value;
    }
  }
  return {};
}

Result<DemoServer> start_server(const std::string& http, const std::string& prices) {
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "lockstep-demo-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return Error{format("cannot make a folder like %s", folder.c_str())};
  const std::string log = folder + "/lockstepd.log";
  std::vector<std::string> arguments = {program_directory() + "/lockstepd",
                                        "--data",
                                        folder + "/data",
                                        "--http",
                                        http,
                                        "--otlp-http",
                                        "127.0.0.1:0",
                                        "--otlp-grpc",
                                        "127.0.0.1:0"};
  if (!prices.empty()) arguments.insert(arguments.end(), {"--gpu-hour-price", prices});
  Result<ChildProcess> process = ChildProcess::start({.arguments = std::move(arguments), .stderr_path = log});
  if (!process.ok()) return prefixed(process.failure(), "cannot start lockstepd: ");
  Result<std::string> ready = process->read_line(20'000);
  if (!ready.ok())
    return Error{format("lockstepd did not get ready (%s); its log is %s", ready.error().c_str(), log.c_str()),
                 ready.code()};
  Result<Url> otlp = parse_url(ready_field(*ready, "otlp_http"), 4318);
  std::string address = ready_field(*ready, "http");
  if (!otlp.ok() || address.empty())
    return Error{format("lockstepd said \"%s\" instead of ready http=... otlp_http=...", ready->c_str())};
  return DemoServer{.folder = folder, .process = std::move(*process), .http = address, .otlp = *otlp};
}

std::vector<std::string> hosts_of(const sim::JobShape& shape) {
  std::vector<std::string> hosts;
  for (Rank first = 0_rank; first < Rank{shape.world_size()}; first += shape.topology.gpus_per_host)
    hosts.push_back(sim::identity_of(shape, first).host);
  return hosts;
}

// One simulated job on its own thread, with its own connection, and the agents under it.
class DemoJob {
 public:
  DemoJob(sim::JobShape shape, const Url& otlp)
      : shape_(std::move(shape)),
        sender_(otlp),
        nodes_(shape_),
        node_sender_(otlp, 1),
        orders_(otlp, shape_.job_id, hosts_of(shape_)) {
    start();
  }
  ~DemoJob() { stop(); }
  DemoJob(const DemoJob&) = delete;
  DemoJob& operator=(const DemoJob&) = delete;

  const sim::JobShape& shape() const { return shape_; }
  const std::string& name() const { return shape_.job_id; }
  sim::Player& player() { return *player_; }
  // What the job sends first, then what its nodes do.
  std::array<sim::SendTotals, 2> totals() const { return {sender_.totals(), node_sender_.totals()}; }
  std::vector<sim::FaultChange> take_changes() {
    MutexLock lock(mutex_);
    return std::exchange(changes_, {});
  }
  void stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
  }
  // As an operator does with a job that hangs.
  void restart() {
    stop();
    ++shape_.attempt;
    start();
  }

 private:
  void start() {
    player_ = std::make_unique<sim::Player>(
        shape_,
        sim::PlayerOptions{.deliver = [this](const Batch& batch, std::stop_token stop) { sender_.send(batch, stop); },
                           .on_fault =
                               [this](const sim::FaultChange& change) {
                                 MutexLock lock(mutex_);
                                 changes_.push_back(change);
                               },
                           .nodes =
                               [this](const sim::Fleet& fleet, std::span<const sim::Fault> active, int64_t job_ns,
                                      std::stop_token stop) {
                                 for (Batch& batch : nodes_.due(fleet, active, job_ns))
                                   node_sender_.send(std::move(batch), stop);
                               },
                           .stacks_wanted = [this, attempt = shape_.attempt] { return orders_.take(attempt); }});
    thread_ = std::jthread([player = player_.get()](std::stop_token stop) { player->run(stop); });
  }

  sim::JobShape shape_;
  sim::OtlpSender sender_;
  sim::JobNodes nodes_;        // the player's thread alone
  sim::SendPool node_sender_;  // steps do not wait for what nodes send
  sim::StackOrders orders_;
  Mutex mutex_;
  std::vector<sim::FaultChange> changes_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unique_ptr<sim::Player> player_;
  std::jthread thread_;  // last: it uses all the others
};

class Demo {
 public:
  Demo(DemoServer server, Url api, bool verify, bool quiet, uint64_t seed)
      : server_(std::move(server)),
        api_(std::move(api), 5'000),
        timing_(verify ? kVerify : kShow),
        verify_(verify),
        quiet_(quiet),
        random_(seed) {
    auto add = [&](const char* name, int32_t tp, int32_t pp, int32_t dp, double step_ms, int32_t first_host) {
      sim::JobShape shape{.job_id = name,
                          .tp = tp,
                          .pp = pp,
                          .dp = dp,
                          .first_host = first_host,
                          .step_ms = step_ms,
                          .seed = random_()};
      jobs_.push_back(std::make_unique<DemoJob>(shape, server_.otlp));
    };
    add("demo-llama-70b", 4, 4, 4, 250, 0);
    add("demo-moe-16b", 2, 2, 4, 220, 8);
    add("demo-vit", 1, 1, 8, 180, 10);
  }

  const std::string& url() const { return server_.http; }
  const std::string& folder() const { return server_.folder; }
  const sim::Judge& judge() const { return judge_; }
  const std::string& failure() const { return failure_; }
  const std::set<std::string>& mistaken_offers() const { return mistaken_offers_; }

  void say(const std::string& text) const {
    if (quiet_) return;
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

  // Once with --verify, else until Ctrl-C. False: something broke, see failure().
  bool play() {
    DemoJob& slow = *jobs_[0];
    DemoJob& stuck = *jobs_[1];
    do {
      say_at(format("healthy: %zu jobs, no fault", jobs_.size()));
      if (!watch(timing_.healthy, timing_.healthy, [] { return false; })) return !broken();
      std::vector<Rank> used;
      for (sim::FaultKind kind : {sim::FaultKind::kSlowGpu, sim::FaultKind::kSlowInput, sim::FaultKind::kSlowLink}) {
        const size_t trial = inject(slow, kind, used);
        if (trial == sim::Judge::kNone) return !broken();
        if (!watch(0, timing_.named_most, [&] { return judge_.trials()[trial].confirmed_ns != 0; })) return !broken();
        if (!watch(timing_.look_at_fault, timing_.explained_most,
                   [&] { return judge_.trials()[trial].is_explained(); }))
          return !broken();
        slow.player().clear();
        if (!watch(timing_.recover_least, timing_.recover_most,
                   [&] { return judge_.trials()[trial].verdict_cleared_ns != 0; }))
          return !broken();
      }
      used.clear();
      const size_t trial = inject(stuck, sim::FaultKind::kMissingRank, used);
      if (trial == sim::Judge::kNone) return !broken();
      if (!watch(0, timing_.hang_most, [&] { return judge_.trials()[trial].confirmed_ns != 0; })) return !broken();
      if (!watch(timing_.look_at_hang, timing_.look_at_hang, [] { return false; })) return !broken();
      if (verify_) return true;
      say_at("restart  " + stuck.name() + " after the hang");
      stuck.restart();
    } while (true);
  }

  // Jobs first, so that they say goodbye to a server that is still there.
  void stop(bool keep) {
    for (auto& job : jobs_) job->stop();
    for (auto& job : jobs_) {
      for (const sim::SendTotals& totals : job->totals()) {
        if (totals.requests_failed + totals.records_rejected == 0 || interrupt_.asked()) continue;
        say(format("%s: %lld requests failed, %lld records rejected: %s", job->name().c_str(),
                   static_cast<long long>(totals.requests_failed), static_cast<long long>(totals.records_rejected),
                   totals.last_error.c_str()));
      }
    }
    server_.process.stop();
    if (keep) return;
    std::error_code error;
    std::filesystem::remove_all(server_.folder, error);
  }

  int64_t undelivered() const {
    int64_t count = 0;
    for (const auto& job : jobs_) {
      for (const sim::SendTotals& totals : job->totals()) count += totals.records_failed + totals.records_rejected;
    }
    return count;
  }

 private:
  double seconds() const { return static_cast<double>(clock_.monotonic_ns() - started_ns_) / 1e9; }
  void say_at(const std::string& text) const { say(format("%6.1f s  ", seconds()) + text); }
  bool broken() const { return !failure_.empty() && !interrupt_.asked(); }

  // Picks a rank that can have this fault and has had none in this round. kNone where it never began (stopped
  // meanwhile).
  size_t inject(DemoJob& job, sim::FaultKind kind, std::vector<Rank>& used) {
    const sim::Fleet fleet(job.shape(), 0);
    sim::Fault fault{.kind = kind, .severity = sim::default_severity(kind, job.shape().step_ms)};
    do {
      fault.rank = Rank{static_cast<int32_t>(random_() % static_cast<uint64_t>(job.shape().world_size()))};
    } while (std::find(used.begin(), used.end(), fault.rank) != used.end() || !fleet.check(fault).ok());
    used.push_back(fault.rank);
    const size_t before = judge_.trials().size();
    job.player().inject(fault);
    watch(0, 10, [&] { return judge_.trials().size() > before; });
    return judge_.trials().size() > before && !stopped() ? before : sim::Judge::kNone;
  }

  bool stopped() const { return interrupt_.asked() || broken(); }

  // Looks on for at least `least` seconds, then until `reached` says so, at most `most` seconds. False: stop
  // altogether.
  template <typename Reached>
  bool watch(double least, double most, Reached reached) {
    const double from = seconds();
    for (;;) {
      // Ctrl-C reaches the server as well: from then on its silence is no failure.
      if (!interrupt_.asked()) poll();
      if (stopped()) return false;
      const double passed = seconds() - from;
      if (passed >= most || (passed >= least && reached())) return true;
      std::this_thread::sleep_for(
          std::chrono::milliseconds(static_cast<int>(1000 * std::clamp(most - passed, 0.01, 0.25))));
    }
  }

  void poll() {
    if (!server_.process.running()) {
      failure_ = format("lockstepd has ended; its log is %s/lockstepd.log", server_.folder.c_str());
      return;
    }
    for (auto& job : jobs_) {
      for (const sim::FaultChange& change : job->take_changes()) note(*job, change);
      Result<HttpResponse> answer = api_.send({.path = "/api/jobs/" + job->name() + "/why"});
      if (!answer.ok()) {
        failure_ = "lockstepd does not answer: " + answer.error();
        return;
      }
      if (answer->status == 404) continue;  // nothing heard of the job yet
      Result<std::vector<sim::ReadVerdict>> verdicts = sim::read_verdicts(answer->body);
      if (answer->status != 200 || !verdicts.ok()) {
        failure_ = answer->status != 200
                       ? format("GET /api/jobs/%s/why answered %d", job->name().c_str(), answer->status)
                       : verdicts.error();
        return;
      }
      note_offers(job->name(), *verdicts);
      const StepNumber step = job->player().step();
      for (const sim::Judge::Sighting& sighting : judge_.saw(job->name(), *verdicts, step, clock_.monotonic_ns()))
        report(job->name(), sighting, step);
    }
  }

  // Simulated ranks are no processes: whoever would be told to look into one gets nowhere.
  void note_offers(const std::string& job, const std::vector<sim::ReadVerdict>& verdicts) {
    for (const sim::ReadVerdict& verdict : verdicts) {
      for (const std::string& command : verdict.commands) {
        if (command.find("lockstep lines") != std::string::npos ||
            command.find("lockstep profile") != std::string::npos || command.find("py-spy") != std::string::npos)
          mistaken_offers_.insert(job + ": \"" + command + "\" is offered, which simulated ranks cannot answer");
      }
    }
  }

  void note(DemoJob& job, const sim::FaultChange& change) {
    if (change.began) {
      judge_.injected(job.name(), change.fault, change.step, clock_.monotonic_ns());
      say("");
      say_at(format("inject     %s, step %lld:", job.name().c_str(), static_cast<long long>(change.step.value())));
      say("          " + sim::describe(change.fault));
      return;
    }
    for (size_t i = judge_.trials().size(); i-- > 0;) {
      const sim::Trial& trial = judge_.trials()[i];
      if (trial.job != job.name() || trial.fault.kind != change.fault.kind || trial.fault.rank != change.fault.rank)
        continue;
      judge_.cleared(i, clock_.monotonic_ns());
      break;
    }
    say_at(format("clear      %s, step %lld: %s on rank %d is over", job.name().c_str(),
                  static_cast<long long>(change.step.value()), sim::to_text(change.fault.kind),
                  change.fault.rank.value()));
  }

  void report(const std::string& job, const sim::Judge::Sighting& sighting, StepNumber step) const {
    const sim::ReadVerdict& verdict = sighting.verdict;
    std::string after;
    if (sighting.trial != sim::Judge::kNone) {
      const sim::Trial& trial = judge_.trials()[sighting.trial];
      const bool over = verdict.state == VerdictState::kCleared && trial.cleared_ns != 0;
      const double seconds_after =
          static_cast<double>(clock_.monotonic_ns() - (over ? trial.cleared_ns : trial.injected_ns)) / 1e9;
      after = over ? format(", %.1f s after", seconds_after)
                   : format(", after %.1f s, %lld steps", seconds_after,
                            static_cast<long long>(std::max<int64_t>(0, step - trial.step + 1)));
    } else {
      after = "  NOT INJECTED";
    }
    say_at(format("%-9s  %s, %s: %s %s, %s%s", to_text(verdict.state), job.c_str(), to_text(verdict.kind),
                  verdict.ranks.size() == 1 ? "rank" : "ranks", human_ranks(verdict.ranks).c_str(),
                  to_text(verdict.layer), after.c_str()));
    if (verdict.state != VerdictState::kCleared) say_wrapped(verdict.sentence);
  }

  void say_wrapped(const std::string& text) const {
    if (text.empty()) return;
    std::string lines = wrapped(text, 10);
    lines.pop_back();  // say() ends the line
    say(lines);
  }

  DemoServer server_;
  HttpClient api_;
  const Timing timing_;
  const bool verify_, quiet_;
  std::mt19937_64 random_;
  sim::Interrupt interrupt_;
  SystemClock clock_;
  const int64_t started_ns_ = clock_.monotonic_ns();
  sim::Judge judge_;
  std::string failure_;
  std::set<std::string> mistaken_offers_;
  std::vector<std::unique_ptr<DemoJob>> jobs_;
};

std::string table_of(const sim::Judge& judge) {
  std::string text =
      format("%-13s %-15s %4s %6s  %-20s %s\n", "fault", "job", "rank", "step", "named after", "verdict");
  for (const sim::Trial& trial : judge.trials()) {
    std::string after = "not named";
    if (trial.confirmed_ns != 0) {
      after = format("%.1f s, %lld steps", static_cast<double>(trial.confirmed_ns - trial.injected_ns) / 1e9,
                     static_cast<long long>(std::max<int64_t>(0, trial.named_step - trial.step + 1)));
    }
    text += format("%-13s %-15s %4d %6lld  %-20s %s\n", sim::to_text(trial.fault.kind), trial.job.c_str(),
                   trial.fault.rank.value(), static_cast<long long>(trial.step.value()), after.c_str(),
                   trial.confirmed_ns != 0 ? "right" : "wrong");
  }
  return text;
}

std::string json_of(const sim::Judge& judge, const std::vector<std::string>& mistakes, int64_t seed,
                    const std::string& url) {
  auto seconds = [](int64_t from_ns, int64_t to_ns) { return static_cast<double>(to_ns - from_ns) / 1e9; };
  JsonWriter json;
  json.begin_object().field("ok", mistakes.empty()).field("seed", seed).field("url", url).key("faults").begin_array();
  for (const sim::Trial& trial : judge.trials()) {
    json.begin_object()
        .field("fault", sim::to_text(trial.fault.kind))
        .field("job_id", trial.job)
        .field("rank", trial.fault.rank.value())
        .field("step", trial.step.value());
    json.key("suspected_after_s");
    trial.suspected_ns != 0 ? json.number(seconds(trial.injected_ns, trial.suspected_ns)) : json.null();
    json.key("confirmed_after_s");
    trial.confirmed_ns != 0 ? json.number(seconds(trial.injected_ns, trial.confirmed_ns)) : json.null();
    json.key("confirmed_after_steps");
    trial.confirmed_ns != 0 ? json.number(std::max<int64_t>(0, trial.named_step - trial.step + 1)) : json.null();
    json.field("right", trial.confirmed_ns != 0).field("sentence", trial.sentence).end_object();
  }
  json.end_array().key("mistakes").begin_array();
  for (const std::string& line : mistakes) json.string(line);
  json.end_array().end_object();
  return json.take();
}

// The given address, or the usual one while it is free, else any free port.
std::string http_address(const std::string& given, bool verify) {
  if (!given.empty()) return given;
  if (verify) return "127.0.0.1:0";
  Result<ListenAddress> usual = parse_listen_address(kDefaultHttp);
  return usual.ok() && listen_on(*usual).ok() ? kDefaultHttp : "127.0.0.1:0";
}

}  // namespace

int run_demo(const Arguments& arguments) {
  bool verify = false, json = false, keep = false;
  std::string http, prices;
  int64_t seed = -1;
  Flags flags("lockstep demo", "a server, three simulated jobs with faults, and what Lockstep says about them");
  flags.toggle(&verify, "--verify", "play once, exit 0 only if every fault is named rightly and no other")
      .toggle(&json, "--json", "print the result as JSON at the end, and nothing else")
      .text(&http, "--http", "ADDR", "where the page is (default 127.0.0.1:7070, or a free port)")
      .text(&prices, "--gpu-hour-price", "X|MODEL=X,...",
            "what a GPU-hour costs, as lockstepd takes it: money is shown")
      .toggle(&keep, "--keep", "keep the server's folder at the end")
      .number(&seed, "--seed", "S", "choice of ranks and noise (default: from the clock)", 0, INT64_MAX);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (seed < 0) seed = SystemClock().unix_ns() / 1'000'000 % 1'000'000;
  auto fail = [&](const std::string& line) {
    std::fprintf(stderr, "lockstep demo: %s\n", line.c_str());
    return kExitFailed;
  };
  Result<DemoServer> server = start_server(http_address(http, verify), prices);
  if (!server.ok()) return fail(server.error());
  Result<Url> api = parse_url(server->http, 7070);
  if (!api.ok()) return fail(api.error());

  Demo demo(std::move(*server), *api, verify, json, static_cast<uint64_t>(seed));
  demo.say(format("lockstep demo, seed %lld", static_cast<long long>(seed)));
  demo.say("  page  " + demo.url());
  demo.say("  jobs  demo-llama-70b (64 ranks), demo-moe-16b (16), demo-vit (8, healthy)");
  if (!verify) demo.say("  Ctrl-C ends it.");
  demo.say("");
  const bool played = demo.play();
  std::vector<std::string> mistakes = demo.judge().mistakes();
  mistakes.insert(mistakes.end(), demo.mistaken_offers().begin(), demo.mistaken_offers().end());
  demo.stop(keep);
  if (!played) return fail(demo.failure());
  if (verify && demo.undelivered() > 0)
    mistakes.push_back(format("%lld records did not reach the server", static_cast<long long>(demo.undelivered())));
  if (json) {
    std::printf("%s\n", json_of(demo.judge(), mistakes, seed, demo.url()).c_str());
  } else {
    demo.say("");
    demo.say(table_of(demo.judge()));
    for (const std::string& line : mistakes) demo.say("mistake: " + line);
    demo.say(verify ? (mistakes.empty() ? "Every fault was named rightly, and nothing else was said."
                                        : format("%zu mistakes; again with --seed %lld", mistakes.size(),
                                                 static_cast<long long>(seed)))
                    : "The page was " + demo.url());
  }
  if (keep) std::fprintf(stderr, "kept %s\n", demo.folder().c_str());
  return verify && !mistakes.empty() ? kExitNo : kExitOk;
}

}  // namespace lockstep::cli
