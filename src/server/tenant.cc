#include "server/tenant.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "alert/open_series.h"
#include "analysis/cost/gpu_peak.h"
#include "analysis/cost/job_rollups.h"
#include "analysis/cost/rank_series.h"
#include "api/routes.h"
#include "apply/applier.h"
#include "apply/pushed_hosts.h"
#include "base/contained.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "bus/log.h"
#include "control/agent_commands.h"
#include "control/captures.h"
#include "control/sample_requester.h"
#include "control/stack_requester.h"
#include "control/tail_sampler.h"
#include "diagnosis/engine.h"
#include "diagnosis/signals/gpu_reading.h"
#include "egress/remote_write_out.h"
#include "fabric/fabric.h"
#include "fabric/flows/flow_telemetry.h"
#include "incident/incident_watch.h"
#include "incident/verdict_cost.h"
#include "ingest/alias_feed.h"
#include "ingest/metric_intake.h"
#include "ingest/otlp/metric_mapping.h"
#include "ingest/otlp/otlp_handler.h"
#include "ingest/prometheus/remote_write_receiver.h"
#include "query/alias_reader.h"
#include "server/access_parts.h"
#include "server/blob_place.h"
#include "server/captures/capture_findings.h"
#include "server/durable_sink.h"
#include "server/own_series.h"
#include "server/owned_jobs.h"
#include "server/recovery.h"
#include "server/set_aside.h"
#include "server/shared_state.h"
#include "server/sle_faults.h"
#include "server/store_options.h"
#include "server/verdict_keeper.h"
#include "sle/service_watch.h"
#include "sle/sle_watch.h"
#include "store/logs/columnar_log_store.h"
#include "store/metrics/metric_engine.h"
#include "store/spans/columnar_span_store.h"
#include "store/sqlite_state_store.h"
#include "store/steps/columnar_step_store.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr uint64_t kQueuedBytesMax = 256ull << 20;

bool keep_events(Batch batch, IngestSink& sink, const Clock& clock) {
  const std::string bytes = otlp::encode(batch);
  return sink.accept(Signal::kLogs, std::move(batch), bytes, clock.unix_ns()).error == AcceptError::kNone;
}

// What the log had to give up before it was in files is a gap like any other, and kept as one.
void report_dropped(std::atomic<int64_t>& dropped, IngestSink& sink, const Clock& clock) {
  const int64_t records = dropped.exchange(0);
  if (records == 0) return;
  Batch batch;
  batch.signal = Signal::kLogs;
  ResourceGroup& group = batch.groups.emplace_back();
  group.resource = {{"service.name", "lockstepd"}};
  group.logs.push_back(to_record(Gap{"log_full", records}, clock.unix_ns()));
  if (!keep_events(std::move(batch), sink, clock)) dropped += records;  // the next round says it
}

std::optional<std::string> clock_problem(const ClockWitness& witness) {
  std::string line = witness.report().line;
  if (line.empty()) return std::nullopt;
  return line;
}

struct Stores {
  std::unique_ptr<ColumnarStepStore> steps;
  std::unique_ptr<ColumnarSpanStore> spans;
  std::unique_ptr<ColumnarLogStore> logs;
  std::unique_ptr<MetricEngine> metrics;
  std::unique_ptr<StateStore> state;
  std::unique_ptr<BlobStore> blobs;
  std::unique_ptr<sle::Ledger> sle;
};

