// Any text: no crash, one line on error, and what was understood prints to text that is understood the same way.
#include <cstdlib>
#include <string>

#include "query/promql/parser.h"
#include "query/promql/printer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  promql::ParseLimits limits;
  limits.depth_max = 60;  // pretty() indents each level
  Result<std::unique_ptr<promql::Expr>> query = promql::parse(text, limits);
  if (!query.ok()) {
    if (query.error().empty() || query.error().find('\n') != std::string::npos) std::abort();
  } else {
    const std::string once = promql::to_text(**query);
    Result<std::unique_ptr<promql::Expr>> again = promql::parse(once);
    if (!again.ok()) std::abort();
    if (promql::to_text(**again) != once) std::abort();
    if (!promql::parse(promql::pretty(**query)).ok()) std::abort();
  }
  (void)promql::parse_selector(text).ok();
  return 0;
}
