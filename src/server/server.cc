#include "server/server.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/cost/job_rollups.h"
#include "api/prometheus/query_scheduler.h"
#include "api/readiness.h"
#include "api/routes.h"
#include "apply/applier.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/contained.h"
#include "base/file_limit.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "bus/log.h"
#include "control/agent_commands.h"
#include "control/stack_requester.h"
#include "control/tail_sampler.h"
#include "diagnosis/engine.h"
#include "diagnosis/signals/gpu_reading.h"
#include "egress/remote_write_out.h"
#include "ingest/alias_feed.h"
#include "ingest/counters_table.h"
#include "ingest/metric_intake.h"
#include "ingest/otlp/metric_mapping.h"
#include "ingest/otlp/otlp_receivers.h"
#include "ingest/prometheus/remote_write_receiver.h"
#include "ingest/scrape/scraper.h"
#include "query/alias_reader.h"
#include "server/access_parts.h"
#include "server/durable_sink.h"
#include "server/recovery.h"
#include "server/scrape_file.h"
#include "server/set_aside.h"
#include "server/store_options.h"
#include "server/verdict_keeper.h"
#include "server/web_folder.h"
#include "store/metrics/metric_engine.h"
#include "store/spans/columnar_span_store.h"
#include "store/sqlite_state_store.h"
#include "store/steps/columnar_step_store.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr uint64_t kQueuedBytesMax = 256ull << 20;
// Two connections for every agent of a large fleet: one to send, one that waits for commands.
constexpr uint64_t kFilesOpenMax = 131'072;

void show_clocks(const ClockWitness& witness, Counters& counters) {
  const ClockWitness::Report report = witness.report();
  counters.set("lockstep_clock_senders", "", static_cast<int64_t>(report.senders));
  counters.set("lockstep_clock_off_ms", "which=\"senders\"", report.senders_ns / 1'000'000);
  counters.set("lockstep_clock_off_ms", "which=\"jump\"", report.jumped_ns / 1'000'000);
}

// What the log had to give up before it was in files is a gap like any other, and kept as one.
void tell_dropped(std::atomic<int64_t>& dropped, IngestSink& sink, const Clock& clock) {
  const int64_t records = dropped.exchange(0);
  if (records == 0) return;
  Batch batch;
  batch.signal = Signal::kLogs;
  ResourceGroup& group = batch.groups.emplace_back();
  group.resource = {{"service.name", "lockstepd"}};
  group.logs.push_back(to_record(Gap{"log_full", records}, clock.unix_ns()));
  const std::string bytes = otlp::encode(batch);
  if (sink.accept(Signal::kLogs, std::move(batch), bytes, clock.unix_ns()).error != AcceptError::kNone)
    dropped += records;  // the next round says it
}

std::optional<std::string> clock_problem(const ClockWitness& witness) {
  std::string line = witness.report().line;
  if (line.empty()) return std::nullopt;
  return line;
}

// What malloc keeps of freed memory at the end of each arena, which malloc_trim() leaves alone: up to 64 MiB by itself,
// less where the budget is small.
void limit_malloc(uint64_t memory_max) {
  constexpr uint64_t kArenas = 256, kTrimUsual = 64u << 20, kMapUsual = 32u << 20;
  const uint64_t part = memory_max / kArenas;
  if (part >= kTrimUsual) return;
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(part));
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(std::min(part, kMapUsual)));
}

// What the command line says, checked before anything is opened.
struct Settings {
  ListenAddress http, otlp_http, otlp_grpc;
  std::string web_folder;
  ScrapeConfig scrape;
  Url remote_write;
  std::vector<std::string> names;
};

Result<ListenAddress> address_of(const char* option, const std::string& text) {
  Result<ListenAddress> address = parse_listen_address(text);
  if (!address.ok()) return Error{option + (": " + address.error())};
  return address;
}

// The names of net/cross_site.h: what was allowed, where the API listens, and what the machine calls itself.
std::vector<std::string> server_names(const ServerOptions& options, const ListenAddress& http_address) {
  std::vector<std::string> names = options.allowed_hosts;
  if (!http_address.host.empty()) names.push_back(http_address.host);
  char machine[256] = {};
  if (gethostname(machine, sizeof machine - 1) == 0 && machine[0] != '\0') names.emplace_back(machine);
  return names;
}

