#include "apps/cli/answer_json.h"

#include <cstdio>

#include "apps/cli/commands.h"

namespace lockstep::cli {

int not_understood(const std::string& command) {
  std::fprintf(stderr, "%s: the server's answer is not what this version understands\n", command.c_str());
  return kExitFailed;
}

int show_list(const Question& question, const char* key,
              const std::function<void(const Json& document, const simdjson::dom::array& rows)>& show) {
  const Answer answer = ask(question.server, question.path, question.command);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (question.json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json document;
  simdjson::dom::array rows;
  if (parser.parse(answer.body).get(document) || document[key].get_array().get(rows))
    return not_understood(question.command);
  show(document, rows);
  return kExitOk;
}

}  // namespace lockstep::cli
