// Elimination: a rank of which nothing is heard is late, because nobody else can be.
//
// Everybody waits longer than before, and it shows in communication; no rank that is heard of is late or has more work
// than before, every transfer that is seen moves as fast as ever, and groups whose members are all heard of wait no
// longer than they did. What is left are the groups with a silent member, and the waiting is there: the silent ones are
// late. Which of several cannot be told; where they are one host's, that host is named. Where no transfer was seen, then
// or now, a slow network cannot be excluded: then it is suspected, never more. Where communication runs beside the work
// and hides it, a job whose work grows looks alike: nothing is said unless all that is hidden would have to double. Nor is
// it said beside somebody who is heard of and has become slow, for sure, at that time.
//
// Limits: more than kSilentMax silent ranks, or none, and nothing is said.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

inline constexpr size_t kSilentMax = 16;

std::vector<Finding> find_by_elimination(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
