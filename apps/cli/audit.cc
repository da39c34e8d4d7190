// `lockstep audit`: what was done on a server by whom.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {

namespace {

void print_actions(const Json&, const simdjson::dom::array& rows) {
  for (Json row : rows) {
    const int status = static_cast<int>(number_of(row, "status"));
    // A row is there before its request is served: 0 until it is, and for good where the server ended meanwhile.
    const std::string result = status == 0 ? "in progress" : std::to_string(status);
    const std::string who = text_of(row, "who"), object = text_of(row, "object");
    std::printf("%s  %11s  %-30s %-22s %s%s%s\n",
                utc_time(static_cast<int64_t>(number_of(row, "at_unix_ns") / 1e6), "%Y-%m-%d %H:%M:%S").c_str(),
                result.c_str(), who.empty() ? "-" : who.c_str(), text_of(row, "peer").c_str(),
                text_of(row, "action").c_str(), object.empty() ? "" : "  ", object.c_str());
  }
}

}  // namespace

int run_audit(const Arguments& arguments) {
  std::string server = default_server(), who, action, since;
  int64_t limit = 100;
  bool json = false;
  Flags flags(
      "lockstep audit",
      "what was done by whom, newest first: everything that needs the roles operate or admin, and who was refused");
  add_server_flags(flags, &server)
      .text(&who, "--who", "TEXT", "only of callers whose name has this in it")
      .text(&action, "--action", "TEXT", "only actions with this in them, like /api/tokens")
      .text(&since, "--since", "TIME", "only of the last so long, like 7d")
      .number(&limit, "--limit", "N", "so many (default 100)", 1, 10'000)
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  std::string path = format("/api/audit?limit=%lld", static_cast<long long>(limit));
  for (const auto& [name, value] : {std::pair{"who", &who}, std::pair{"action", &action}, std::pair{"since", &since}}) {
    if (!value->empty()) path += format("&%s=%s", name, url_part(*value).c_str());
  }
  return show_list({server, path, "lockstep audit", json}, "audit", print_actions);
}

}  // namespace lockstep::cli