Result<Stores> open_stores(const std::string& tenant, const ServerOptions& options, const TenantCommon& common,
                           MemoryBudget& memory, Counters& counters) {
  Stores stores;
  stores.steps =
      LOCKSTEP_TRY(ColumnarStepStore::open(step_options(options, common.witness, memory), common.clock, counters));
  stores.spans =
      LOCKSTEP_TRY(ColumnarSpanStore::open(span_options(options, common.witness, memory), common.clock, counters));
  stores.logs =
      LOCKSTEP_TRY(ColumnarLogStore::open(log_record_options(options, common.witness, memory), common.clock, counters));
  stores.metrics =
      LOCKSTEP_TRY(MetricEngine::open(metric_options(options, common.witness, memory), common.clock, counters));
  stores.state = LOCKSTEP_TRY(open_sqlite_state_store(options.data + "/state.sqlite"));
  // Of all tenants in one place, as the keys have it.
  stores.blobs = LOCKSTEP_TRY(open_blobs(common.options, tenant, common.witness, common.clock, counters));
  stores.sle = LOCKSTEP_TRY(sle::Ledger::open({.folder = options.data + "/sle",
                                               .keep_minutes = static_cast<int32_t>(options.sle_days) * 1440,
                                               .memory = &memory},
                                              common.clock, counters));
  return stores;
}

uint64_t analysis_memory(const ServerOptions& options) {
  if (options.analysis_memory > 0) return static_cast<uint64_t>(options.analysis_memory);
  return std::clamp<uint64_t>(memory_limit_bytes() / 8, 1ull << 30, 16ull << 30);
}

// Diagnosis hears of all that is applied, and knows the verdicts it had before the start.
struct Diagnosis {
  Diagnosis(Stores& stores, AgentRegistry& agents, Counters& counters)
      : applier(*stores.steps, *stores.spans, agents, counters) {
    applier.keep_logs(*stores.logs);
    applier.subscribe(engine);
    engine.restore(known_verdicts(*stores.state));
  }

  DiagnosisEngine engine;
  Applier applier;
};

// In the order of their making: what comes later uses what comes before it, and goes first.
class OpenTenant final : public Tenant {
 public:
  OpenTenant(TenantSettings settings, const ServerOptions& options, TenantCommon& common, Counters& counters,
             UniqueFd lock, std::unique_ptr<MemoryBudget> memory, Stores stores);
  ~OpenTenant() override { alerts_.stop(); }  // they link to incidents, which go before them

