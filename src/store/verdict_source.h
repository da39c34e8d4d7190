// What the API asks diagnosis: the verdicts it holds now. Diagnosis implements it; the API knows nothing else of it.
//
// Thread rule: Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/verdict.h"

namespace lockstep {

class VerdictSource {
 public:
  virtual ~VerdictSource() = default;
  // Open first, newest first; of all jobs where job_id is empty.
  virtual std::vector<Verdict> verdicts(std::string_view job_id) const = 0;
  // One sentence on how the job stands where there is no verdict, or why one cannot be given yet.
  virtual std::string summary(std::string_view job_id) const = 0;
};

}  // namespace lockstep
