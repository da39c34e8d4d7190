// What the server wants to see of some steps after the fact: the agents that have these ranks send their detail, as far
// as they still have it.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct DetailRequest {
  std::string job_id;
  int64_t attempt = 0;
  int64_t from_step = 0;
  int64_t to_step = 0;         // inclusive
  std::vector<int32_t> ranks;  // sorted; empty: all of the job
  bool operator==(const DetailRequest&) const = default;
};
inline constexpr int64_t kDetailStepsMax = 64;      // in one request
inline constexpr size_t kDetailRanksMax = 131'072;  // likewise

}  // namespace lockstep
