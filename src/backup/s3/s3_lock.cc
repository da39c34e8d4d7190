#include "backup/s3/s3_lock.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::backup {
namespace {

constexpr size_t kTextBytesMax = 200;

// Where two processes see each other's pids: the boot and the pid namespace.
std::string machine_name() {
  char space[64] = {};
  const ssize_t bytes = ::readlink("/proc/self/ns/pid", space, sizeof space - 1);
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", kTextBytesMax);
  return std::string(boot.ok() ? trim(*boot) : "?") + "/" +
         std::string(space, bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

}  // namespace

std::string LockHolder::text() const {
  return format("lockstep backup\nhost %s\nmachine %s\npid %lld\nnonce %s\n", host.c_str(), machine.c_str(),
                static_cast<long long>(pid), nonce.c_str());
}

LockHolder this_process() {
  char host[HOST_NAME_MAX + 1] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) random = static_cast<uint64_t>(time(nullptr));
  return {as_one_line(host), machine_name(), ::getpid(), format("%016llx", static_cast<unsigned long long>(random))};
}

std::optional<LockHolder> read_lock(std::string_view text_untrusted) {
  LockHolder holder;
  for (const std::string_view line : split(text_untrusted, '\n')) {
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, blank);
    const std::string value = as_one_line(line.substr(blank + 1).substr(0, kTextBytesMax));
    if (name == "host") holder.host = value;
    if (name == "machine") holder.machine = value;
    if (name == "pid") holder.pid = parse_int(value).value_or(0);
    if (name == "nonce") holder.nonce = value;
  }
  if (holder.machine.empty() || holder.pid <= 0 || holder.pid > INT_MAX) return std::nullopt;
  return holder;
}

bool is_dead(const LockHolder& holder) {
  return holder.machine == machine_name() && ::kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH;
}

}  // namespace lockstep::backup
