// `lockstep token create|list|revoke`: who may do what on a server.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/duration.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

std::string words_of(const Json& row, const char* key) {
  std::string text;
  for (Json item : list_of(row, key)) {
    std::string_view value;
    if (!item.get_string().get(value)) text += (text.empty() ? "" : ",") + as_one_line(value);
  }
  return text;
}

std::string time_of(Json row, const char* key) {
  int64_t unix_ns = 0;
  if (row[key].get_int64().get(unix_ns) || unix_ns == 0) return "-";
  return utc_time(unix_ns / 1'000'000, "%Y-%m-%d %H:%M");
}

int create(const Arguments& arguments) {
  std::string server = default_server(), name, owner, expires;
  std::vector<std::string> roles, tenants;
  Flags flags("lockstep token create",
              "makes a token and prints it on standard output: the only time that it is shown");
  add_server_flags(flags, &server)
      .list(&roles, "--role", "ROLE",
            "ingest (send data), read, operate (read, and command agents), admin (everything but ingest)")
      .list(&tenants, "--tenant", "NAME", "whose data it is for, * for all (default: your own; of the first token: *)")
      .text(&name, "--name", "TEXT", "what people call it; the audit log shows it")
      .text(&expires, "--expires", "TIME", "how long it is valid, like 90d (default: until it is revoked)")
      .text(&owner, "--owner", "TEXT",
            "whose hosts and jobs it feeds; tokens of one owner share them (default: its own)");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (roles.empty()) {
    std::fputs("lockstep token create: --role says what it may do: ingest, read, operate or admin\n", stderr);
    return kExitUsage;
  }
  JsonWriter body;
  body.begin_object().key("roles").begin_array();
  for (const std::string& role : roles) body.string(role);
  body.end_array();
  if (!tenants.empty()) {
    body.key("tenants").begin_array();
    for (const std::string& tenant : tenants) body.string(tenant);
    body.end_array();
  }
  if (!name.empty()) body.field("name", name);
  if (!owner.empty()) body.field("owner", owner);
  if (!expires.empty()) {
    int64_t milliseconds = 0;
    std::string wrong = parse_duration_ms(expires, &milliseconds);
    if (wrong.empty() && milliseconds < 1000) wrong = "at least a second";
    if (!wrong.empty()) {
      std::fprintf(stderr, "lockstep token create: --expires: %s\n", wrong.c_str());
      return kExitUsage;
    }
    body.field("expires_s", milliseconds / 1000);
  }
  body.end_object();
  const Response answer = post(server, "/api/tokens", body.take(), "lockstep token create");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json made;
  if (parser.parse(answer.body).get(made) || text_of(made, "token").empty())
    return not_understood("lockstep token create");
  const std::string ends = time_of(made, "expires_unix_ns");
  std::printf("%s\n", text_of(made, "token").c_str());
  std::fprintf(stderr,
               "token %s, role %s, tenant %s, %s%s; it is not shown again: keep it in a file (chmod 600) and give that "
               "with --token-file\n",
               text_of(made, "id").c_str(), words_of(made, "roles").c_str(), words_of(made, "tenants").c_str(),
               ends == "-" ? "without an end" : "until ", ends == "-" ? "" : ends.c_str());
  return kExitOk;
}

void print_tokens(const Json&, const simdjson::dom::array& tokens) {
  std::printf("%-10s %-14s %-14s %-16s %-17s %-17s %-8s %s\n", "ID", "ROLES", "TENANTS", "OWNER", "EXPIRES",
              "LAST USED", "STATE", "NAME");
  for (Json token : tokens) {
    bool is_valid = false;
    if (token["valid"].get_bool().get(is_valid)) is_valid = false;
    const char* state = is_valid ? "valid" : time_of(token, "revoked_unix_ns") != "-" ? "revoked" : "expired";
    std::printf("%-10s %-14s %-14s %-16s %-17s %-17s %-8s %s\n", text_of(token, "id").c_str(),
                words_of(token, "roles").c_str(), words_of(token, "tenants").c_str(), text_of(token, "owner").c_str(),
                time_of(token, "expires_unix_ns").c_str(), time_of(token, "last_used_unix_ns").c_str(), state,
                text_of(token, "name").c_str());
  }
}

int list(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep token list", "which tokens there are, without their secrets");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  return show_list({server, "/api/tokens", "lockstep token list", json}, "tokens", print_tokens);
}

int revoke(const Arguments& arguments) {
  std::string server = default_server();
  Flags flags("lockstep token revoke", "ends a token: from now on it opens nothing", "ID");
  add_server_flags(flags, &server);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::string& id = flags.positional()[0];
  const Response answer = post(server, "/api/tokens/" + url_part(id) + "/revoke", "{}", "lockstep token revoke");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  std::printf("token %s is revoked\n", id.c_str());
  return kExitOk;
}

}  // namespace

int run_token(const Arguments& arguments) {
  return run_subcommand("lockstep token", "who may do what on a server",
                        {{"create", create}, {"list", list}, {"revoke", revoke}}, arguments);
}

}  // namespace lockstep::cli
