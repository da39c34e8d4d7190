#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

extern char** environ;

namespace lockstep {
namespace {

int64_t now_ms() {
  return SystemClock().monotonic_ns() / 1'000'000;
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Whatever a library of ours opened without O_CLOEXEC is no business of the child's. Before Linux 5.11 it stays open.
void mark_inherited_closed() {
#if defined(SYS_close_range)
  constexpr unsigned kSetCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC, which older headers do not have
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, kSetCloseOnExec);
#endif
}

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& added,
                                            bool with_ours) {
  std::vector<std::string> lines;
  for (char** entry = environ; with_ours && entry && *entry; ++entry) {
    const std::string_view line = *entry;
    const std::string_view name = line.substr(0, line.find('='));
    const auto same_name = [name](const auto& pair) { return pair.first == name; };
    if (std::none_of(added.begin(), added.end(), same_name)) lines.emplace_back(line);
  }
  for (const auto& [name, value] : added) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& lines) {
  std::vector<char*> result;
  for (std::string& line : lines) result.push_back(line.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

namespace {

// Both ends of what parent and child have between them.
struct Channels {
  UniqueFd error_log;
  UniqueFd output_read, output_write;
  UniqueFd input_write, input_read;
  // Closed by a successful exec; carries errno when there is none, so that a missing program is an error of start().
  UniqueFd report_read, report_write;
};

Result<Channels> open_channels(const ChildProcess::Options& options) {
  const char* program = options.arguments[0].c_str();
  Channels channels;
  if (!options.stderr_path.empty()) {
    channels.error_log = UniqueFd(open(options.stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!channels.error_log.valid()) {
      return Error{format("process: cannot open %s for the messages of %s: %s; not started",
                          options.stderr_path.c_str(), program, strerror(errno))};
    }
  }
  int output[2] = {-1, -1};
  if (options.capture_stdout && pipe2(output, O_CLOEXEC) != 0) {
    return Error{format("process: no pipe for %s: %s; not started", program, strerror(errno))};
  }
  channels.output_read = UniqueFd(output[0]);
  channels.output_write = UniqueFd(output[1]);
  int input[2] = {-1, -1};
  if (options.connect_stdin && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) {
    return Error{format("process: no socket for %s: %s; not started", program, strerror(errno))};
  }
  channels.input_write = UniqueFd(input[0]);
  channels.input_read = UniqueFd(input[1]);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return Error{format("process: no pipe for %s: %s; not started", program, strerror(errno))};
  }
  channels.report_read = UniqueFd(report[0]);
  channels.report_write = UniqueFd(report[1]);
  return channels;
}

// The child between fork and exec: allocates nothing, and never returns.
[[noreturn]] void become_program(const ChildProcess::Options& options, const Channels& channels, pid_t parent,
                                 char* const* argv, char* const* envp) {
  if (options.outlives_us)
    setsid();
  else
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.own_group) setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  errno = ESRCH;                             // of the first condition, which sets none
  const bool ready = getppid() == parent &&  // else the parent died before prctl, or is out of our sight
                     (!channels.input_read.valid() || dup2(channels.input_read.get(), STDIN_FILENO) >= 0) &&
                     (!channels.output_write.valid() || dup2(channels.output_write.get(), STDOUT_FILENO) >= 0) &&
                     (!channels.error_log.valid() || dup2(channels.error_log.get(), STDERR_FILENO) >= 0) &&
                     (!options.stderr_to_stdout || dup2(STDOUT_FILENO, STDERR_FILENO) >= 0);
  [[maybe_unused]] const int nice_now = options.niceness != 0 ? nice(options.niceness) : 0;
  mark_inherited_closed();
  if (ready) execve(argv[0], argv, envp);
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = write(channels.report_write.get(), &reason, sizeof reason);
  _exit(127);
}

// Waits until the other end is closed; 0, or why there was no exec.
int read_report(int file) {
  int reason = 0;
  ssize_t got;
  do got = read(file, &reason, sizeof reason);
  while (got < 0 && errno == EINTR);
  return got > 0 ? reason : 0;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(Options options) {
  if (options.arguments.empty()) return Error{"process: no program given; nothing started"};
  const std::string program = options.arguments[0];

  // Everything that allocates happens before the fork: the parent may have other threads.
  std::vector<std::string> environment = merged_environment(options.environment, options.inherits_environment);
  const std::vector<char*> argv = pointers(options.arguments);
  const std::vector<char*> envp = pointers(environment);
  Channels channels = LOCKSTEP_TRY(open_channels(options));

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Error{format("process: cannot fork for %s: %s", program.c_str(), strerror(errno))};
  if (pid == 0) become_program(options, channels, parent, argv.data(), envp.data());

  ChildProcess child;
  child.pid_ = pid;
  child.own_group_ = options.own_group;
  child.output_ = std::move(channels.output_read);
  child.input_ = std::move(channels.input_write);
  channels.report_write.reset();
  if (const int reason = read_report(channels.report_read.get()); reason != 0)
    return Error{format("process: cannot start %s: %s", program.c_str(), strerror(reason))};
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      own_group_(other.own_group_),
      status_(std::exchange(other.status_, -1)),
      output_(std::move(other.output_)),
      input_(std::move(other.input_)),
      buffered_(std::move(other.buffered_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(own_group_, other.own_group_);
  std::swap(status_, other.status_);
  std::swap(output_, other.output_);
  std::swap(input_, other.input_);
  std::swap(buffered_, other.buffered_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  kill(own_group_ ? -pid_ : pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> ChildProcess::read_line(int64_t timeout_ms) {
  const int64_t deadline_ms = now_ms() + timeout_ms;
  while (true) {
    const size_t newline = buffered_.find('\n');
    if (newline != std::string::npos) {
      std::string line = buffered_.substr(0, newline);
      buffered_.erase(0, newline + 1);
      return line;
    }
    if (!output_.valid()) return Error{format("process %d: its output is not captured", static_cast<int>(pid_))};
    pollfd wanted{output_.get(), POLLIN, 0};
    const int64_t left_ms = std::max<int64_t>(0, deadline_ms - now_ms());
    const int ready = poll(&wanted, 1, static_cast<int>(std::min<int64_t>(left_ms, 1'000'000)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return Error{format("process %d: no line of output within %lld ms", static_cast<int>(pid_),
                          static_cast<long long>(timeout_ms))};
    }
    char chunk[4096];
    const ssize_t got = read(output_.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{format("process %d: end of output", static_cast<int>(pid_))};
    buffered_.append(chunk, static_cast<size_t>(got));
  }
}

Result<int> ChildProcess::wait(int64_t timeout_ms) {
  const int64_t deadline_ms = now_ms() + timeout_ms;
  useconds_t nap_us = 500;
  while (running()) {
    if (now_ms() >= deadline_ms) {
      return Error{format("process %d: still running after %lld ms", static_cast<int>(pid_),
                          static_cast<long long>(timeout_ms))};
    }
    usleep(nap_us);
    nap_us = std::min<useconds_t>(nap_us * 2, 20'000);
  }
  return status_;
}

bool ChildProcess::running() {
  if (pid_ < 0 || status_ >= 0) return false;
  if (own_group_) {
    // Before it is reaped: until then nobody else can have the group's number.
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == pid_)
      kill(-pid_, SIGKILL);
  }
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == pid_) {
    status_ = exit_code(status);
  } else if (ended < 0 && errno == ECHILD) {
    status_ = 255;  // somebody else reaped it; how it ended is not known
  }
  return status_ < 0;
}

void ChildProcess::signal(int number) {
  if (running()) kill(own_group_ ? -pid_ : pid_, number);
}

int ChildProcess::stop(int64_t timeout_ms) {
  signal(SIGTERM);
  if (const Result<int> status = wait(timeout_ms); status.ok()) return *status;
  signal(SIGKILL);
  const Result<int> status = wait(10'000);
  return status.ok() ? *status : 255;
}

ProcessState process_state(int32_t pid, const std::string& root) {
  const Result<std::string> stat = read_file(root + format("/proc/%d/stat", pid), 65'536);
  const ProcessState state = stat.ok() ? parse_process_stat(*stat) : ProcessState{};
  return state.ended() ? ProcessState{} : state;
}

ProcessState parse_process_stat(std::string_view text) {
  const size_t close = text.rfind(')');  // the name before it may contain anything
  if (close == std::string_view::npos) return {};
  const std::vector<std::string_view> fields = split(text.substr(close + 1), ' ');
  if (fields.size() < 21 || fields[1].empty()) return {};
  return {parse_uint(fields[20]).value_or(0), fields[1][0]};
}

double own_cpu_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use{};
    if (::getrusage(who, &use) != 0) continue;
    for (const timeval& time : {use.ru_utime, use.ru_stime})
      sum += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  }
  return sum;
}

double process_cpu_seconds(pid_t pid) {
  Result<std::string> text = read_file(format("/proc/%d/stat", pid), 4096);
  if (!text.ok()) return 0;
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos || name_end + 2 > text->size()) return 0;
  std::vector<std::string_view> fields = split(std::string_view(*text).substr(name_end + 2), ' ');
  if (fields.size() < 13) return 0;  // fields 14 and 15 of the whole line: utime, stime
  const uint64_t ticks = parse_uint(fields[11]).value_or(0) + parse_uint(fields[12]).value_or(0);
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string program_directory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return ".";
  const std::string_view whole(path, static_cast<size_t>(length));
  const size_t slash = whole.rfind('/');
  return std::string(whole.substr(0, slash == 0 ? 1 : slash));
}

}  // namespace lockstep
