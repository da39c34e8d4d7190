#include "apps/cli/run_agent.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/json_reader.h"
#include "base/process.h"
#include "base/text.h"
#include "net/http_client.h"
#include "recorder/folder_reader.h"
#include "recorder/reader.h"

namespace lockstep::cli {
namespace {

constexpr off_t kUsersByte = 0, kChangeByte = 1;
constexpr std::string_view kMetrics = "metrics=";  // here and in the agent's ready line
constexpr int64_t kReadyMs = 10'000;
constexpr int64_t kPageMs = 1'000;
constexpr int64_t kEndMs = 10'000;
constexpr int64_t kFoundByRootMs = 1'500;
constexpr int64_t kWaitForOthersMs = kReadyMs + kEndMs;

bool within(int64_t limit_ms, const std::function<bool()>& reached) {
  const SystemClock clock;
  const int64_t deadline_ns = clock.monotonic_ns() + limit_ms * 1'000'000;
  while (!reached()) {
    if (clock.monotonic_ns() >= deadline_ns) return false;
    ::usleep(20'000);
  }
  return true;
}

struct AgentProcess {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
  std::string data;
  std::string metrics;  // address of its page; empty: not known
  bool alive() const { return pid > 0 && process_state(pid).start_ticks == start_ticks; }
};

std::optional<AgentProcess> noted_agent(int fd) {
  char text[4096];
  const ssize_t length = ::pread(fd, text, sizeof text, 0);
  if (length <= 0) return std::nullopt;
  const std::vector<std::string_view> lines = split(trim(std::string_view(text, static_cast<size_t>(length))), '\n');
  const std::string_view line = lines[0];
  const size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return std::nullopt;
  const auto pid = parse_int(line.substr(0, first));
  const auto start_ticks = parse_uint(line.substr(first + 1, second - first - 1));
  if (!pid || !start_ticks || *pid <= 1 || *pid > INT32_MAX) return std::nullopt;
  AgentProcess agent{static_cast<pid_t>(*pid), *start_ticks, std::string(line.substr(second + 1)), ""};
  if (lines.size() > 1 && lines[1].starts_with(kMetrics)) agent.metrics = lines[1].substr(kMetrics.size());
  return agent.alive() ? std::optional(agent) : std::nullopt;
}

void note_agent(int fd, const AgentProcess& agent) {
  const std::string text =
      agent.pid == 0 ? ""
                     : format("%d %llu %s\n%s%s\n", agent.pid, static_cast<unsigned long long>(agent.start_ticks),
                              agent.data.c_str(), std::string(kMetrics).c_str(), agent.metrics.c_str());
  if (::ftruncate(fd, 0) != 0) return;
  (void)!::pwrite(fd, text.data(), text.size(), 0);
}

void remove_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

bool has_files(const std::string& folder) {
  const Result<std::vector<std::string>> names = list_directory(folder);
  return names.ok() && !names->empty();
}

std::string last_line(const std::string& path) {
  const Result<std::string> text = read_file(path, 1u << 20);
  if (!text.ok()) return "it said nothing";
  const std::string_view trimmed = trim(*text);
  return as_one_line(trimmed.substr(trimmed.rfind('\n') + 1));
}

// One that reads every user's folder looks for new ones once a second, and this folder may just have been made.
bool agent_of_root_runs() {
  const Result<std::vector<std::string>> names = list_directory("/proc");
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    struct stat info {};
    if (!parse_uint(name) || ::stat(("/proc/" + name).c_str(), &info) != 0 || info.st_uid != 0) continue;
    const Result<std::string> command = read_file("/proc/" + name + "/comm", 64);
    if (command.ok() && *command == "lockstep-agent\n") return true;
  }
  return false;
}

bool is_read(const std::string& recorders) {
  const auto now = [&] { return folder_is_read(recorders); };
  return now() || (agent_of_root_runs() && within(kFoundByRootMs, now));
}

Result<AgentProcess> start_agent(const std::string& recorders, const std::string& lock_path,
                                 const std::string& server) {
  std::error_code error;
  AgentProcess agent;
  agent.data = (std::filesystem::temp_directory_path(error) / "lockstep-run-XXXXXX").string();
  if (error || ::mkdtemp(agent.data.data()) == nullptr)
    return Error{format("cannot make a folder like %s", agent.data.c_str())};
  const std::string log = agent.data + "/agent.log";
  ChildProcess::Options options;
  options.arguments = {program_directory() + "/lockstep-agent",
                       "--data",
                       agent.data,
                       "--recorders",
                       recorders,
                       "--metrics",
                       "127.0.0.1:0",
                       "--while-locked",
                       lock_path};
  if (!server.empty()) options.arguments.insert(options.arguments.end(), {"--server", server});
  options.stderr_path = log;
  options.outlives_us = true;
  Result<ChildProcess> process = ChildProcess::start(std::move(options));
  Result<std::string> ready = process.ok() ? process->read_line(kReadyMs) : Result<std::string>(process.failure());
  if (!ready.ok() || !ready->starts_with("ready ")) {
    const std::string why = process.ok() ? "lockstep-agent did not get ready: " + last_line(log) : process.error();
    if (process.ok()) process->stop();
    remove_folder(agent.data);
    return Error{why};
  }
  for (std::string_view word : split(*ready, ' ')) {
    if (word.starts_with(kMetrics)) agent.metrics = word.substr(kMetrics.size());
  }
  agent.pid = process->release();
  agent.start_ticks = process_state(agent.pid).start_ticks;
  return agent;
}

// Recorders whose process is gone: the agent removes each once all of it was taken over.
bool has_recorders_of_the_dead(const std::string& folder) {
  const Result<std::vector<std::string>> names = list_directory(folder);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    if (!name.ends_with(kRecorderSuffix)) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.size() - strlen(kRecorderSuffix));
    const size_t dash = stem.find('-');
    const auto pid = parse_int(stem.substr(0, dash));
    const auto start = dash == std::string_view::npos ? std::nullopt : parse_uint(stem.substr(dash + 1));
    if (pid && start && process_state(static_cast<int32_t>(*pid)).start_ticks != *start) return true;
  }
  return false;
}

}  // namespace

