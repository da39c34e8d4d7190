#include "apps/cli/options.h"

#include <cstdio>

#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "apps/cli/wrapped.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

// Where a command that is asked what it takes writes that; nullptr: it is to be done.
CommandUse*& described() {
  static CommandUse* use = nullptr;
  return use;
}

void describe_into(CommandUse& use, int (*run)(const Arguments&)) {
  CommandUse* const before = described();
  described() = &use;
  run({});
  described() = before;
}

}  // namespace

std::optional<int> answered(Flags& flags, const Arguments& arguments, std::string_view more_help) {
  if (CommandUse* use = described()) {
    use->name = flags.program();
    use->summary = flags.summary();
    use->positional = flags.positional_name();
    use->more_help = more_help;
    use->options = flags.options();
    return kExitOk;
  }
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return kExitUsage;
  }
  if (!flags.help_wanted()) return watched(arguments);
  std::fputs(flags.help().c_str(), stdout);
  if (!more_help.empty()) std::printf("\n%.*s", static_cast<int>(more_help.size()), more_help.data());
  return kExitOk;
}

int run_subcommand(const char* program, const char* summary, std::initializer_list<Subcommand> subcommands,
                   const Arguments& arguments, int (*otherwise)(const Arguments&)) {
  if (CommandUse* use = described()) {
    if (otherwise != nullptr) {
      otherwise(arguments);
    } else {
      use->name = program;
      use->summary = summary;
    }
    for (const Subcommand& one : subcommands) describe_into(use->subcommands.emplace_back(), one.run);
    return kExitOk;
  }
  std::string names;
  for (const Subcommand& one : subcommands) {
    if (!arguments.empty() && arguments[0] == one.name) return one.run({arguments.begin() + 1, arguments.end()});
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  if (otherwise != nullptr) return otherwise(arguments);
  const bool is_help = !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h");
  std::fprintf(is_help ? stdout : stderr, "%s: %s: %s (each with --help)\n", program, summary, names.c_str());
  return is_help ? kExitOk : kExitUsage;
}

CommandUse describe(const Command& command) {
  CommandUse use;
  describe_into(use, command.run);
  return use;
}

}  // namespace lockstep::cli
