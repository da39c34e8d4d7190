#include "alert/actions/command_run.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kPollMs = 100, kStopMs = 2'000;

bool is_trusted(const struct stat& info) {
  const bool is_ours = info.st_uid == 0 || info.st_uid == ::geteuid();
  const bool by_group = (info.st_mode & S_IWGRP) != 0 && info.st_gid != 0;
  // In a folder such as /tmp nobody can replace what belongs to others.
  const bool by_others = (info.st_mode & S_IWOTH) != 0 && !(S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0);
  return is_ours && !by_group && !by_others;
}

}  // namespace

Result<std::string> checked_command_file(const std::string& path) {
  if (!path.starts_with('/')) return Error{path + " is no absolute path"};
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) return Error{path + ": " + std::strerror(errno)};
  const std::string file = real.get();
  for (std::string part = file;; part.resize(std::max<size_t>(1, part.rfind('/')))) {
    struct stat info {};
    if (::stat(part.c_str(), &info) != 0) return Error{part + ": " + std::strerror(errno)};
    if (part == file && (!S_ISREG(info.st_mode) || (info.st_mode & S_IXUSR) == 0))
      return Error{part + " is no file that can be executed"};
    if (!is_trusted(info))
      return Error{part + " belongs to, or can be written by, others than root and the server's user: it is not run"};
    if (part == "/") break;
  }
  return file;
}

Result<CommandResult> run_command(const std::string& path, std::vector<std::pair<std::string, std::string>> environment,
                                  int64_t timeout_ms, int interrupt_fd) {
  ChildProcess::Options options;
  options.arguments = {LOCKSTEP_TRY(checked_command_file(path))};
  options.environment = std::move(environment);
  options.environment.emplace_back("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  options.inherits_environment = false;
  options.stderr_to_stdout = true;
  options.connect_stdin = true;
  options.own_group = true;
  ChildProcess child = LOCKSTEP_TRY(ChildProcess::start(std::move(options)));
  child.take_input();  // closed: there is nothing to read
  UniqueFd output = child.take_output();

  const SystemClock clock;
  const int64_t until_ns = clock.monotonic_ns() + timeout_ms * 1'000'000;
  CommandResult result;
  char piece[4096];
  while (child.running()) {
    pollfd waits[2] = {{output.get(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}};  // a closed output is -1, which waits
    ::poll(waits, 2, kPollMs);
    if (waits[1].revents != 0 || clock.monotonic_ns() >= until_ns) {
      result.in_time = false;
      break;
    }
    if (waits[0].revents == 0) continue;
    const ssize_t got = ::read(output.get(), piece, sizeof piece);
    if (got <= 0) {
      output.reset();
      continue;
    }
    result.output.append(piece,
                         std::min<size_t>(static_cast<size_t>(got), kCommandOutputBytesMax - result.output.size()));
  }
  result.exit_code = child.stop(kStopMs);
  // What it wrote last; whoever it left behind may hold the pipe open.
  while (output.valid() && result.output.size() < kCommandOutputBytesMax) {
    pollfd more{output.get(), POLLIN, 0};
    if (::poll(&more, 1, 0) <= 0) break;
    const ssize_t got =
        ::read(output.get(), piece, std::min(sizeof piece, kCommandOutputBytesMax - result.output.size()));
    if (got <= 0) break;
    result.output.append(piece, static_cast<size_t>(got));
  }
  return result;
}

}  // namespace lockstep
