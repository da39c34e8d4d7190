// `lockstep trace JOB`: a step of a job as a file for the Perfetto UI.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

// "attachment; filename="NAME"": the server makes a plain one; anything else is not followed.
std::string suggested_name(const Response& answer) {
  const std::string text = answer.header("content-disposition");
  const size_t begin = text.find('"');
  const size_t end = text.rfind('"');
  if (begin == std::string::npos || end <= begin + 1) return {};
  const std::string name = text.substr(begin + 1, end - begin - 1);
  return name.find('/') == std::string::npos && name.front() != '.' ? name : std::string();
}

int64_t number_of(const Response& answer, const char* header) {
  return parse_int(answer.header(header)).value_or(0);
}

std::string clocks_text(const Response& answer) {
  const int64_t ranks = number_of(answer, "x-lockstep-ranks");
  const int64_t unknown = number_of(answer, "x-lockstep-ranks-unknown-clock");
  if (unknown >= ranks) return "clocks not aligned (too little in common): every rank as its own clock has it";
  std::string text =
      format("clocks aligned to within %s",
             human_duration(static_cast<double>(number_of(answer, "x-lockstep-clock-error-ns"))).c_str());
  if (unknown > 0) text += format(", but of %lld ranks not known", static_cast<long long>(unknown));
  return text;
}

}  // namespace

int run_trace(const Arguments& arguments) {
  std::string server = default_server(), ranks, output, kind;
  int64_t step = -1;
  Flags flags("lockstep trace", "a step of a job, rank by rank, as a file for the Perfetto UI", "JOB");
  add_server_flags(flags, &server)
      .number(&step, "--step", "N", "which step (default: the newest of which there is detail)", 0, INT64_MAX)
      .text(&ranks, "--ranks", "LIST", "which ranks, such as 0-7,64 (default: all of which there is detail)")
      .text(&output, "-o", "FILE", "where to write (default: JOB-step-N.tar; - is standard output)")
      .text(&kind, "--format", "tar|pftrace",
            "tar: a file per rank and their clocks' offsets (default); pftrace: one file, times already aligned");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "exit codes: 0 written, 2 wrong usage, 3 no server, 4 no such job or no detail, 5 anything else\n"))
    return *code;
  if (kind.empty()) kind = output.ends_with(".pftrace") ? "pftrace" : "tar";
  if (kind != "tar" && kind != "pftrace") {
    std::fprintf(stderr, "lockstep trace: --format is tar or pftrace, not \"%s\"\n", kind.c_str());
    return kExitUsage;
  }
  const std::string& job = flags.positional()[0];
  const std::string number = step < 0 ? "latest" : std::to_string(step);
  std::string path = "/api/jobs/" + url_part(job) + "/steps/" + number + "/perfetto?format=" + kind;
  if (!ranks.empty()) path += "&ranks=" + url_part(ranks);
  Response answer = ask(server, path, "lockstep trace");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (output == "-") {
    const bool is_written = std::fwrite(answer.body.data(), 1, answer.body.size(), stdout) == answer.body.size() &&
                            std::fflush(stdout) == 0;
    if (!is_written) std::fprintf(stderr, "lockstep trace: standard output: %s\n", std::strerror(errno));
    return is_written ? kExitOk : kExitFailed;
  }
  if (output.empty()) output = suggested_name(answer);
  if (output.empty()) output = "step." + kind;
  if (Result<void> written = write_file_atomically(output, answer.body); !written.ok()) {
    std::fprintf(stderr, "lockstep trace: %s\n", written.error().c_str());
    return kExitFailed;
  }
  std::printf("%s: step %s of %s, %s ranks, %s; %s. Open it with the Perfetto UI (Open trace file).\n", output.c_str(),
              answer.header("x-lockstep-step").c_str(), job.c_str(),
              with_thousands(number_of(answer, "x-lockstep-ranks")).c_str(),
              human_bytes(static_cast<double>(answer.body.size())).c_str(), clocks_text(answer).c_str());
  return kExitOk;
}

}  // namespace lockstep::cli
