#include "sources/nic/stopwatch.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "sources/host/proc_text.h"

namespace lockstep {
namespace {

// Of this thread, since it began; 0 where the kernel does not tell.
int64_t waited_for_processor_ns() {
  // Asked twice for each device and tick, so it stays open.
  thread_local const UniqueFd file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[96];
  const ssize_t length = file.valid() ? ::pread(file.get(), text, sizeof text, 0) : 0;
  if (length <= 0) return 0;
  const std::optional<host::SchedStat> stat = host::parse_schedstat({text, static_cast<size_t>(length)});
  return stat ? static_cast<int64_t>(stat->wait_ns) : 0;
}

}  // namespace

Stopwatch::Stopwatch() : began_ns_(SystemClock().monotonic_ns()), waited_ns_(waited_for_processor_ns()) {}

int64_t Stopwatch::elapsed_ns() const {
  const int64_t waited_ns = waited_for_processor_ns() - waited_ns_;
  return SystemClock().monotonic_ns() - began_ns_ - waited_ns;
}

}  // namespace lockstep
