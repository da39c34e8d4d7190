// `lockstep run -- COMMAND ...`: a job as it is, watched. Sets what the job's processes look at (NCCL's plugin, the
// Python hook, the job's name), sees to it that an agent reads what they record, runs the command, and ends with the
// command's own status. Whatever of that is not to be had, the command runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/otlp_receiver.h"
#include "apps/cli/run_agent.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/process.h"
#include "base/text.h"
#include "recorder/identity_variables.h"
#include "recorder/reader.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDefaultServer = "http://127.0.0.1:4318";
// How a shell says that a command could not be started.
constexpr int kExitCannotExecute = 126, kExitNoCommand = 127;

struct RunOptions {
  std::string server;
  std::string job;
  bool no_agent = false;
  bool no_hook = false;
  Arguments command;
};

void say(const std::string& line) {
  std::fprintf(stderr, "lockstep run: %s\n", as_one_line(line).c_str());
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string first_of(identity_variables::Names names) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return "";
}

// The command: what follows "--", or the first word that is neither an option nor its value.
Arguments split_command(const Arguments& arguments, Arguments* command) {
  size_t at = 0;
  for (; at < arguments.size() && arguments[at].starts_with("-") && arguments[at] != "--"; ++at) {
    if (arguments[at] == "--server" || arguments[at] == "--job") ++at;
  }
  at = std::min(at, arguments.size());
  const size_t end = at;
  if (at < arguments.size() && arguments[at] == "--") ++at;
  command->assign(arguments.begin() + static_cast<ptrdiff_t>(at), arguments.end());
  return {arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(end)};
}

// 0, or the code to end with, after one line.
int check_command(const std::string& name) {
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.push_back(name);
  } else {
    const std::string path = variable("PATH");
    for (std::string_view folder : split(path.empty() ? "/usr/local/bin:/usr/bin:/bin" : path, ':'))
      candidates.push_back((folder.empty() ? "." : std::string(folder)) + "/" + name);
  }
  bool found = false;
  for (const std::string& candidate : candidates) {
    struct stat info {};
    if (::stat(candidate.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) continue;
    if (::access(candidate.c_str(), X_OK) == 0) return 0;
    found = true;
  }
  say(format(found ? "%s cannot be executed" : "no command \"%s\"", name.c_str()));
  return found ? kExitCannotExecute : kExitNoCommand;
}

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : "";
}

// The first that is there, beside the program as a wheel, an installation and a build tree have it; empty: none.
std::string beside_program(std::initializer_list<const char*> candidates) {
  const std::string here = program_directory();
  for (const char* candidate : candidates) {
    if (std::string path = real_path(here + candidate); !path.empty()) return path;
  }
  return "";
}

// The job's name as its processes will find it; empty where only they will know.
std::string known_job(const Arguments& command) {
  namespace names = identity_variables;
  for (const char* name : {names::kJobId, names::kSlurmJobId, names::kElasticJobId}) {
    const std::string value = variable(name);
    if (!value.empty() && !(name == names::kElasticJobId && value == names::kNoElasticJob)) return value;
  }
  // torchrun gives it to the ranks, on every node the same.
  for (size_t i = 0; i < command.size(); ++i) {
    for (const char* flag : {"--rdzv-id", "--rdzv_id"}) {
      std::string value;
      if (command[i] == flag && i + 1 < command.size()) value = command[i + 1];
      if (command[i].starts_with(std::string(flag) + "=")) value = command[i].substr(strlen(flag) + 1);
      if (!value.empty() && value != names::kNoElasticJob) return value;
    }
  }
  return "";
}

// "train-1115-142233-1f3a": the script (else the module, else the program), when, and something that tells two apart.
std::string new_job_name(const Arguments& command) {
  std::string what = command[0];
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i].ends_with(".py") && !command[i].starts_with("-")) {
      what = command[i].substr(0, command[i].size() - 3);
      break;
    }
    if (command[i - 1] == "-m" && command[0].find("python") != std::string::npos) what = command[i];
  }
  what = what.substr(what.rfind('/') + 1).substr(0, 48);
  for (char& c : what) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = '-';
  }
  const std::time_t now = std::time(nullptr);
  struct tm local {};
  ::localtime_r(&now, &local);
  char when[32];
  std::strftime(when, sizeof when, "%m%d-%H%M%S", &local);
  return format("%s-%s-%04x", what.empty() ? "job" : what.c_str(), when, static_cast<unsigned>(::getpid()) & 0xFFFF);
}

bool is_ours(const std::string& plugin) {
  const std::string name = plugin.substr(plugin.rfind('/') + 1);
  return name == "lockstep" || name == "libnccl-profiler-lockstep.so" || name == "librccl-profiler-lockstep.so";
}

