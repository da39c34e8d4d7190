// `lockstep audit`: what was done on a server by whom.
#include <simdjson.h>

#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {

int run_audit(const Arguments& arguments) {
  std::string server = default_server(), who, action, since;
  int64_t limit = 100;
  bool json = false;
  Flags flags("lockstep audit",
              "what was done by whom, newest first: everything that needs the roles operate or admin");
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
  const Answer answer = ask(server, path, "lockstep audit");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  simdjson::dom::array rows;
  if (parser.parse(answer.body).get(document) || document["audit"].get_array().get(rows)) {
    std::fprintf(stderr, "lockstep audit: the server's answer is not what this version understands\n");
    return kExitFailed;
  }
  for (simdjson::dom::element row : rows) {
    const auto text = [&](const char* key) {
      std::string_view value;
      return row[key].get_string().get(value) ? std::string() : as_one_line(value);
    };
    const auto number = [&](const char* key) {
      int64_t value = 0;
      return row[key].get_int64().get(value) ? int64_t{0} : value;
    };
    // A row is there before its request is served: 0 until it is, and for good where the server ended meanwhile.
    const std::string result = number("status") == 0 ? "in progress" : std::to_string(number("status"));
    std::printf("%s  %11s  %-30s %-22s %s%s%s\n",
                utc_time(number("at_unix_ns") / 1'000'000, "%Y-%m-%d %H:%M:%S").c_str(), result.c_str(),
                text("who").empty() ? "-" : text("who").c_str(), text("peer").c_str(), text("action").c_str(),
                text("object").empty() ? "" : "  ", text("object").c_str());
  }
  return kExitOk;
}

}  // namespace lockstep::cli
