// What a kernel profile says of the blamed rank, as evidence in its verdict (model/profile_finding.h).
//
// Of findings about slow ranks alone: a job that stands has nothing to trace. A profile that blames another rank than the
// steps do says nothing here.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <map>

#include "diagnosis/finding.h"
#include "model/profile_finding.h"

namespace lockstep {

// By rank, the newest of each.
using ProfiledRanks = std::map<Rank, ProfileFinding>;

// A profile older than this, by now, is of another time.
inline constexpr int64_t kProfileFreshNs = 1'800'000'000'000;

// In front of what is there: the kernel is the most that can be said.
void add_profile(Finding& finding, const ProfiledRanks& profiles, int64_t now_unix_ns);

}  // namespace lockstep