std::string agent_page(const std::string& recorders) {
  const UniqueFd lock(::open((recorders + "/run.lock").c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  const bool is_ours = lock.valid() && ::fstat(lock.get(), &info) == 0 && info.st_uid == ::geteuid();
  const std::optional<AgentProcess> agent = is_ours ? noted_agent(lock.get()) : std::nullopt;
  return "http://" + (agent && !agent->metrics.empty() ? agent->metrics : "127.0.0.1:9410");
}

std::optional<std::string> destination_of_agent(const std::string& recorders) {
  const Result<Url> page = parse_url(agent_page(recorders));
  if (!page.ok()) return std::nullopt;
  HttpRequest request;
  request.path = "/checks";
  const Result<HttpResponse> answer = HttpClient(*page, kPageMs, 1 << 20).send(request);
  if (!answer.ok() || answer->status != 200) return std::nullopt;
  const Result<JsonDocument> document = JsonDocument::parse(answer->body);
  const std::optional<std::string> told = document.ok() ? document->root()["destination"].string() : std::nullopt;
  if (!told) return std::nullopt;
  const std::string place = as_one_line(*told);
  // "grpc http://..." where it sends so.
  return place.starts_with("grpc ") ? place.substr(5) : place;
}

Result<RunAgent> RunAgent::join(const std::string& recorders, const std::string& server) {
  LOCKSTEP_TRY(make_directories(recorders));
  struct stat info {};
  if (::stat(recorders.c_str(), &info) == 0 && info.st_uid == ::geteuid()) ::chmod(recorders.c_str(), 0700);
  const std::string lock_path = recorders + "/run.lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock.valid()) return Error{format("cannot open %s: %s", lock_path.c_str(), std::strerror(errno))};
  // Others hold these while they start an agent or wait for its end.
  if (!within(kWaitForOthersMs, [&] { return try_lock_byte(lock.get(), kChangeByte, ByteLock::kExclusive); }) ||
      !within(kEndMs, [&] { return try_lock_byte(lock.get(), kUsersByte, ByteLock::kShared); }))
    return Error{format("another run holds %s", lock_path.c_str())};

  How how = How::kJoined;
  if (!noted_agent(lock.get())) {
    if (is_read(recorders)) return RunAgent(How::kAlreadyThere, recorders, UniqueFd());
    AgentProcess agent = LOCKSTEP_TRY(start_agent(recorders, lock_path, server));
    note_agent(lock.get(), agent);
    how = How::kStarted;
  }
  try_lock_byte(lock.get(), kChangeByte, ByteLock::kNone);
  return RunAgent(how, recorders, std::move(lock));
}

RunAgent::Ended RunAgent::leave(Leave requests) {
  Ended ended;
  within(kTakeOverMs, [&] { return !has_recorders_of_the_dead(recorders_); });
  if (!lock_.valid()) return ended;
  within(kWaitForOthersMs, [&] { return try_lock_byte(lock_.get(), kChangeByte, ByteLock::kExclusive); });
  const std::optional<AgentProcess> agent = noted_agent(lock_.get());
  // From shared to exclusive in one step: the agent cannot come in between, and whoever else still runs says no.
  const bool last = try_lock_byte(lock_.get(), kUsersByte, ByteLock::kExclusive);
  if (last && agent) {
    ::kill(agent->pid, requests.server_answers || requests.keep_undelivered ? SIGTERM : SIGKILL);
    if (!within(kEndMs, [&] { return !agent->alive(); })) ::kill(agent->pid, SIGKILL);
    note_agent(lock_.get(), {});
    // Where profilers asked it (docs/guide/profiles.md): one that was killed leaves it, and they would go on trying.
    ::unlink((recorders_ + "/dynolog").c_str());
    if (requests.keep_undelivered && has_files(agent->data + "/spool")) ended.undelivered = agent->data;
    if (requests.keep_postmortem && has_files(agent->data + "/postmortem"))
      ended.postmortem = agent->data + "/postmortem";
    if (ended.undelivered.empty() && ended.postmortem.empty()) remove_folder(agent->data);
  }
  lock_.reset();
  return ended;
}

}  // namespace lockstep::cli
