#include "server/server.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include "analysis/cost/job_rollups.h"
#include "api/prometheus/query_scheduler.h"
#include "api/readiness.h"
#include "api/routes.h"
#include "apply/applier.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/contained.h"
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

// Two connections for every agent of a large fleet: one to send, one that waits for commands.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 131'072);
  setrlimit(RLIMIT_NOFILE, &limit);
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

struct StopOnReturn {
  HttpServer& server;
  ~StopOnReturn() { server.stop(); }
};

// The names of net/cross_site.h: what was allowed, where the API listens, and what the machine calls itself.
std::vector<std::string> server_names(const ServerOptions& options, const ListenAddress& http_address) {
  std::vector<std::string> names = options.allowed_hosts;
  if (!http_address.host.empty()) names.push_back(http_address.host);
  char machine[256] = {};
  if (gethostname(machine, sizeof machine - 1) == 0 && machine[0] != '\0') names.emplace_back(machine);
  return names;
}

}  // namespace

Result<void> run_server(const ServerOptions& options, const sigset_t& signals) {
  Result<ListenAddress> http_address = parse_listen_address(options.http);
  if (!http_address.ok()) return Error{"--http: " + http_address.error()};
  Result<ListenAddress> otlp_http_address = parse_listen_address(options.otlp_http);
  if (!otlp_http_address.ok()) return Error{"--otlp-http: " + otlp_http_address.error()};
  Result<ListenAddress> otlp_grpc_address = parse_listen_address(options.otlp_grpc);
  if (!otlp_grpc_address.ok()) return Error{"--otlp-grpc: " + otlp_grpc_address.error()};
  Result<std::string> web_folder = find_web_folder(options.web);
  if (!web_folder.ok()) return Error{web_folder.error()};
  Result<ScrapeConfig> scrape = read_scrape_file(options.scrape);
  if (!scrape.ok()) return Error{scrape.error()};
  Result<Url> remote_write_url =
      options.remote_write.empty() ? Result<Url>(Url{}) : parse_url(options.remote_write, 80);
  if (!remote_write_url.ok()) return Error{"--remote-write: " + remote_write_url.error()};
  Result<UniqueFd> lock = lock_folder(options.data, "lockstepd");
  if (!lock.ok()) return Error{lock.error()};

  raise_file_limit();
  const std::vector<std::string> names = server_names(options, *http_address);
  MemoryBudget memory(options.memory_max > 0 ? static_cast<uint64_t>(options.memory_max)
                                             : memory_limit_bytes() / 4 * 3);
  limit_malloc(memory.bytes_max());
  SystemClock clock;
  ClockWitness witness(clock);
  Counters counters(kServerCounters);
  counters.set("lockstep_build_info", "version=\"" LOCKSTEP_VERSION "\"", 1);
  // The API answers from the start; what is stored may take a while to open.
  std::atomic<const DeferringHandler*> opened{nullptr};
  Result<std::unique_ptr<HttpServer>> api = HttpServer::start(
      {.address = *http_address,
       .body_bytes_max = 1 << 20,
       .path_limits = {{std::string(kRemoteWritePath), kRemoteWriteBodyBytesMax}},
       .threads = 8 + static_cast<size_t>(options.queries_max),  // queries never take the last ones
       .memory = &memory,
       .name = "http",
       .cross_site = {.hosts = names, .check_host = true, .changes_state = changes_state}},
      [&](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
        if (const DeferringHandler* handler = opened) return (*handler)(request, responder);
        responder->answer(answer_while_opening(request));
      },
      counters);
  if (!api.ok()) return Error{"--http: " + api.error()};
  Result<std::unique_ptr<ColumnarStepStore>> step_store =
      ColumnarStepStore::open(step_options(options, witness, memory), clock, counters);
  if (!step_store.ok()) return Error{step_store.error()};
  ColumnarStepStore& steps = **step_store;
  Result<std::unique_ptr<ColumnarSpanStore>> span_store =
      ColumnarSpanStore::open(span_options(options, witness, memory), clock, counters);
  if (!span_store.ok()) return Error{span_store.error()};
  ColumnarSpanStore& spans = **span_store;
  Result<std::unique_ptr<MetricEngine>> metric_engine =
      MetricEngine::open(metric_options(options, witness, memory), clock, counters);
  if (!metric_engine.ok()) return Error{metric_engine.error()};
  MetricEngine& metrics = **metric_engine;
  const AliasReader named_metrics(metrics);
  AgentRegistry agents;
  Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(options.data + "/state.sqlite");
  if (!state.ok()) return Error{state.error()};
  DiagnosisEngine engine;
  Applier applier(steps, spans, agents, counters);
  applier.subscribe(engine);
  engine.restore(known_verdicts(**state));
  VerdictKeeper keeper(**state, counters);
  // Before anything is read back, so that history is explained with what was learned from it.
  FeedbackStore feedback(**state, counters,
                         [&](std::span<const VerdictFeedback> all) { engine.priors() = CausePriors::of(all); });
  AgentCommands commands({}, clock, counters);
  TailSampler tail(steps, commands, counters);
  applier.subscribe(tail);
  std::unique_ptr<RemoteWriteOut> remote_write_out;
  if (!options.remote_write.empty())
    remote_write_out =
        std::make_unique<RemoteWriteOut>(metrics, RemoteWriteOutOptions{.url = *remote_write_url}, clock, counters);
  MetricWriter& writer = remote_write_out ? static_cast<MetricWriter&>(*remote_write_out) : metrics;
  AliasFeed alias_feed([](const MetricAlias& alias) { return feeds_of(alias.sent()) != nullptr; },
                       [&](const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) {
                         engine.on_metrics(resource, points, received_unix_ns);
                       },
                       counters);
  MetricIntake intake(writer, clock, counters, &alias_feed);
  JobRollups rollups(
      [&](auto stream, auto series, const auto& canonical) { return intake.push("rollup", stream, series, canonical); },
      named_metrics, counters, options.peak_tflops * 1e12);
  for (const JobNumberRow& row : job_number_rows()) intake.metadata(row.name, row.type, row.help, "");
  applier.subscribe(rollups);
  std::atomic<bool> ready{false};
  int64_t look_ms_most = 0, delay_ms_most = 0;
  StackRequester stack_asks(steps, commands, counters);
  auto look_once = [&] {
    const int64_t began_ns = clock.monotonic_ns();
    if (const int64_t reported_unix_ns = engine.tick(clock.unix_ns()); reported_unix_ns > 0 && ready) {
      const int64_t look_ms = (clock.monotonic_ns() - began_ns) / 1'000'000;
      const int64_t delay_ms = (clock.unix_ns() - reported_unix_ns) / 1'000'000;
      look_ms_most = std::max(look_ms_most, look_ms);
      delay_ms_most = std::max(delay_ms_most, delay_ms);
      counters.set("lockstep_diagnosis_look_ms", "which=\"last\"", look_ms);
      counters.set("lockstep_diagnosis_look_ms", "which=\"most\"", look_ms_most);
      counters.set("lockstep_diagnosis_delay_ms", "which=\"last\"", delay_ms);
      counters.set("lockstep_diagnosis_delay_ms", "which=\"most\"", delay_ms_most);
    }
    std::vector<Verdict> changed = engine.take_changed();
    stack_asks.note(changed, clock.unix_ns());
    tail.note(changed);
    keeper.keep(std::move(changed));
    counters.set("lockstep_warnings", "", engine.warnings_raised());
    counters.set("lockstep_warnings_left_out", "", static_cast<int64_t>(engine.warnings_left_out()));
    tail.tick(clock.unix_ns());
    commands.tick();
    rollups.write();
  };
  auto look = [&] {
    if (!contained("server", "a look at jobs", look_once))
      counters.add("lockstep_server_failures_total", "what=\"look\"");
  };

  // What makes the server not ready, one row each; asked once `ready` is set.
  Readiness readiness(counters);
  readiness.add({"disk", [&] { return full_disk(options.data); }});
  readiness.add({"metrics", [&] { return metrics.trouble(); }});
  readiness.add({"memory", [&] { return memory.spent() ? std::optional(memory.why_spent()) : std::nullopt; }});
  readiness.add({"clock", [&] { return clock_problem(witness); }, true});

  StepTraceCache traces(steps, spans, clock);
  ApiContext context{steps, spans, traces, named_metrics, **state, agents, engine, counters, clock, ready, *web_folder};
  context.feedback = &feedback;
  context.readiness = &readiness;
  context.memory = &memory;
  context.ask_detail = [&](const JobInfo& job, const DetailRequest& request) {
    counters.add("lockstep_detail_asks_total", "reason=\"person\"");
    return ask_hosts(job, request, commands);
  };
  context.read_gpu = [&](std::string_view host, std::string_view gpu, int64_t since_ns, int64_t through_ns) {
    return gpu_reading(engine.signals(), host, gpu, since_ns, through_ns);
  };
  context.cardinality = [&](size_t top) { return metrics.cardinality(top); };
  if (options.admin_api) context.metric_admin = &metrics;
  context.gpu_hour_price = options.gpu_hour_price;
  context.peak_flops = options.peak_tflops * 1e12;
  context.ask_stacks = [&](const JobInfo& job, const StackRequest& request) {
    const DetailAsked asked = ask_hosts(job, request, commands);
    counters.add("lockstep_stack_asks_total", "reason=\"person\"", asked.ranks);
    return asked;
  };
  MetricMapping mapping(intake, clock, &memory);
  RemoteWriteReceiver remote_write(intake, clock, counters, kRemoteWriteBodyBytesMax, &memory);
  std::unique_ptr<Scraper> scraper;  // there before `ready` is set, and until the API has stopped
  context.scrape_targets = [&] { return scraper ? scraper->targets() : std::vector<ScrapeTarget>(); };
  QueryScheduler queries(
      {.running_max = static_cast<size_t>(options.queries_max)},
      [&](const ServerRequest& request) { return answer(context, request); }, counters);
  const DeferringHandler serve = [&](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
    if (ready && takes_turns(request)) return queries.run(request, responder);
    responder->answer(request.path == kRemoteWritePath ? remote_write.handle(request) : answer(context, request));
  };
  opened = &serve;
  const StopOnReturn before_all_this_goes{**api};

  std::atomic<int64_t> dropped_unsealed{0};
  LogOptions log_options{.folder = options.data + "/log",
                         .total_bytes_max = static_cast<uint64_t>(options.log_bytes_max)};
  log_options.sealed_through = [&] {
    return std::min({applier.applied_through(), steps.first_unsealed() - 1, spans.first_unsealed() - 1});
  };
  log_options.seal = [&] {
    for (const Result<void>& sealed : {steps.seal(), spans.seal()}) {
      if (!sealed.ok())
        LOCKSTEP_LOG_WARN("server", "the log is full and cannot be relieved: %s", sealed.error().c_str());
    }
  };
  log_options.dropped_unsealed = [&](uint64_t first, uint64_t last) {
    dropped_unsealed += static_cast<int64_t>(last - first + 1);
  };
  Result<std::unique_ptr<DurableLog>> log = DurableLog::open(std::move(log_options), counters);
  if (!log.ok()) return Error{log.error()};
  readiness.add({"log", [&log = **log] { return log.trouble(); }});
  SetAside set_aside(options.data, counters);
  if (!replay(**log, applier, spans, engine, tail, rollups, set_aside, clock, counters)) return {};
  applier.set_applied_through((*log)->next_sequence() - 1);
  steps.end_replay();
  look();
  tail.go_live();
  stack_asks.go_live();

  DurableSink sink(**log, applier, mapping, kQueuedBytesMax, clock, &set_aside, &memory);
  readiness.add({"apply", [&] { return sink.stuck(clock.monotonic_ns()); }});
  Result<std::unique_ptr<OtlpReceivers>> receivers = OtlpReceivers::start({.http = *otlp_http_address,
                                                                           .grpc = *otlp_grpc_address,
                                                                           .witness = &witness,
                                                                           .memory = &memory,
                                                                           .allowed_hosts = names},
                                                                          sink, clock, counters, &commands);
  if (!receivers.ok()) return Error{receivers.error()};
  if (!options.scrape.empty()) scraper = Scraper::start(std::move(*scrape), intake, clock, counters);
  ready = true;
  std::printf("ready http=%s otlp_http=%s otlp_grpc=%s\n", (*api)->address().c_str(),
              (*receivers)->http_address().c_str(), (*receivers)->grpc_address().c_str());
  std::fflush(stdout);
  LOCKSTEP_LOG_INFO("server", "data in %s, web UI %s", options.data.c_str(),
                    web_folder->empty() ? "not found (see --web)" : web_folder->c_str());

  const timespec tick{0, kLookEveryNs};
  for (int signal = 0; signal != SIGTERM && signal != SIGINT; signal = sigtimedwait(&signals, nullptr, &tick)) {
    if (signal == SIGHUP && scraper)
      contained("server", "--scrape", [&] { reload_scrape_file(options.scrape, *scraper, counters); });
    look();
    contained("server", "a look at queries", [&] { queries.tick(); });
    contained("server", "a look at itself", [&] {
      tell_dropped(dropped_unsealed, sink, clock);
      show_clocks(witness, counters);
      memory.tick(counters);
      readiness.ask();
    });
  }

  LOCKSTEP_LOG_INFO("server", "stopping: receivers, diagnosis, API, log");
  ready = false;
  if (scraper) scraper->stop();
  (*receivers)->stop();
  sink.close();
  look();
  (*api)->stop();
  return {};
}

}  // namespace lockstep