// What NCCL loads; a plugin that the user has chosen goes on working behind ours.
void set_plugin(const std::string& plugin, std::vector<std::string>& done) {
  const std::string chosen = variable("NCCL_PROFILER_PLUGIN");
  if (chosen == "none") {
    done.emplace_back("no NCCL plugin (NCCL_PROFILER_PLUGIN=none)");
    return;
  }
  if (plugin.empty()) {
    done.emplace_back("libnccl-profiler-lockstep.so is not beside the program, so NCCL is not seen");
    return;
  }
  ::setenv("NCCL_PROFILER_PLUGIN", plugin.c_str(), 1);
  if (!chosen.empty() && !is_ours(chosen)) {
    ::setenv("LOCKSTEP_CHAIN_PLUGIN", chosen.c_str(), 0);
    done.push_back("plugin " + chosen + " is chained");
  }
}

void set_hook(const std::string& hook, std::vector<std::string>& done) {
  if (hook.empty()) {
    done.emplace_back("the Python hook is not beside the program");
    return;
  }
  const std::string path = variable("PYTHONPATH");
  if (path != hook && !path.starts_with(hook + ":"))
    ::setenv("PYTHONPATH", (hook + (path.empty() ? "" : ":" + path)).c_str(), 1);
  ::setenv("LOCKSTEP_AUTO", "1", 0);
}

// The run that this one is part of; 0: none on this host.
pid_t outer_run(const std::string& host) {
  const std::string reported =
      variable("LOCKSTEP_RUN");  // HOST:PID: launchers carry it to other hosts, where it is nobody
  const size_t colon = reported.rfind(':');
  if (colon == std::string::npos || reported.substr(0, colon) != host) return 0;
  const auto pid = parse_int(std::string_view(reported).substr(colon + 1));
  return pid && *pid > 0 && *pid != ::getpid() && process_state(static_cast<int32_t>(*pid)).start_ticks != 0
             ? static_cast<pid_t>(*pid)
             : 0;
}

