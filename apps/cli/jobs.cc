// `lockstep jobs`: every job the server knows, worst first.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {

namespace {

void print_jobs(const Json& document, const simdjson::dom::array& jobs) {
  if (jobs.size() == 0) {
    std::printf("No jobs yet. Start one with NCCL_PROFILER_PLUGIN=lockstep, or see lockstep demo.\n");
    return;
  }
  std::printf("%-28s %-8s %-9s %7s %10s %10s  %s\n", "JOB", "STATE", "HEALTH", "RANKS", "STEP", "STEP TIME", "");
  for (Json job : jobs) {
    std::printf("%-28s %-8s %-9s %7.0f %10s %10s  %s\n", text_of(job, "job_id").c_str(), text_of(job, "state").c_str(),
                text_of(job, "health").c_str(), number_of(job, "world_size"),
                with_thousands(static_cast<int64_t>(number_of(job, "last_step"))).c_str(),
                human_duration(number_of(job, "step_ms") * 1e6).c_str(), text_of(job, "sentence").c_str());
  }
  double total = number_of(document, "total"), shown = number_of(document, "shown");
  if (shown < total) std::printf("%.0f of %.0f jobs, worst first\n", shown, total);
}

}  // namespace

int run_jobs(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep jobs", "the jobs the server knows, worst first");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  return show_list({server, "/api/jobs", "lockstep jobs", json}, "jobs", print_jobs);
}

}  // namespace lockstep::cli
