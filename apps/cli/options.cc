#include "apps/cli/options.h"

#include <cstdio>

namespace lockstep::cli {

std::optional<int> answered(Flags& flags, const Arguments& arguments, std::string_view more_help) {
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return kExitUsage;
  }
  if (!flags.help_wanted()) return std::nullopt;
  std::fputs(flags.help().c_str(), stdout);
  if (!more_help.empty()) std::printf("\n%.*s", static_cast<int>(more_help.size()), more_help.data());
  return kExitOk;
}

}  // namespace lockstep::cli