Result<Settings> check_settings(const ServerOptions& options) {
  Settings settings;
  settings.http = LOCKSTEP_TRY(address_of("--http", options.http));
  settings.otlp_http = LOCKSTEP_TRY(address_of("--otlp-http", options.otlp_http));
  settings.otlp_grpc = LOCKSTEP_TRY(address_of("--otlp-grpc", options.otlp_grpc));
  settings.web_folder = LOCKSTEP_TRY(find_web_folder(options.web));
  settings.scrape = LOCKSTEP_TRY(read_scrape_file(options.scrape));
  if (!options.remote_write.empty()) {
    Result<Url> url = parse_url(options.remote_write, 80);
    if (!url.ok()) return Error{"--remote-write: " + url.error()};
    settings.remote_write = std::move(*url);
  }
  settings.names = server_names(options, settings.http);
  return settings;
}

// What every part uses.
struct Common {
  explicit Common(const ServerOptions& given)
      : options(given),
        memory(given.memory_max > 0 ? static_cast<uint64_t>(given.memory_max) : memory_limit_bytes() / 4 * 3) {
    limit_malloc(memory.bytes_max());
    counters.set("lockstep_build_info", "version=\"" LOCKSTEP_VERSION "\"", 1);
  }

  const ServerOptions& options;
  MemoryBudget memory;
  SystemClock clock;
  ClockWitness witness{clock};
  Counters counters{kServerCounters};
};

// The API answers from the start; what is stored may take a while to open. opened: what answers from then on.
Result<std::unique_ptr<HttpServer>> start_api(const Settings& settings, Common& common, Gatekeeper& gatekeeper,
                                              const std::atomic<const DeferringHandler*>& opened) {
  Result<std::unique_ptr<HttpServer>> api = HttpServer::start(
      {.address = settings.http,
       .body_bytes_max = 1 << 20,
       .path_limits = {{std::string(kRemoteWritePath), kRemoteWriteBodyBytesMax}},
       .threads = 8 + static_cast<size_t>(common.options.queries_max),  // queries never take the last ones
       .memory = &common.memory,
       .name = "http",
       .cross_site = {.hosts = settings.names, .check_host = true, .changes_state = changes_state},
       .gatekeeper = &gatekeeper},
      [&opened](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
        if (const DeferringHandler* handler = opened) return (*handler)(request, responder);
        responder->answer(answer_while_opening(request));
      },
      common.counters);
  if (!api.ok()) return Error{"--http: " + api.error()};
  return api;
}

struct Stores {
  std::unique_ptr<ColumnarStepStore> steps;
  std::unique_ptr<ColumnarSpanStore> spans;
  std::unique_ptr<MetricEngine> metrics;
  std::unique_ptr<StateStore> state;
};

Result<Stores> open_stores(Common& common) {
  const ServerOptions& options = common.options;
  Stores stores;
  stores.steps = LOCKSTEP_TRY(
      ColumnarStepStore::open(step_options(options, common.witness, common.memory), common.clock, common.counters));
  stores.spans = LOCKSTEP_TRY(
      ColumnarSpanStore::open(span_options(options, common.witness, common.memory), common.clock, common.counters));
  stores.metrics = LOCKSTEP_TRY(
      MetricEngine::open(metric_options(options, common.witness, common.memory), common.clock, common.counters));
  stores.state = LOCKSTEP_TRY(open_sqlite_state_store(options.data + "/state.sqlite"));
  return stores;
}

// Diagnosis hears of all that is applied, and knows the verdicts it had before the start.
struct Diagnosis {
  Diagnosis(Stores& stores, AgentRegistry& agents, Counters& counters)
      : applier(*stores.steps, *stores.spans, agents, counters) {
    applier.subscribe(engine);
    engine.restore(known_verdicts(*stores.state));
  }

  DiagnosisEngine engine;
  Applier applier;
};

struct StopOnReturn {
  HttpServer& server;
  ~StopOnReturn() { server.stop(); }
};

// The parts that work on open stores, in the order of their making: what comes later uses what comes before it, and
// goes first. The constructor opens the API to what is stored; read_back(), start(), loop() and stop() follow in this
// order, each once.
class Server {
 public:
  Server(Settings& settings, Common& common, HttpServer& api, std::atomic<const DeferringHandler*>& opened,
         Stores& stores, AccessParts& access);

  // Opens the durable log and reads it back. False: the process was told to stop meanwhile.
  Result<bool> read_back();
  // Opens the receivers and says "ready".
  Result<void> start();
  void loop(const sigset_t& signals);
  void stop();

