#include "apps/cli/answer_json.h"

#include <cstdio>

#include "apps/cli/commands.h"

namespace lockstep::cli {

int not_understood(const std::string& command) {
  std::fprintf(stderr, "%s: the server's answer is not what this version understands\n", command.c_str());
  return kExitFailed;
}

int show_answer(const Question& question, const std::function<bool(const Json& document)>& show) {
  const Response answer = ask(question.server, question.path, question.command);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (question.json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(answer.body).get(document) || !show(document)) return not_understood(question.command);
  return kExitOk;
}

int show_list(const Question& question, const char* key,
              const std::function<void(const Json& document, const simdjson::dom::array& rows)>& show) {
  return show_answer(question, [&](const Json& document) {
    simdjson::dom::array rows;
    if (document[key].get_array().get(rows)) return false;
    show(document, rows);
    return true;
  });
}

}  // namespace lockstep::cli
