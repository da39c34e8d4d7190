#include "sources/ownership/process_exit.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr uint64_t kStatBytesMax = 64u << 10;

// As linux/pidfd.h has it from 6.13 on; headers are often older than the kernel.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kInfoExit = 1u << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

ExitStatus of_wait_status(int status) {
  if (WIFSIGNALED(status)) return {.code = 0, .signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace

std::optional<ExitStatus> parse_exit_status(std::string_view stat) {
  constexpr size_t kExitCode = 49;  // field 52; the state is the third, and the first behind the name
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> fields = split(trim(stat.substr(name_end + 1)), ' ');
  if (fields.size() <= kExitCode || (fields[0] != "Z" && fields[0] != "X")) return std::nullopt;
  const std::optional<uint64_t> status = parse_uint(fields[kExitCode]);
  if (!status || *status > 0xFFFF) return std::nullopt;
  return of_wait_status(static_cast<int>(*status));
}

ProcessExit ProcessExit::watch(ProcessHandle handle, uid_t owner) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, handle.pid(), 0)));
  if (!handle.holds()) pidfd = UniqueFd();  // it ended meanwhile: the number may be another's
  const uid_t self = ::geteuid();
  return {std::move(handle), std::move(pidfd), self == 0 || self == owner};
}

std::optional<ExitStatus> ProcessExit::status() const {
  if (pidfd_.valid()) {
    PidfdInfo info{};
    info.mask = kInfoExit;
    if (::ioctl(pidfd_.get(), kGetInfo, &info) == 0 && (info.mask & kInfoExit) != 0)
      return of_wait_status(info.exit_code);
  }
  if (!may_read_status_) return std::nullopt;
  const Result<std::string> stat = handle_.read("stat", kStatBytesMax);
  return stat.ok() ? parse_exit_status(*stat) : std::nullopt;
}

}  // namespace lockstep