 private:
  ApiContext make_context();
  void serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder);
  LogOptions log_options();
  void look();
  void look_once();
  void look_at_itself();

  Settings& settings_;
  const ServerOptions& options_;
  MemoryBudget& memory_;
  const SystemClock& clock_;
  ClockWitness& witness_;
  Counters& counters_;
  HttpServer& api_;
  AccessParts& access_;
  ColumnarStepStore& steps_;
  ColumnarSpanStore& spans_;
  MetricEngine& metrics_;
  StateStore& state_;

  const AliasReader named_metrics_{metrics_};
  AgentRegistry agents_;
  Diagnosis diagnosis_;
  DiagnosisEngine& engine_ = diagnosis_.engine;
  Applier& applier_ = diagnosis_.applier;
  VerdictKeeper keeper_{state_, counters_};
  // Before anything is read back, so that history is explained with what was learned from it.
  FeedbackStore feedback_{state_, counters_,
                          [this](std::span<const VerdictFeedback> all) { engine_.priors() = CausePriors::of(all); }};
  AgentCommands commands_{{}, clock_, counters_, &access_.owners()};
  TailSampler tail_{steps_, commands_, counters_};
  const std::unique_ptr<RemoteWriteOut> remote_write_out_;  // nullptr: samples are not sent on
  AliasFeed alias_feed_;
  MetricIntake intake_;
  JobRollups rollups_;
  std::atomic<bool> ready_{false};
  int64_t look_ms_most_ = 0, delay_ms_most_ = 0;
  StackRequester stack_asks_{steps_, commands_, counters_};
  Readiness readiness_{counters_};  // what makes the server not ready, one row each; asked once ready_ is set
  StepTraceCache traces_{steps_, spans_, clock_};
  ApiContext context_;
  MetricMapping mapping_{intake_, clock_, &memory_};
  RemoteWriteReceiver remote_write_{intake_, clock_, counters_, kRemoteWriteBodyBytesMax, &memory_, &access_.owners()};
  std::unique_ptr<Scraper> scraper_;  // there before ready_ is set, and until the API has stopped
  QueryScheduler queries_;
  const DeferringHandler serve_ = [this](const ServerRequest& request,
                                         const std::shared_ptr<HttpResponder>& responder) {
    serve(request, responder);
  };
  const StopOnReturn before_all_this_goes_{api_};
  std::atomic<int64_t> dropped_unsealed_{0};
  std::unique_ptr<DurableLog> log_;
  std::optional<SetAside> set_aside_;
  std::optional<DurableSink> sink_;
  std::unique_ptr<OtlpReceivers> receivers_;
};

Server::Server(Settings& settings, Common& common, HttpServer& api, std::atomic<const DeferringHandler*>& opened,
               Stores& stores, AccessParts& access)
    : settings_(settings),
      options_(common.options),
      memory_(common.memory),
      clock_(common.clock),
      witness_(common.witness),
      counters_(common.counters),
      api_(api),
      access_(access),
      steps_(*stores.steps),
      spans_(*stores.spans),
      metrics_(*stores.metrics),
      state_(*stores.state),
      diagnosis_(stores, agents_, counters_),
      remote_write_out_(options_.remote_write.empty()
                            ? nullptr
                            : std::make_unique<RemoteWriteOut>(
                                  metrics_, RemoteWriteOutOptions{.url = settings.remote_write}, clock_, counters_)),
      alias_feed_([](const MetricAlias& alias) { return feeds_of(alias.sent()) != nullptr; },
                  [this](const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) {
                    engine_.on_metrics(resource, points, received_unix_ns);
                  },
                  counters_),
      intake_(remote_write_out_ ? static_cast<MetricWriter&>(*remote_write_out_) : metrics_, clock_, counters_,
              &alias_feed_),
      rollups_([this](auto stream, auto series,
                      const auto& canonical) { return intake_.push("rollup", stream, series, canonical); },
               named_metrics_, counters_, options_.peak_tflops * 1e12),
      context_(make_context()),
      queries_(
          {.running_max = static_cast<size_t>(options_.queries_max)},
          [this](const ServerRequest& request) { return answer(context_, request); }, counters_) {
  applier_.subscribe(tail_);
  for (const JobNumberRow& row : job_number_rows()) intake_.metadata(row.name, row.type, row.help, "");
  applier_.subscribe(rollups_);
  readiness_.add({"disk", [this] { return full_disk(options_.data); }});
  readiness_.add({"metrics", [this] { return metrics_.trouble(); }});
  readiness_.add({"memory", [this] { return memory_.spent() ? std::optional(memory_.why_spent()) : std::nullopt; }});
  readiness_.add({"clock", [this] { return clock_problem(witness_); }, true});
  opened = &serve_;
}

