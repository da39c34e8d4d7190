// `lockstep warnings`: what will hurt if it goes on.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/why.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {

int run_warnings(const Arguments& arguments) {
  std::string server = default_server(), job;
  bool json = false, all = false;
  Flags flags("lockstep warnings", "what will hurt if it goes on: rising errors, heat, falling clocks");
  add_server_flags(flags, &server)
      .text(&job, "--job", "JOB", "only what would hit this job")
      .toggle(&all, "--all", "also what was raised within the last hour and is gone")
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments,
                                         "exit codes: 0 no warning, 1 there is one, 2 wrong usage, 3 no server, 4 no "
                                         "such job, 5 anything else\n"))
    return *code;
  std::string query = all ? "?state=all" : "?state=raised";
  if (!job.empty()) query += "&job=" + url_part(job);
  Response answer = ask(server, "/api/warnings" + query, "lockstep warnings");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json document;
  simdjson::dom::array warnings;
  if (parser.parse(answer.body).get(document) || document["warnings"].get_array().get(warnings))
    return not_understood("lockstep warnings");
  bool raised = false;
  for (Json warning : warnings) raised |= text_of(warning, "state") == "raised";
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return raised ? kExitNo : kExitOk;
  }
  if (warnings.size() == 0) {
    std::printf("No early warnings: no error counter, temperature or clock of a %s moves the wrong way alone.\n",
                job.empty() ? "node that reports" : "node of this job");
    return kExitOk;
  }
  print_warnings(document);
  const double total = number_of(document, "total"), shown = number_of(document, "shown");
  if (shown < total) std::printf("%.0f of %.0f warnings, the soonest first\n", shown, total);
  return raised ? kExitNo : kExitOk;
}

}  // namespace lockstep::cli
