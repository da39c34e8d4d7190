// `lockstep hang`: which rank of this node's jobs is where, now, from the flight recorders alone.
#include <unistd.h>

#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/in_flight_view.h"
#include "apps/cli/options.h"
#include "apps/cli/recorder_folder.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {

int run_hang(const Arguments& arguments) {
  std::string folder = recorder_directory();
  bool json = false, all = false;
  double watch = 0;
  Flags flags("lockstep hang", "which rank is where: the jobs of this node, from their flight recorders alone");
  flags.text(&folder, "--recorders", "DIR", kRecordersHelp)
      .decimal(&watch, "--watch", "SECONDS", "look again every so often, until interrupted", 0.1, 86'400)
      .toggle(&all, "--all", "also the communicators in which nobody waits")
      .toggle(&json, "--json", "the answer as JSON; with --watch, a document a line");
  if (std::optional<int> code = answered(
          flags, arguments, "exit codes: 0 no hang found, 1 a hang, 2 wrong usage, 4 nothing is recorded there\n"))
    return *code;

  SystemClock clock;
  RecorderSet recorders(false, clock);
  while (true) {
    std::vector<Recording> recordings = recorders.look({folder});
    for (const Skipped& one : recorders.skipped())
      std::fprintf(stderr, "lockstep hang: %s: %s\n", one.file.c_str(), one.error.c_str());
    if (recordings.empty() && watch == 0) {
      std::fprintf(stderr, "lockstep hang: %s\n", nothing_recorded(folder).c_str());
      return kExitNotFound;
    }
    const View view = judge(recordings, true, clock.unix_ns());
    bool hang = false;
    for (const JobView& job : view.jobs) hang |= job.finding.has_value();
    if (json) {
      std::printf("%s\n", to_json(view, recorders.skipped(), {.all = all}).c_str());
    } else {
      if (watch > 0) std::printf(isatty(STDOUT_FILENO) != 0 ? "\033[H\033[2J" : "--- ");
      if (watch > 0) std::printf("%s\n\n", time_text(view.time_unix_ns).c_str());
      std::fputs(to_text(view, {.all = all}).c_str(), stdout);
      if (recordings.empty()) std::printf("%s\n", nothing_recorded(folder).c_str());
    }
    if (std::fflush(stdout) != 0 || watch == 0) return hang ? kExitNo : kExitOk;
    usleep(static_cast<useconds_t>(watch * 1e6));
  }
}

}  // namespace lockstep::cli