  Result<bool> read_back(const std::function<bool()>& is_told_to_stop) override;
  void start() override;
  void tick() override;
  void scrape(ScrapeConfig config) override;
  void declare_topology(fabric::Declared declared) override { fabric_.topology.declare(std::move(declared)); }
  void rules(std::vector<RuleGroup> groups) override;
  void actions(std::vector<ActionConfig> actions) override;
  void stop() override;
  void serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) override;
  DurableSink::FromBus take(std::span<const TakenRecord> records, Counters& counters,
                            const std::function<void(int64_t received_unix_ns)>& before) override {
    return sink_->take(records, origins_, counters, before);
  }
  bool keep(Batch events) override { return keep_events(std::move(events), *sink_, clock_); }
  void let_go_of_jobs() override;
  void take_over_jobs() override;
  void look_as_of(int64_t unix_ns) override;
  IngestTarget otlp() override { return {.handler = &*otlp_, .commands = &commands_, .uploads = &uploads_}; }
  FlowSubscriber* flows() override { return flow_telemetry_.get(); }
  Readiness& readiness() override { return readiness_; }
  MemoryBudget& memory() override { return memory_; }
  StoreSet store_set(std::string name) override {
    return {std::move(name), *log_, steps_, spans_, logs_, metrics_, state_, stores_.sle.get()};
  }

 private:
  std::unique_ptr<FlowTelemetry> make_flow_telemetry();
  void take_finding(const Capture& capture, std::string_view summary);
  AgentCommandsOptions command_options() const;
  void hand_over_jobs(bool also_own);
  static bool has_job(const incident::Incident& one);
  bool has_own_job(const incident::Incident& one) const;
  std::vector<Verdict> owned(std::vector<Verdict> verdicts) const;
  ApiContext make_context();
  sle::SleWatch::Reads sle_reads();
  LogOptions log_options();
  std::optional<std::string> disk_problem();
  std::optional<std::string> memory_problem();
  void look();
  void look_once() LOCKSTEP_REQUIRES(look_mutex_);
  void diagnose() LOCKSTEP_REQUIRES(look_mutex_);
  void look_at_itself();

  TenantSettings settings_;
  const ServerOptions options_;  // of this folder
  TenantCommon& common_;
  const Clock& clock_;
  ClockWitness& witness_;
  Counters& counters_;
  NameOwners* const owners_ = common_.access == nullptr ? nullptr : &common_.access->owners();
  const UniqueFd lock_;
  const std::unique_ptr<MemoryBudget> memory_part_;
  MemoryBudget& memory_ = *memory_part_;
  Stores stores_;
  ColumnarStepStore& steps_ = *stores_.steps;
  ColumnarSpanStore& spans_ = *stores_.spans;
  ColumnarLogStore& logs_ = *stores_.logs;
  MetricEngine& metrics_ = *stores_.metrics;
  StateStore& state_ = *stores_.state;

  const AliasReader named_metrics_{metrics_};
  AgentRegistry agents_;
  Diagnosis diagnosis_;
  DiagnosisEngine& engine_ = diagnosis_.engine;
  Applier& applier_ = diagnosis_.applier;
  OwnedStepStore owned_steps_{steps_, common_.jobs};
  OwnedVerdicts owned_verdicts_{engine_, common_.jobs};
  const GpuPricing pricing_{options_.gpu_prices, owned_steps_, named_metrics_, clock_};
  VerdictKeeper keeper_{state_, counters_};
  // Before anything is read back, so that history is explained with what was learned from it.
  FeedbackStore feedback_{state_, counters_,
                          [this](std::span<const VerdictFeedback> all) { engine_.priors() = CausePriors::of(all); }};
  AgentCommands commands_{command_options(), clock_, counters_, owners_};
  UploadReceiver uploads_{*stores_.blobs, blob_tenant(settings_.name), common_.uploads, clock_, counters_, owners_};
  const BlobUpkeep blob_upkeep_{*stores_.blobs};
  TailSampler tail_{steps_, commands_, counters_};
  const std::unique_ptr<RemoteWriteOut> remote_write_out_;  // nullptr: samples are not sent on
  AliasFeed alias_feed_;
  MetricIntake intake_;
  JobRollups rollups_;
  RankSeries rank_series_;
  fabric::Fabric fabric_{std::move(settings_.topology), clock_};
  std::unique_ptr<FlowTelemetry> flow_telemetry_;  // nullptr: no switch reports here
  AlertCenter alerts_;
  OpenSeries open_series_;
  OwnSeries own_series_;  // ticked in the default tenant alone: the process is the operator's
  incident::IncidentRegistry incidents_{state_, clock_, witness_, counters_};
  incident::IncidentWatch incident_watch_{
      incidents_, {owned_verdicts_, alerts_.registry(), fabric_, &pricing_}, clock_};
  sle::SleWatch sle_{*stores_.sle, sle_reads(), options_.sle_thresholds, counters_};
  sle::ServiceWatch sle_services_{*stores_.sle, spans_, named_metrics_, options_.sle_thresholds};
  Mutex look_mutex_;  // one looks at a time
  std::atomic<bool> ready_{false};
  int64_t look_ms_most_ = 0, delay_ms_most_ = 0;
  StackRequester stack_asks_{steps_, commands_, counters_};
  Captures captures_{{}, options_.auto_profile, steps_, state_, commands_, clock_, counters_};
  CaptureKernels capture_kernels_{captures_, *stores_.blobs};
  std::unique_ptr<CaptureAnalyzer> analyzer_;  // from start() on; nullptr: nobody analyses
  SampleRequester sample_asks_{steps_, commands_, counters_, options_.sample_culprits};
  Readiness readiness_{counters_};  // what makes the server not ready, one row each; asked once ready_ is set
  StepTraceCache traces_{steps_, spans_, clock_};
  ApiContext context_;
  MetricMapping mapping_{intake_, clock_, &memory_};
  RemoteWriteReceiver remote_write_{intake_, clock_, counters_, kRemoteWriteBodyBytesMax, &memory_, owners_};
  PushedHosts pushed_hosts_{agents_, clock_};
  std::unique_ptr<Scraper> scraper_;  // from the first job on, until the API has stopped
  std::atomic<Scraper*> scraping_{nullptr};
  QueryScheduler queries_;
  std::atomic<int64_t> dropped_unsealed_{0};
  std::unique_ptr<DurableLog> log_;
  std::optional<SetAside> set_aside_;
  BusOrigins origins_;  // what the log has of a bus between machines
  std::optional<DurableSink> sink_;
  std::optional<OtlpHandler> otlp_;
};