ApiContext Server::make_context() {
  ApiContext context{steps_,    spans_, traces_, named_metrics_,      state_, agents_, engine_,
                     counters_, clock_, ready_,  settings_.web_folder};
  context.feedback = &feedback_;
  access_.put_into(context);
  context.readiness = &readiness_;
  context.memory = &memory_;
  context.ask_detail = [this](const JobInfo& job, const DetailRequest& request) {
    counters_.add("lockstep_detail_asks_total", "reason=\"person\"");
    return ask_hosts(job, request, commands_);
  };
  context.read_gpu = [this](std::string_view host, std::string_view gpu, int64_t since_ns, int64_t through_ns) {
    return gpu_reading(engine_.signals(), host, gpu, since_ns, through_ns);
  };
  context.cardinality = [this](size_t top) { return metrics_.cardinality(top); };
  if (options_.admin_api) context.metric_admin = &metrics_;
  context.gpu_hour_price = options_.gpu_hour_price;
  context.peak_flops = options_.peak_tflops * 1e12;
  context.ask_stacks = [this](const JobInfo& job, const StackRequest& request) {
    const DetailAsked asked = ask_hosts(job, request, commands_);
    counters_.add("lockstep_stack_asks_total", "reason=\"person\"", asked.ranks);
    return asked;
  };
  context.scrape_targets = [this] { return scraper_ ? scraper_->targets() : std::vector<ScrapeTarget>(); };
  return context;
}

void Server::serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
  if (ready_ && takes_turns(request)) return queries_.run(request, responder);
  responder->answer(request.path == kRemoteWritePath ? remote_write_.handle(request) : answer(context_, request));
}

LogOptions Server::log_options() {
  LogOptions options{.folder = options_.data + "/log",
                     .total_bytes_max = static_cast<uint64_t>(options_.log_bytes_max)};
  options.sealed_through = [this] {
    return std::min({applier_.applied_through(), steps_.first_unsealed() - 1, spans_.first_unsealed() - 1});
  };
  options.seal = [this] {
    for (const Result<void>& sealed : {steps_.seal(), spans_.seal()}) {
      if (!sealed.ok())
        LOCKSTEP_LOG_WARN("server", "the log is full and cannot be relieved: %s", sealed.error().c_str());
    }
  };
  options.dropped_unsealed = [this](uint64_t first, uint64_t last) {
    dropped_unsealed_ += static_cast<int64_t>(last - first + 1);
  };
  return options;
}

Result<bool> Server::read_back() {
  log_ = LOCKSTEP_TRY(DurableLog::open(log_options(), counters_));
  readiness_.add({"log", [this] { return log_->trouble(); }});
  set_aside_.emplace(options_.data, counters_);
  if (!replay(*log_, applier_, spans_, engine_, tail_, rollups_, *set_aside_, clock_, counters_)) return false;
  applier_.set_applied_through(log_->next_sequence() - 1);
  steps_.end_replay();
  look();
  tail_.go_live();
  stack_asks_.go_live();
  return true;
}

Result<void> Server::start() {
  sink_.emplace(*log_, applier_, mapping_, kQueuedBytesMax, clock_, &*set_aside_, &memory_);
  readiness_.add({"apply", [this] { return sink_->stuck(clock_.monotonic_ns()); }});
  receivers_ = LOCKSTEP_TRY(OtlpReceivers::start({.http = settings_.otlp_http,
                                                  .grpc = settings_.otlp_grpc,
                                                  .witness = &witness_,
                                                  .memory = &memory_,
                                                  .gatekeeper = &access_.gatekeeper(),
                                                  .owners = &access_.owners(),
                                                  .allowed_hosts = settings_.names},
                                                 *sink_, clock_, counters_, &commands_));
  if (!options_.scrape.empty()) scraper_ = Scraper::start(std::move(settings_.scrape), intake_, clock_, counters_);
  ready_ = true;
  std::printf("ready http=%s otlp_http=%s otlp_grpc=%s\n", api_.address().c_str(), receivers_->http_address().c_str(),
              receivers_->grpc_address().c_str());
  std::fflush(stdout);
  LOCKSTEP_LOG_INFO("server", "data in %s, web UI %s", options_.data.c_str(),
                    settings_.web_folder.empty() ? "not found (see --web)" : settings_.web_folder.c_str());
  return {};
}

