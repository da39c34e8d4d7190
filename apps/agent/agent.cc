#include "apps/agent/agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "agent/export/command_hosts.h"
#include "agent/give_way.h"
#include "agent/metrics_page.h"
#include "agent/privileges.h"
#include "agent/ranks/recorders_folder.h"
#include "agent/upload/folder_uploader.h"
#include "agent/upload/http_uploader.h"
#include "base/file_limit.h"
#include "base/file_lock.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/systemd.h"
#include "base/text.h"
#include "net/grpc_client.h"
#include "sources/host/host_source.h"
#include "sources/kernel/kernel_source.h"
#include "sources/nic/nic_source.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

// How long records are gathered into one request; what is urgent does not wait.
constexpr int64_t kBatchNs = 200'000'000;
// How long a rank that cannot name its job is kept back, until the node's owners may have named it.
constexpr int64_t kCompletionWaitNs = 3'000'000'000;
// How long any rank is kept back until the evidence thread has said which code it runs: as a rule until the next poll.
// The kernel may hold that thread up over one process, and then no other is kept back for longer.
constexpr int64_t kCodeVersionWaitNs = 3'000'000'000;
constexpr int64_t kOwnersNs = 1'000'000'000;
constexpr int64_t kUsersNs = 500'000'000;
constexpr int kLastPiecesMax = 20;
// Files that are read every second stay open: one for each thread and counter.
constexpr uint64_t kFilesOpenMax = 16'384;
constexpr int64_t kThreadEndMs = 4'000;
// A job that has died ends the agent of its run: what is known of the death gets this long to the server.
constexpr int64_t kEvidenceEndMs = 2'000;
constexpr int64_t kExportStuckNs = 120'000'000'000;  // a try and its answer take as long as the network lets them

