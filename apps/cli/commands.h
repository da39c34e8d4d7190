// Every command of `lockstep`, one row each in commands.cc: name, one line of help, function.
// Exit codes (docs/guide/cli.md): 0 answered; 1 the answer is "no" (an open verdict, a failed check); 2 wrong usage;
// 3 the server cannot be reached; 4 not found; 5 anything else went wrong; 6 two runs that cannot be compared.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace lockstep::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;
inline constexpr int kExitNotFound = 4;
inline constexpr int kExitFailed = 5;
inline constexpr int kExitNotComparable = 6;

using Arguments = std::vector<std::string>;

int run_run(const Arguments& arguments);         // run.cc
int run_why(const Arguments& arguments);         // why.cc
int run_verdict(const Arguments& arguments);     // verdict.cc
int run_warnings(const Arguments& arguments);    // warnings.cc
int run_alerts(const Arguments& arguments);      // alerts.cc
int run_incidents(const Arguments& arguments);   // incidents.cc
int run_sle(const Arguments& arguments);         // sle.cc
int run_jobs(const Arguments& arguments);        // jobs.cc
int run_logs(const Arguments& arguments);        // logs.cc
int run_hang(const Arguments& arguments);        // hang.cc
int run_lines(const Arguments& arguments);       // lines.cc
int run_postmortem(const Arguments& arguments);  // postmortem.cc
int run_detail(const Arguments& arguments);      // detail.cc
int run_profile(const Arguments& arguments);     // profile.cc
int run_doctor(const Arguments& arguments);      // doctor.cc
int run_replay(const Arguments& arguments);      // replay.cc
int run_score(const Arguments& arguments);       // score.cc
int run_plan(const Arguments& arguments);        // plan.cc
int run_service(const Arguments& arguments);     // service.cc
int run_mfu(const Arguments& arguments);         // mfu.cc
int run_path(const Arguments& arguments);        // path.cc
int run_fabric(const Arguments& arguments);      // path.cc
int run_step(const Arguments& arguments);        // step.cc
int run_sim(const Arguments& arguments);         // sim.cc
int run_trace(const Arguments& arguments);       // trace.cc
int run_analyze(const Arguments& arguments);     // analyze.cc
int run_diff(const Arguments& arguments);        // diff.cc
int run_baseline(const Arguments& arguments);    // baseline.cc
int run_export(const Arguments& arguments);      // export.cc
int run_whatif(const Arguments& arguments);      // whatif.cc
int run_token(const Arguments& arguments);       // token.cc
int run_audit(const Arguments& arguments);       // audit.cc
int run_owner(const Arguments& arguments);       // owner.cc
int run_demo(const Arguments& arguments);        // demo.cc
int run_backup(const Arguments& arguments);      // backup.cc
int run_restore(const Arguments& arguments);     // restore.cc
int run_report(const Arguments& arguments);      // report.cc
int run_completion(const Arguments& arguments);  // completion.cc
int run_help(const Arguments& arguments);        // help.cc
int run_top(const Arguments& arguments);         // top.cc
int run_version(const Arguments& arguments);     // version.cc

struct Command {
  const char* name;
  const char* help;
  int (*run)(const Arguments&);
};
std::span<const Command> commands();
void print_commands(std::FILE* out);  // help.cc

}  // namespace lockstep::cli
