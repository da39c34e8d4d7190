#include "apps/cli/options.h"

#include <cstdio>
#include <string>

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

int run_subcommand(const char* program, const char* summary, std::initializer_list<Subcommand> subcommands,
                   const Arguments& arguments) {
  std::string names;
  for (const Subcommand& one : subcommands) {
    if (!arguments.empty() && arguments[0] == one.name) return one.run({arguments.begin() + 1, arguments.end()});
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  const bool is_help = !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h");
  std::fprintf(is_help ? stdout : stderr, "%s: %s: %s (each with --help)\n", program, summary, names.c_str());
  return is_help ? kExitOk : kExitUsage;
}

}  // namespace lockstep::cli