OpenTenant::OpenTenant(TenantSettings settings, const ServerOptions& options, TenantCommon& common, Counters& counters,
                       UniqueFd lock, std::unique_ptr<MemoryBudget> memory, Stores stores)
    : settings_(std::move(settings)),
      options_(options),
      common_(common),
      clock_(common.clock),
      witness_(common.witness),
      counters_(counters),
      lock_(std::move(lock)),
      memory_part_(std::move(memory)),
      stores_(std::move(stores)),
      diagnosis_(stores_, agents_, counters_),
      remote_write_out_(settings_.remote_write
                            ? std::make_unique<RemoteWriteOut>(
                                  metrics_,
                                  RemoteWriteOutOptions{.url = *settings_.remote_write, .tenant = settings_.name},
                                  clock_, counters_)
                            : nullptr),
      alias_feed_([](const MetricAlias& alias) { return feeds_of(alias.sent()) != nullptr; },
                  [this](const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) {
                    engine_.on_metrics(resource, points, received_unix_ns);
                    alerts_.watch().on_metrics(resource, points, received_unix_ns);
                  },
                  counters_),
      intake_(remote_write_out_ ? static_cast<MetricWriter&>(*remote_write_out_) : metrics_, clock_, counters_,
              &alias_feed_),
      rollups_([this](auto stream, auto series,
                      const auto& canonical) { return intake_.push("rollup", stream, series, canonical); },
               named_metrics_, counters_, options_.peak_tflops * 1e12),
      rank_series_([this](auto stream, auto series,
                          const auto& canonical) { return intake_.push("rollup", stream, series, canonical); },
                   counters_),
      flow_telemetry_(make_flow_telemetry()),
      alerts_(
          settings_.alerts, state_,
          {owned_verdicts_, agents_, spans_, named_metrics_,
           [this](const Verdict& verdict) {
             return incident::cost_of(incident::loss_of(verdict), &incidents_, pricing_);
           }},
          [this](auto series, const auto& canonical) { return intake_.push("rule", "rules", series, canonical); },
          clock_, witness_, counters_),
      open_series_(
          [this](auto series, const auto& canonical) { return intake_.push("open", "open", series, canonical); },
          owned_verdicts_, alerts_.registry(), clock_),
      own_series_([this](auto series, const auto& canonical) { return intake_.push("own", "own", series, canonical); },
                  options_.data, counters_, clock_),
      context_(make_context()),
      queries_(
          {.running_max = static_cast<size_t>(options_.queries_max)},
          [this](const ServerRequest& request) { return answer(context_, request); }, counters_, &common.queries) {
  applier_.subscribe(tail_);
  applier_.subscribe(incident_watch_);  // before alerts, which link to it
  applier_.subscribe(alerts_.watch());
  alerts_.registry().set_incident_path([this](const Alert& alert) { return incident_watch_.path_of(alert); });
  applier_.subscribe(captures_);
  applier_.subscribe(sle_);
  if (flow_telemetry_) fabric_.observer = &flow_telemetry_->observer();
  for (const JobNumberRow& row : job_number_rows()) intake_.metadata(row.name, row.type, row.help, "");
  for (const RankNumberRow& row : rank_number_rows()) intake_.metadata(row.name, "gauge", row.help, "");
  intake_.metadata(OwnSeries::kCpu, "counter", "Processor time of the server.", "");
  intake_.metadata(OwnSeries::kMemory, "gauge", "What the server holds in memory besides mapped files.", "");
  intake_.metadata(OwnSeries::kDisk, "gauge", "Bytes of the server's files, by part of its data folder.", "");
  intake_.metadata(OpenSeries::kVerdictOpen, "gauge", "1 for each open verdict and rank that it names.", "");
  applier_.subscribe(rollups_);
  applier_.subscribe(rank_series_);
  applier_.subscribe(fabric_.topology);
  applier_.subscribe(fabric_.places);
  applier_.subscribe(fabric_.versions);
  engine_.look_at_network({&fabric_, &named_metrics_});
  engine_.ask_who_answers([this](const std::string& host, CommandKind kind) { return commands_.answers(host, kind); });
  engine_.keep_waits(fabric_.waits);
  readiness_.add({"disk", [this] { return disk_problem(); }});
  readiness_.add({"metrics", [this] { return metrics_.trouble(); }});
  readiness_.add({"memory", [this] { return memory_problem(); }});
  if (settings_.is_default && common_.bus_problem) readiness_.add({"bus", common_.bus_problem});
  readiness_.add({"blobs", [this] { return stores_.blobs->trouble(); }, true});
  // The clocks of all tenants' senders are in it.
  if (settings_.is_default) readiness_.add({"clock", [this] { return clock_problem(witness_); }, true});
}

