// `lockstep hang` of a job that the server knows, and of a folder of Flight Recorder dumps. Each prints and returns the
// exit code.
//
// Thread rule: Confined.
#pragma once

#include <string>

namespace lockstep::cli {

// ranks: whose stacks to take now; empty: none, what is there is shown.
int hang_of_job(const std::string& server, const std::string& job, const std::string& ranks, bool json);  // hang_job.cc
int hang_of_dumps(const std::string& folder, bool json);  // hang_dumps.cc

}  // namespace lockstep::cli
