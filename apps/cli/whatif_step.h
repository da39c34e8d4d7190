// A traced step of a job, asked from the server, in the form that the replay is built from.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/whatif/rank_trace.h"
#include "apps/cli/commands.h"

namespace lockstep::cli {

struct TracedStep {
  int exit_code = kExitOk;  // not kExitOk: `message` says why, in one line
  std::string message;
  StepNumber step = kNoStep;
  std::vector<TracedRank> ranks;
  std::vector<std::string> notes;
};

// step: a number, or "latest" for the newest of which there is detail.
TracedStep fetch_traced_step(const std::string& server, const std::string& job, const std::string& step);

}  // namespace lockstep::cli
