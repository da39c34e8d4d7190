// Asking the server, for commands: one request, the answer's JSON, and errors worded once for all commands.
//
// Thread rule: Confined.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/commands.h"
#include "base/flags.h"
#include "base/result.h"

namespace lockstep::cli {

// --server, else $LOCKSTEP_SERVER, else http://127.0.0.1:7070
std::string default_server();

// --server with what a server may ask for: --token-file (else $LOCKSTEP_TOKEN_FILE). It holds for every ask() and tell()
// of this process, which runs one command. A token is never on the command line, where every user of the machine can
// read it.
Flags& add_server_flags(Flags& flags, std::string* server,
                        std::string help = "the server (default $LOCKSTEP_SERVER, else http://127.0.0.1:7070)");

struct Answer {
  int exit_code = kExitOk;  // not kExitOk: `message` says why, in one line
  std::string message;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string header(std::string_view name) const;           // empty where absent
};
Answer ask(const std::string& server, const std::string& path, const std::string& command);
// The same by POST, with a body of JSON.
Answer tell(const std::string& server, const std::string& path, const std::string& json, const std::string& command);
// Says on standard error why there is no answer; the exit code of the command.
int print_failure(const Answer& answer);

}  // namespace lockstep::cli
