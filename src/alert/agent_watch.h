// Which agents have fallen silent. Counted by the monotonic clock between looks, so that a wall clock that is set makes
// nobody silent; a look every few seconds is exact enough.
//
// Limits: as many agents as the registry has.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apply/agent_registry.h"

namespace lockstep {

class AgentWatch {
 public:
  static constexpr int64_t kSecondNs = 1'000'000'000;
  static constexpr int64_t kSilentNs = 90 * kSecondNs;
  static constexpr int64_t kKnownNs = 60 * kSecondNs;         // heard of for so long before it counts as missing
  static constexpr int64_t kGoneNs = 24 * 3'600 * kSecondNs;  // then it was taken away

  struct Seen {
    size_t known = 0;
    std::vector<AgentInfo> silent;
  };
  Seen poll(const std::vector<AgentInfo>& agents, int64_t now_unix_ns, int64_t monotonic_ns);

 private:
  struct Heard {
    int64_t count = 0;  // how often, as the registry has it
    int64_t at_ns = 0;  // when that was found to be new; monotonic
  };
  std::map<std::string, Heard, std::less<>> heard_;  // by host
};

}  // namespace lockstep
