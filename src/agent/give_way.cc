#include "agent/give_way.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

// The kernel's struct, which the C library does not declare.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t realtime_priority = 0;
  uint64_t runtime_ns = 0;  // of ordinary threads from Linux 6.12 on: the slice; ignored before
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

constexpr int32_t kNice = 10;
constexpr uint64_t kSliceNs = 100'000;  // the shortest that Linux takes

// Ids of the threads of a process, and of those of its children.
std::vector<pid_t> threads_below(const std::string& process) {
  std::vector<pid_t> found;
  const Result<std::vector<std::string>> threads = list_directory("/proc/" + process + "/task");
  for (const std::string& thread : threads.ok() ? *threads : std::vector<std::string>{}) {
    if (const auto id = parse_int(thread)) found.push_back(static_cast<pid_t>(*id));
    const Result<std::string> children = read_file("/proc/" + process + "/task/" + thread + "/children", 1 << 16);
    for (std::string_view child : split(children.ok() ? std::string_view(*children) : std::string_view(), ' ')) {
      if (!parse_uint(child)) continue;
      const std::vector<pid_t> theirs = threads_below(std::string(child));
      found.insert(found.end(), theirs.begin(), theirs.end());
    }
  }
  return found;
}

}  // namespace

Result<void> check_priority(const std::string& priority) {
  if (priority == "low" || priority == "idle" || priority == "normal") return {};
  return Error{format("--priority is low, idle or normal, not \"%s\"", priority.c_str())};
}

std::string give_way(const std::string& priority) {
  if (priority == "normal") return "at normal priority";
  SchedulingAttributes wanted;
  wanted.policy = priority == "idle" ? SCHED_IDLE : SCHED_BATCH;
  wanted.nice = kNice;
  wanted.runtime_ns = kSliceNs;
  const char* refused = nullptr;
  for (pid_t thread : threads_below("self")) {
    // One that has ended meanwhile does not matter.
    if (syscall(SYS_sched_setattr, thread, &wanted, 0) != 0 && errno != ESRCH) refused = std::strerror(errno);
  }
  if (refused != nullptr) return format("at normal priority: the kernel refuses %s: %s", priority.c_str(), refused);
  return format("at %s priority", priority.c_str());
}

}  // namespace lockstep
