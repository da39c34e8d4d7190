// `lockstep alerts`: what fires and who was told; silences of it.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "apps/cli/wrapped.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep alerts";

std::string moment(Json row, const char* key) {
  int64_t unix_ns = 0;
  if (row[key].get_int64().get(unix_ns) || unix_ns == 0) return "-";
  return utc_time(unix_ns / 1'000'000, "%Y-%m-%d %H:%M:%S");
}

// Indented; wrapped where the output has a width, else one line.
void print_line(const std::string& text) {
  std::fputs(wrapped_row(text, 2).c_str(), stdout);
}

void print_alerts(const Json& document, const simdjson::dom::array& alerts) {
  for (Json alert : alerts) {
    const bool firing = text_of(alert, "state") == "firing";
    std::printf("%s %s (%s)\n", firing ? painted(Paint::kBad, "FIRING  ").c_str() : "resolved",
                text_of(alert, "name").c_str(), text_of(alert, "severity").c_str());
    print_line(text_of(alert, "sentence"));
    print_line(format("since %s UTC%s; told: %s", moment(alert, "starts_unix_ns").c_str(),
                      firing ? "" : (" to " + moment(alert, "ends_unix_ns")).c_str(),
                      text_of(alert, "delivery").c_str()));
    Json annotations;
    if (!alert["annotations"].get(annotations)) {
      for (const char* name : {"cost", "action", "link"}) {
        if (const std::string text = text_of(annotations, name); !text.empty())
          print_line(std::string(name) + ": " + text);
      }
    }
    for (Json one : list_of(alert, "deliveries")) {
      if (text_of(one, "state") == "delivered") continue;
      std::printf("  %s of %s: %s after %.0f attempts: %s\n", text_of(one, "status").c_str(),
                  text_of(one, "receiver").c_str(), text_of(one, "state").c_str(), number_of(one, "attempts"),
                  text_of(one, "error").c_str());
    }
    std::printf("\n");
  }
  for (Json one : list_of(document, "alertmanagers")) {
    if (const std::string error = text_of(one, "error"); !error.empty())
      std::printf("Alertmanager %s: %s\n", text_of(one, "url").c_str(), error.c_str());
  }
}

std::string precision_text(Json row) {
  const double right = number_of(row, "right"), wrong = number_of(row, "wrong");
  return right + wrong > 0 ? format("%.0f %%", 100 * right / (right + wrong)) : "nobody has said";
}

int noise(const std::string& server, bool json) {
  return show_list({server, "/api/alerts?state=noise", kProgram, json}, "noise",
                   [](const Json& document, const simdjson::dom::array& rows) {
                     std::printf("%-28s %9s %6s %6s %6s  %s\n", "ALERT", "EPISODES", "FLAPS", "RIGHT", "WRONG",
                                 "PRECISION");
                     for (Json row : rows)
                       std::printf("%-28s %9.0f %6.0f %6.0f %6.0f  %s\n", text_of(row, "name").c_str(),
                                   number_of(row, "episodes"), number_of(row, "flaps"), number_of(row, "right"),
                                   number_of(row, "wrong"), precision_text(row).c_str());
                     std::printf("\n%-45s %6s %6s  %s\n", "CAUSE OF A VERDICT", "RIGHT", "WRONG", "PRECISION");
                     for (Json row : list_of(document, "causes"))
                       std::printf("%-45s %6.0f %6.0f  %s\n", text_of(row, "cause").c_str(), number_of(row, "right"),
                                   number_of(row, "wrong"), precision_text(row).c_str());
                   });
}

int list(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false, all = false, with_noise = false;
  Flags flags(kProgram, "what fires, since when, what it costs, and whether those who should know were told");
  add_server_flags(flags, &server)
      .toggle(&all, "--all", "also what is over")
      .toggle(&with_noise, "--noise",
              "instead: how often each alert fired, and was right by what people said of its verdicts")
      .toggle(&json, "--json", "the answer as JSON");
  add_watch_flag(flags, list);
  if (std::optional<int> code =
          answered(flags, arguments,
                   "besides: lockstep alerts silence LABEL=VALUE..., silences, unsilence ID, actions\n"
                   "exit codes: 0 nothing fires, 1 something does, 2 wrong usage, 3 no server, 5 "
                   "anything else\n"))
    return *code;
  if (with_noise) return noise(server, json);
  const Response answer = ask(server, all ? "/api/alerts?state=all" : "/api/alerts", kProgram);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json document;
  simdjson::dom::array alerts;
  if (parser.parse(answer.body).get(document) || document["alerts"].get_array().get(alerts))
    return not_understood(kProgram);
  bool firing = false;
  for (Json alert : alerts) firing |= text_of(alert, "state") == "firing";
  if (json) {
    std::printf("%s\n", answer.body.c_str());
  } else {
    if (!firing) std::printf("No alert fires.\n%s", alerts.size() == 0 ? "" : "\n");
    print_alerts(document, alerts);
  }
  return firing ? kExitNo : kExitOk;
}

// host=gpu-017 -> host="gpu-017"; with =~, != and !~ likewise.
Result<std::string> matchers_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const size_t at = word.find_first_of("=!");
    const bool two = at != std::string::npos && at + 1 < word.size() && (word[at + 1] == '~' || word[at + 1] == '=');
    if (at == 0 || at == std::string::npos || (word[at] == '!' && !two))
      return Error{format("\"%s\" is no LABEL=VALUE", as_one_line(word).c_str())};
    std::string value;
    for (const char one : word.substr(at + (two ? 2 : 1)))
      value += (one == '"' || one == '\\' ? "\\" : "") + std::string(1, one);
    text += (text.empty() ? "" : ",") + word.substr(0, at + (two ? 2 : 1)) + "\"" + value + "\"";
  }
  return "{" + text + "}";
}

