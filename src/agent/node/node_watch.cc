#include "agent/node/node_watch.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

#include "agent/metrics_page.h"
#include "agent/ranks/watched_rank.h"
#include "base/log.h"
#include "base/text.h"
#include "model/agent_own_metrics.h"
#include "sources/ownership/gpu_ownership_metrics.h"

namespace lockstep {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kChecksEveryNs = 5'000'000'000;
constexpr int64_t kMaintenanceMs = 100;  // the GPU reader wants to be looked after so often
constexpr int64_t kStopPollMs = 5;

const LabelSet& no_labels() {
  static const LabelSet none = std::make_shared<const Labels>();
  return none;
}

// What becomes of the steps' detail is counted where it is kept; here it is told to the server too.
void report_detail(const Counters& counters, NodeReadings& out) {
  static const LabelSet kResults[] = {std::make_shared<const Labels>(Labels{{"result", "periodic"}}),
                                      std::make_shared<const Labels>(Labels{{"result", "asked"}}),
                                      std::make_shared<const Labels>(Labels{{"result", "left_out"}})};
  if (counters.value("lockstep_agent_detail_steps_total") == 0) return;
  const char* const sent = "lockstep_agent_detail_sent_total";
  const int64_t counts[] = {counters.value(sent, "reason=\"periodic\""), counters.value(sent, "reason=\"asked\""),
                            counters.sum("lockstep_agent_detail_left_out_total")};
  for (size_t i = 0; i < std::size(counts); ++i)
    out.add(descriptor_of(OwnMetric::kTracedSteps), kResults[i], static_cast<double>(counts[i]));
  out.add(descriptor_of(OwnMetric::kKeptDetail), no_labels(),
          static_cast<double>(counters.value("lockstep_agent_detail_bytes")));
}

}  // namespace

NodeWatch::NodeWatch(NodeOptions options, std::vector<std::unique_ptr<NodeSource>> sources, const Clock& clock,
                     Counters& counters)
    : options_(std::move(options)),
      clock_(clock),
      counters_(counters),
      series_({.host = options_.host}),
      who_(options_.who),
      cost_(options_.cpu_budget) {
  for (std::unique_ptr<NodeSource>& source : sources) {
    Source& added = sources_.emplace_back();
    added.labels = std::make_shared<const Labels>(Labels{{"source", source->name()}});
    added.source = std::move(source);
  }
}

NodeWatch::~NodeWatch() {
  stopping_.store(true);
  if (thread_.joinable()) thread_.join();
}

void NodeWatch::start() {
  thread_ = std::thread([this] { run(); });
}

bool NodeWatch::stop(int64_t within_ms) {
  stopping_.store(true);
  if (!thread_.joinable()) return true;
  for (int64_t waited_ms = 0; !ended_.load() && waited_ms < within_ms; waited_ms += kStopPollMs)
    ::poll(nullptr, 0, static_cast<int>(kStopPollMs));
  if (ended_.load()) thread_.join();
  return ended_.load();
}

void NodeWatch::run() {
  // Made here, because the reader's process dies with the thread that started it.
  if (options_.gpus) {
    gpu_ = std::make_unique<GpuReaderProcess>(options_.gpu_reader, clock_);
    gpu_->start();
  }
  int64_t next_tick_ns = clock_.monotonic_ns();
  while (!stopping_.load()) {
    if (options_.heartbeat != nullptr) options_.heartbeat->beat();
    apply_commands();
    if (gpu_) {
      if (std::optional<GpuSnapshot> snapshot = gpu_->poll()) take_snapshot(std::move(*snapshot));
    }
    const int64_t now_ns = clock_.monotonic_ns();
    if (now_ns >= next_tick_ns) {
      // On whole intervals of the clock, whatever the last one took: the fleet's readings fall together.
      const int64_t interval_ns = options_.interval_ns * OwnCost::kSlowdown[cost_.level()];
      next_tick_ns = (now_ns / interval_ns + 1) * interval_ns;
      tick(now_ns);
    }
    const int64_t left_ms = (next_tick_ns - clock_.monotonic_ns() + kMsNs - 1) / kMsNs;
    pollfd wait_for{gpu_ ? gpu_->wait_fd() : -1, POLLIN, 0};
    ::poll(&wait_for, 1, static_cast<int>(std::clamp<int64_t>(left_ms, 0, kMaintenanceMs)));
  }
  gpu_.reset();
  if (options_.heartbeat != nullptr) options_.heartbeat->waits();
  ended_.store(true);
}