// Switches are the operator's.
std::unique_ptr<FlowTelemetry> OpenTenant::make_flow_telemetry() {
  if (!settings_.is_default || (options_.sflow_listen.empty() && options_.ipfix_listen.empty())) return nullptr;
  for (const PortMetricRow& row : port_metric_rows()) intake_.metadata(row.name, row.type, row.help, "");
  return std::make_unique<FlowTelemetry>(
      std::move(settings_.switches),
      [this](auto stream, auto series, const auto& canonical) {
        return intake_.push("flows", stream, series, canonical);
      },
      counters_);
}

sle::SleWatch::Reads OpenTenant::sle_reads() {
  return {.diagnosis = engine_,
          .faults = [this](int64_t over_since_ns) { return hardware_faults(alerts_.registry(), over_since_ns); },
          .gpu_model = [this](std::string_view gpu_uuid) { return gpu_model(named_metrics_, gpu_uuid); },
          .planned = [this] { return planned_windows(alerts_.registry().silences()); }};
}

ApiContext OpenTenant::make_context() {
  ApiContext context{owned_steps_, spans_, traces_, named_metrics_,    state_, agents_, owned_verdicts_,
                     counters_,    clock_, ready_,  common_.web_folder};
  if (common_.jobs != nullptr) context.owns = [this](std::string_view job_id) { return common_.jobs->owns(job_id); };
  context.logs = &logs_;
  context.feedback = &feedback_;
  context.alerts = &alerts_;
  context.incidents = &incidents_;
  context.backup = settings_.backup;
  context.blobs = stores_.blobs.get();
  context.of_tenants = settings_.of_tenants;
  if (common_.access != nullptr) common_.access->put_into(context);
  context.is_tls = !common_.options.tls.certificate_file.empty();
  context.otlp_http = common_.options.otlp_http;
  context.readiness = &readiness_;
  context.fabric = &fabric_;
  if (flow_telemetry_) context.flows = &flow_telemetry_->flows();
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
  context.pricing = &pricing_;
  context.sle = stores_.sle.get();
  context.sle_thresholds = options_.sle_thresholds;
  context.peak_flops = options_.peak_tflops * 1e12;
  context.ask_stacks = [this](const JobInfo& job, const StackRequest& request) {
    const DetailAsked asked = ask_hosts(job, request, commands_);
    counters_.add("lockstep_stack_asks_total", "reason=\"person\"", asked.ranks);
    return asked;
  };
  context.captures = &captures_;
  context.kernel_classes = [this](const std::string& job_id) { return capture_kernels_.newest_of(job_id); };
  context.analyses_captures = !options_.analyzer.empty() && options_.analysis_cpu_s > 0;
  context.who_answers = [this](const std::string& host, CommandKind kind) { return commands_.answers(host, kind); };
  context.ask_samples = [this](const JobInfo& job, const SampleRequest& request) {
    return sample_asks_.ask(job, request, clock_.unix_ns());
  };
  context.scrape_targets = [this] {
    const Scraper* scraper = scraping_;
    return scraper != nullptr ? scraper->targets() : std::vector<ScrapeTarget>();
  };
  return context;
}

