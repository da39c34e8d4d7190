#include "alert/actions/command_run.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kPollMs = 100, kStopMs = 2'000;

constexpr int kLinksMax = 40;  // as the kernel

bool is_ours(const struct stat& info) {
  return info.st_uid == 0 || info.st_uid == ::geteuid();
}

bool is_trusted(const std::string& path, const struct stat& info) {
  const bool by_group = (info.st_mode & S_IWGRP) != 0 && info.st_gid != 0;
  // In a folder such as /tmp nobody can replace what belongs to others.
  const bool by_others = (info.st_mode & S_IWOTH) != 0 && !(S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0);
  if (!is_ours(info)) return false;
  if (!by_group && !by_others) return true;
  struct statvfs volume {};
  return ::statvfs(path.c_str(), &volume) == 0 && (volume.f_flag & ST_RDONLY) != 0;
}

Error untrusted(const std::string& path) {
  return Error{path + " belongs to, or can be written by, others than root and the server's user: it is not used"};
}

// In front of those that are still to be walked.
void walk_first(std::deque<std::string>& parts, std::string_view path) {
  const std::vector<std::string_view> more = split(path, '/');
  parts.insert(parts.begin(), more.begin(), more.end());
}

}  // namespace

Result<std::string> operators_file(const std::string& path) {
  std::deque<std::string> parts;
  walk_first(parts, path);
  if (!path.starts_with('/')) {
    const std::unique_ptr<char, decltype(&std::free)> here(::getcwd(nullptr, 0), &std::free);
    if (here == nullptr) return Error{path + ": " + std::strerror(errno)};
    walk_first(parts, here.get());
  }
  struct stat info {};
  if (::stat("/", &info) != 0 || !is_trusted("/", info)) return untrusted("/");
  std::string reached;  // without links; empty: the root
  for (int links = 0; !parts.empty();) {
    const std::string part = std::move(parts.front());
    parts.pop_front();
    if (part == ".." && !reached.empty()) reached.resize(reached.rfind('/'));
    if (part.empty() || part == "." || part == "..") continue;
    const std::string next = reached + "/" + part;
    if (::lstat(next.c_str(), &info) != 0) return Error{next + ": " + std::strerror(errno)};
    if (!S_ISLNK(info.st_mode)) {
      if (!is_trusted(next, info)) return untrusted(next);
      reached = next;
      continue;
    }
    // Whoever owns the link may point it elsewhere.
    if (!is_ours(info)) return untrusted(next);
    char target[PATH_MAX];
    const ssize_t length = ::readlink(next.c_str(), target, sizeof target);
    if (length <= 0) return Error{next + ": " + std::strerror(errno)};
    if (++links > kLinksMax) return Error{path + ": " + std::strerror(ELOOP)};
    if (target[0] == '/') reached.clear();
    walk_first(parts, {target, static_cast<size_t>(length)});
  }
  return reached.empty() ? "/" : reached;
}

Result<std::string> checked_command_file(const std::string& path) {
  if (!path.starts_with('/')) return Error{path + " is no absolute path"};
  std::string file = LOCKSTEP_TRY(operators_file(path));
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & S_IXUSR) == 0)
    return Error{file + " is no file that can be executed"};
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
