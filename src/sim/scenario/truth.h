// What is right to say of a scenario: the label of each fault. Only the scorer reads it.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace lockstep::sim {

struct Truth {
  std::string job;
  VerdictKind kind = VerdictKind::kSlow;
  std::vector<Rank> ranks;    // any of them named first is right; empty: no rank is to blame (a whole job, a leaf)
  std::vector<Layer> layers;  // one; several where truth.cc's table says why they cannot be told apart
  std::vector<Cause> causes;  // any of these
  // Where in the network it is, as `lockstep fabric --affected` takes it; any of these. Empty: not in the network, or
  // no switch reports, so that nobody could tell.
  std::vector<std::string> places;
  size_t fault = 0;  // index in the scenario
  double cost = 0;   // of a healthy step that the fault adds to the job's while it acts, as played; 1: it stops it
  bool below_notice = false;  // so small by its own severity that silence is not counted as a miss in the targets,
                              // only in the severity curve
};
std::vector<Truth> truths(const Scenario& scenario);

// Verdicts that are not wrong although they name no fault: "workload" where an oddity makes the work uneven.
bool allowed(const Scenario& scenario, const std::string& job, std::optional<Layer> layer);

}  // namespace lockstep::sim
