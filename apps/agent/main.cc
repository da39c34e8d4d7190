// lockstep-agent: reads this node (flight recorders, GPUs, NICs, host, kernel) and sends what it finds to the server.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/control_socket.h"
#include "agent/counters_table.h"
#include "agent/detail/step_traces.h"
#include "agent/evidence/evidence_watch.h"
#include "agent/evidence/ras_watch.h"
#include "agent/export/command_hosts.h"
#include "agent/export/command_poll.h"
#include "agent/export/exporter.h"
#include "agent/give_way.h"
#include "agent/metrics_page.h"
#include "agent/node/node_idle.h"
#include "agent/node/node_watch.h"
#include "agent/privileges.h"
#include "agent/ranks/callback_cost.h"
#include "agent/ranks/recorder_watch.h"
#include "agent/ranks/recorders_folder.h"
#include "apps/agent/options.h"
#include "apps/agent/talk.h"
#include "base/clock.h"
#include "base/file_lock.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/systemd.h"
#include "base/text.h"
#include "net/grpc_client.h"
#include "net/text_server.h"
#include "sources/gpu/gpu_child.h"
#include "sources/host/host_source.h"
#include "sources/kernel/kernel_source.h"
#include "sources/nic/nic_source.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

volatile sig_atomic_t g_stop = 0;
// Whatever hangs, a file system or a driver: an agent that was asked to end does.
constexpr unsigned kEndWithinS = 20;
void on_signal(int) {
  g_stop = 1;
  alarm(kEndWithinS);
}
void on_alarm(int) {
  constexpr char kLine[] = "lockstep-agent: did not end within 20 s of being asked to; ending now\n";
  (void)!write(STDERR_FILENO, kLine, sizeof kLine - 1);
  _exit(1);
}

// How long records are gathered into one request; what is urgent does not wait.
constexpr int64_t kBatchNs = 200'000'000;
// How long a rank that cannot name its job is kept back, until the node's owners may have named it.
constexpr int64_t kCompletionWaitNs = 3'000'000'000;
constexpr int64_t kOwnersNs = 1'000'000'000;
constexpr int64_t kUsersNs = 500'000'000;
constexpr int kLastPiecesMax = 20;
constexpr int64_t kThreadEndMs = 4'000;
constexpr int64_t kExportStuckNs = 120'000'000'000;  // a try and its answer take as long as the network lets them

int usage_error(const std::string& line) {
  std::fprintf(stderr, "lockstep-agent: %s\n", line.c_str());
  return 2;
}

int failure(const std::string& line) {
  std::fprintf(stderr, "lockstep-agent: %s\n", line.c_str());
  return 1;
}

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

// Whom to ask for commands. nullopt: nobody, and that is as it was told, or said in one line.
Result<std::optional<OtlpTarget>> command_endpoint(const AgentOptions& options, const OtlpTargets& targets) {
  if (options.commands == "off" || !options.exported.empty()) return std::optional<OtlpTarget>();
  if (options.commands.empty()) {
    Result<OtlpTarget> target = command_target(targets);
    if (target.ok()) return std::optional(std::move(*target));
    LOCKSTEP_LOG_INFO("agent", "detail is sent as sampled, not as asked: %s", target.error().c_str());
    return std::optional<OtlpTarget>();
  }
  OtlpSettings settings = options.otlp;
  settings.server = options.commands;
  settings.protocol = "http/protobuf";
  Result<OtlpTargets> chosen = choose_otlp_targets(settings, otel_environment());
  Result<OtlpTarget> target = chosen.ok() ? command_target(*chosen) : Result<OtlpTarget>(chosen.failure());
  if (!target.ok()) return Error{"--commands: " + target.error()};
  return std::optional(std::move(*target));
}

