// rule_unit_tests FILE...: files of `promtool test rules`, run through our rules. 0: all as expected, 1: not, 2: unreadable.
#include <cstdio>

#include "alert/testing/rule_unit_tests.h"

int main(int argc, char** argv) {
  int code = argc > 1 ? 0 : 2;
  for (int i = 1; i < argc; ++i) {
    const lockstep::Result<lockstep::RuleUnitTests> run = lockstep::run_rule_unit_tests(argv[i]);
    if (!run.ok()) {
      std::printf("%s\n", run.error().c_str());
      return 2;
    }
    for (const std::string& line : run->failures) std::printf("%s: %s\n", argv[i], line.c_str());
    std::printf("%s: %zu checks, %zu differ\n", argv[i], run->checks, run->failures.size());
    if (!run->failures.empty()) code = 1;
  }
  return code;
}
