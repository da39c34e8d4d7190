// Workload: the job is slow because its work is dealt unevenly, and nothing is broken.
//
// The idea: in the steps in which ranks wait, the late ones are late because they had more to do. Tokens or routed
// bytes say so (diagnosis/roles.h): then it is the packing of sequences, where the heaviest rank changes, or an expert
// that gets more than its share, where it stays. Or all ranks of one pipeline stage take longer than the other stages:
// the layers are dealt unevenly. Such a finding is "inefficient", never "slow", and names ranks as those with the most
// work.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_uneven_work(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
