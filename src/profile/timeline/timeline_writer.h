// Makes the timeline that is kept of a profile (timeline_file.h) from its analysis: all ranks on the axis of their aligned
// clocks, a lane for each stream and for each depth of each thread.
//
// Limits: kRankLanesMax lanes of a rank (threads with most events first), kTimelineNamesMax names (what is over is
//         "other"); slices that are in no lane for it are counted (TimelineDirectory::left_out).
// Memory: some 10 bytes a slice until it is written.
// Thread rule: Thread-safe (no state).
#pragma once

#include <functional>
#include <map>
#include <string_view>

#include "base/result.h"
#include "profile/analysis.h"
#include "profile/timeline/timeline_file.h"

namespace lockstep::profile {

inline constexpr size_t kRankLanesMax = 200;

struct TimelineOptions {
  // The job's number of a rank's first step, where steps are counted from 0 (optimizer's marks).
  std::map<Rank, int64_t> first_steps;
};

struct TimelineCounts {
  uint64_t bytes = 0;
  uint64_t lanes = 0;
  uint64_t slices = 0;  // as they are, without the coarser levels
  uint64_t left_out = 0;
};

// sink: takes the file in pieces; its failure ends the writing.
Result<TimelineCounts> write_timeline(const ProfileAnalysis& analysis, const TimelineOptions& options,
                                      const std::function<Result<void>(std::string_view)>& sink);

}  // namespace lockstep::profile
