// Why: from what the steps say about a culprit and what its node says about itself to a layer and a cause, with the
// numbers that show it, what was looked at and is healthy, what else it could be, and what would decide.
//
// Every cause of signatures.cc is a hypothesis: score = fit to the steps x likelihood of its signals x prior x
// coverage. A signal counts only where the culprit differs from its own past AND from peers that do the same, so that
// daily heat, a power limit that holds everybody back, and the noise of a healthy fleet explain nothing. Missing
// telemetry lowers the coverage; it proves and excludes nothing. Where no signal explains it, the answer is what the
// steps alone said. Cost: about a millisecond; at most kPeersMax peers are looked at, evenly chosen.
// Thread rule: Thread-safe (the books are).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnosis/signals/cause_priors.h"
#include "diagnosis/signals/signal_store.h"
#include "diagnosis/signals/signatures.h"
#include "model/step.h"
#include "model/verdict.h"

namespace lockstep {

struct Question {
  std::vector<Identity> culprits;
  std::vector<Identity> peers;  // other ranks of the job, best those of the same role; none for kWholeJob
  uint32_t sign = 0;            // one StepSign
  // What the steps alone say: the answer where no signal explains it.
  Layer layer = Layer::kUnknown;
  Cause cause = Cause::kNone;
  std::string component;
  int64_t job_from_unix_ns = 0;  // what was before the job is no baseline; 0: not known
  int64_t since_unix_ns = 0;
  int64_t through_unix_ns = 0;
};

struct Explanation {
  Layer layer = Layer::kUnknown;
  Cause cause = Cause::kNone;
  std::string component;
  // Of the culprits, the one whose signals show it.
  Rank rank = kNoRank;
  std::string host;
  std::string gpu_uuid;
  std::string device;             // adapter
  bool by_signals = false;        // false: what the steps alone say
  double confidence = 0;          // in layer and cause, 0..1
  double coverage = 0;            // share of what the best hypothesis would like to see that is told
  std::vector<Claim> chain;       // counter, event
  std::vector<Claim> exclusions;  // at least one wherever there is data
  std::vector<Alternative> alternatives;
  std::vector<Cause> also;  // other causes that are clearly seen at the same time
  std::vector<NextAction> next;
  std::string decided_by;  // the observation that would decide, where this is not sure
};

inline constexpr size_t kPeersMax = 32;
inline constexpr size_t kCulpritsMax = 16;

Explanation explain(const SignalStore& signals, const CausePriors& priors, const Question& question);

}  // namespace lockstep