std::string checks_json(const NodeWatch* node) {
  JsonWriter out;
  out.begin_object().key("checks").begin_array();
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

// Files that are read every second stay open: one for each thread and counter. The usual limit is a small one, for
// programs that still use select().
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16'384);
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run(AgentOptions options, const Flags& flags) {
  if (Result<void> checked = check_options(options); !checked.ok()) return usage_error(checked.error());
  Result<RasWatchOptions> ras_options = parse_ras_option(options.ras);
  if (!ras_options.ok()) return usage_error(ras_options.error());
  Result<ListenAddress> address = parse_listen_address(options.metrics);
  if (!address.ok()) return usage_error("--metrics: " + address.error());
  Result<OtlpTargets> targets = choose_otlp_targets(options.otlp, otel_environment());
  if (!targets.ok()) return usage_error(targets.error());
  Result<std::optional<OtlpTarget>> commands_from = command_endpoint(options, *targets);
  if (!commands_from.ok()) return usage_error(commands_from.error());
  if (flags.check_wanted()) {
    std::fputs(flags.effective().c_str(), stdout);
    for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans})
      std::printf("# %s go to %s\n", to_text(signal),
                  options.exported.empty() ? targets->of(signal).text().c_str() : options.exported.c_str());
    std::printf("# commands come from %s\n", *commands_from ? (*commands_from)->text().c_str() : "nobody");
    for (const std::string& note : targets->notes) std::printf("# note: %s\n", note.c_str());
    return 0;
  }
  for (const std::string& note : targets->notes) LOCKSTEP_LOG_WARN("agent", "%s", note.c_str());

  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);

  if (Result<std::string> folder = prepare_recorders_folder(options.recorders); folder.ok()) {
    options.recorders = *folder;
  } else if (options.every_user) {
    LOCKSTEP_LOG_WARN("agent", "%s; other users' recorders are read all the same", folder.error().c_str());
    options.recorders.clear();
  } else {
    return failure("--recorders: " + folder.error());
  }
  Result<UniqueFd> lock = lock_folder(options.data, "lockstep-agent");
  if (!lock.ok()) return failure(lock.error());

  UniqueFd users;
  if (!options.while_locked.empty()) {
    users = UniqueFd(open(options.while_locked.c_str(), O_RDWR | O_CLOEXEC));
    if (!users.valid()) return failure(format("--while-locked: cannot open %s", options.while_locked.c_str()));
  }

  raise_file_limit();
  // What needs root is opened first; then it is given up.
  NodeWatch* watched_node = nullptr;
  std::vector<std::unique_ptr<NodeSource>> sources;
  const bool read_node = options.node == "on";
  if (read_node) {
    sources.push_back(open_kernel_source(
        {.root = options.root, .state_file = options.data + "/kernel-log", .log = options.kernel_log}));
    sources.push_back(open_nic_source({.root = options.root}));
    sources.push_back(open_host_source({.root = options.root, .proxy_threads = [&watched_node](int32_t pid) {
                                          return watched_node->proxy_threads(pid);
                                        }}));
  }
  Result<std::string> privileges = drop_privileges(options.user, options.data);
  if (!privileges.ok()) return failure(privileges.error());

  SystemClock clock;
  Counters counters(kAgentCounters);
  Heartbeats hearts(clock);
  Heartbeat& loop_heart = hearts.add("main loop");
  Result<std::unique_ptr<Exporter>> exporter =
      Exporter::start({.targets = *targets,
                       .folder = options.exported.empty() ? "" : options.exported.substr(5),
                       .spool_folder = options.data + "/spool",
                       .spool_bytes_max = static_cast<uint64_t>(options.spool_mb) << 20,
                       .heartbeat = &hearts.add("exporter", kExportStuckNs)},
                      counters);
  if (!exporter.ok()) return failure(exporter.error());
  CallbackCost cost;
  RasWatch ras_watch(*ras_options, clock, counters);
  StepTraces traces({.kept = {.bytes_max = static_cast<size_t>(options.detail_mb * (1 << 20)),
                              .age_ns = options.detail_seconds * 1'000'000'000},
                     .budget_bytes_s = options.trace_budget},
                    counters);
  RecorderWatch watch({.folder = options.recorders,
                       .users_folder = options.every_user ? "/dev/shm" : "",
                       .kept_folder = options.data + "/postmortem",
                       .completion_wait_ns = read_node ? kCompletionWaitNs : 0,
                       .keeper = &hearts.add("thread that keeps recorders of dead processes")},
                      clock, counters, &cost, &ras_watch, &traces);
  std::unique_ptr<CommandPoll> commands;
  EvidenceWatch evidence({.stacks = options.stacks == "on",
                          .read_environment = options.environments == "on",
                          .heartbeat = &hearts.add("evidence thread")},
                         clock, counters);
  if (*commands_from && (options.detail_mb > 0 || options.stacks == "on"))
    commands = std::make_unique<CommandPoll>(CommandPollOptions{.target = **commands_from}, counters);
  std::unique_ptr<NodeWatch> node;
  if (read_node) {
    NodeOptions how = node_options(options);
    how.heartbeat = &hearts.add("node thread");
    node = std::make_unique<NodeWatch>(std::move(how), std::move(sources), clock, counters);
    watched_node = node.get();
    node->start();
  }
  Result<ControlSocket> control = ControlSocket::open(options.data + "/control.sock");
  if (!control.ok()) LOCKSTEP_LOG_WARN("agent", "%s; drain and resume are not to be had", control.error().c_str());

  const bool dcgm_names = !options.names.empty();
  Result<std::unique_ptr<TextServer>> page =
      TextServer::start({.address = *address}, [&](const TextRequest& request) -> TextResponse {
        if (request.path == "/healthz") {
          const std::string stuck = hearts.stuck();
          return stuck.empty() ? TextResponse{.body = "ok\n"} : TextResponse{.status = 503, .body = stuck};
        }
        if (request.path == "/checks") return {.content_type = "application/json", .body = checks_json(node.get())};
        if (request.path != "/metrics")
          return {.status = 404, .body = "this agent has /metrics, /checks and /healthz\n"};
        TextResponse answer{
            .content_type = kPrometheusContentType,
            .body = counters.prometheus_text() + cost.prometheus_text() + (node ? node->page(dcgm_names) : "")};
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
      });
  if (!page.ok()) return failure("--metrics: " + page.error());

  // Not before: what starts slowly on a busy node is not seen to start.
  const std::string priority = give_way(options.priority);
  std::printf("ready metrics=%s\n", (*page)->address().c_str());
  std::fflush(stdout);
  systemd_notify("READY=1");
  LOCKSTEP_LOG_INFO("agent", "reading %s%s, sending to %s; %s, %s", options.recorders.c_str(),
                    options.every_user ? " and every other user's recorders" : "",
                    options.exported.empty() ? targets->of(Signal::kLogs).text().c_str() : options.exported.c_str(),
                    privileges->c_str(), priority.c_str());

  Batch logs{.signal = Signal::kLogs, .groups = {}};
  Batch numbers{.signal = Signal::kMetrics, .groups = {}};
  Batch spans{.signal = Signal::kSpans, .groups = {}};
  int64_t batch_since = 0;
  auto gather = [&](CollectedBatch batch) {
    bool any = !batch.logs.empty() || !batch.metrics.empty() || !batch.spans.empty();
    for (ResourceGroup& group : batch.logs) logs.groups.push_back(std::move(group));
    for (ResourceGroup& group : batch.metrics) numbers.groups.push_back(std::move(group));
    for (ResourceGroup& group : batch.spans) spans.groups.push_back(std::move(group));
    if (any && batch_since == 0) batch_since = clock.monotonic_ns();
    return batch.urgent;
  };
  auto submit = [&] {
    uint64_t ticket = 0;
    if (!logs.groups.empty()) ticket = (*exporter)->submit(logs);
    if (!numbers.groups.empty()) ticket = (*exporter)->submit(numbers);
    if (!spans.groups.empty()) ticket = (*exporter)->submit(spans);
    logs.groups.clear();
    numbers.groups.clear();
    spans.groups.clear();
    batch_since = 0;
    if (ticket != 0) watch.submitted(ticket);
  };
  const int64_t watchdog_ns = systemd_watchdog_ns();
  int64_t next_owners_ns = 0, next_watchdog_ns = 0, next_users_ns = 0, next_hosts_ns = 0, next_ranks_ns = 0;
  NodeIdle node_idle(options.root);
  while (!g_stop) {
    loop_heart.beat();
    const bool crowded = node_idle.crowded(clock.monotonic_ns());
    counters.set("lockstep_agent_node_crowded", "", crowded);
    watch.set_crowded(crowded);
    bool urgent = gather(watch.poll());
    const int64_t now_ns = clock.monotonic_ns();
    if (commands) {
      if (now_ns >= next_hosts_ns) {
        next_hosts_ns = now_ns + kOwnersNs;
        commands->set_hosts(hosts_to_ask_for(options.host, watch.owners(), traces.hosts(), counters));
      }
      for (const DetailRequest& request : commands->take()) traces.ask(request);
      for (StackRequest& request : commands->take_stacks()) {
        evidence.set_ranks(watch.owners());  // the newest rank may be the one that is meant
        evidence.ask(std::move(request));
      }
    }
    if (now_ns >= next_ranks_ns) {
      next_ranks_ns = now_ns + kOwnersNs;
      evidence.set_ranks(watch.owners());
    }
    if (CollectedBatch fetched{.logs = evidence.take()}; !fetched.logs.empty()) {
      fetched.urgent = true;
      urgent |= gather(std::move(fetched));
    }
    if (node) {
      urgent |= gather(node->take());
      if (now_ns >= next_owners_ns) {
        next_owners_ns = now_ns + kOwnersNs;
        node->set_recorders(watch.owners());
        for (const auto& [path, completion] : node->completions()) watch.complete(path, completion);
      }
    }
    // With the next look it would be too late.
    const int64_t age_then_ns = clock.monotonic_ns() + watch.next_look_ns() - batch_since;
    if (batch_since != 0 && (urgent || age_then_ns > kBatchNs)) submit();
    watch.release([&](uint64_t ticket) { return (*exporter)->settled(ticket); });
    if (control.ok()) control->poll([&](const std::string& request) { return answer_command(request, node.get()); });
    if (users.valid() && now_ns >= next_users_ns) {
      next_users_ns = now_ns + kUsersNs;
      // Kept to the end: whoever wants an agent meanwhile waits until this one is gone, and starts another.
      if (try_lock_byte(users.get(), 0, ByteLock::kExclusive)) g_stop = 1;
    }
    if (watchdog_ns > 0 && now_ns >= next_watchdog_ns) {
      next_watchdog_ns = now_ns + watchdog_ns;
      systemd_notify("WATCHDOG=1");
    }
    watch.wait();
  }
  systemd_notify("STOPPING=1");
  if (commands) commands->stop();
  bool all_ended = evidence.stop(kThreadEndMs);
  gather({.logs = evidence.take()});
  if (node) {
    all_ended &= node->stop(kThreadEndMs);
    gather(node->take());
  }
  gather(watch.final_look());
  submit();
  // What was asked for or sampled and still waits; not for longer than it takes to notice.
  for (int i = 0; i < kLastPiecesMax; ++i) {
    std::vector<ResourceGroup> rest = traces.take(clock.monotonic_ns());
    if (rest.empty()) break;
    spans.groups = std::move(rest);
    submit();
  }
  (*exporter)->stop(3'000);
  (*page)->stop();
  if (!all_ended) {
    LOCKSTEP_LOG_WARN("agent", "ending although a thread has not come back within %s",
                      human_duration(1e6 * kThreadEndMs).c_str());
    std::fflush(nullptr);
    _exit(0);  // a thread that does not come back cannot be waited for, nor can what it uses be taken away
  }
  return 0;
}

int gpu_reader(const std::vector<std::string>& arguments) {
  GpuChildOptions options;
  Flags flags("lockstep-agent gpu-reader", "the process that reads the GPUs for the agent; started by it");
  flags.text(&options.vendor, "--gpus", "auto|nvidia|amd", "which")
      .text(&options.nvml_library, "--nvml-library", "FILE", "NVIDIA's library")
      .text(&options.amdsmi_library, "--amdsmi-library", "FILE", "AMD's library");
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  return run_gpu_child(options);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "gpu-reader") return gpu_reader({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && !arguments[0].starts_with("-"))
    return run_talk_command(arguments[0], {arguments.begin() + 1, arguments.end()});

  AgentOptions options;
  Flags flags("lockstep-agent", "reads this node's flight recorders, GPUs, NICs and host, and sends what it finds");
  add_flags(options, flags);
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (flags.help_wanted()) {
    std::printf("%s\n%s", flags.help().c_str(), talk_commands_help());
    return 0;
  }
  return run(std::move(options), flags);
}
