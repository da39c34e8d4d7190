// The agents we have heard of, by host: when last, and how many records they say were lost before they reached us.
//
// Limits: kAgentsMax hosts; beyond them the longest silent is forgotten.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace lockstep {

struct AgentInfo {
  std::string host;
  int64_t first_seen_unix_ns = 0;
  int64_t last_seen_unix_ns = 0;
  int64_t records_lost = 0;
  int64_t heard = 0;  // how often: moves also where the clock was set back
};

class AgentRegistry {
 public:
  static constexpr size_t kAgentsMax = 100'000;

  void seen(std::string_view host, int64_t received_unix_ns, int64_t records_lost);
  std::vector<AgentInfo> agents() const;  // by host
  // Whoever speaks here from now on is known again with its next word; who speaks elsewhere is not missed.
  void forget_all();

 private:
  mutable Mutex mutex_;
  std::map<std::string, AgentInfo, std::less<>> agents_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
