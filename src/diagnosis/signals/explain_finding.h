// The engine's way to explain(): a finding in, the same finding with layer, cause, component, claims, exclusions,
// alternatives and next actions from the node's signals out.
//
// Findings that no node signal can explain (workload, wrong or missing operations, NaN) are left as they are, as is
// everything a detector said by itself: its claims stay, ours come behind them.
// Thread rule: Thread-safe (the books are); the finding is the caller's.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/signals/explain.h"

namespace lockstep {

struct FindingContext {
  std::vector<Identity> culprits;  // of finding.ranks; for a group that transfers slowly: all its members
  std::vector<Identity> peers;     // other ranks of the job, best those of the same role; a few dozen are enough
  int64_t job_from_unix_ns = 0;    // when the job's steps began; 0: not known
  int64_t since_unix_ns = 0;       // when the finding began
  int64_t now_unix_ns = 0;
};

// The StepSign of a detector's layer and cause; 0: not a matter of node signals.
uint32_t sign_of(const Finding& finding);
// What explain() said is handed back too (by_signals false: the finding keeps its layer and cause).
Explanation explain_finding(const SignalStore& signals, const CausePriors& priors, const FindingContext& context,
                            Finding& finding);

}  // namespace lockstep
