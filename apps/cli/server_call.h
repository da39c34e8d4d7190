// Asking the server, for commands: one request, the answer's JSON, and errors worded once for all commands.
//
// Thread rule: Confined.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/commands.h"
#include "base/flags.h"
#include "base/result.h"
#include "net/http_client.h"

namespace lockstep::cli {

// --server, else $LOCKSTEP_SERVER, else http://127.0.0.1:7070. Any of the server's addresses will do: what answers at
// another of its ports says where the page and API are (net/server_ports.h).
std::string default_server();
// Where the page of that server is, as far as its answers so far have shown: for links.
std::string page_of(const std::string& server);
// --server with what a server may ask for: --ca, --cert, --key, --token-file (else $LOCKSTEP_TOKEN_FILE). They hold for
// every ask() and post() of this process, which runs one command. A token is never on the command line, where every
// user of the machine can read it.
Flags& add_server_flags(
    Flags& flags, std::string* server,
    std::string help = "the server, any of its addresses (default $LOCKSTEP_SERVER, else http://127.0.0.1:7070)");

struct Response {
  int exit_code = kExitOk;  // not kExitOk: `message` says why, in one line
  std::string message;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string header(std::string_view name) const;           // empty where absent
};
Response ask(const std::string& server, const std::string& path, const std::string& command);
// The same of an agent, which never gets the server's token. token_file: of the agent's own; empty: none.
Response ask_agent(const std::string& agent, const std::string& token_file, const std::string& path,
                   const std::string& command);
// The same as ask() by POST, with a body of JSON.
Response post(const std::string& server, const std::string& path, const std::string& json, const std::string& command);
// Many calls to one server over one connection.
class ServerCalls {
 public:
  // command: what lines begin with. timeout_ms: for each call.
  ServerCalls(const std::string& server, std::string command, int64_t timeout_ms);
  // token: instead of the server's; empty: none is sent. A failure is every call's.
  ServerCalls(const std::string& server, std::string command, int64_t timeout_ms, Result<std::string> token);
  Response ask(const std::string& path);
  Response ask_bytes(const std::string& path, uint64_t from, uint64_t bytes);  // that part of a file
  Response post(const std::string& path, const std::string& json);

 private:
  Response send(HttpRequest request);
  bool find_api();  // true: it is at another port, and calls go there from now on

  const std::string command_;
  const std::string server_;
  const int64_t timeout_ms_;
  Url url_;
  bool ports_asked_ = false;
  std::string wrong_port_;            // why the address will not do, where the server says so
  std::optional<HttpClient> client_;  // none: no call can be made, as problem_ says
  std::string problem_, token_;
};
// Says on standard error why there is no answer; the exit code of the command.
int print_failure(const Response& answer);

}  // namespace lockstep::cli
