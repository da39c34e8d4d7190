// What a rank's own time is made of, against that of its peers: why a straggler is late, as far as its steps tell.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

// Explains the own time of a late rank, or of those of a host (ranks sorted), over the given steps: layer, cause and
// the claims and exclusions for it. Shared with detectors that know other steps to look at.
void explain_own_time(const JobWindow& window, const std::vector<Rank>& ranks, const std::vector<StepNumber>& steps,
                      Finding& finding);

namespace straggler {

struct Peer {
  const RankStep* row;
  double own_ns;
};

// The ranks of one step that are peers of a rank and not among the accused.
std::vector<Peer> peers_in(const JobWindow& window, const StepFrame& frame, Rank rank,
                           const std::vector<Rank>& accused);
// A rank that has more to do than its peers, as its bytes say (more tokens routed or packed to it), and whose own time
// is not longer than that.
bool has_more_work(const JobWindow& window, Rank rank, const std::vector<StepNumber>& steps);
// How much longer a rank waits for its input than its peers do.
double input_excess(const JobWindow& window, Rank rank, const std::vector<StepNumber>& steps);

}  // namespace straggler
}  // namespace lockstep