int silence(const Arguments& arguments) {
  std::string server = default_server(), lasts = "2h", comment, begins_in;
  bool planned = false;
  Flags flags("lockstep alerts silence", "alerts whose labels match are sent to nobody for a while", "LABEL=VALUE...");
  add_server_flags(flags, &server)
      .text(&lasts, "--for", "TIME", "how long, like 2h or 7d (default 2h)")
      .text(&begins_in, "--in", "TIME", "from then on instead of now")
      .toggle(&planned, "--planned",
              "maintenance, or a job that is paused: its GPUs are idle, not degraded (job, host and gpu alone)")
      .text(&comment, "--comment", "TEXT", "why");
  if (std::optional<int> code =
          answered(flags, arguments, "example: lockstep alerts silence host=gpu-017 --for 4h --comment 'new cable'\n"))
    return *code;
  const Result<std::string> matchers = matchers_of(flags.positional());
  int64_t in_ms = 0;
  std::string wrong = matchers.ok() ? "" : matchers.error();
  if (wrong.empty() && !begins_in.empty()) wrong = parse_duration_ms(begins_in, &in_ms);
  if (!wrong.empty()) {
    std::fprintf(stderr, "lockstep alerts silence: %s\n", wrong.c_str());
    return kExitUsage;
  }
  JsonWriter body;
  body.begin_object()
      .field("matchers", *matchers)
      .field("for", lasts)
      .field("comment", comment)
      .field("planned", planned);
  if (in_ms > 0) {
    body.field("starts_unix_ns", SystemClock().unix_ns() + in_ms * 1'000'000);
  }
  body.end_object();
  const Response answer = post(server, "/api/silences", body.take(), "lockstep alerts silence");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json made;
  if (parser.parse(answer.body).get(made)) return not_understood("lockstep alerts silence");
  std::printf("silence %s: %s until %s UTC%s\n", text_of(made, "id").c_str(), text_of(made, "matchers").c_str(),
              moment(made, "ends_unix_ns").c_str(), planned ? "; its minutes are idle" : "");
  return kExitOk;
}

bool is_planned(const Json& silence) {
  bool planned = false;
  return !silence["planned"].get(planned) && planned;
}

int silences(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep alerts silences", "which silences there are");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  return show_list({server, "/api/silences", "lockstep alerts silences", json}, "silences",
                   [](const Json&, const simdjson::dom::array& rows) {
                     std::printf("%-15s %-8s %-20s %-20s %-20s %s\n", "ID", "STATE", "FROM (UTC)", "UNTIL", "BY",
                                 "WHICH");
                     for (Json row : rows)
                       std::printf("%-15s %-8s %-20s %-20s %-20s %s%s  %s\n", text_of(row, "id").c_str(),
                                   text_of(row, "state").c_str(), moment(row, "starts_unix_ns").c_str(),
                                   moment(row, "ends_unix_ns").c_str(), text_of(row, "created_by").c_str(),
                                   text_of(row, "matchers").c_str(), is_planned(row) ? " planned" : "",
                                   text_of(row, "comment").c_str());
                   });
}

void print_causes(const Json& action) {
  simdjson::dom::object causes;
  if (!action["causes"].get_object().get(causes)) {
    for (const auto& [cause, mode] : causes) {
      std::string_view text;
      if (!mode.get_string().get(text)) std::printf(" %s %s", as_one_line(cause).c_str(), as_one_line(text).c_str());
    }
  }
  std::printf("\n");
}

int actions(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep alerts actions",
              "what the server may do for verdicts by itself, what it did and would have done");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  return show_list({server, "/api/actions", "lockstep alerts actions", json}, "runs",
                   [](const Json& document, const simdjson::dom::array& rows) {
                     for (Json action : list_of(document, "actions")) {
                       std::printf("%s (%s), at most %.0f in %s:", text_of(action, "name").c_str(),
                                   text_of(action, "type").c_str(), number_of(action, "limit"),
                                   duration_text(static_cast<int64_t>(1000 * number_of(action, "every_s"))).c_str());
                       print_causes(action);
                     }
                     std::printf("\n%-20s %-12s %-14s %-18s %-16s %s\n", "AT (UTC)", "STATE", "ACTION", "CAUSE", "HOST",
                                 "WHAT CAME OF IT");
                     for (Json row : rows)
                       std::printf("%-20s %-12s %-14s %-18s %-16s %s\n", moment(row, "at_unix_ns").c_str(),
                                   text_of(row, "state").c_str(), text_of(row, "action").c_str(),
                                   text_of(row, "cause").c_str(), text_of(row, "host").c_str(),
                                   text_of(row, "line").c_str());
                   });
}

int unsilence(const Arguments& arguments) {
  std::string server = default_server();
  Flags flags("lockstep alerts unsilence", "ends a silence now: what it held back is sent", "ID");
  add_server_flags(flags, &server);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::string& id = flags.positional()[0];
  const Response answer = post(server, "/api/silences/" + url_part(id) + "/end", "{}", "lockstep alerts unsilence");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  std::printf("silence %s is over\n", as_one_line(id).c_str());
  return kExitOk;
}

}  // namespace

int run_alerts(const Arguments& arguments) {
  return run_subcommand(kProgram, "what fires",
                        {{"silence", silence}, {"silences", silences}, {"unsilence", unsilence}, {"actions", actions}},
                        arguments, list);
}

}  // namespace lockstep::cli
