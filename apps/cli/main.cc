// lockstep: the command line. Each command is a file beside this one and a row in commands.cc.
#include <signal.h>

#include <cstdio>
#include <cstring>

#include "apps/cli/commands.h"
#include "base/text.h"

using namespace lockstep;
using namespace lockstep::cli;

namespace {

void print_help(FILE* out) {
  std::fputs("lockstep: why is my distributed GPU job slow, or stuck?\n\nusage: lockstep COMMAND [options]\n\n", out);
  for (const Command& command : commands()) std::fprintf(out, "  %-10s %s\n", command.name, command.help);
  std::fputs(
      "\nlockstep COMMAND --help tells more. The server is http://127.0.0.1:7070 unless --server or LOCKSTEP_SERVER "
      "says otherwise.\n",
      out);
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    print_help(stderr);
    return kExitUsage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(stdout);
    return kExitOk;
  }
  if (words[0] == "--version") {
    std::printf("lockstep %s\n", LOCKSTEP_VERSION);
    return kExitOk;
  }
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
