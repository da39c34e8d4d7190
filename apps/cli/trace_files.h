// Kernel traces named on the command line: files, folders of them, and captures that a server keeps (JOB/p-0123456789ab),
// analysed with progress on standard error. An export of Nsight Systems stands for all processes in it.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "profile/analysis.h"

namespace lockstep::cli {

// The traces in `paths`; a folder stands for the .json, .json.gz and .sqlite files in it. kNotFound: a path that is not there.
Result<std::vector<std::string>> trace_files(const std::vector<std::string>& paths);

// server: asked for what is named JOB/CAPTURE and is no file here; it is read from there piece by piece.
Result<profile::ProfileAnalysis> analyze_files(const char* program, const std::vector<std::string>& paths,
                                               const std::string& server, const profile::AnalyzeOptions& options);

}  // namespace lockstep::cli