void OpenTenant::serve(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
  if (ready_ && takes_turns(request)) return queries_.run(request, responder);
  responder->answer(request.path == kRemoteWritePath ? remote_write_.handle(request) : answer(context_, request));
}

// How much is free is the operator's to know.
std::optional<std::string> OpenTenant::disk_problem() {
  std::optional<std::string> line = full_disk(options_.data);
  if (line && !settings_.is_default) line = "the server's disk is full; what is sent is refused until there is room";
  return line;
}

// The operator is told of the whole before of this part of it.
std::optional<std::string> OpenTenant::memory_problem() {
  std::string line = settings_.is_default ? common_.memory.why_spent() : std::string();
  if (line.empty()) line = memory_.why_spent();
  if (line.empty()) return std::nullopt;
  return line;
}

LogOptions OpenTenant::log_options() {
  LogOptions options{.folder = options_.data + "/log",
                     .total_bytes_max = static_cast<uint64_t>(options_.log_bytes_max)};
  options.sealed_through = [this] {
    return std::min({applier_.applied_through(), steps_.first_unsealed() - 1, spans_.first_unsealed() - 1,
                     logs_.first_unsealed() - 1});
  };
  options.seal = [this] {
    for (const Result<void>& sealed : {steps_.seal(), spans_.seal(), logs_.seal()}) {
      if (!sealed.ok())
        LOCKSTEP_LOG_WARN("server", "the log is full and cannot be relieved: %s", sealed.error().c_str());
    }
  };
  options.dropped_unsealed = [this](uint64_t first, uint64_t last) {
    dropped_unsealed_ += static_cast<int64_t>(last - first + 1);
  };
  return options;
}

Result<bool> OpenTenant::read_back(const std::function<bool()>& is_told_to_stop) {
  // What an earlier process kept here of jobs: whose they are now, and how they stand, comes with them.
  if (common_.rows != nullptr) {
    hand_over_jobs(true);
    alerts_.registry().set_neighbours(
        {.is_theirs = [this](const std::string& job_id) { return !common_.jobs->owns(job_id); },
         .row_of = [this](const std::string& id) { return shared_alert(*common_.rows, settings_.name, id); }});
  }
  log_ = LOCKSTEP_TRY(DurableLog::open(log_options(), counters_));
  readiness_.add({"log", [this] { return log_->trouble(); }});
  set_aside_.emplace(options_.data, counters_);
  const ReadBackInto into{.origins = origins_,
                          .applier = applier_,
                          .metrics = metrics_,
                          .spans = spans_,
                          .set_aside = *set_aside_,
                          .engine = engine_,
                          .tail = tail_,
                          .rollups = rollups_,
                          .sle = sle_};
  if (!replay(*log_, into, clock_, counters_, is_told_to_stop)) return false;
  applier_.set_applied_through(log_->next_sequence() - 1);
  steps_.end_replay();
  look();
  tail_.go_live();
  stack_asks_.go_live();
  captures_.go_live();
  sample_asks_.go_live();
  incident_watch_.go_live();
  incident_watch_.tick();
  alerts_.go_live();
  return true;
}

