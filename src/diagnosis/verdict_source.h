// What the API asks diagnosis: the verdicts and early warnings it holds now. Diagnosis implements it; the API knows
// nothing else of it.
//
// Thread rule: Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/verdict.h"
#include "model/warning.h"

namespace lockstep {

class VerdictSource {
 public:
  virtual ~VerdictSource() = default;
  // Open first, newest first; of all jobs where job_id is empty.
  virtual std::vector<Verdict> verdicts(std::string_view job_id) const = 0;
  // One sentence on how the job stands where there is no verdict, or why one cannot be given yet.
  virtual std::string summary(std::string_view job_id) const = 0;
  // What will hurt if it goes on, in the whole fleet: raised ones, the soonest first, then those that have gone lately.
  virtual std::vector<EarlyWarning> warnings() const { return {}; }
};

}  // namespace lockstep
