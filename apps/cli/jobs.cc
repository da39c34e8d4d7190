// `lockstep jobs`: every job the server knows, worst first.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {

namespace {

void print_jobs(const Json& document, const simdjson::dom::array& jobs) {
  if (jobs.size() == 0) {
    std::printf("No jobs yet. Start one with NCCL_PROFILER_PLUGIN=lockstep, or see lockstep demo.\n");
    return;
  }
  const std::optional<size_t> columns = row_columns();
  constexpr size_t kAllColumns = 78, kName = 28, kOthersNarrow = 32;
  const bool narrow = columns && *columns < kAllColumns;
  const size_t name = narrow ? *columns - kOthersNarrow : kName;
  const auto line = [&](const std::string& job, const std::string& state, const std::string& health,
                        const std::string& ranks, const std::string& step, const std::string& time) {
    std::string text = padded(columns ? clipped(job, name) : job, name) + " ";
    if (!narrow) text += padded(state, 8) + " ";
    text += padded(health, 9) + " ";
    if (!narrow) text += format("%7s ", ranks.c_str());
    return text + format("%10s %10s", step.c_str(), time.c_str());
  };
  std::printf("%s\n", line("JOB", "STATE", "HEALTH", "RANKS", "STEP", "STEP TIME").c_str());
  for (Json job : jobs) {
    const std::string health = text_of(job, "health");
    const bool is_well = health == "ok" || health == "unknown" || health.empty();
    const std::string row = line(text_of(job, "job_id"), text_of(job, "state"),
                                 is_well ? health : painted(health == "suspected" ? Paint::kWarn : Paint::kBad, health),
                                 with_thousands(static_cast<int64_t>(number_of(job, "world_size"))),
                                 with_thousands(static_cast<int64_t>(number_of(job, "last_step"))),
                                 human_duration(number_of(job, "step_ms") * 1e6));
    std::fputs(row_with_text(row, text_of(job, "sentence")).c_str(), stdout);
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
  add_watch_flag(flags, run_jobs);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  return show_list({server, "/api/jobs", "lockstep jobs", json}, "jobs", print_jobs);
}

}  // namespace lockstep::cli
