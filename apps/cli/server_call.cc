#include "apps/cli/server_call.h"

#include <simdjson.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "net/http_client.h"

namespace lockstep::cli {

std::string default_server() {
  const char* server = std::getenv("LOCKSTEP_SERVER");
  return server != nullptr && *server != '\0' ? server : "http://127.0.0.1:7070";
}

std::string Answer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

namespace {

Answer send(const std::string& server, HttpRequest request, const std::string& command) {
  Result<Url> url = parse_url(server, 7070);
  if (!url.ok()) return {kExitUsage, format("%s: --server: %s", command.c_str(), url.error().c_str()), {}};
  HttpClient client(*url);
  Result<HttpResponse> answer = client.send(request);
  if (!answer.ok()) {
    return {kExitUnreachable,
            format("%s: no server: %s. Start one with lockstepd --data DIR, or try lockstep demo.", command.c_str(),
                   answer.error().c_str()),
            {}};
  }
  if (answer->status == 200 || answer->status == 202)
    return {kExitOk, {}, std::move(answer->body), std::move(answer->headers)};
  std::string why = format("the server answered %d", answer->status);
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  std::string_view line;
  if (!parser.parse(answer->body).get(document) && !document["error"].get_string().get(line)) why = std::string(line);
  return {answer->status == 404 ? kExitNotFound : kExitFailed, format("%s: %s", command.c_str(), why.c_str()), {}};
}

}  // namespace

Answer ask(const std::string& server, const std::string& path, const std::string& command) {
  HttpRequest request;
  request.path = path;
  return send(server, std::move(request), command);
}

Answer tell(const std::string& server, const std::string& path, const std::string& json, const std::string& command) {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = {{"content-type", "application/json"}};
  request.body = json;
  return send(server, std::move(request), command);
}

int print_failure(const Answer& answer) {
  std::fprintf(stderr, "%s\n", answer.message.c_str());
  return answer.exit_code;
}

}  // namespace lockstep::cli
