// `lockstep verdict ID`: one verdict; with --right or --wrong, what a person says of it.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/why.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

int wrong_usage(const char* line) {
  std::fprintf(stderr, "lockstep verdict: %s\n", line);
  return kExitUsage;
}

}  // namespace

int run_verdict(const Arguments& arguments) {
  std::string server = default_server(), cause, note;
  bool json = false, right = false, wrong = false, take_back = false;
  Flags flags("lockstep verdict", "one verdict; says whether it was right, so that later ones learn from it", "ID");
  add_server_flags(flags, &server)
      .toggle(&right, "--right", "it was right")
      .toggle(&wrong, "--wrong", "it was wrong")
      .text(&cause, "--cause", "CAUSE", "with --wrong: what it was instead (docs/guide/verdicts.md lists the causes)")
      .text(&note, "--note", "TEXT", "anything worth knowing, up to 1000 bytes")
      .toggle(&take_back, "--take-back", "forget what was said of it")
      .toggle(&json, "--json", "the verdict as JSON");
  if (std::optional<int> code = answered(
          flags, arguments, "exit codes: 0 answered, 2 wrong usage, 3 no server, 4 no such verdict, 5 anything else\n"))
    return *code;
  if (right + wrong + take_back > 1) return wrong_usage("--right, --wrong and --take-back exclude each other");
  if (!cause.empty() && !wrong) return wrong_usage("--cause says what it was instead, so it needs --wrong");
  if (!note.empty() && !right && !wrong) return wrong_usage("--note needs --right or --wrong");
  const std::string path = "/api/verdicts/" + url_part(flags.positional()[0]);
  Response answer;
  if (right || wrong || take_back) {
    JsonWriter body;
    body.begin_object();
    if (take_back) {
      body.key("right").null();
    } else {
      body.field("right", right);
    }
    if (!cause.empty()) body.field("cause", cause);
    if (!note.empty()) body.field("note", note);
    body.end_object();
    answer = post(server, path + "/feedback", body.take(), "lockstep verdict");
  } else {
    answer = ask(server, path, "lockstep verdict");
  }
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json verdict;
  if (parser.parse(answer.body).get(verdict) || !verdict.is_object()) return not_understood("lockstep verdict");
  print_verdict(verdict, page_of(server));
  return kExitOk;
}

}  // namespace lockstep::cli
