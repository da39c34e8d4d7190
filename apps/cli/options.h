// The beginning of every command: its options are read, mistakes and --help are answered.
//
// Thread rule: Confined.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/commands.h"
#include "base/flags.h"

namespace lockstep::cli {

// Reads the arguments. The exit code where that was all: one line on standard error about a mistake, the help that was
// asked for and what else is to be said in it, or the last of the frames of --watch (watch.h).
std::optional<int> answered(Flags& flags, const Arguments& arguments, std::string_view more_help = "");

// A command whose first word says which of several it is. otherwise: what it is without such a word; nullptr: a mistake.
struct Subcommand {
  const char* name;
  int (*run)(const Arguments&);
};
int run_subcommand(const char* program, const char* summary, std::initializer_list<Subcommand> subcommands,
                   const Arguments& arguments, int (*otherwise)(const Arguments&) = nullptr);

// What a command takes, as its own options say: for completion and manual pages, so that there is no second list.
struct CommandUse {
  std::string name;     // "lockstep incidents show"
  std::string summary;  // one line
  std::string positional;
  std::string more_help;
  std::vector<Flags::Option> options;
  std::vector<CommandUse> subcommands;
};
// Nothing of the command is done.
CommandUse describe(const Command& command);

}  // namespace lockstep::cli
