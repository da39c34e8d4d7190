#include "sources/ownership/process_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/process.h"
#include "base/text.h"
#include "sources/ownership/process_text.h"

namespace lockstep {
namespace {

constexpr uint64_t kSmallFile = 64u << 10;

Result<std::string> read_in(int folder, const char* name, uint64_t bytes_max) {
  const UniqueFd file(::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file.valid()) return Error{format("cannot open %s: %s", name, std::strerror(errno))};
  std::string text;
  char buffer[4096];
  while (text.size() <= bytes_max) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{format("cannot read %s: %s", name, std::strerror(errno))};
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
  return Error{
      format("%s is larger than %llu bytes, the limit here", name, static_cast<unsigned long long>(bytes_max))};
}

}  // namespace

std::optional<ProcessHandle> ProcessHandle::open(int32_t pid, uint64_t start_ticks, uid_t owner,
                                                 const std::string& root, bool may_have_ended) {
  if (pid <= 0) return std::nullopt;
  UniqueFd folder(::open(format("%s/proc/%d", root.c_str(), pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return std::nullopt;
  ProcessHandle handle(pid, start_ticks, owner, std::move(folder));
  if (!handle.is_owners(may_have_ended)) return std::nullopt;
  return handle;
}

std::optional<ProcessHandle> ProcessHandle::open(int32_t pid, uint64_t start_ticks, uid_t owner,
                                                 const std::string& root) {
  return open(pid, start_ticks, owner, root, false);
}

std::optional<ProcessHandle> ProcessHandle::open_ended_too(int32_t pid, uint64_t start_ticks, uid_t owner) {
  return open(pid, start_ticks, owner, "", true);
}

bool ProcessHandle::holds() const {
  return is_owners(false);
}

bool ProcessHandle::is_owners(bool may_have_ended) const {
  const Result<std::string> stat = read_in(folder_.get(), "stat", kSmallFile);
  const Result<std::string> status = read_in(folder_.get(), "status", kSmallFile);
  if (!stat.ok() || !status.ok()) return false;
  const ProcessState state = parse_process_stat(*stat);
  if (state.start_ticks == 0 || (start_ticks_ != 0 && state.start_ticks != start_ticks_)) return false;
  if (state.ended() && !may_have_ended) return false;
  return parse_status(*status).only_uid == static_cast<int64_t>(owner_);
}

Result<std::string> ProcessHandle::read(const char* name, uint64_t bytes_max) const {
  return read_in(folder_.get(), name, bytes_max);
}

std::optional<bool> ProcessHandle::shares_our_files() const {
  struct stat ours {
  }, theirs{};
  if (::stat("/proc/self/ns/mnt", &ours) != 0 || ::fstatat(folder_.get(), "ns/mnt", &theirs, 0) != 0)
    return std::nullopt;
  return ours.st_ino == theirs.st_ino;
}

UniqueFd ProcessHandle::root_folder() const {
  return UniqueFd(::openat(folder_.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace lockstep
