#include "apps/cli/commands.h"

namespace lockstep::cli {
namespace {

constexpr Command kCommands[] = {
    {"why", "why a job is slow or stuck: the culprit, what it costs, the evidence", run_why},
    {"jobs", "the jobs the server knows, worst first", run_jobs},
    {"hang", "which rank is where: this node's jobs, from their flight recorders alone", run_hang},
    {"postmortem", "which rank was where when the job died, from saved recorder files", run_postmortem},
    {"detail", "how much running jobs record: low, full, or auto", run_detail},
    {"doctor", "what is running, what is missing, and how to switch it on", run_doctor},
    {"demo", "a simulated fleet with faults, on this machine, from nothing", run_demo},
    {"sim", "plays a simulated job into a server", run_sim},
    {"replay", "makes recorded NCCL callbacks again; with --why, says what was wrong", run_replay},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace lockstep::cli
