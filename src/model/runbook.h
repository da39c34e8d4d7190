// The page that says what to do about a cause: docs/runbooks/CAUSE.md, which the server itself serves, so that it can be
// read where nothing outside can be reached.
//
// Thread rule: Immutable.
#pragma once

#include <string>

#include "model/verdict_terms.h"

namespace lockstep {

// "/docs/runbooks/data-loader"; empty where no cause is named.
inline std::string runbook_of(Cause cause) {
  const char* name = to_text(cause);
  return *name == '\0' ? std::string() : std::string("/docs/runbooks/") + name;
}

}  // namespace lockstep
