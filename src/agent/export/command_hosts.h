// Whose commands an agent asks for: those of its node, and those of the hosts that ranks here say they run on (in a
// container that need not be the node's name).
//
// A rank's host is a word of its owner, and there is room for few: the node's own name always comes first, then the
// users take turns, one name each, then what is only remembered of ranks that have ended. Whoever makes up names pushes
// out his own.
//
// Limits: CommandPoll::kHostsMax names, kHostBytesMax bytes of them in a request. What is over is counted by user:
//         lockstep_agent_over_limit_total{what="hosts"}.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "base/counters.h"
#include "sources/ownership/gpu_ownership.h"

namespace lockstep {

inline constexpr size_t kHostBytesMax = 8192;  // as they stand in the URL; servers take 16 kB of head in all

// The most important first, each once.
std::vector<std::string> hosts_to_ask_for(const std::string& own, const std::vector<RecorderOwner>& owners,
                                          const std::vector<std::string>& remembered, Counters& counters);

}  // namespace lockstep
