#include "apps/cli/commands.h"

namespace lockstep::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "runs a job, watched: lockstep run -- torchrun train.py", run_run},
#ifndef LOCKSTEP_NODE_ONLY
    {"why", "why a job is slow or stuck: the culprit, what it costs, the evidence", run_why},
    {"verdict", "one verdict; says whether it was right, so that later ones learn from it", run_verdict},
    {"warnings", "what will hurt if it goes on: rising errors, heat, falling clocks", run_warnings},
    {"incidents", "what is broken, whom it hits, what it costs; show, ack, resolve", run_incidents},
    {"alerts", "what fires, what it costs and who was told; silences", run_alerts},
    {"sle", "minutes of GPUs that were good, and what the degraded ones are charged to", run_sle},
    {"jobs", "the jobs the server knows, worst first", run_jobs},
    {"top", "jobs worst first, live; down to ranks and one rank; over any ssh", run_top},
    {"report", "a job as one HTML file to send to somebody: verdicts, pictures, numbers", run_report},
    {"logs", "what jobs and nodes logged: by rank, host, time, severity, text; --follow", run_logs},
    {"mfu", "why MFU is what it is: from the GPU's peak down to what was achieved", run_mfu},
    {"step", "one step, rank against rank: who made whom wait, the critical path", run_step},
    {"path", "the way from one GPU or rank to another, hop by hop, and how each hop does", run_path},
    {"fabric", "the topology: what differs from the file, what changed, who depends on what", run_fabric},
    {"service", "how an inference service does: first token, time per token, queue", run_service},
    {"trace", "a step, rank by rank, as a file for the Perfetto UI", run_trace},
    {"analyze", "what kernel traces of ranks say: which rank, which kernel, why", run_analyze},
    {"diff", "two runs' kernel traces side by side, with a gate for CI", run_diff},
    {"baseline", "runs kept under a name, for diff: baseline save, list, delete", run_baseline},
    {"export", "what a PromQL query gives over a range, as CSV or OpenMetrics", run_export},
    {"whatif", "what a step would take with the work evenly spread, and what each part costs", run_whatif},
    {"profile", "kernel profiles of some ranks of a running job, all from the same step on", run_profile},
    {"hang", "which rank is where: this node's jobs from their flight recorders, or JOB with stacks", run_hang},
    {"lines", "which line makes a rank slow: its Python stacks against a peer's, sampled", run_lines},
    {"postmortem", "which rank was where when the job died, from saved recorder files", run_postmortem},
#endif
    {"detail", "how much running jobs record: low, full, or auto", run_detail},
#ifndef LOCKSTEP_NODE_ONLY
    {"backup", "everything the server keeps, into a folder, while it runs; list, prune", run_backup},
    {"restore", "a backup as a data folder again, checked", run_restore},
    {"doctor", "what is running, what is missing, and how to switch it on", run_doctor},
    {"plan", "how large a server a fleet needs, from what was measured", run_plan},
    {"token", "who may do what on a server: token create, list, revoke", run_token},
    {"audit", "what was done on a server by whom: commands, feedback, deletes, tokens", run_audit},
    {"owner", "whose hosts and jobs are whose: owner list, takeover", run_owner},
    {"demo", "a simulated fleet with faults, on this machine, from nothing", run_demo},
    {"sim", "plays a simulated job into a server", run_sim},
    {"score", "plays scenarios, and compares the verdicts with what was true", run_score},
    {"replay", "makes recorded NCCL callbacks again; with --why, says what was wrong", run_replay},
#endif
#ifndef LOCKSTEP_NODE_ONLY
    {"completion", "completion of commands, options and jobs for bash, zsh or fish", run_completion},
#endif
    {"help", "this list, the options of a command, or (--man) a manual page", run_help},
    {"version", "which version this is, and of which commit", run_version},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace lockstep::cli
