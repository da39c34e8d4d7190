#include "apps/cli/server_call.h"

#include <simdjson.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/secret_file.h"
#include "base/text.h"
#include "net/http_client.h"
#include "net/server_ports.h"

namespace lockstep::cli {
namespace {
constexpr int64_t kTimeoutMs = 10'000, kPortsMs = 2'000;
constexpr uint64_t kBodyBytesMax = 256ull << 20;
}  // namespace

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

// Servers that were given by another of their ports, and where their API is. One for the process.
std::map<std::string, Url>& found_apis() {
  static std::map<std::string, Url> found;
  return found;
}

// The server's lines name paths of its API; whoever types commands is told the command.
std::string in_commands(std::string line) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"/api/verdicts?state=all lists them", "lockstep why JOB --history shows a job's"},
      {"/api/jobs lists", "lockstep jobs lists"},
      {"/api/sle lists", "lockstep sle lists"},
  };
  for (const auto& [path, command] : kWords) {
    if (const size_t at = line.find(path); at != std::string::npos) line.replace(at, path.size(), command);
  }
  return line;
}

// Of the server. Empty: none is to be sent.
Result<std::string> server_token() {
  std::string file = access().token_file;
  const char* named = std::getenv("LOCKSTEP_TOKEN_FILE");
  const bool by_option = !file.empty();
  if (!by_option && named != nullptr) file = named;
  if (file.empty()) return std::string();
  Result<std::string> read = read_private_file(file);
  if (!read.ok()) return prefixed(read.failure(), (by_option ? "--token-file: " : "LOCKSTEP_TOKEN_FILE: "));
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

std::string Response::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

ServerCalls::ServerCalls(const std::string& server, std::string command, int64_t timeout_ms)
    : ServerCalls(server, std::move(command), timeout_ms, server_token()) {}

ServerCalls::ServerCalls(const std::string& server, std::string command, int64_t timeout_ms, Result<std::string> token)
    : command_(std::move(command)), server_(server), timeout_ms_(timeout_ms) {
  Result<Url> url = parse_url(server, 7070);
  if (const auto found = found_apis().find(server); found != found_apis().end()) url = found->second;
  if (!url.ok()) {
    problem_ = format("%s: --server: %s", command_.c_str(), url.error().c_str());
  } else if (!token.ok()) {
    problem_ = format("%s: %s", command_.c_str(), token.error().c_str());
  } else {
    token_ = std::move(*token);
    url_ = std::move(*url);
    client_.emplace(url_, timeout_ms, kBodyBytesMax, access().tls);
  }
}

bool ServerCalls::find_api() {
  if (std::exchange(ports_asked_, true)) return false;
  const Result<ServerPorts> ports = ask_server_ports(url_, std::min(timeout_ms_, kPortsMs), access().tls);
  if (!ports.ok()) return false;
  Result<Url> api = url_of(url_, *ports, Listener::kHttp);
  if (!api.ok()) wrong_port_ = api.error();
  if (!api.ok() || api->port == url_.port) return false;
  url_ = std::move(*api);
  found_apis()[server_] = url_;
  client_.emplace(url_, timeout_ms_, kBodyBytesMax, access().tls);
  return true;
}

std::string page_of(const std::string& server) {
  if (const auto found = found_apis().find(server); found != found_apis().end()) return origin_of(found->second);
  std::string page = server;
  while (page.ends_with('/')) page.pop_back();
  return page;
}

Response ServerCalls::send(HttpRequest request) {
  if (!client_) return {kExitUsage, problem_, {}};
  if (!token_.empty()) request.headers.emplace_back("Authorization", "Bearer " + token_);
  Result<HttpResponse> answer = client_->send(request);
  // Whatever our API refuses, it says so in JSON, but for who may call.
  const bool is_elsewhere =
      answer.ok() ? answer->status >= 400 && !answer->header("content-type").starts_with("application/json")
                  : answer.code() == ErrorCode::kOtherProtocol;
  if (is_elsewhere && find_api()) answer = client_->send(request);
  if (!wrong_port_.empty()) return {kExitUsage, format("%s: --server: %s", command_.c_str(), wrong_port_.c_str()), {}};
  if (!answer.ok()) {
    return {kExitUnreachable,
            format("%s: no server: %s. Start one with lockstepd --data DIR, or try lockstep demo.", command_.c_str(),
                   answer.error().c_str()),
            {}};
  }
  if (answer->status == 200 || answer->status == 202 || answer->status == 206)
    return {kExitOk, {}, std::move(answer->body), std::move(answer->headers)};
  std::string why = format("the server answered %d", answer->status);
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  std::string_view line;
  if (!parser.parse(answer->body).get(document) && !document["error"].get_string().get(line)) {
    why = in_commands(as_one_line(line));
  } else if (answer->status == 401 || answer->status == 403) {
    why += ": " + as_one_line(trim(answer->body));
    if (token_.empty()) why += " (--token-file FILE or LOCKSTEP_TOKEN_FILE)";
  }
  return {answer->status == 404 ? kExitNotFound : kExitFailed, format("%s: %s", command_.c_str(), why.c_str()), {}};
}

Response ServerCalls::ask(const std::string& path) {
  HttpRequest request;
  request.path = path;
  return send(std::move(request));
}

Response ServerCalls::ask_bytes(const std::string& path, uint64_t from, uint64_t bytes) {
  HttpRequest request;
  request.path = path;
  request.headers = {{"range", format("bytes=%llu-%llu", static_cast<unsigned long long>(from),
                                      static_cast<unsigned long long>(from + bytes - 1))}};
  return send(std::move(request));
}

Response ServerCalls::post(const std::string& path, const std::string& json) {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = {{"content-type", "application/json"}};
  request.body = json;
  return send(std::move(request));
}

Response ask(const std::string& server, const std::string& path, const std::string& command) {
  return ServerCalls(server, command, kTimeoutMs).ask(path);
}

Response ask_agent(const std::string& agent, const std::string& token_file, const std::string& path,
                   const std::string& command) {
  Result<std::string> token = token_file.empty() ? Result<std::string>(std::string()) : read_private_file(token_file);
  if (!token.ok()) token = prefixed(token.failure(), "--agent-token-file: ");
  return ServerCalls(agent, command, kTimeoutMs, std::move(token)).ask(path);
}

Response post(const std::string& server, const std::string& path, const std::string& json, const std::string& command) {
  return ServerCalls(server, command, kTimeoutMs).post(path, json);
}

int print_failure(const Response& answer) {
  std::fprintf(stderr, "%s\n", answer.message.c_str());
  return answer.exit_code;
}

}  // namespace lockstep::cli
