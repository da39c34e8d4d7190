// promql_scripts FILE...: runs Prometheus's test scripts; one line per file, and one per case that differs (--verbose).
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "query/promql/testing/script.h"

int main(int argc, char** argv) {
  bool verbose = false;
  size_t failed = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    if (path == "--verbose") {
      verbose = true;
      continue;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "promql_scripts: cannot read %s\n", path.c_str());
      return 2;
    }
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const lockstep::promql::ScriptOutcome outcome = lockstep::promql::run_script(text, false);
    size_t passed = 0;
    for (const auto& one : outcome.cases) passed += one.problem.empty();
    std::printf("%s\t%zu\t%zu\t%s\n", path.substr(path.rfind('/') + 1).c_str(), passed, outcome.cases.size(),
                outcome.broken.c_str());
    failed += outcome.cases.size() - passed + !outcome.broken.empty();
    if (!verbose) continue;
    for (const auto& one : outcome.cases) {
      if (!one.problem.empty()) std::printf("  %zu: %s\n      %s\n", one.line, one.query.c_str(), one.problem.c_str());
    }
  }
  return failed == 0 ? 0 : 1;
}