void NodeWatch::apply_commands() {
  int64_t drain_s = -1;
  bool resume = false;
  {
    MutexLock lock(mutex_);
    std::swap(drain_s, drain_wanted_s_);
    std::swap(resume, resume_wanted_);
  }
  if (!gpu_) return;
  if (drain_s >= 0) gpu_->drain(drain_s * 1000);
  if (resume) gpu_->resume();
  MutexLock lock(mutex_);
  gpu_status_ = gpu_->status();
}

void NodeWatch::tick(int64_t now_ns) {
  Tick tick{.monotonic_ns = now_ns, .unix_ns = clock_.unix_ns(), .owners = &owners_, .gpu_events = &gpu_events_};
  tick.slow = now_ns >= next_slow_ns_;
  if (tick.slow) next_slow_ns_ = (now_ns / options_.slow_every_ns + 1) * options_.slow_every_ns;
  if (gpu_) gpu_->request({.unix_ns = tick.unix_ns, .slow = tick.slow, .processes = tick.slow || who_due_});
  read_sources(tick);
  gpu_events_.clear();
  poll_ownership(tick);
  // GPUs answer a little later, and everything says what it is at slow ticks at the latest.
  const int64_t interval_ns = options_.interval_ns * OwnCost::kSlowdown[cost_.level()];
  if (tick.slow) series_.end_info_not_read_since(now_ns - interval_ns * 5 / 2);
  note_cost(tick);
  if (now_ns >= next_send_ns_) {
    next_send_ns_ = (now_ns / options_.send_every_ns + 1) * options_.send_every_ns;
    std::vector<ResourceGroup> groups = series_.take(tick);
    MutexLock lock(mutex_);
    for (ResourceGroup& group : groups) batch_.metrics.push_back(std::move(group));
  }
  if (now_ns >= next_checks_ns_) {
    next_checks_ns_ = now_ns + kChecksEveryNs;
    refresh_checks();
  }
}

void NodeWatch::read_sources(const Tick& tick) {
  NodeReadings out;
  for (Source& source : sources_) {
    out = {};
    const int64_t begin_ns = clock_.monotonic_ns();
    reading_since_ns_.store(begin_ns);
    reading_.store(source.source->name());
    source.source->read(tick, out);
    reading_.store(nullptr);
    source.failures += out.failures;
    out.add(descriptor_of(OwnMetric::kSourceSeconds), source.labels,
            static_cast<double>(clock_.monotonic_ns() - begin_ns) / 1e9);
    out.add(descriptor_of(OwnMetric::kSourceFailures), source.labels, static_cast<double>(source.failures));
    publish(out, tick);
  }
  if (gpu_) {
    out = {};
    gpu_->report(out);
    publish(out, tick);
  }
}

void NodeWatch::take_snapshot(GpuSnapshot snapshot) {
  const Tick tick{.monotonic_ns = clock_.monotonic_ns(), .unix_ns = clock_.unix_ns()};
  NodeReadings out;
  gpu_readings_.add(snapshot, out);
  publish(out, tick);
  who_inputs_.take(snapshot);
  for (GpuEvent& event : snapshot.events) gpu_events_.push_back(std::move(event));
  MutexLock lock(mutex_);
  gpus_ = who_inputs_.gpus;
}

void NodeWatch::poll_ownership(const Tick& tick) {
  {
    MutexLock lock(mutex_);
    who_due_ = recorders_changed_;
    recorders_changed_ = false;
    who_inputs_.recorders = recorders_;
  }
  who_inputs_.slow = tick.slow;
  who_inputs_.now_ns = tick.monotonic_ns;
  who_inputs_.now_unix_ns = tick.unix_ns;
  reading_since_ns_.store(clock_.monotonic_ns());
  reading_.store("who");
  owners_ = who_.poll(who_inputs_);
  reading_.store(nullptr);
  who_inputs_.processes_read = false;  // until the next answer that has them
  NodeReadings out;
  who_.report(out);
  publish(out, tick);
  series_.end_info_not_read_since(tick.monotonic_ns, descriptor_of(GpuOwnershipMetric::kJobGpuInfo).name);
  std::map<std::string, Completion> completions;
  for (const RecorderOwner& recorder : who_inputs_.recorders) {
    const Identity whole = who_.completed(recorder.path, recorder.identity);
    completions[recorder.path] = {.gpu_uuid = whole.gpu_uuid,
                                  .job_id = whole.job_id,
                                  .gpu_info_reported = owners_.of_gpu(whole.gpu_uuid) != nullptr};
  }
  MutexLock lock(mutex_);
  completions_ = std::move(completions);
}

