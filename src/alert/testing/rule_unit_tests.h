// Rule unit tests in the format of `promtool test rules`, run by our rules and our PromQL: load series, evaluate the rule
// files step by step, compare alerts and queries with what is expected.
//
// Thread rule: Confined.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct RuleUnitTests {
  size_t checks = 0;                  // alerts and queries that were compared
  std::vector<std::string> failures;  // one line each
};

// rule_files in it are relative to its folder.
Result<RuleUnitTests> run_rule_unit_tests(const std::string& file);

}  // namespace lockstep
