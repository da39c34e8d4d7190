// Fail: ranks of a job died. Which was the first, and of what?
//
// When a rank dies the others abort within a moment, or the launcher ends them: what ended a process tells a cause from
// a consequence. A kill or a fault of its own (SIGKILL, SIGSEGV, ...) is never a consequence; an abort or a status other
// than 0 may be one, and then the first by time is named, for sure once all others have been heard of; being asked to
// end (SIGTERM, SIGINT) is none. A job that was asked to end as a whole has not failed, nor has a process that ended with
// status 0. A Python exception that ended a process is a fault of its own, unless it is of communication: that is what
// others raise when a peer is gone.
//
// Where nobody knows how processes ended, only one that was inside a step or had operations in flight died.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <map>
#include <optional>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"
#include "model/rank_end.h"

namespace lockstep {

struct FailInput {
  const std::map<Rank, RankEnd>& ended;
  const std::map<Rank, RankStatus>& status;  // newest of each rank, also of those that died
  int64_t now_unix_ns = 0;
};

std::optional<Finding> find_failure(const JobWindow& window, const FailInput& input);

}  // namespace lockstep
