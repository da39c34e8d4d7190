// A scenario played in real time at a real server, through its receivers: what `lockstep score --receivers` does.
//
// One server of our own on free loopback ports over a temporary folder, for all scenarios; each scenario's jobs, hosts
// and GPUs get a name of their own there, so that several can be played at once.
// Thread rule: Thread-safe: play() may run on several threads at once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "sim/score/scorer.h"

namespace lockstep::cli {

class ScoreServer {
 public:
  static Result<std::unique_ptr<ScoreServer>> start();
  ~ScoreServer();
  // number: of the scenario within the run. An error where the server could not be reached.
  Result<sim::CaseScore> play(const sim::Scenario& scenario, size_t number, const std::function<bool()>& keep_on);
  // One line: how much memory and CPU time it has used.
  std::string cost() const;

 private:
  ScoreServer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::cli
