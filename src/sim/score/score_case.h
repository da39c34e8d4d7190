// One scenario from file to score: plays it, lets the subjects see the bytes, compares at the end.
//
// Thread rule: Thread-safe (no state); subjects are used by the calling thread alone.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/score/observe.h"
#include "sim/score/scorer.h"

namespace lockstep::sim {

// Every run begins at the same moment, so that a score can be repeated to the digit.
inline constexpr int64_t kScoreStartUnixNs = 1'767'225'600'000'000'000;  // 2026-01-01 00:00 UTC

// One score per subject, in their order. keep_on: false ends early; what is not played is then not scored.
std::vector<CaseScore> score_case(const Scenario& scenario, std::span<Subject* const> subjects,
                                  const ObserveOptions& options, const std::function<bool()>& keep_on = {});

// *.yaml and *.yml under each path (folders: whatever depth), in order of their names; a path that is not there is an
// error.
Result<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths);

// A small healthy or healthy-but-odd job of about an hour of its own time, different for every seed: all shapes, kinds
// of oddities and levels of noise of tests/scenarios/hard, steps of 100 ms to 30 s.
Scenario healthy_scenario(uint64_t seed);

}  // namespace lockstep::sim