NodeOptions node_options(const AgentOptions& options) {
  NodeOptions node;
  node.host = options.host;
  node.interval_ns = options.interval_ms * 1'000'000;
  node.cpu_budget = options.cpu_budget_percent / 100;
  node.gpus = options.gpus != "off";
  node.gpu_reader.command = {"/proc/self/exe", "gpu-reader", "--gpus", options.gpus};
  if (!options.nvml_library.empty()) {
    for (const std::string& word : {std::string("--nvml-library"), options.nvml_library})
      node.gpu_reader.command.push_back(word);
  }
  if (!options.amdsmi_library.empty()) {
    for (const std::string& word : {std::string("--amdsmi-library"), options.amdsmi_library})
      node.gpu_reader.command.push_back(word);
  }
  node.who.root = options.root;
  node.who.kubelet_socket = options.kubelet_socket;
  node.who.slurm_gpu_folder = options.slurm_gpu_folder;
  node.who.read_environment = options.environments == "on";
  node.who.kubelet_call = [](const std::string& socket, const std::string& method,
                             const std::string& request) -> Result<std::string> {
    GrpcResponse answer = LOCKSTEP_TRY(grpc_call("unix://" + socket, method, request, 1'000));
    if (answer.code != GrpcCode::kOk)
      return Error{format("%s answered %s: %s", socket.c_str(), to_text(answer.code), answer.message.c_str())};
    return std::move(answer.body);
  };
  return node;
}

// `vital`: without it nothing of this node is seen, so that its absence is never what somebody wants.
std::string checks_json(const NodeWatch* node, const std::string& place, const std::string& trouble) {
  JsonWriter out;
  out.begin_object().field("destination", place).key("checks").begin_array();
  out.begin_object()
      .field("what", "delivery")
      .field("vital", true)
      .field("works", trouble.empty())
      .field("found", trouble.empty() ? "to " + place : trouble)
      .field("todo", trouble.empty() ? "" : "start the agent with --server and an address of the server")
      .end_object();
  for (const SourceCheck& check : node == nullptr ? std::vector<SourceCheck>{} : node->checks()) {
    out.begin_object()
        .field("what", check.what)
        .field("works", check.works)
        .field("found", check.found)
        .field("todo", check.todo)
        .end_object();
  }
  out.end_array().end_object();
  return out.text() + "\n";
}

// What people at the node may ask: talk.cc is the other side.
std::string answer_command(const std::string& request, NodeWatch* node) {
  const std::vector<std::string_view> words = split(request, ' ');
  if (node == nullptr) return "wrong: this agent does not read its node (--node off)\n";
  if (words[0] == "drain") {
    const int64_t for_s = words.size() > 1 ? parse_int(words[1]).value_or(0) : 0;
    node->drain(for_s);
    LOCKSTEP_LOG_INFO("agent", "drain asked: letting go of the GPUs%s",
                      for_s > 0 ? format(" for %lld s", static_cast<long long>(for_s)).c_str() : "");
    return "ok\n";
  }
  if (words[0] == "resume") {
    node->resume();
    LOCKSTEP_LOG_INFO("agent", "resume asked: reading the GPUs again");
    return "ok\n";
  }
  if (words[0] == "status") return std::string(node->drained() ? "drained" : "held") + "\n" + node->status() + "\n";
  return "wrong: drain [SECONDS], resume or status\n";
}

}  // namespace

Result<void> OpenedParts::open(AgentOptions& options) {
  if (Result<std::string> folder = prepare_recorders_folder(options.recorders); folder.ok()) {
    options.recorders = *folder;
  } else if (options.every_user) {
    LOCKSTEP_LOG_WARN("agent", "%s; other users' recorders are read all the same", folder.error().c_str());
    options.recorders.clear();
  } else {
    return prefixed(folder.failure(), "--recorders: ");
  }
  lock = LOCKSTEP_TRY(lock_folder(options.data, "lockstep-agent"));
  if (!options.while_locked.empty()) {
    users = UniqueFd(::open(options.while_locked.c_str(), O_RDWR | O_CLOEXEC));
    if (!users.valid()) return Error{format("--while-locked: cannot open %s", options.while_locked.c_str())};
  }

  raise_file_limit(kFilesOpenMax);
  // What needs root is opened first; then it is given up.
  if (options.node == "on") {
    sources.push_back(open_kernel_source(
        {.root = options.root, .state_file = options.data + "/kernel-log", .log = options.kernel_log}));
    sources.push_back(open_nic_source({.root = options.root}));
    sources.push_back(open_host_source(
        {.root = options.root, .proxy_threads = [this](int32_t pid) { return node->proxy_threads(pid); }}));
  }
  privileges = LOCKSTEP_TRY(drop_privileges(options.user, options.data));
  return {};
}

Result<std::unique_ptr<Exporter>> start_exporter(const AgentOptions& options, const AgentSettings& settings,
                                                 AgentCommon& common) {
  return Exporter::start({.targets = settings.targets,
                          .folder = options.exported.empty() ? "" : options.exported.substr(5),
                          .spool_folder = options.data + "/spool",
                          .spool_bytes_max = static_cast<uint64_t>(options.spool_mb) << 20,
                          .heartbeat = &common.hearts.add("exporter", kExportStuckNs)},
                         common.counters);
}

Agent::Agent(const AgentOptions& options, const AgentSettings& settings, OpenedParts& opened, AgentCommon& common,
             Exporter& exporter)
    : options_(options),
      settings_(settings),
      opened_(opened),
      clock_(common.clock),
      counters_(common.counters),
      hearts_(common.hearts),
      loop_heart_(common.loop_heart),
      exporter_(exporter),
      uploader_(make_uploader()),
      uploads_(make_uploads()),
      ras_watch_(settings.ras, clock_, counters_),
      traces_({.kept = {.bytes_max = static_cast<size_t>(options.detail_mb * (1 << 20)),
                        .age_ns = options.detail_seconds * 1'000'000'000},
               .budget_bytes_s = options.trace_budget},
              counters_),
      watch_({.folder = options.recorders,
              .users_folder = options.every_user ? "/dev/shm" : "",
              .kept_folder = options.data + "/postmortem",
              .completion_wait_ns = options.node == "on" ? kCompletionWaitNs : 0,
              .code_version_wait_ns = options.environments == "on" ? kCodeVersionWaitNs : 0,
              .keeper = &hearts_.add("thread that keeps recorders of dead processes"),
              .uploads = uploads_.get()},
             clock_, counters_, &cost_, &ras_watch_, &traces_),
      commands_(make_commands()),
      evidence_({.stacks = options.stacks == "on",
                 .read_environment = options.environments == "on",
                 .heartbeat = &hearts_.add("evidence thread"),
                 .uploads = uploads_.get()},
                clock_, counters_),
      profiles_(make_profiles()),
      node_(start_node(opened)),
      control_(ControlSocket::open(options.data + "/control.sock")),
      node_idle_(options.root) {
  if (!control_.ok()) LOCKSTEP_LOG_WARN("agent", "%s; drain and resume are not to be had", control_.error().c_str());
}

std::unique_ptr<CommandPoll> Agent::make_commands() {
  if (!settings_.commands_from || (options_.detail_mb <= 0 && options_.stacks != "on" && options_.profiles != "on"))
    return nullptr;
  return std::make_unique<CommandPoll>(CommandPollOptions{.target = *settings_.commands_from}, counters_);
}

// Where files of captures go.
std::unique_ptr<Uploader> Agent::make_uploader() {
  if (!options_.profiles_folder.empty()) return std::make_unique<FolderUploader>(options_.profiles_folder);
  if (!options_.exported.empty()) return std::make_unique<FolderUploader>(options_.exported.substr(5) + "/profiles");
  if (!settings_.commands_from) return nullptr;
  return std::make_unique<HttpUploader>(HttpUploaderOptions{.target = upload_target(*settings_.commands_from)},
                                        counters_);
}

std::unique_ptr<EvidenceUploads> Agent::make_uploads() {
  if (!uploader_ || options_.evidence_files != "on") return nullptr;
  return std::make_unique<EvidenceUploads>(*uploader_, clock_, counters_);
}

std::unique_ptr<ProfileWatch> Agent::make_profiles() {
  if (options_.profiles != "on" || !commands_) return nullptr;
  return std::make_unique<ProfileWatch>(
      ProfileWatchOptions{.taker = {.read_environment = options_.environments == "on"},
                          .recorders = options_.recorders,
                          .heartbeat = &hearts_.add("profile thread")},
      uploader_.get(), clock_, counters_);
}

std::unique_ptr<NodeWatch> Agent::start_node(OpenedParts& opened) {
  if (options_.node != "on") return nullptr;
  NodeOptions how = node_options(options_);
  how.heartbeat = &hearts_.add("node thread");
  auto node = std::make_unique<NodeWatch>(std::move(how), std::move(opened.sources), clock_, counters_);
  opened.node = node.get();
  node->start();
  return node;
}

namespace {

// The file is read for every page: they are asked for a few times a minute. Where it cannot be read now, the token from
// before holds.
TextAdmission admission_by(const std::string& token_file) {
  return [token_file, token = std::string()](const TextRequest& request, std::string_view authorization) mutable {
    if (request.path == "/healthz") return true;
    if (Result<std::string> read = read_private_file(token_file); read.ok()) token = std::move(*read);
    constexpr std::string_view kScheme = "Bearer ";
    return authorization.starts_with(kScheme) && same_secret(authorization.substr(kScheme.size()), token);
  };
}

}  // namespace

Result<void> Agent::start() {
  Result<std::unique_ptr<TextServer>> page = TextServer::start(
      {.address = settings_.metrics,
       .tls = options_.metrics_tls,
       .counters = &counters_,
       .admits = options_.metrics_token_file.empty() ? TextAdmission{} : admission_by(options_.metrics_token_file)},
      [this](const TextRequest& request) { return answer_page(request); });
  if (!page.ok()) return prefixed(page.failure(), "--metrics: ");
  page_ = std::move(*page);

  // Not before: what starts slowly on a busy node is not seen to start.
  const std::string priority = give_way(options_.priority);
  std::printf("ready metrics=%s\n", page_->address().c_str());
  std::fflush(stdout);
  systemd_notify("READY=1");
  LOCKSTEP_LOG_INFO("agent", "reading %s%s, sending to %s; %s, %s", options_.recorders.c_str(),
                    options_.every_user ? " and every other user's recorders" : "", destination().c_str(),
                    opened_.privileges.c_str(), priority.c_str());
  watchdog_ns_ = systemd_watchdog_ns();
  return {};
}

std::string Agent::destination() const {
  return options_.exported.empty() ? settings_.targets.of(Signal::kLogs).text() : options_.exported;
}

TextResponse Agent::answer_page(const TextRequest& request) const {
  if (request.path == "/healthz") {
    const std::string stuck = hearts_.stuck();
    return stuck.empty() ? TextResponse{.body = "ok\n"} : TextResponse{.status = 503, .body = stuck};
  }
  if (request.path == "/checks")
    return {.content_type = "application/json",
            .body = checks_json(node_.get(), options_.exported.empty() ? exporter_.destination() : destination(),
                                exporter_.trouble())};
  if (request.path == "/metrics") return metrics_page(request);
  return {.status = 404, .body = "this agent has /metrics, /checks and /healthz\n"};
}

TextResponse Agent::metrics_page(const TextRequest& request) const {
  const bool dcgm_names = !options_.names.empty();
  TextResponse answer{
      .content_type = kPrometheusContentType,
      .body = counters_.prometheus_text() + cost_.prometheus_text() + (node_ ? node_->page(dcgm_names) : "")};
  if (wants_openmetrics(request.accept)) {
    answer.content_type = kOpenMetricsContentType;
    answer.body = to_openmetrics(answer.body);
  }
  if (available(Encoding::kGzip) && request.accept_encoding.find("gzip") != std::string::npos) {
    if (Result<std::string> small = compress(Encoding::kGzip, answer.body); small.ok()) {
      answer.body = std::move(*small);
      answer.content_encoding = to_text(Encoding::kGzip);
    }
  }
  return answer;
}

void Agent::loop(const volatile sig_atomic_t& stop) {
  while (!stop && !unused_) {
    poll();
    watch_.wait();
  }
}

void Agent::poll() {
  loop_heart_.beat();
  const bool crowded = node_idle_.crowded(clock_.monotonic_ns());
  counters_.set("lockstep_agent_node_crowded", "", crowded);
  watch_.set_crowded(crowded);
  if (watch_.awaits_code_versions()) {
    for (const auto& [path, version] : evidence_.code_versions()) watch_.set_code_version(path, version);
  }
  bool urgent = gather(watch_.poll());
  const int64_t now_ns = clock_.monotonic_ns();
  if (commands_) take_commands(now_ns);
  if (now_ns >= next_ranks_ns_ || watch_.awaits_code_versions()) {
    next_ranks_ns_ = now_ns + kOwnersNs;
    evidence_.set_ranks(watch_.owners());
    if (profiles_) profiles_->set_ranks(watch_.owners());
  }
  urgent |= gather_evidence();
  if (profiles_) urgent |= gather_profiles();
  if (node_) urgent |= gather_node(now_ns);
  // With the next poll it would be too late.
  const int64_t age_then_ns = clock_.monotonic_ns() + watch_.next_poll_ns() - batch_since_;
  if (batch_since_ != 0 && (urgent || age_then_ns > kBatchNs)) submit();
  watch_.release([this](uint64_t ticket) { return exporter_.settled(ticket); });
  if (control_.ok())
    control_->poll([this](const std::string& request) { return answer_command(request, node_.get()); });
  look_for_users(now_ns);
  notify_watchdog(now_ns);
}

void Agent::take_commands(int64_t now_ns) {
  if (now_ns >= next_hosts_ns_) {
    next_hosts_ns_ = now_ns + kOwnersNs;
    commands_->set_hosts(hosts_to_ask_for(options_.host, watch_.owners(), traces_.hosts(), counters_));
  }
  for (const DetailRequest& request : commands_->take()) traces_.ask(request);
  for (StackRequest& request : commands_->take_stacks()) {
    evidence_.set_ranks(watch_.owners());  // the newest rank may be the one that is meant
    evidence_.ask(std::move(request));
  }
  for (ProfileRequest& request : commands_->take_profiles()) {
    if (!profiles_) continue;
    profiles_->set_ranks(watch_.owners());
    profiles_->ask(std::move(request));
  }
  for (SampleRequest& request : commands_->take_samples()) {
    evidence_.set_ranks(watch_.owners());
    evidence_.ask(std::move(request));
  }
}

bool Agent::gather(CollectedBatch batch) {
  bool any = !batch.logs.empty() || !batch.metrics.empty() || !batch.spans.empty();
  for (ResourceGroup& group : batch.logs) logs_.groups.push_back(std::move(group));
  for (ResourceGroup& group : batch.metrics) numbers_.groups.push_back(std::move(group));
  for (ResourceGroup& group : batch.spans) spans_.groups.push_back(std::move(group));
  if (any && batch_since_ == 0) batch_since_ = clock_.monotonic_ns();
  return batch.urgent;
}

bool Agent::gather_evidence() {
  CollectedBatch fetched{.logs = evidence_.take()};
  if (fetched.logs.empty()) return false;
  fetched.urgent = true;
  return gather(std::move(fetched));
}

// At ranks that are being profiled: all of what they record, and afterwards the steps of the profile whole.
void Agent::look_closer() {
  std::vector<ProfileTaker::Profiled> now = profiles_->profiled();
  if (now == profiled_) return;
  for (const ProfileTaker::Profiled& before : profiled_) {
    if (before.first_step == kNoStep || std::find(now.begin(), now.end(), before) != now.end()) continue;
    traces_.ask({.job_id = before.job_id,
                 .attempt = before.attempt,
                 .from_step = before.first_step,
                 .to_step = before.first_step + std::min(before.steps, kDetailStepsMax) - 1,
                 .ranks = {before.rank}});
  }
  std::set<std::string> paths;
  for (const ProfileTaker::Profiled& one : now) paths.insert(one.recorder);
  watch_.set_profiled(std::move(paths));
  profiled_ = std::move(now);
}

bool Agent::gather_profiles() {
  look_closer();
  CollectedBatch reported{.logs = profiles_->take()};
  if (reported.logs.empty()) return false;
  reported.urgent = true;
  return gather(std::move(reported));
}

bool Agent::gather_node(int64_t now_ns) {
  const bool urgent = gather(node_->take());
  if (now_ns >= next_owners_ns_) {
    next_owners_ns_ = now_ns + kOwnersNs;
    node_->set_recorders(watch_.owners());
    for (const auto& [path, completion] : node_->completions()) watch_.complete(path, completion);
  }
  return urgent;
}

void Agent::submit() {
  uint64_t ticket = 0;
  if (!logs_.groups.empty()) ticket = exporter_.submit(logs_);
  if (!numbers_.groups.empty()) ticket = exporter_.submit(numbers_);
  if (!spans_.groups.empty()) ticket = exporter_.submit(spans_);
  logs_.groups.clear();
  numbers_.groups.clear();
  spans_.groups.clear();
  batch_since_ = 0;
  if (ticket != 0) watch_.submitted(ticket);
}

void Agent::look_for_users(int64_t now_ns) {
  if (!opened_.users.valid() || now_ns < next_users_ns_) return;
  next_users_ns_ = now_ns + kUsersNs;
  // Kept to the end: whoever wants an agent meanwhile waits until this one is gone, and starts another.
  if (try_lock_byte(opened_.users.get(), 0, ByteLock::kExclusive)) unused_ = true;
}

void Agent::notify_watchdog(int64_t now_ns) {
  if (watchdog_ns_ <= 0 || now_ns < next_watchdog_ns_) return;
  next_watchdog_ns_ = now_ns + watchdog_ns_;
  systemd_notify("WATCHDOG=1");
}

void Agent::stop() {
  systemd_notify("STOPPING=1");
  if (commands_) commands_->stop();
  bool all_ended = evidence_.stop(kThreadEndMs);
  gather({.logs = evidence_.take()});
  if (uploads_) uploads_->drain(kEvidenceEndMs);
  if (uploader_) uploader_->stop();
  if (uploads_) all_ended &= uploads_->stop(kThreadEndMs);
  if (profiles_) {
    all_ended &= profiles_->stop(kThreadEndMs);
    gather({.logs = profiles_->take()});
  }
  if (node_) {
    all_ended &= node_->stop(kThreadEndMs);
    gather(node_->take());
  }
  gather(watch_.final_poll());
  submit();
  // What was asked for or sampled and still waits; not for longer than it takes to notice.
  for (int i = 0; i < kLastPiecesMax; ++i) {
    std::vector<ResourceGroup> rest = traces_.take(clock_.monotonic_ns());
    if (rest.empty()) break;
    spans_.groups = std::move(rest);
    submit();
  }
  exporter_.stop(3'000);
  page_->stop();
  if (!all_ended) {
    LOCKSTEP_LOG_WARN("agent", "ending although a thread has not come back within %s",
                      human_duration(1e6 * kThreadEndMs).c_str());
    std::fflush(nullptr);
    _exit(0);  // a thread that does not come back cannot be waited for, nor can what it uses be taken away
  }
}

}  // namespace lockstep
