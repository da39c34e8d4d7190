// What one user may take of the agent, so that nobody's recorders hold up another's. What is over a limit is left out
// or waits, and is counted: lockstep_agent_over_limit_total{what, uid}.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/counters.h"
#include "base/text.h"
#include "recorder/layout.h"

namespace lockstep::user_limits {

// Ranks of one user on one node: every instance of eight GPUs that are cut in seven, twice.
inline constexpr size_t kRecordersPerUserMax = 128;
inline constexpr size_t kUsersMax = 256;
// Each is an open file, and there may be 16,384 of those.
inline constexpr size_t kRecordersMax = 4096;

// Names of a folder that are looked at in one poll, and files that are tried; the next poll goes on from there.
inline constexpr size_t kNamesPerPollMax = 1024;
inline constexpr size_t kTriesPerPollMax = 64;
// Files that are no recorders: remembered by name, so that each is reported once.
inline constexpr size_t kRefusedPerUserMax = 1024;

// One recorder of the default size is drained whole, also after the agent was stopped for a while; a larger one takes
// several polls.
inline constexpr uint64_t kRecordsPerDrainMax = uint64_t{layout::kLanesDefault} * layout::kLaneRecordsDefault;
// A lane of the default size holds no more begins and ends.
inline constexpr size_t kStepsPerPollMax = layout::kLaneRecordsDefault / 2;
// Reported of one rank in one poll, and in its life: the table four times over.
inline constexpr size_t kCommsPerPollMax = 256;
inline constexpr size_t kCommsPerRankMax = size_t{layout::kCommsMax} * 4;

// What is remembered of a user's operations, in all: a tenth of it is much for eight ranks.
inline constexpr size_t kMemoryPerUser = size_t{64} << 20;

// A poll of all recorders takes this long at most, shared out among the users who have any; who has not had his turn
// goes on in the next.
inline constexpr int64_t kPollNs = 50'000'000;
inline constexpr int64_t kLastPollNs = 2'000'000'000;  // of an agent that ends
// What the dumps of one user may take in one round of the evidence thread.
inline constexpr int64_t kDumpsNs = 100'000'000;

inline void count_over(Counters& counters, const char* what, uid_t user, int64_t count = 1) {
  counters.add("lockstep_agent_over_limit_total", format("what=\"%s\",uid=\"%u\"", what, static_cast<unsigned>(user)),
               count);
}

}  // namespace lockstep::user_limits
