// Nobody has found anything.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/verdict_source.h"

namespace lockstep::testing {

struct NoDiagnosis final : VerdictSource {
  std::vector<Verdict> verdicts(std::string_view) const override { return {}; }
  std::string summary(std::string_view) const override { return ""; }
};

}  // namespace lockstep::testing
