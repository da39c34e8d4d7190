// Runs to compare, as they are named on the command line: traces (trace_files.h), or baseline:NAME, which was kept.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "base/result.h"
#include "profile/ranks/run_summary.h"

namespace lockstep::cli {

inline constexpr const char* kBaselinesHelp =
    "the folder of baselines (default $LOCKSTEP_BASELINES, or .lockstep/baselines)";
std::string default_baselines();

bool is_baseline(const std::string& run);  // baseline:NAME
// An error where it is baseline: and no name.
Result<void> check_run_name(const std::string& run);
// baselines: the folder of those. kNotFound: there is no such file, capture or baseline.
Result<profile::RunSummary> summary_of(const char* program, const std::string& run, const std::string& server,
                                       const std::string& baselines);

}  // namespace lockstep::cli
