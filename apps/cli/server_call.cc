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

struct Access {
  TlsOptions tls;
  std::string token_file;
};

// One for the process, which runs one command.
Access& access() {
  static Access given;
  return given;
}

// Of the server. Empty: none is to be sent.
Result<std::string> server_token() {
  std::string file = access().token_file;
  const char* named = std::getenv("LOCKSTEP_TOKEN_FILE");
  const bool by_option = !file.empty();
  if (!by_option && named != nullptr) file = named;
  if (file.empty()) return std::string();
  Result<std::string> read = read_private_file(file);
  if (!read.ok()) return Error{(by_option ? "--token-file: " : "LOCKSTEP_TOKEN_FILE: ") + read.error()};
  return read;
}

}  // namespace

Flags& add_server_flags(Flags& flags, std::string* server, std::string help) {
  return flags.text(server, "--server", "URL", std::move(help))
      .text(&access().tls.ca_file, "--ca", "FILE", "trust this CA instead of the machine's")
      .text(&access().tls.certificate_file, "--cert", "FILE", "our certificate, for servers that ask for one (mTLS)")
      .text(&access().tls.key_file, "--key", "FILE", "its key")
      .text(&access().token_file, "--token-file", "FILE", "sent as bearer token (default $LOCKSTEP_TOKEN_FILE)");
}

std::string Answer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

namespace {

Answer send(const std::string& server, HttpRequest request, const std::string& command,
            const Result<std::string>& shown = server_token()) {
  Result<Url> url = parse_url(server, 7070);
  if (!url.ok()) return {kExitUsage, format("%s: --server: %s", command.c_str(), url.error().c_str()), {}};
  if (!shown.ok()) return {kExitUsage, format("%s: %s", command.c_str(), shown.error().c_str()), {}};
  if (!shown->empty()) request.headers.emplace_back("Authorization", "Bearer " + *shown);
  HttpClient client(*url, 10'000, 256ull << 20, access().tls);
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
  } else if (answer->status == 401 || answer->status == 403) {
    why += ": " + as_one_line(trim(answer->body));
    if (shown->empty()) why += " (--token-file FILE or LOCKSTEP_TOKEN_FILE)";
  }
  return {answer->status == 404 ? kExitNotFound : kExitFailed, format("%s: %s", command.c_str(), why.c_str()), {}};
}

}  // namespace

Answer ask(const std::string& server, const std::string& path, const std::string& command) {
  HttpRequest request;
  request.path = path;
  return send(server, std::move(request), command);
}

Answer ask_agent(const std::string& agent, const std::string& token_file, const std::string& path,
                 const std::string& command) {
  HttpRequest request;
  request.path = path;
  if (token_file.empty()) return send(agent, std::move(request), command, std::string());
  Result<std::string> token = read_private_file(token_file);
  if (!token.ok()) token = Error{"--agent-token-file: " + token.error()};
  return send(agent, std::move(request), command, token);
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
