// lockstepd: receivers, durable log, stores, diagnosis, API and web UI in one process.
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/version.h"
#include "server/captures/analyzer_child.h"
#include "server/options.h"
#include "server/server.h"

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  // This program again, as the process that reads what jobs have sent (decision 0018).
  if (argc > 1 && argv[1] == kAnalyzerArgument) return run_analyzer_child({argv + 2, argv + argc});
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("%s\n", version_line("lockstepd").c_str());
    return 0;
  }
  Result<ServerOptions> options = read_server_options({argv + 1, argv + argc});
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.error().c_str());
    return kExitUsage;
  }
  if (options->help) {
    std::fputs(options->help_text.c_str(), stdout);
    return 0;
  }
  if (options->check_config) {
    if (Result<void> checked = check_server_options(*options); !checked.ok()) {
      std::fprintf(stderr, "lockstepd: %s\n", checked.error().c_str());
      return kExitUsage;
    }
    std::fputs(options->effective_text.c_str(), stdout);
    return 0;
  }
  options->analyzer = {"/proc/self/exe", std::string(kAnalyzerArgument)};
  // Blocked before the first thread is made, so that only the main loop takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a full disk quota is an error of that write, not the end of the server

  if (Result<void> done = run_server(*options, signals); !done.ok()) {
    std::fprintf(stderr, "lockstepd: %s\n", done.error().c_str());
    return kExitFailed;
  }
  return 0;
}