void Server::loop(const sigset_t& signals) {
  const timespec tick{0, kLookEveryNs};
  for (int signal = 0; signal != SIGTERM && signal != SIGINT; signal = sigtimedwait(&signals, nullptr, &tick)) {
    if (signal == SIGHUP && scraper_)
      contained("server", "--scrape", [this] { reload_scrape_file(options_.scrape, *scraper_, counters_); });
    look();
    contained("server", "a look at queries", [this] { queries_.tick(); });
    contained("server", "a look at itself", [this] { look_at_itself(); });
    contained("server", "access", [this] { access_.tick(); });
  }
}

// Follows the data: receivers, diagnosis, API; the log goes with the server itself.
void Server::stop() {
  LOCKSTEP_LOG_INFO("server", "stopping: receivers, diagnosis, API, log");
  ready_ = false;
  if (scraper_) scraper_->stop();
  receivers_->stop();
  sink_->close();
  look();
  api_.stop();
  access_.tick();
}

void Server::look() {
  if (!contained("server", "a look at jobs", [this] { look_once(); }))
    counters_.add("lockstep_server_failures_total", "what=\"look\"");
}

void Server::look_once() {
  const int64_t began_ns = clock_.monotonic_ns();
  if (const int64_t reported_unix_ns = engine_.tick(clock_.unix_ns()); reported_unix_ns > 0 && ready_) {
    const int64_t look_ms = (clock_.monotonic_ns() - began_ns) / 1'000'000;
    const int64_t delay_ms = (clock_.unix_ns() - reported_unix_ns) / 1'000'000;
    look_ms_most_ = std::max(look_ms_most_, look_ms);
    delay_ms_most_ = std::max(delay_ms_most_, delay_ms);
    counters_.set("lockstep_diagnosis_look_ms", "which=\"last\"", look_ms);
    counters_.set("lockstep_diagnosis_look_ms", "which=\"most\"", look_ms_most_);
    counters_.set("lockstep_diagnosis_delay_ms", "which=\"last\"", delay_ms);
    counters_.set("lockstep_diagnosis_delay_ms", "which=\"most\"", delay_ms_most_);
  }
  std::vector<Verdict> changed = engine_.take_changed();
  stack_asks_.note(changed, clock_.unix_ns());
  tail_.note(changed);
  keeper_.keep(std::move(changed));
  counters_.set("lockstep_warnings", "", engine_.warnings_raised());
  counters_.set("lockstep_warnings_left_out", "", static_cast<int64_t>(engine_.warnings_left_out()));
  tail_.tick(clock_.unix_ns());
  commands_.tick();
  rollups_.write();
}

void Server::look_at_itself() {
  tell_dropped(dropped_unsealed_, *sink_, clock_);
  show_clocks(witness_, counters_);
  memory_.tick(counters_);
  readiness_.ask();
}

}  // namespace

Result<void> run_server(const ServerOptions& options, const sigset_t& signals) {
  Settings settings = LOCKSTEP_TRY(check_settings(options));
  const UniqueFd lock = LOCKSTEP_TRY(lock_folder(options.data, "lockstepd"));
  raise_file_limit(kFilesOpenMax);
  Common common(options);
  std::atomic<const DeferringHandler*> opened{nullptr};
  GatekeeperToCome gatekeeper(role_of);
  const std::unique_ptr<HttpServer> api = LOCKSTEP_TRY(start_api(settings, common, gatekeeper, opened));
  Stores stores = LOCKSTEP_TRY(open_stores(common));
  const std::unique_ptr<AccessParts> access =
      LOCKSTEP_TRY(AccessParts::open(*stores.state, options.admin_token_file, common.clock, common.counters));
  gatekeeper.hand_over_to(access->gatekeeper());
  const StopOnReturn before_access_goes{*api};
  Server server(settings, common, *api, opened, stores, *access);
  const bool read_back = LOCKSTEP_TRY(server.read_back());
  if (!read_back) return {};
  LOCKSTEP_TRY(server.start());
  server.loop(signals);
  server.stop();
  return {};
}

}  // namespace lockstep
