// `lockstep version`: which Lockstep this is.
#include "base/version.h"

#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "base/flags.h"

namespace lockstep::cli {

int run_version(const Arguments& arguments) {
  Flags flags("lockstep version", "which version this is, and of which commit");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  std::printf("%s\n", version_line("lockstep").c_str());
  return kExitOk;
}

}  // namespace lockstep::cli