void OpenTenant::start() {
  sink_.emplace(*log_, applier_, mapping_, kQueuedBytesMax, clock_, &*set_aside_, &memory_, &witness_);
  otlp_.emplace(*sink_, clock_, counters_, OtlpReceiversOptions{}.body_bytes_max, &witness_, &memory_, owners_);
  readiness_.add({"apply", [this] { return sink_->stuck(clock_.monotonic_ns()); }});
  scrape(std::move(settings_.scrape));
  if (!options_.analyzer.empty() && options_.analysis_cpu_s > 0) {
    analyzer_ = std::make_unique<CaptureAnalyzer>(
        AnalyzerSettings{options_.analyzer, analysis_memory(options_), options_.analysis_cpu_s}, captures_,
        *stores_.blobs, common_.analysis,
        [this](const Capture& capture, std::string_view summary) { take_finding(capture, summary); }, counters_);
  }
  take_over_jobs();
  ready_ = true;
}

void OpenTenant::take_finding(const Capture& capture, std::string_view summary) {
  capture_kernels_.add(capture, summary);
  const Result<void> taken = put_down_finding(capture, summary, steps_, *sink_, clock_.unix_ns());
  if (!taken.ok())
    LOCKSTEP_LOG_WARN("captures", "what %s shows is not in its verdict: %s", capture.order.capture.c_str(),
                      taken.error().c_str());
}

void OpenTenant::tick() {
  look();
  contained("server", "a look at queries", [this] { queries_.tick(); });
  contained("server", "a look at itself", [this] { look_at_itself(); });
}

void OpenTenant::scrape(ScrapeConfig config) {
  if (scraper_) return scraper_->reload(std::move(config));
  if (config.jobs.empty()) return;
  scraper_ = Scraper::start(std::move(config), intake_, clock_, counters_, 4,
                            [this](const std::string& host) { return pushed_hosts_.contains(host); });
  scraping_ = scraper_.get();
}

void OpenTenant::rules(std::vector<RuleGroup> groups) {
  alerts_.rules().reload(std::move(groups));
}

void OpenTenant::actions(std::vector<ActionConfig> actions) {
  alerts_.actions().reload(std::move(actions));
}

void OpenTenant::stop() {
  ready_ = false;
  if (scraper_) scraper_->stop();
  analyzer_.reset();
  sink_->close();
  look();
  alerts_.stop();
}

void OpenTenant::look() {
  const bool whole = contained("server", "a look at jobs", [this] {
    MutexLock lock(look_mutex_);
    look_once();
  });
  if (!whole) counters_.add("lockstep_server_failures_total", "what=\"look\"");
}

AgentCommandsOptions OpenTenant::command_options() const {
  AgentCommandsOptions options;
  if (common_.commands == nullptr) return options;
  options.forward = [poster = common_.commands, tenant = settings_.name](const std::string& host,
                                                                         const CommandList& one) {
    return poster->post({tenant, host, encode_commands(one)});
  };
  return options;
}

void OpenTenant::let_go_of_jobs() {
  agents_.forget_all();
  open_series_.note_change();
  hand_over_jobs(false);
}

void OpenTenant::hand_over_jobs(bool also_own) {
  const auto is_others = [&](const std::string& job_id) { return also_own || !common_.jobs->owns(job_id); };
  alerts_.registry().hand_over([&](const Alert& alert) { return !alert.job_id.empty() && is_others(alert.job_id); });
  incidents_.hand_over([&](const incident::Incident& one) { return has_job(one) && (also_own || !has_own_job(one)); });
}

void OpenTenant::take_over_jobs() {
  if (common_.rows == nullptr) return;
  const SharedState shared = shared_state(*common_.rows, settings_.name);
  alerts_.take_over(shared.alerts,
                    [this](const Alert& alert) { return !alert.job_id.empty() && common_.jobs->owns(alert.job_id); });
  incidents_.take_over(shared.incidents, [this](const incident::Incident& one) { return has_own_job(one); });
}

bool OpenTenant::has_job(const incident::Incident& one) {
  return std::any_of(one.findings.begin(), one.findings.end(),
                     [](const incident::Finding& finding) { return !finding.job_id.empty(); });
}

