// Any bytes as a template: one line, or a text within its limit, for every sort of value.
#include <cmath>
#include <cstdlib>

#include "alert/rules/rule_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const Result<RuleTemplate> parsed = RuleTemplate::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) {
    if (parsed.error().empty() || parsed.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const Labels labels = {{"host", "gpu-1:9100"}, {"n", "12"}};
  for (const double value : {0.0, -1.5, 1e300, 5e-324, std::nan(""), static_cast<double>(INFINITY)}) {
    if (parsed->expand({labels, value, "http://l"}).size() > 2 * kExpandedBytesMax) std::abort();
  }
  return 0;
}
