#include "apps/cli/server_call.h"

#include <simdjson.h>

#include <cstdio>
#include <cstdlib>

#include "base/secret_file.h"
#include "base/text.h"
#include "net/http_client.h"

namespace lockstep::cli {

std::string default_server() {
  const char* server = std::getenv("LOCKSTEP_SERVER");
  return server != nullptr && *server != '\0' ? server : "http://127.0.0.1:7070";
}

namespace {

// One for the process, which runs one command.
std::string& token_file() {
  static std::string given;
  return given;
}

// Of the server. Empty: none is to be sent.
Result<std::string> server_token() {
  const char* named = std::getenv("LOCKSTEP_TOKEN_FILE");
  std::string file = token_file();
  if (file.empty() && named != nullptr) file = named;
  if (file.empty()) return std::string();
  return read_secret_file(file);
}

}  // namespace

Flags& add_server_flags(Flags& flags, std::string* server, std::string help) {
  return flags.text(server, "--server", "URL", std::move(help))
      .text(&token_file(), "--token-file", "FILE", "sent as bearer token (default $LOCKSTEP_TOKEN_FILE)");
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
  const Result<std::string> token = server_token();
  if (!token.ok()) return {kExitUsage, format("%s: --token-file: %s", command.c_str(), token.error().c_str()), {}};
  if (!token->empty()) request.headers.emplace_back("authorization", "Bearer " + *token);
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
  if (!parser.parse(answer->body).get(document) && !document["error"].get_string().get(line)) {
    why = std::string(line);
  } else if (answer->status == 401 || answer->status == 403 || answer->status == 429) {
    why = as_one_line(trim(std::string_view(answer->body).substr(0, 300)));
    if (answer->status == 401 && token->empty()) why += " (--token-file FILE, or LOCKSTEP_TOKEN_FILE)";
  }
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
