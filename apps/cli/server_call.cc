#include "apps/cli/server_call.h"

#include <simdjson.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "net/http_client.h"

namespace lockstep::cli {
namespace {
constexpr int64_t kTimeoutMs = 10'000;
}

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

ServerCalls::ServerCalls(const std::string& server, std::string command, int64_t timeout_ms)
    : command_(std::move(command)) {
  Result<Url> url = parse_url(server, 7070);
  if (url.ok()) {
    client_.emplace(std::move(*url), timeout_ms);
  } else {
    address_problem_ = format("%s: --server: %s", command_.c_str(), url.error().c_str());
  }
}

Answer ServerCalls::send(const HttpRequest& request) {
  if (!client_) return {kExitUsage, address_problem_, {}};
  Result<HttpResponse> answer = client_->send(request);
  if (!answer.ok()) {
    return {kExitUnreachable,
            format("%s: no server: %s. Start one with lockstepd --data DIR, or try lockstep demo.", command_.c_str(),
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
  return {answer->status == 404 ? kExitNotFound : kExitFailed, format("%s: %s", command_.c_str(), why.c_str()), {}};
}

Answer ServerCalls::ask(const std::string& path) {
  HttpRequest request;
  request.path = path;
  return send(request);
}

Answer ServerCalls::tell(const std::string& path, const std::string& json) {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = {{"content-type", "application/json"}};
  request.body = json;
  return send(request);
}

Answer ask(const std::string& server, const std::string& path, const std::string& command) {
  return ServerCalls(server, command, kTimeoutMs).ask(path);
}

Answer tell(const std::string& server, const std::string& path, const std::string& json, const std::string& command) {
  return ServerCalls(server, command, kTimeoutMs).tell(path, json);
}

int print_failure(const Answer& answer) {
  std::fprintf(stderr, "%s\n", answer.message.c_str());
  return answer.exit_code;
}

}  // namespace lockstep::cli
