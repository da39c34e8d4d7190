// The file of --actions: whatever is in it, a list within its limits or one line.
#include <cstdlib>

#include "alert/actions/action_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto actions = lockstep::parse_actions({reinterpret_cast<const char*>(data), size});
  if (!actions.ok()) {
    if (actions.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (actions->size() > lockstep::kActionsMax) std::abort();
  for (const auto& action : *actions) {
    if (action.causes.empty() || action.limit < 1 || action.timeout_ms <= 0) std::abort();
  }
  return 0;
}
