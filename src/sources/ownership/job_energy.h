// What each job's GPUs have used, from the energy counters of the GPUs while the job held them.
//
// Of a GPU that jobs share, all goes to the one that stands for it. Counts from when the agent first saw it: what was
// used before, or between the last reading of one agent and the first of the next, is nobody's.
// Limits: kJobsMax; a job that holds nothing any more is forgotten after kKeepNs, so that its last value is seen.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "model/owner_table.h"

namespace lockstep {

class JobEnergy {
 public:
  static constexpr size_t kJobsMax = 256;
  static constexpr int64_t kKeepNs = 600'000'000'000;

  // joules: the counters, by GPU uuid. Those of a GPU that is not there are kept: it may be back.
  void add(const std::map<std::string, double>& joules, const std::map<std::string, Owner>& by_gpu, int64_t now_ns);
  struct Job {
    double joules = 0;
    int64_t seen_ns = 0;
  };
  const std::map<std::string, Job>& jobs() const { return jobs_; }

 private:
  struct Counter {
    double joules = 0;
    std::string job_id;  // who held it then
  };
  std::map<std::string, Counter> counters_;
  std::map<std::string, Job> jobs_;
};

}  // namespace lockstep
