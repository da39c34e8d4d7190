#include "sources/ownership/processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep {
namespace {

// The first bytes of a file; what is beyond is left. Empty also when it cannot be read: `*denied` says why.
std::string read_start(const std::string& path, size_t bytes_max, bool* denied = nullptr) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  if (!file.valid()) {
    if (denied != nullptr) *denied = errno == EACCES || errno == EPERM;
    return text;
  }
  char buffer[4096];
  while (text.size() < bytes_max) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && denied != nullptr) *denied = errno == EACCES || errno == EPERM;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  if (text.size() > bytes_max) text.resize(bytes_max);
  return text;
}

}  // namespace

const std::string& ProcessFacts::variable(std::string_view variable_name) const {
  static const std::string none;
  const auto found = environment.find(variable_name);
  return found == environment.end() ? none : found->second;
}

void Processes::begin_look(bool again) {
  ++look_;
  again_ = again;
}

const ProcessFacts* Processes::find(int32_t pid) {
  if (pid <= 0) return nullptr;
  auto found = known_.find(pid);
  if (found != known_.end() && found->second.look == look_) return &found->second.facts;
  const uint64_t start_ticks = process_state(pid, root_).start_ticks;
  if (start_ticks == 0) {
    if (found != known_.end()) known_.erase(found);
    return nullptr;
  }
  Known& known = known_[pid];
  ProcessFacts& facts = known.facts;
  known.look = look_;
  if (facts.start_ticks != start_ticks) {
    facts = {};
    if (!read(pid, start_ticks, facts)) {
      known_.erase(pid);
      return nullptr;
    }
  } else if (again_) {
    if (facts.cgroup.slurm_job.empty() && facts.cgroup.pod_uid.empty()) read_cgroup(facts);
    if (!facts.environment_read) read_environment(facts);
  }
  return &facts;
}

void Processes::end_look() {
  std::erase_if(known_, [&](const auto& known) { return known.second.look != look_; });
}

bool Processes::read(int32_t pid, uint64_t start_ticks, ProcessFacts& facts) {
  facts.pid = pid;
  const StatusFacts status = parse_status(read_start(root_ + format("/proc/%d/status", pid), 64u << 10));
  facts.name = status.name;
  facts.inner_pid = status.inner_pid;
  facts.owner_uid = status.only_uid;
  if (status.uid >= 0) facts.user = user_name(status.uid);
  read_cgroup(facts);
  read_environment(facts);
  // Read in pieces: only where it is still the same process do they belong together.
  if (process_state(pid, root_).start_ticks != start_ticks) return false;
  facts.start_ticks = start_ticks;
  return true;
}

void Processes::read_cgroup(ProcessFacts& facts) {
  const std::string text = read_start(root_ + format("/proc/%d/cgroup", facts.pid), kCgroupBytesMax);
  facts.cgroup_read = !text.empty();
  facts.cgroup = parse_cgroup(text);
}

void Processes::read_environment(ProcessFacts& facts) {
  if (!read_environment_) return;
  bool denied = false;
  const std::string text = read_start(root_ + format("/proc/%d/environ", facts.pid), kEnvironmentBytesMax, &denied);
  facts.environment_read = !text.empty();
  facts.environment_denied = denied;
  facts.environment = parse_environment(text);
}

std::string Processes::user_name(int64_t uid) {
  auto found = users_.find(uid);
  if (found == users_.end() && users_read_at_look_ != look_) {  // somebody new: the file may have grown
    users_ = parse_passwd(read_start(root_ + "/etc/passwd", 1u << 20));
    users_read_at_look_ = look_;
    found = users_.find(uid);
  }
  return found == users_.end() ? std::to_string(uid) : found->second;
}

}  // namespace lockstep
