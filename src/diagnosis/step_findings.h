// What the step detectors find together: each is asked in the registry's order, and what explains a rank's slowness
// already is not said again.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <set>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

struct StepFindings {
  std::vector<Finding> findings;
  // Ranks of theirs. Who is sure is not kept back by a suspicion.
  std::set<Rank> explained, surely_explained;
};
// attributed: stretches of steps that have a verdict already.
StepFindings ask_step_detectors(const JobWindow& window, std::vector<AttributedRange> attributed);

// Drops what the others explain: suspicions of ranks of which something is sure, what comes and goes beside what stays,
// and "nothing says why" where something does.
void drop_explained(StepFindings& all);

// Links of several ranks that are slow because of the fabric are one trouble. The costliest speaks for all.
void join_in_the_fabric(std::vector<Finding>& findings);

}  // namespace lockstep
