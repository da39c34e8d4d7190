#include "agent/heartbeat.h"

#include "base/text.h"

namespace lockstep {

int64_t Heartbeat::stuck_ns() const {
  const int64_t since_ns = since_ns_.load(std::memory_order_relaxed);
  if (since_ns == kWaits) return 0;
  const int64_t standing_ns = clock_.monotonic_ns() - since_ns;
  return standing_ns > stuck_after_ns_ ? standing_ns : 0;
}

Heartbeat& Heartbeats::add(std::string name, int64_t stuck_after_ns) {
  MutexLock lock(mutex_);
  return all_.emplace_back(std::move(name), stuck_after_ns, clock_);
}

std::string Heartbeats::stuck() const {
  std::string lines;
  MutexLock lock(mutex_);
  for (const Heartbeat& one : all_) {
    if (const int64_t stuck_ns = one.stuck_ns(); stuck_ns > 0)
      lines += format("%s has not moved for %s\n", one.name().c_str(),
                      human_duration(static_cast<double>(stuck_ns)).c_str());
  }
  return lines;
}

}  // namespace lockstep
