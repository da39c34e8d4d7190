// Whose data comes last, where ranks receive from several others at once (all-to-all). A slow link is seen by that where
// the sender's system buffers hide the wire: what has come waits at each receiver until the GPU takes it, and what
// comes last waits least. In a healthy job that is another one's from step to step, as the work of a step happens to
// be; one rank's at most receivers in step after step is no chance.
//
// What it costs is told by the steps before: without them nothing is found.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "diagnosis/window.h"

namespace lockstep::slow_link {

struct LastData {
  Rank rank = kNoRank;
  CommId comm_id;
  size_t hits = 0, events = 0;    // steps in which its data was the last at most receivers; in which anybody's was
  double nats = 0;                // that chance does not explain that
  std::vector<StepNumber> steps;  // those that were looked at since it began
  double now_ns = 0;              // a step of these
  double saved_ns = 0;            // communication took so much less before
};
// steps: those in which transfers were recorded.
std::optional<LastData> whose_data_is_last(const JobWindow& window, const std::vector<StepNumber>& steps);

}  // namespace lockstep::slow_link