bool OpenTenant::has_own_job(const incident::Incident& one) const {
  return std::any_of(one.findings.begin(), one.findings.end(), [this](const incident::Finding& finding) {
    return !finding.job_id.empty() && common_.jobs->owns(finding.job_id);
  });
}

void OpenTenant::look_as_of(int64_t unix_ns) {
  const bool whole = contained("server", "a look at jobs", [&] {
    MutexLock lock(look_mutex_);
    engine_.tick(unix_ns);
    tail_.tick(unix_ns);
    // What came while the clock was ahead is no reason to judge what is yet to come.
    sle_.tick(std::min(unix_ns, clock_.unix_ns()), clock_.unix_ns());
    rollups_.write();
    rank_series_.write();
  });
  if (!whole) counters_.add("lockstep_server_failures_total", "what=\"look\"");
}

void OpenTenant::diagnose() {
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
}

std::vector<Verdict> OpenTenant::owned(std::vector<Verdict> verdicts) const {
  if (common_.jobs != nullptr)
    std::erase_if(verdicts, [this](const Verdict& verdict) { return !common_.jobs->owns(verdict.job_id); });
  return verdicts;
}

void OpenTenant::look_once() {
  const bool is_behind = common_.bus_is_behind;  // what goes by the clock is looked at by who reads the bus
  if (!is_behind) diagnose();
  std::vector<Verdict> changed = engine_.take_changed();
  stack_asks_.note(changed, clock_.unix_ns());
  sample_asks_.note(changed, clock_.unix_ns());
  tail_.note(changed);
  captures_.note(changed);
  alerts_.note(changed);
  if (!changed.empty()) open_series_.note_change();
  incident_watch_.note(owned(changed));
  const int64_t earliest_unix_ns = witness_.now().earliest_unix_ns;
  sle_.note(changed, earliest_unix_ns);
  keeper_.keep(std::move(changed));
  counters_.set("lockstep_warnings", "", engine_.warnings_raised());
  counters_.set("lockstep_warnings_left_out", "", static_cast<int64_t>(engine_.warnings_left_out()));
  if (!is_behind) tail_.tick(clock_.unix_ns());
  captures_.tick();
  commands_.tick();
  rollups_.write();
  rank_series_.write();
  fabric_.topology.tick();
  if (flow_telemetry_) flow_telemetry_->tick(clock_.unix_ns());
  incident_watch_.tick(is_behind);
  alerts_.tick(is_behind);
  if (ready_) open_series_.tick();
  if (!is_behind) sle_.tick(earliest_unix_ns, earliest_unix_ns);
  if (ready_ && !is_behind) sle_services_.tick(earliest_unix_ns);
  sle_.flush();
}

void OpenTenant::look_at_itself() {
  report_dropped(dropped_unsealed_, *sink_, clock_);
  if (!settings_.is_default) memory_.tick(counters_);
  if (settings_.is_default && ready_) own_series_.tick();
  readiness_.ask();
}

}  // namespace

Result<std::unique_ptr<Tenant>> Tenant::open(TenantSettings settings, uint64_t memory_bytes_max, TenantCommon& common,
                                             Counters& counters) {
  ServerOptions options = common.options;
  options.data = settings.folder;
  // The default tenant's is the process's, and locked with it.
  UniqueFd lock;
  if (!settings.is_default) lock = LOCKSTEP_TRY(lock_folder(settings.folder, "lockstepd"));
  auto memory = std::make_unique<MemoryBudget>(common.memory, memory_bytes_max);
  Stores stores = LOCKSTEP_TRY(open_stores(settings.name, options, common, *memory, counters));
  if (common.rows != nullptr)
    stores.state = share_state(std::move(stores.state), settings.name, *common.rows,
                               settings.is_default ? common.token_secret : std::string());
  if (settings.state_opened) LOCKSTEP_TRY(settings.state_opened(*stores.state));
  return std::unique_ptr<Tenant>(std::make_unique<OpenTenant>(std::move(settings), options, common, counters,
                                                              std::move(lock), std::move(memory), std::move(stores)));
}

}  // namespace lockstep