void NodeWatch::note_cost(const Tick& tick) {
  const OwnUse use = measure_own_use(gpu_ ? gpu_->status().pid : -1);
  NodeReadings out;
  auto add = [&](OwnMetric metric, double value) { out.add(descriptor_of(metric), no_labels(), value); };
  if (std::optional<int> level = cost_.note(use, tick.monotonic_ns)) {
    const bool slower = *level > 0;
    const std::string text =
        format("used %.1f %% of a core (budget %.1f %%): reading the node every %s", 100 * cost_.cpu_share(),
               100 * options_.cpu_budget,
               human_duration(static_cast<double>(options_.interval_ns) * OwnCost::kSlowdown[*level]).c_str());
    out.events.push_back(
        {.name = "agent.shedding",
         .time_unix_ns = tick.unix_ns,
         .severity = slower ? EventSeverity::kWarn : EventSeverity::kInfo,
         .code = *level,
         .text = text,
         .meaning = slower ? "the agent is over its budget and reads less often" : "the agent reads as often as before",
         .action = slower ? "look at lockstep_agent_source_seconds; raise --cpu-budget if it may cost more" : "",
         .source = "agent"});
    out.notes.push_back(text);
  }
  add(OwnMetric::kCpuSeconds, use.cpu_seconds);
  add(OwnMetric::kMemory, static_cast<double>(use.rss_bytes));
  add(OwnMetric::kSentBytes, static_cast<double>(counters_.value("lockstep_agent_export_bytes_total") +
                                                 counters_.value("lockstep_agent_upload_bytes_total")));
  add(OwnMetric::kShedLevel, cost_.level());
  add(OwnMetric::kInterval, static_cast<double>(options_.interval_ns) * OwnCost::kSlowdown[cost_.level()] / 1e9);
  const NodeSeries::Counts counts = series_.counts();
  add(OwnMetric::kSeries, static_cast<double>(series_.size()));
  add(OwnMetric::kReadings, static_cast<double>(counts.readings));
  add(OwnMetric::kPointsReported, static_cast<double>(counts.reported));
  add(OwnMetric::kPointsReportedBefore, static_cast<double>(counts.reported));
  add(OwnMetric::kPointsUnchanged, static_cast<double>(counts.unchanged));
  add(OwnMetric::kReadingsRefused, static_cast<double>(counts.refused));
  report_detail(counters_, out);
  publish(out, tick);
}

Attributes NodeWatch::resource_of(const NodeEvent& event) const {
  Attributes resource = {{"service.name", "lockstep-agent"}, {"host.name", options_.host}};
  if (!event.gpu_uuid.empty()) resource.push_back({"lockstep.gpu_uuid", event.gpu_uuid});
  if (!event.job_id.empty()) resource.push_back({"lockstep.job_id", event.job_id});
  if (event.rank != kNoRank) resource.push_back({"lockstep.rank", static_cast<int64_t>(event.rank.value())});
  return resource;
}

void NodeWatch::publish(NodeReadings& readings, const Tick& tick) {
  series_.update(readings.readings, tick);
  for (const std::string& note : readings.notes) LOCKSTEP_LOG_INFO("agent", "%s", note.c_str());
  MutexLock lock(mutex_);
  for (const NodeEvent& event : readings.events) {
    counters_.add("lockstep_agent_node_events_total", format("severity=\"%s\"", to_text(event.severity)));
    batch_.logs.push_back({.resource = resource_of(event), .scope_name = kAgentScope, .logs = {to_record(event)}});
    batch_.urgent |= event.severity >= EventSeverity::kWarn;
  }
}

void NodeWatch::refresh_checks() {
  std::vector<SourceCheck> all;
  if (gpu_) {
    const GpuReaderStatus& status = gpu_->status();
    const bool works = status.state == GpuReaderState::kRunning || status.state == GpuReaderState::kStarting;
    SourceCheck check{.what = "GPUs", .works = works, .found = {}, .todo = {}};
    check.found = works ? format("%zu GPUs are read", who_inputs_.gpus.size())
                        : format("%s%s%s", to_text(status.state), status.why.empty() ? "" : ": ", status.why.c_str());
    if (status.state == GpuReaderState::kAbsent)
      check.todo = "install the GPU driver (libnvidia-ml.so.1 or libamd_smi.so), or start the agent with --gpus off";
    if (status.state == GpuReaderState::kDrained) check.todo = "lockstep-agent resume --data DIR";
    if (status.state == GpuReaderState::kHung)
      check.todo = "look at the kernel log; reboot the node if it does not come back";
    all.push_back(std::move(check));
  } else {
    all.push_back({.what = "GPUs", .works = false, .found = "not read (--gpus off)", .todo = "--gpus auto"});
  }
  for (Source& source : sources_) {
    for (SourceCheck& check : source.source->check()) all.push_back(std::move(check));
  }
  for (SourceCheck& check : who_.check()) all.push_back(std::move(check));
  MutexLock lock(mutex_);
  checks_ = std::move(all);
}

