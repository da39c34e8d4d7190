// Plays a scenario on a clock of its own and gives what the fleet's agents send, in the order in which they send it:
// job.start, comm.init and comm.group of every rank, train.step one request per host and step, rank.status while a job
// is stuck, node metrics and events of every host, job.end. Damage of the telemetry is already done to it.
//
// The same scenario gives the same bytes. A run must never hold more than one step of each job in memory.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/ids.h"
#include "model/telemetry.h"
#include "sim/scenario/scenario.h"

namespace lockstep::sim {

struct Sent {
  int64_t at_unix_ns = 0;  // when the request leaves; never before the one returned last
  Batch batch;
};

class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, int64_t start_unix_ns);
  ~ScenarioRun();

  std::optional<Sent> next();  // nullopt: it is over

  // When each fault of the scenario first acted, first did harm, and ended; 0: not (yet). Only a ramp acts before it
  // harms: it begins with next to nothing.
  struct Onset {
    int64_t acted_unix_ns = 0;
    int64_t began_unix_ns = 0;
    int64_t ended_unix_ns = 0;
    std::vector<StepNumber> harmed;  // steps in which it did harm, in order; of a hang the first alone
  };
  const std::vector<Onset>& onsets() const;
  int64_t now_unix_ns() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::sim
