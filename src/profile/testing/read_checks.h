// What holds of every trace that was read, whatever its bytes; for fuzzers: they abort where it does not.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdlib>
#include <vector>

#include "profile/analysis.h"

namespace lockstep::profile::testing {

// Every event is counted once, and a failure is one line. False: reading failed.
inline bool check_read(const Result<TraceEvents>& events) {
  if (!events.ok()) {
    if (events.error().empty() || events.error().find('\n') != std::string::npos) std::abort();
    return false;
  }
  const ReadCounts& counts = events->counts;
  if (counts.events != counts.kept + counts.skipped + counts.bad + counts.too_many) std::abort();
  if (counts.kept != events->size() || events->detail.size() != events->size()) std::abort();
  return true;
}

// As two ranks of a job, so that what needs peers runs too.
inline void check_analysis(TraceInput trace, const ReadOptions& read) {
  trace.rank = Rank{0};
  TraceInput other = trace;
  other.label = "b";
  other.rank = Rank{1};
  AnalyzeOptions options;
  options.threads = 1;
  options.read = read;
  const Result<ProfileAnalysis> analysis = analyze({trace, other}, options);
  if (!analysis.ok() || analysis->ranks.size() != 2 || analysis->verdict.sentence.empty()) std::abort();
  if (analysis_json(*analysis).empty()) std::abort();
}

}  // namespace lockstep::profile::testing
