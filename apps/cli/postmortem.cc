// `lockstep postmortem PATH...`: where every rank stood when the recordings end, from saved flight recorder files.
#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/in_flight_view.h"
#include "apps/cli/options.h"
#include "base/flags.h"

namespace lockstep::cli {

int run_postmortem(const Arguments& arguments) {
  bool json = false, all = false, verbose = false;
  int64_t last = 10;
  Flags flags("lockstep postmortem", "which rank was where when the job died, from saved flight recorder files",
              "PATH...");
  flags.toggle(&all, "--all", "also the communicators in which nobody waited")
      .toggle(&verbose, "--verbose", "also the last operations of every rank and the last record of every thread")
      .number(&last, "--last", "N", "with --verbose: how many operations (default 10; a recorder keeps 33)", 1, 33)
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "PATH: files, or folders with *.lsfr files in and below them; of several nodes, all together.\n"
                   "exit codes: 0 answered, 1 nothing could be read, 2 wrong usage\n"))
    return *code;

  SystemClock clock;
  RecorderSet recorders(true, clock);
  std::vector<Recording> recordings = recorders.poll(flags.positional());
  for (const Skipped& one : recorders.skipped())
    std::fprintf(stderr, "lockstep postmortem: %s: %s; skipped\n", one.file.c_str(), one.error.c_str());
  if (recordings.empty()) {
    std::fprintf(stderr, "lockstep postmortem: no flight recorder file could be read\n");
    return kExitNo;
  }
  const View view = judge(recordings, false, clock.unix_ns());
  const PrintOptions options{.all = all, .last = verbose ? static_cast<size_t>(last) : 0, .lanes = verbose};
  std::fputs((json ? to_json(view, recorders.skipped(), options) + "\n" : to_text(view, options)).c_str(), stdout);
  return kExitOk;
}

}  // namespace lockstep::cli
