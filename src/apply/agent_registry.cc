#include "apply/agent_registry.h"

#include <algorithm>

namespace lockstep {

void AgentRegistry::seen(std::string_view host, int64_t received_unix_ns, int64_t records_lost) {
  MutexLock lock(mutex_);
  auto found = agents_.find(host);
  if (found == agents_.end()) {
    if (agents_.size() >= kAgentsMax) {
      agents_.erase(std::min_element(agents_.begin(), agents_.end(), [](const auto& a, const auto& b) {
        return a.second.last_seen_unix_ns < b.second.last_seen_unix_ns;
      }));
    }
    found =
        agents_.emplace(std::string(host), AgentInfo{.host = std::string(host), .first_seen_unix_ns = received_unix_ns})
            .first;
  }
  found->second.last_seen_unix_ns = std::max(found->second.last_seen_unix_ns, received_unix_ns);
  found->second.records_lost += records_lost;
  ++found->second.heard;
}

void AgentRegistry::forget_all() {
  MutexLock lock(mutex_);
  agents_.clear();
}

std::vector<AgentInfo> AgentRegistry::agents() const {
  MutexLock lock(mutex_);
  std::vector<AgentInfo> list;
  list.reserve(agents_.size());
  for (const auto& [host, info] : agents_) list.push_back(info);
  return list;
}

}  // namespace lockstep
