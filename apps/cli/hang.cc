// `lockstep hang`: which rank of this node's jobs is where, now, from the flight recorders alone; with a job, what the
// server says of it and the stacks of its ranks; with --dumps, from dumps of PyTorch's Flight Recorder.
#include <unistd.h>

#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/hang_more.h"
#include "apps/cli/in_flight_view.h"
#include "apps/cli/options.h"
#include "apps/cli/recorder_folder.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {

int run_hang(const Arguments& arguments) {
  std::string folder = recorder_directory(), server = default_server(), stacks, dumps;
  bool json = false, all = false;
  double watch = 0;
  Flags flags("lockstep hang",
              "which rank is where: the jobs of this node, from their flight recorders alone; or JOB, from the server",
              "[JOB]");
  add_server_flags(flags, &server, "with JOB: the server (default $LOCKSTEP_SERVER, else http://127.0.0.1:7070)")
      .text(&stacks, "--stacks", "RANK[,RANK]", "with JOB: take the stacks of these ranks now, at most 64, e.g. 3,5-7")
      .text(&dumps, "--dumps", "DIR",
            "judge the dumps of PyTorch's Flight Recorder in this folder; nothing has to be running")
      .text(&folder, "--recorders", "DIR", kRecordersHelp)
      .decimal(&watch, "--watch", "SECONDS", "look again every so often, until interrupted", 0.1, 86'400)
      .toggle(&all, "--all", "also the communicators in which nobody waits")
      .toggle(&json, "--json", "the answer as JSON; with --watch, a document a line");
  if (std::optional<int> code = answered(
          flags, arguments, "exit codes: 0 no hang found, 1 a hang, 2 wrong usage, 4 nothing is recorded there\n"))
    return *code;
  if (!dumps.empty()) {
    if (!flags.positional().empty() || !stacks.empty()) {
      std::fprintf(stderr, "lockstep hang: --dumps goes with neither a job nor --stacks\n");
      return kExitUsage;
    }
    return hang_of_dumps(dumps, json);
  }
  if (!flags.positional().empty()) return hang_of_job(server, flags.positional().front(), stacks, json);
  if (!stacks.empty()) {
    std::fprintf(stderr, "lockstep hang: --stacks needs the job: lockstep hang JOB --stacks %s\n", stacks.c_str());
    return kExitUsage;
  }

  SystemClock clock;
  RecorderSet recorders(false, clock);
  while (true) {
    std::vector<Recording> recordings = recorders.poll({folder});
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