// At a terminal the command stays in our process group, so that Ctrl-C, Ctrl-Z and reading from the keyboard are what
// they would be without us. Elsewhere it gets a group of its own, which signals are passed on to.
bool at_terminal() {
  const UniqueFd terminal(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return terminal.valid() && ::tcgetpgrp(terminal.get()) == ::getpgrp();
}

int run_command(const Arguments& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const bool own_group = !at_terminal();
  sigset_t passed_on, before;
  sigemptyset(&passed_on);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&passed_on, number);
  ::sigprocmask(SIG_BLOCK, &passed_on, &before);
  ::signal(SIGCHLD, SIG_DFL);  // who started us may have ignored it: then nobody learns how a child ended
  int report[2];               // closed by a successful exec, carries errno otherwise
  if (::pipe2(report, O_CLOEXEC) != 0) {
    say(format("no pipe: %s", std::strerror(errno)));
    return kExitFailed;
  }
  UniqueFd report_read(report[0]), report_write(report[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    say(format("cannot fork: %s", std::strerror(errno)));
    return kExitFailed;
  }
  if (child == 0) {
    if (own_group) ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // killed hard, we take it along
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (::getppid() == parent) ::execvp(words[0], words.data());
    const int reason = errno;
    (void)!::write(report_write.get(), &reason, sizeof reason);
    ::_exit(kExitNoCommand);
  }
  if (own_group) ::setpgid(child, child);  // whichever of the two comes first
  report_write.reset();
  int reason = 0;
  if (::read(report_read.get(), &reason, sizeof reason) > 0) {
    ::waitpid(child, nullptr, 0);
    say(format("cannot start %s: %s", words[0], std::strerror(reason)));
    return reason == ENOENT ? kExitNoCommand : kExitCannotExecute;
  }
  siginfo_t end{};
  // It is not fetched: an agent that sees the command only now can read how it ended until we end.
  while (::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&passed_on, &info);
    if (number < 0 || number == SIGCHLD) continue;
    if (own_group)
      ::kill(-child, number);
    else if (info.si_code != SI_KERNEL)  // what the terminal sent, it has sent to the command, too
      ::kill(child, number);
  }
  return end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

// What this run is put together from, found out one after the other; done_ is what people are told of it.
class Run {
 public:
  explicit Run(const RunOptions& options) : options_(options) {
    ::gethostname(host_, sizeof host_ - 1);
    outer_ = outer_run(host_);
  }

  int run();

 private:
  void name_job();
  void choose_server();
  // A line: the job is not started.
  std::optional<std::string> join_agent();
  std::optional<std::string> refusal() const;
  void set_environment();
  void set_profiler() const;
  void leave_agent(int code);

  const RunOptions& options_;
  char host_[256]{};
  pid_t outer_ = 0;  // the run around this one; 0: none
  std::vector<std::string> done_;
  std::string job_;
  std::string server_;
  bool reported_otherwise_ = false;  // the environment names a server
  std::optional<RunAgent> agent_;
  OtlpReceiver found_;
};

void Run::name_job() {
  job_ = options_.job.empty() ? known_job(options_.command) : options_.job;
  // Inside a launcher the name has to be the same for every rank, so none is made up here.
  if (job_.empty() && first_of(identity_variables::kRank).empty()) job_ = new_job_name(options_.command);
  if (!job_.empty()) done_.push_back("job " + job_);
}

void Run::choose_server() {
  reported_otherwise_ = !variable("LOCKSTEP_AGENT_SERVER").empty() || !variable("OTEL_EXPORTER_OTLP_ENDPOINT").empty();
  server_ = options_.server;
  if (server_.empty()) server_ = variable("LOCKSTEP_AGENT_SERVER");
  if (server_.empty()) server_ = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
  if (server_.empty()) server_ = variable("LOCKSTEP_SERVER");
  if (server_.empty()) server_ = kDefaultServer;
  found_ = {.url = server_, .answers = true, .page = "", .problem = ""};
}

// Nothing that --server says is passed over: an agent that is there already sends where it was told to, so that the job
// is not started where that is elsewhere.
std::optional<std::string> Run::refusal() const {
  if (options_.server.empty()) return std::nullopt;
  const std::optional<std::string> sends_to = destination_of_agent(recorder_directory());
  if (sends_to && is_same_place(*sends_to, found_.url)) return std::nullopt;
  return format("--server %s: the agent that reads this node's jobs already sends to %s; leave --server out to use it",
                options_.server.c_str(), sends_to ? sends_to->c_str() : "where its own settings say");
}

std::optional<std::string> Run::join_agent() {
  if (options_.no_agent) {
    if (!options_.server.empty()) return "--server says where the agent sends to, and --no-agent starts none";
    done_.emplace_back("no agent started");
    return std::nullopt;
  }
  if (outer_ != 0) {
    if (!options_.server.empty()) found_ = find_otlp_receiver(server_);
    done_.push_back(format("the agent of the run around it (pid %d) serves", outer_));
    return refusal();
  }
  found_ = find_otlp_receiver(server_);
  if (!found_.problem.empty()) done_.push_back(found_.problem);
  // An explicit server goes to the agent; what its environment says, it reads itself, with all that belongs to it.
  const bool pass = !options_.server.empty() || !reported_otherwise_;
  Result<RunAgent> joined_agent = RunAgent::join(recorder_directory(), pass ? found_.url : "");
  if (!joined_agent.ok()) {
    done_.push_back("no agent (" + joined_agent.error() + "), so nothing is sent");
    return std::nullopt;
  }
  agent_.emplace(std::move(*joined_agent));
  switch (agent_->how()) {
    case RunAgent::How::kStarted:
      done_.push_back("agent started, sends to " + found_.url);
      break;
    case RunAgent::How::kJoined:
      done_.emplace_back("the agent of another run serves");
      break;
    case RunAgent::How::kAlreadyThere:
      done_.emplace_back("an agent is running");
      break;
  }
  if (agent_->how() != RunAgent::How::kAlreadyThere && !found_.answers)
    done_.push_back("no server answers there yet (lockstepd --data DIR)");
  if (agent_->how() == RunAgent::How::kStarted) return std::nullopt;
  return refusal();
}

// Whether somebody reads that socket.
bool is_listened_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe.valid() && ::connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

// PyTorch's profiler asks an agent for orders, at the folder of its recorders, where only this user's agent or root's
// can be. Only where one listens there: a profiler that asks nobody writes lines of its own to the job's standard error,
// and by Kineto's abstract name makes the job's exit wait for it. Elsewhere our Python hook takes the orders.
void Run::set_profiler() const {
  if (options_.no_agent || (!agent_ && outer_ == 0) || std::getenv("KINETO_USE_DAEMON") != nullptr) return;
  const std::string recorders = recorder_directory();
  // A name of its own besides: "/dynoconfigclient" and a UUID.
  constexpr size_t kClientBytes = 17 + 36, kSocketBytesMax = 106;
  if (recorders.size() + kClientBytes > kSocketBytesMax) return;
  // An agent that was started a moment ago opens it on a thread of its own.
  constexpr int kWaitMs = 300, kLookMs = 10;
  const std::string endpoint = recorders + "/dynolog";
  for (int waited = 0; !is_listened_to(endpoint); waited += kLookMs) {
    if (waited >= kWaitMs) return;
    ::usleep(kLookMs * 1'000);
  }
  ::setenv("KINETO_USE_DAEMON", "1", 0);
  ::setenv("KINETO_ONDEMAND_TRACE_DIR", recorders.c_str(), 0);
  ::setenv("KINETO_IPC_SOCKET_DIR", recorders.c_str(), 0);
}

void Run::set_environment() {
  if (!job_.empty() && (!options_.job.empty() || known_job(options_.command).empty()))
    ::setenv(identity_variables::kJobId, job_.c_str(), 1);
  ::setenv("LOCKSTEP_RUN", format("%s:%d", host_, outer_ != 0 ? outer_ : ::getpid()).c_str(), 1);
  set_plugin(beside_program({"/libnccl-profiler-lockstep.so", "/../lib/libnccl-profiler-lockstep.so",
                             "/../lib/lockstep/libnccl-profiler-lockstep.so"}),
             done_);
  if (const std::string library =
          beside_program({"/liblockstep.so", "/../lib/liblockstep.so", "/../lib/lockstep/liblockstep.so"});
      !library.empty())
    ::setenv("LOCKSTEP_LIBRARY", library.c_str(), 0);
  if (!options_.no_hook) {
    set_hook(beside_program({"/../_hook", "/../lib/lockstep/python/lockstep/_hook", "/../python/lockstep/_hook",
                             "/../../python/lockstep/_hook", "/../../../python/lockstep/_hook"}),
             done_);
  }
  set_profiler();
  // So that a hang can be looked into later; on by default in new versions of PyTorch only.
  if (variable("TORCH_NCCL_TRACE_BUFFER_SIZE").empty()) ::setenv("TORCH_FR_BUFFER_SIZE", "2000", 0);
}

void Run::leave_agent(int code) {
  // A server that was never there is nobody to keep things for, and a job that ended well needs no postmortem.
  const RunAgent::Ended ended = agent_->leave({.server_answers = found_.answers || find_otlp_receiver(server_).answers,
                                               .keep_undelivered = !options_.server.empty() || found_.answers,
                                               .keep_postmortem = code != 0});
  if (!ended.undelivered.empty())
    say("the server has not got everything; the rest is there: lockstep-agent --data " + ended.undelivered);
  if (!ended.postmortem.empty()) say("ranks died: lockstep postmortem " + ended.postmortem);
}

int Run::run() {
  name_job();
  choose_server();
  if (const std::optional<std::string> refused = join_agent()) {
    say(*refused);
    return kExitUsage;
  }
  if (!found_.page.empty()) done_.push_back(found_.page + (job_.empty() ? "" : "/jobs/" + url_part(job_)));
  set_environment();

  // One line for the node, not one for each rank.
  const std::string local_rank = first_of(identity_variables::kLocalRank);
  if (local_rank.empty() || local_rank == "0") say(joined(done_));

  const int code = run_command(options_.command);
  if (agent_) leave_agent(code);
  return code;
}

}  // namespace

int run_run(const Arguments& arguments) {
  RunOptions options;
  const Arguments own = split_command(arguments, &options.command);
  Flags flags("lockstep run", "runs a job, watched: NCCL plugin, Python hook, and an agent where none is running");
  flags
      .text(&options.server, "--server", "URL",
            "where the agent sends to: any address of the server (default $OTEL_EXPORTER_OTLP_ENDPOINT, "
            "$LOCKSTEP_SERVER, else "
            "http://127.0.0.1:4318)")
      .text(&options.job, "--job", "NAME", "the job's name (default: the scheduler's, else made from the script)")
      .toggle(&options.no_agent, "--no-agent", "start no agent, whether one is running or not")
      .toggle(&options.no_hook, "--no-hook", "leave Python alone: the NCCL plugin only");
  if (std::optional<int> code = answered(
          flags, own, "then -- and the command with its arguments; lockstep run ends with the command's own status\n"))
    return *code;
  if (options.command.empty()) {
    say("no command: lockstep run [--server URL] [--job NAME] -- COMMAND ...");
    return kExitUsage;
  }
  if (const int code = check_command(options.command[0]); code != 0) return code;
  if (variable("LOCKSTEP_DISABLE") == "1") {
    say("LOCKSTEP_DISABLE=1: the command runs by itself");
    return run_command(options.command);
  }
  return Run(options).run();
}

}  // namespace lockstep::cli
