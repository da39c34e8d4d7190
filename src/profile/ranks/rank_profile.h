// One rank's trace, read and broken down: what analyses over several ranks go by.
//
// Thread rule: Immutable once made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "profile/rank/breakdown.h"
#include "profile/rank/rank_index.h"
#include "profile/read/trace_events.h"

namespace lockstep::profile {

struct RankProfile {
  Rank rank = kNoRank;
  std::string label;  // the file
  std::unique_ptr<const TraceEvents> events;
  RankIndex index;
  Breakdown breakdown;

  double steps() const { return index.steps_or_one(); }
  // Of a step, in the middle; where steps are not marked, of the whole trace.
  int64_t step_ns() const;
};

}  // namespace lockstep::profile
