// `lockstep jobs`: every job the server knows, worst first.
#include <simdjson.h>

#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {

int run_jobs(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep jobs", "the jobs the server knows, worst first");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  Answer answer = ask(server, "/api/jobs", "lockstep jobs");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  simdjson::dom::array jobs;
  if (parser.parse(answer.body).get(document) || document["jobs"].get_array().get(jobs)) {
    std::fprintf(stderr, "lockstep jobs: the server's answer is not what this version understands\n");
    return kExitFailed;
  }
  if (jobs.size() == 0) {
    std::printf("No jobs yet. Start one with NCCL_PROFILER_PLUGIN=lockstep, or see lockstep demo.\n");
    return kExitOk;
  }
  auto text = [](simdjson::dom::element job, const char* key) {
    std::string_view value;
    return job[key].get_string().get(value) ? std::string() : std::string(value);
  };
  auto number = [](simdjson::dom::element job, const char* key) {
    double value = 0;
    if (job[key].get_double().get(value)) return 0.0;
    return value;
  };
  std::printf("%-28s %-8s %-9s %7s %10s %10s  %s\n", "JOB", "STATE", "HEALTH", "RANKS", "STEP", "STEP TIME", "");
  for (simdjson::dom::element job : jobs) {
    std::printf("%-28s %-8s %-9s %7.0f %10s %10s  %s\n", text(job, "job_id").c_str(), text(job, "state").c_str(),
                text(job, "health").c_str(), number(job, "world_size"),
                with_thousands(static_cast<int64_t>(number(job, "last_step"))).c_str(),
                human_duration(number(job, "step_ms") * 1e6).c_str(), text(job, "sentence").c_str());
  }
  double total = number(document, "total"), shown = number(document, "shown");
  if (shown < total) std::printf("%.0f of %.0f jobs, worst first\n", shown, total);
  return kExitOk;
}

}  // namespace lockstep::cli
