// Ranks that stand at the same place, as one: of a hang with a thousand ranks, two lines say all.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/ids.h"
#include "model/rank_evidence.h"

namespace lockstep {

struct StackGroup {
  std::string where;  // "in all_reduce at train.py:88"; without Python's stack how its main thread waits
  std::vector<Rank> ranks;
  bool operator==(const StackGroup&) const = default;
};

// By the job's own frame and the innermost function of the main thread; the largest first.
std::vector<StackGroup> group_stacks(const std::map<Rank, RankStack>& stacks);
// "63 ranks in all_reduce at train.py:88; rank 17 in __next__ at loader.py:12"; at most `most` groups.
std::string groups_text(const std::vector<StackGroup>& groups, size_t most = 4);

}  // namespace lockstep
