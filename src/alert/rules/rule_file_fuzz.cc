// Any bytes as a rule file, and its templates expanded: one line that names a line, or rules that can be evaluated.
#include <cstdlib>

#include "alert/rules/rule_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size > 20'000) return 0;
  const Result<std::vector<RuleGroup>> groups = parse_rule_file({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!groups.ok()) {
    if (!groups.error().starts_with("line ") || groups.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const Labels labels = {{"host", "a"}};
  for (const RuleGroup& group : *groups) {
    for (const Rule& rule : group.rules) {
      if (rule.name.empty() || rule.query.empty()) std::abort();
      for (const auto& [name, text] : rule.annotations) text.expand({labels, 1.5});
    }
  }
  return 0;
}
