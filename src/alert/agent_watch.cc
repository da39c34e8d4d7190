#include "alert/agent_watch.h"

#include <set>
#include <string_view>
#include <utility>

namespace lockstep {

AgentWatch::Seen AgentWatch::poll(const std::vector<AgentInfo>& agents, int64_t now_unix_ns, int64_t monotonic_ns) {
  Seen seen;
  for (const AgentInfo& agent : agents) {
    Heard& heard = heard_[agent.host];
    if (std::exchange(heard.count, agent.heard) != agent.heard) heard.at_ns = monotonic_ns;
    const bool is_silent = monotonic_ns - heard.at_ns > kSilentNs;
    const bool is_gone = is_silent && now_unix_ns - agent.last_seen_unix_ns > kGoneNs;
    if (agent.last_seen_unix_ns - agent.first_seen_unix_ns < kKnownNs || is_gone) continue;
    ++seen.known;
    if (is_silent) seen.silent.push_back(agent);
  }
  if (heard_.size() > agents.size()) {
    std::set<std::string_view> hosts;
    for (const AgentInfo& agent : agents) hosts.insert(agent.host);
    std::erase_if(heard_, [&](const auto& one) { return !hosts.contains(one.first); });
  }
  return seen;
}

}  // namespace lockstep
