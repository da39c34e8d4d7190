// How the finding about a rank that pauses is worded.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include "diagnosis/detectors/pause/interruptions.h"
#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep::pause {

// Who it is, and how sure that is.
struct Accused {
  Rank rank = kNoRank;
  const Part* part = nullptr;
  bool sure = false;
  bool sure_with_signals = false;
  bool only_with_signals = false;
};
Finding finding_of(const JobWindow& window, const UsualSteps& usual, const Interruptions& all, const Accused& accused);

}  // namespace lockstep::pause
