// The beginning of every command: its options are read, mistakes and --help are answered.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "apps/cli/commands.h"
#include "base/flags.h"

namespace lockstep::cli {

// Reads the arguments. The exit code where that was all: one line on standard error about a mistake, or the help that
// was asked for and what else is to be said in it.
std::optional<int> answered(Flags& flags, const Arguments& arguments, std::string_view more_help = "");

// A command whose first word says which of several it is.
struct Subcommand {
  const char* name;
  int (*run)(const Arguments&);
};
int run_subcommand(const char* program, const char* summary, std::initializer_list<Subcommand> subcommands,
                   const Arguments& arguments);

}  // namespace lockstep::cli