CollectedBatch NodeWatch::take() {
  const char* reading = reading_.load();
  const int64_t since_ns = reading_since_ns_.load();
  const int64_t stuck_ns = reading != nullptr ? clock_.monotonic_ns() - since_ns : 0;
  MutexLock lock(mutex_);
  if (stuck_ns > kStuckNs) {
    counters_.set("lockstep_agent_source_stuck_seconds", format("source=\"%s\"", reading), stuck_ns / 1'000'000'000);
    if (stuck_reported_.empty()) {
      stuck_reported_ = reading;
      LOCKSTEP_LOG_WARN("agent", "reading %s has not come back for %s: the node's metrics stand still", reading,
                        human_duration(static_cast<double>(stuck_ns)).c_str());
      const NodeEvent event{.name = "agent.source_stuck",
                            .time_unix_ns = clock_.unix_ns(),
                            .severity = EventSeverity::kWarn,
                            .device = reading,
                            .text = format("reading %s has not come back for %s", reading,
                                           human_duration(static_cast<double>(stuck_ns)).c_str()),
                            .meaning = "a file of the kernel does not answer: the node's metrics stand still",
                            .action = "look for tasks in state D and hung file systems",
                            .source = "agent"};
      batch_.logs.push_back({.resource = resource_of(event), .scope_name = kAgentScope, .logs = {to_record(event)}});
      batch_.urgent = true;
    }
  } else if (!stuck_reported_.empty()) {
    counters_.set("lockstep_agent_source_stuck_seconds", format("source=\"%s\"", stuck_reported_.c_str()), 0);
    stuck_reported_.clear();
  }
  CollectedBatch batch = std::move(batch_);
  batch_ = {};
  return batch;
}

void NodeWatch::set_recorders(std::vector<RecorderOwner> recorders) {
  MutexLock lock(mutex_);
  auto same_path = [](const RecorderOwner& a, const RecorderOwner& b) { return a.path == b.path; };
  recorders_changed_ |=
      !std::equal(recorders.begin(), recorders.end(), recorders_.begin(), recorders_.end(), same_path);
  recorders_ = std::move(recorders);
}

std::vector<int32_t> NodeWatch::proxy_threads(int32_t pid) const {
  MutexLock lock(mutex_);
  for (const RecorderOwner& recorder : recorders_) {
    // In a container threads are numbered otherwise than here: then they are found by their names alone.
    if (recorder.pid == pid && who_.pid_of_recorder(recorder.path) == pid) return recorder.proxy_threads;
  }
  return {};
}

std::map<std::string, Completion> NodeWatch::completions() const {
  MutexLock lock(mutex_);
  return completions_;
}

std::string NodeWatch::page(bool dcgm_names) const {
  std::string text = node_page(series_, options_.host);
  if (!dcgm_names) return text;
  std::vector<GpuInfo> gpus;
  {
    MutexLock lock(mutex_);
    gpus = gpus_;
  }
  return text + dcgm_page(series_, options_.host, gpus);
}

std::vector<SourceCheck> NodeWatch::checks() const {
  MutexLock lock(mutex_);
  return checks_;
}

void NodeWatch::drain(int64_t for_s) {
  MutexLock lock(mutex_);
  drain_wanted_s_ = for_s;
  resume_wanted_ = false;
}

void NodeWatch::resume() {
  MutexLock lock(mutex_);
  resume_wanted_ = true;
}

std::string NodeWatch::status() const {
  MutexLock lock(mutex_);
  if (!options_.gpus) return "gpus: not read (--gpus off)";
  std::string text = format("gpus: %s", to_text(gpu_status_.state));
  if (gpu_status_.pid > 0) text += format(", by process %d", static_cast<int>(gpu_status_.pid));
  if (!gpu_status_.why.empty()) text += ": " + gpu_status_.why;
  return text;
}

bool NodeWatch::drained() const {
  MutexLock lock(mutex_);
  return !options_.gpus || (drain_wanted_s_ < 0 && gpu_status_.state == GpuReaderState::kDrained);
}

}  // namespace lockstep
