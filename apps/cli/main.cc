// lockstep: the command line. Each command is a file beside this one and a row in commands.cc.
#include <signal.h>

#include <cstdio>
#include <cstring>

#include "apps/cli/commands.h"
#include "apps/cli/terminal.h"
#include "base/text.h"

using namespace lockstep;
using namespace lockstep::cli;

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (const Result<void> color = take_color_option(words); !color.ok()) {
    std::fprintf(stderr, "lockstep: %s\n", color.error().c_str());
    return kExitUsage;
  }
  if (words.empty()) {
    print_commands(stderr);
    return kExitUsage;
  }
  if (words[0] == "--help" || words[0] == "-h") return run_help({});
  if (words[0] == "--version") return run_version({});
  for (const Command& command : commands()) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  auto near = did_you_mean(words[0], names);
  std::fprintf(stderr, "lockstep: no command \"%s\".%s (lockstep --help lists them)\n", words[0].c_str(),
               near ? (" Did you mean " + *near + "?").c_str() : "");
  return kExitUsage;
}
