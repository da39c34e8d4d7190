#include "agent/give_way.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

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

constexpr int32_t kNiceLowest = 19;
constexpr uint64_t kSliceNs = 100'000;  // the shortest that Linux takes

}  // namespace

Result<std::string> give_way(const std::string& priority) {
  if (priority == "normal") return std::string("at normal priority");
  if (priority != "low" && priority != "idle")
    return Error{format("--priority is low, idle or normal, not \"%s\"", priority.c_str())};
  SchedulingAttributes wanted;
  wanted.policy = priority == "idle" ? SCHED_IDLE : SCHED_BATCH;
  wanted.nice = kNiceLowest;
  wanted.runtime_ns = kSliceNs;
  if (syscall(SYS_sched_setattr, 0, &wanted, 0) != 0)
    return format("at normal priority: the kernel refuses %s: %s", priority.c_str(), std::strerror(errno));
  return format("at %s priority", priority.c_str());
}

}  // namespace lockstep
