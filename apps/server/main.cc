// lockstepd: doors, durable log, stores, diagnosis, API and web UI in one process.
//
// Order of start: lock the data folder, open the API (it answers /healthz and "starting"), read the durable log back
// into stores and diagnosis, open the doors, say "ready". Order of stop follows the data: doors, diagnosis, API, log.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "api/query_turns.h"
#include "api/readiness.h"
#include "api/routes.h"
#include "apps/server/durable_sink.h"
#include "apps/server/set_aside.h"
#include "apps/server/verdict_keeper.h"
#include "apps/server/web_folder.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/contained.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "bus/log.h"
#include "diagnosis/engine.h"
#include "diagnosis/signals/gpu_reading.h"
#include "diagnosis/stack_asks.h"
#include "diagnosis/tail_sampler.h"
#include "ingest/agent_commands.h"
#include "ingest/alias_feed.h"
#include "ingest/counters_table.h"
#include "ingest/metric_intake.h"
#include "ingest/metric_mapping.h"
#include "ingest/otlp_doors.h"
#include "ingest/remote_write_door.h"
#include "ingest/remote_write_out.h"
#include "ingest/scraper.h"
#include "ingest/span_decode.h"
#include "query/alias_reader.h"
#include "query/job_rollups.h"
#include "store/applier.h"
#include "store/metrics/metric_engine.h"
#include "store/spans/columnar_span_store.h"
#include "store/sqlite_state_store.h"
#include "store/steps/columnar_step_store.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int64_t kTickNs = 250'000'000;
constexpr uint64_t kQueuedBytesMax = 256ull << 20;
constexpr size_t kRollupsAtOnce = 256;  // while the log is read back

struct Options {
  std::string data;
  std::string http = "127.0.0.1:7070";
  std::string otlp_http = "127.0.0.1:4318";
  std::string otlp_grpc = "127.0.0.1:4317";
  std::string web;
  int64_t log_bytes_max = 4ll << 30;
  int64_t step_days = 7;
  int64_t step_bytes_max = 32ll << 30;
  int64_t trace_days = 7;
  int64_t trace_bytes_max = 32ll << 30;
  int64_t metric_days = 15;
  int64_t metric_bytes_max = 64ll << 30;
  std::string metric_ack = "written";
  int64_t metric_series_max = 20'000'000;
  int64_t metric_series_per_tenant = 20'000'000;
  int64_t metric_series_per_job = 20'000'000;
  int64_t metric_series_per_metric = 5'000'000;
  int64_t metric_series_per_agent = 200'000;
  int64_t queries_max = 8;
  int64_t memory_max = 0;
  bool admin_api = false;
  std::vector<std::string> allowed_hosts;
  std::string scrape;
  std::string remote_write;
  double gpu_hour_price = 0;
  double peak_tflops = 0;
  bool help = false;
  std::string help_text;
};

