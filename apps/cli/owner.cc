// `lockstep owner list|takeover`: whose hosts and jobs are whose.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

void print_owners(const Json&, const simdjson::dom::array& owners) {
  if (owners.size() == 0) std::puts("No name has an owner: nothing was sent with a token yet.");
  for (Json one : owners) {
    std::printf("%-5s %-40s %s\n", text_of(one, "kind").c_str(), text_of(one, "name").c_str(),
                text_of(one, "owner").c_str());
  }
}

int list(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep owner list", "which hosts and jobs belong to which owner of tokens");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  return show_list({server, "/api/owners", "lockstep owner list", json}, "owners", print_owners);
}

int takeover(const Arguments& arguments) {
  std::string server = default_server(), owner;
  Flags flags("lockstep owner takeover", "gives a host or a job to another owner: its tokens may feed it from now on",
              "host|job NAME...");
  add_server_flags(flags, &server)
      .text(&owner, "--owner", "OWNER", "to whom (default: the owner of your token); lockstep token list shows owners");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::vector<std::string>& words = flags.positional();
  if (words.size() != 2 || (words[0] != "host" && words[0] != "job")) {
    std::fputs("lockstep owner takeover: say host or job, and its name\n", stderr);
    return kExitUsage;
  }
  JsonWriter body;
  body.begin_object().field("kind", words[0]).field("name", words[1]);
  if (!owner.empty()) body.field("owner", owner);
  body.end_object();
  const Response answer = post(server, "/api/owners/takeover", body.take(), "lockstep owner takeover");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  std::printf("%s %s has another owner now\n", words[0].c_str(), words[1].c_str());
  return kExitOk;
}

}  // namespace

int run_owner(const Arguments& arguments) {
  return run_subcommand("lockstep owner", "whose hosts and jobs are whose", {{"list", list}, {"takeover", takeover}},
                        arguments);
}

}  // namespace lockstep::cli
