// Whose agents send by themselves: hosts that were heard of within kWithinNs, asked for by whoever reads their pages too.
//
// Cost: the list of agents is read every kEveryNs at most.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "apply/agent_registry.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace lockstep {

class PushedHosts {
 public:
  static constexpr int64_t kWithinNs = 180'000'000'000;
  static constexpr int64_t kEveryNs = 10'000'000'000;

  PushedHosts(const AgentRegistry& agents, const Clock& clock) : agents_(agents), clock_(clock) {}

  bool contains(const std::string& host) {
    MutexLock lock(mutex_);
    const int64_t now = clock_.monotonic_ns();
    if (read_ns_ == INT64_MIN || now - read_ns_ >= kEveryNs) {
      read_ns_ = now;
      hosts_.clear();
      for (const AgentInfo& agent : agents_.agents()) {
        if (clock_.unix_ns() - agent.last_seen_unix_ns <= kWithinNs) hosts_.insert(agent.host);
      }
    }
    return hosts_.contains(host);
  }

 private:
  const AgentRegistry& agents_;
  const Clock& clock_;
  Mutex mutex_;
  std::set<std::string> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t read_ns_ LOCKSTEP_GUARDED_BY(mutex_) = INT64_MIN;
};

}  // namespace lockstep
