// --watch [SECONDS]: the same answer again and again, until Ctrl-C. On a terminal each replaces the one before; elsewhere
// they follow each other, a line with the time between them (none with --json: one answer a line).
//
// What goes wrong once the first answer was there (the server is away) is shown in its place, and asked again.
// Thread rule: Confined.
#pragma once

#include "apps/cli/commands.h"
#include "base/flags.h"

namespace lockstep::cli {

// run: the command itself, which answered() calls for each frame.
Flags& add_watch_flag(Flags& flags, int (*run)(const Arguments&));
// For answered(): the exit code where --watch was given and this is not a frame of it.
std::optional<int> watched(const Arguments& arguments);

}  // namespace lockstep::cli