Result<Options> read_options(const std::vector<std::string>& arguments) {
  Options options;
  Flags flags("lockstepd", "the Lockstep server: takes OTLP, finds out why jobs are slow or stuck, shows it");
  flags.text(&options.data, "--data", "DIR", "folder for the log and the state (required; made where it is not there)")
      .text(&options.http, "--http", "ADDR", "web UI and API (default 127.0.0.1:7070)")
      .text(&options.otlp_http, "--otlp-http", "ADDR", "OTLP/HTTP door (default 127.0.0.1:4318)")
      .text(&options.otlp_grpc, "--otlp-grpc", "ADDR", "OTLP/gRPC door (default 127.0.0.1:4317)")
      .text(&options.web, "--web", "DIR", "files of the web UI (default: found beside the program)")
      .number(&options.log_bytes_max, "--log-bytes-max", "N",
              "size of the durable log in bytes, oldest dropped first (default 4294967296)", 1 << 20, 1ll << 50)
      .number(&options.step_days, "--step-days", "N", "days for which steps are kept (default 7)", 1, 3650)
      .number(&options.step_bytes_max, "--step-bytes-max", "N",
              "size of the steps on disk in bytes, oldest dropped first (default 34359738368)", 1 << 20, 1ll << 50)
      .number(&options.trace_days, "--trace-days", "N", "days for which spans are kept (default 7)", 1, 3650)
      .number(&options.trace_bytes_max, "--trace-bytes-max", "N",
              "size of the spans on disk in bytes, oldest dropped first (default 34359738368)", 1 << 20, 1ll << 50)
      .number(
          &options.metric_days, "--metric-days", "N",
          "days for which raw samples are kept; 1 min rollups 90 days and 1 h rollups 2 years, or as long (default 15)",
          1, 3650)
      .number(&options.metric_bytes_max, "--metric-bytes-max", "N",
              "size of raw samples on disk in bytes, oldest dropped first (default 68719476736)", 1 << 20, 1ll << 50)
      .text(&options.metric_ack, "--metric-ack", "written|synced",
            "when samples are acknowledged: written to the log, which a kill of the server survives and a crash of the "
            "machine may not (up to a second of samples), or synced to disk, which both do (default written)")
      .number(&options.metric_series_max, "--metric-series-max", "N",
              "series at a time; beyond, new ones are refused (default 20000000)", 1000, 4'000'000'000)
      .number(&options.metric_series_per_tenant, "--metric-series-per-tenant", "N",
              "the same for one tenant (default 20000000)", 1, 4'000'000'000)
      .number(&options.metric_series_per_job, "--metric-series-per-job", "N", "the same for one job (default 20000000)",
              1, 4'000'000'000)
      .number(&options.metric_series_per_metric, "--metric-series-per-metric", "N",
              "the same for one metric (default 5000000)", 1, 4'000'000'000)
      .number(&options.metric_series_per_agent, "--metric-series-per-agent", "N",
              "the same for one agent or other sender (default 200000)", 1, 4'000'000'000)
      .number(&options.queries_max, "--queries-max", "N",
              "PromQL queries that run at a time, of up to 2 GiB each within --memory-max; others wait their turn "
              "(default 8)",
              1, 1000)
      .number(&options.memory_max, "--memory-max", "N",
              "memory the server uses, in bytes; beyond, requests and queries are told to try again and new series are "
              "refused (default: three quarters of what the machine has, or its cgroup may have)",
              64 << 20, 1ll << 50)
      .toggle(&options.admin_api, "--admin-api",
              "let anybody who reaches the API delete series and have all samples copied on disk (default: nobody)")
      .list(&options.allowed_hosts, "--allowed-host", "NAME",
            "a name by which the API may be asked for, .NAME for all that end so, * for any; localhost, the machine's "
            "name and addresses always are")
      .text(&options.scrape, "--scrape", "FILE",
            "exporters to scrape: a file in the words of Prometheus' scrape_configs; SIGHUP reads it again")
      .text(&options.remote_write, "--remote-write", "URL",
            "where all accepted samples are sent on to, by remote write")
      .decimal(&options.gpu_hour_price, "--gpu-hour-price", "X",
               "what an hour of one GPU costs, in your currency (default: no money is shown)", 0, 1e6)
      .decimal(&options.peak_tflops, "--peak-tflops", "X",
               "peak of one GPU in TFLOP/s, for jobs that tell none (default: by the GPU's name, bf16)", 0, 1e6);
  LOCKSTEP_TRY(flags.parse(arguments));
  options.help = flags.help_wanted();
  options.help_text = flags.help();
  if (!options.help && options.data.empty())
    return Error{"lockstepd: --data DIR is required: the folder for the log and the state"};
  if (options.metric_ack != "written" && options.metric_ack != "synced")
    return Error{format("lockstepd: --metric-ack is written or synced, not \"%s\"", options.metric_ack.c_str())};
  return options;
}

// Reads the log back. Diagnosis looks at the history as it did when it happened, a quarter of a second of it at a time,
// but never spends more time on looking than reading takes: a long log of a large job must not delay the start for
// long. false: told to stop meanwhile.
bool replay(DurableLog& log, Applier& applier, const ColumnarSpanStore& spans, Engine& engine, TailSampler& tail,
            JobRollups& rollups, SetAside& set_aside, const Clock& clock, Counters& counters) {
  int64_t last_look_unix_ns = 0;
  int64_t look_cost_ns = 0;
  int64_t looked_at_ns = clock.monotonic_ns();
  int64_t started_ns = clock.monotonic_ns();
  uint64_t records = 0;
  bool stopping = false;
  auto apply = [&](uint64_t sequence, Signal signal, int64_t received_unix_ns, std::string_view payload) {
    if (signal == Signal::kSpans) {
      Result<DecodedSpans> decoded = decode_spans(payload);
      if (decoded.ok()) applier.apply_spans(std::move(decoded->columns), received_unix_ns, sequence);
      return decoded.ok();
    }
    Result<Batch> batch = otlp::decode(signal, payload);
    if (batch.ok()) applier.apply(signal, std::move(*batch), received_unix_ns, sequence);
    return batch.ok();
  };
  Result<void> done =
      log.replay([&](uint64_t sequence, RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
        if (stopping) return;
        if (signal_of(kind) == Signal::kSpans && spans.holds(sequence, received_unix_ns)) return;  // in files already
        if (set_aside.is_set_aside(sequence, received_unix_ns)) return;
        const SetAside::Applying applying(set_aside, sequence, received_unix_ns);
        bool decoded = true;
        const bool whole = contained("recovery", "a record", [&] {
          decoded = apply(sequence, signal_of(kind), received_unix_ns, payload);
          if (decoded && rollups.queued() >= kRollupsAtOnce) rollups.write();
        });
        if (!whole) counters.add("lockstep_server_failures_total", "what=\"replay\"");
        if (!decoded) {
          counters.add("lockstep_replay_undecodable_records_total");
          return;
        }
        ++records;
        int64_t now_ns = clock.monotonic_ns();
        if (received_unix_ns - last_look_unix_ns < kTickNs || now_ns - looked_at_ns < look_cost_ns) return;
        const bool looked = contained("recovery", "a look at jobs", [&] {
          engine.tick(received_unix_ns);
          tail.tick(received_unix_ns);
        });
        if (!looked) counters.add("lockstep_server_failures_total", "what=\"look\"");
        last_look_unix_ns = received_unix_ns;
        looked_at_ns = clock.monotonic_ns();
        look_cost_ns = looked_at_ns - now_ns;
        sigset_t pending;
        sigpending(&pending);
        stopping = sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
      });
  if (!done.ok()) LOCKSTEP_LOG_ERROR("server", "recovery: %s", done.error().c_str());
  if (records > 0) {
    LOCKSTEP_LOG_INFO("server", "recovery: %llu records read back in %s", static_cast<unsigned long long>(records),
                      human_duration(static_cast<double>(clock.monotonic_ns() - started_ns)).c_str());
  }
  return !stopping;
}

// What a store keeps in memory: as usual, but no more than this part of the budget.
size_t part_of(const MemoryBudget& memory, uint64_t parts, size_t usual) {
  return std::min<size_t>(usual, memory.bytes_max() / parts);
}
ColumnarStepStoreOptions step_options(const Options& options, const ClockWitness& witness, const MemoryBudget& memory) {
  ColumnarStepStoreOptions steps;
  steps.witness = &witness;
  steps.folder = options.data + "/steps";
  steps.days = options.step_days;
  steps.bytes_max = static_cast<uint64_t>(options.step_bytes_max);
  steps.hot_bytes_max = part_of(memory, 8, steps.hot_bytes_max);
  steps.cache_bytes_max = part_of(memory, 32, steps.cache_bytes_max);
  steps.memory.step_bytes_max = part_of(memory, 4, steps.memory.step_bytes_max);
  steps.memory.log_bytes_max = part_of(memory, 16, steps.memory.log_bytes_max);
  return steps;
}
ColumnarSpanStoreOptions span_options(const Options& options, const ClockWitness& witness, const MemoryBudget& memory) {
  ColumnarSpanStoreOptions spans;
  spans.witness = &witness;
  spans.folder = options.data + "/spans";
  spans.days = options.trace_days;
  spans.bytes_max = static_cast<uint64_t>(options.trace_bytes_max);
  spans.head_bytes_max = part_of(memory, 16, spans.head_bytes_max);
  spans.unsealed_bytes_max = part_of(memory, 8, spans.unsealed_bytes_max);
  return spans;
}
MetricEngineOptions metric_options(const Options& options, const ClockWitness& witness, MemoryBudget& memory) {
  MetricEngineOptions metrics;
  metrics.witness = &witness;
  metrics.memory = &memory;
  metrics.seal_bytes_min = part_of(memory, 16, metrics.seal_bytes_min);
  metrics.folder = options.data + "/metrics";
  metrics.ack = options.metric_ack == "synced" ? metrics::Ack::kFsynced : metrics::Ack::kWritten;
  metrics.limits.series_max = static_cast<uint64_t>(options.metric_series_max);
  metrics.limits.series_per_tenant_max = static_cast<uint64_t>(options.metric_series_per_tenant);
  metrics.limits.series_per_job_max = static_cast<uint64_t>(options.metric_series_per_job);
  metrics.limits.series_per_metric_max = static_cast<uint64_t>(options.metric_series_per_metric);
  metrics.limits.series_per_stream_max = static_cast<uint64_t>(options.metric_series_per_agent);
  constexpr int64_t kDayMs = 86'400'000;
  metrics.bytes_max[0] = static_cast<uint64_t>(options.metric_bytes_max);
  metrics.snapshot_bytes_max = metrics.bytes_max[0];  // all copies together, no more than what they are copies of
  metrics.keep_ms[0] = options.metric_days * kDayMs;
  for (size_t tier = 1; tier < metrics::kTiers; ++tier)
    metrics.keep_ms[tier] = std::max(metrics.keep_ms[tier], metrics.keep_ms[0]);
  return metrics;
}

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
std::vector<std::string> server_names(const Options& options, const ListenAddress& http_address) {
  std::vector<std::string> names = options.allowed_hosts;
  if (!http_address.host.empty()) names.push_back(http_address.host);
  char machine[256] = {};
  if (gethostname(machine, sizeof machine - 1) == 0 && machine[0] != '\0') names.emplace_back(machine);
  return names;
}

Result<ScrapeConfig> read_scrape_file(const std::string& path) {
  if (path.empty()) return ScrapeConfig{};
  Result<std::string> text = read_file(path, 16 << 20);
  if (!text.ok()) return Error{"--scrape: " + text.error()};
  Result<ScrapeConfig> read = parse_scrape_config(*text);
  if (!read.ok()) return Error{"--scrape " + path + ": " + read.error()};
  return read;
}

// Asked for by SIGHUP. A file that is wrong leaves everything as it was.
void reload_scrape_file(const std::string& path, Scraper& scraper, Counters& counters) {
  Result<ScrapeConfig> read = read_scrape_file(path);
  counters.add("lockstep_scrape_config_loads_total", read.ok() ? "result=\"read\"" : "result=\"refused\"");
  if (!read.ok()) {
    LOCKSTEP_LOG_WARN("server", "%s; what was scraped before still is", read.error().c_str());
    return;
  }
  const size_t jobs = read->jobs.size();
  scraper.reload(std::move(*read));
  LOCKSTEP_LOG_INFO("server", "%s read again: %zu jobs", path.c_str(), jobs);
}

Result<void> run(const Options& options, const sigset_t& signals) {
  Result<ListenAddress> http_address = parse_listen_address(options.http);
  if (!http_address.ok()) return Error{"--http: " + http_address.error()};
  Result<ListenAddress> otlp_http_address = parse_listen_address(options.otlp_http);
  if (!otlp_http_address.ok()) return Error{"--otlp-http: " + otlp_http_address.error()};
  Result<ListenAddress> otlp_grpc_address = parse_listen_address(options.otlp_grpc);
  if (!otlp_grpc_address.ok()) return Error{"--otlp-grpc: " + otlp_grpc_address.error()};
  std::string web_folder = LOCKSTEP_TRY(find_web_folder(options.web));
  ScrapeConfig scrape = LOCKSTEP_TRY(read_scrape_file(options.scrape));
  Result<Url> remote_write_url =
      options.remote_write.empty() ? Result<Url>(Url{}) : parse_url(options.remote_write, 80);
  if (!remote_write_url.ok()) return Error{"--remote-write: " + remote_write_url.error()};
  UniqueFd lock = LOCKSTEP_TRY(lock_folder(options.data, "lockstepd"));

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
  std::unique_ptr<ColumnarStepStore> step_store =
      LOCKSTEP_TRY(ColumnarStepStore::open(step_options(options, witness, memory), clock, counters));
  ColumnarStepStore& steps = *step_store;
  std::unique_ptr<ColumnarSpanStore> span_store =
      LOCKSTEP_TRY(ColumnarSpanStore::open(span_options(options, witness, memory), clock, counters));
  ColumnarSpanStore& spans = *span_store;
  std::unique_ptr<MetricEngine> metric_engine =
      LOCKSTEP_TRY(MetricEngine::open(metric_options(options, witness, memory), clock, counters));
  MetricEngine& metrics = *metric_engine;
  const AliasReader named_metrics(metrics);
  AgentRegistry agents;
  std::unique_ptr<StateStore> state = LOCKSTEP_TRY(open_sqlite_state_store(options.data + "/state.sqlite"));
  Engine engine;
  Applier applier(steps, spans, agents, counters);
  applier.subscribe(engine);
  engine.restore(known_verdicts(*state));
  VerdictKeeper keeper(*state, counters);
  // Before anything is read back, so that history is explained with what was learned from it.
  FeedbackBook feedback(*state, counters,
                        [&](std::span<const VerdictFeedback> all) { engine.priors() = PriorBook::of(all); });
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
  StackAsks stack_asks(steps, commands, counters);
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
  ApiContext context{steps, spans, traces, named_metrics, *state, agents, engine, counters, clock, ready, web_folder};
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
  RemoteWriteDoor remote_write(intake, clock, counters, kRemoteWriteBodyBytesMax, &memory);
  std::unique_ptr<Scraper> scraper;  // there before `ready` is set, and until the API has stopped
  context.scrape_targets = [&] { return scraper ? scraper->targets() : std::vector<ScrapeTarget>(); };
  QueryTurns queries(
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
  if (!log.ok()) return log.failure();
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
  std::unique_ptr<OtlpDoors> doors = LOCKSTEP_TRY(OtlpDoors::start({.http = *otlp_http_address,
                                                                    .grpc = *otlp_grpc_address,
                                                                    .witness = &witness,
                                                                    .memory = &memory,
                                                                    .allowed_hosts = names},
                                                                   sink, clock, counters, &commands));
  if (!options.scrape.empty()) scraper = Scraper::start(std::move(scrape), intake, clock, counters);
  ready = true;
  std::printf("ready http=%s otlp_http=%s otlp_grpc=%s\n", (*api)->address().c_str(), doors->http_address().c_str(),
              doors->grpc_address().c_str());
  std::fflush(stdout);
  LOCKSTEP_LOG_INFO("server", "data in %s, web UI %s", options.data.c_str(),
                    web_folder.empty() ? "not found (see --web)" : web_folder.c_str());

  const timespec tick{0, kTickNs};
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

  LOCKSTEP_LOG_INFO("server", "stopping: doors, diagnosis, API, log");
  ready = false;
  if (scraper) scraper->stop();
  doors->stop();
  sink.close();
  look();
  (*api)->stop();
  return {};
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  Result<Options> options = read_options({argv + 1, argv + argc});
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.error().c_str());
    return kExitUsage;
  }
  if (options->help) {
    std::fputs(options->help_text.c_str(), stdout);
    return 0;
  }
  // Blocked before the first thread is made, so that only the main loop takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a full disk quota is an error of that write, not the end of the server

  if (Result<void> done = run(*options, signals); !done.ok()) {
    std::fprintf(stderr, "lockstepd: %s\n", done.error().c_str());
    return kExitFailed;
  }
  return 0;
}
