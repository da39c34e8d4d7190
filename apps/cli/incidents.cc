// `lockstep incidents`: what is broken, whom it hits and what it costs; where people stand with it.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/watch.h"
#include "apps/cli/why.h"
#include "apps/cli/wrapped.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep incidents";

std::string moment(const Json& row, const char* key) {
  int64_t unix_ns = 0;
  if (row[key].get_int64().get(unix_ns) || unix_ns == 0) return "-";
  return utc_time(unix_ns / 1'000'000, "%Y-%m-%d %H:%M:%S");
}

std::string joined(const simdjson::dom::array& texts, size_t most) {
  std::string list;
  size_t count = 0;
  for (Json one : texts) {
    std::string_view text;
    if (one.get_string().get(text) || ++count > most) continue;
    list += (list.empty() ? "" : ", ") + as_one_line(text);
  }
  if (count > most) list += format(" and %zu more", count - most);
  return list;
}

std::string some(double number, const char* what) {
  return with_thousands(static_cast<int64_t>(number)) + " " + what + (number == 1 ? "" : "s");
}

// The state in capitals where a person is needed.
std::string state_word(const Json& incident) {
  const std::string state = text_of(incident, "state");
  bool active = false;
  if (incident["active"].get_bool().get(active)) active = false;
  return (state == "open" ? "OPEN" : state) + (active ? "" : state == "resolved" ? "" : ", no longer seen");
}

void print_summary(const Json& incident) {
  std::printf("%s  %s  %s, %s\n", text_of(incident, "id").c_str(), state_word(incident).c_str(),
              text_of(incident, "component_text").c_str(), text_of(incident, "severity").c_str());
  print_wrapped(text_of(incident, "sentence"), 2);
  const std::string end = moment(incident, "end_unix_ns");
  std::printf("  since %s UTC%s\n", moment(incident, "begin_unix_ns").c_str(),
              end == "-" ? "" : (", last seen " + end).c_str());
  const std::string jobs = joined(list_of(incident, "job_ids"), 5);
  const std::pair<const char*, std::string> rows[] = {{"jobs", jobs},
                                                      {"cost", text_of(incident, "cost")},
                                                      {"again", text_of(incident, "repeat")},
                                                      {"do", text_of(incident, "action")},
                                                      {"taken by", text_of(incident, "acknowledged_by")}};
  for (const auto& [label, text] : rows) {
    if (!text.empty()) print_wrapped(text, 12, std::string("  ") + label);
  }
}

void print_incident(const Json& incident, const std::string& page) {
  print_summary(incident);
  for (Json job : list_of(incident, "jobs")) {
    Json completion;
    if (!job["completion"].get(completion) && completion.is_object())
      print_wrapped(text_of(job, "job_id") + ": " + text_of(completion, "sentence"), 12, "  ends");
  }
  Json radius;
  bool known = false;
  if (!incident["blast_radius"].get(radius) && !radius["known"].get_bool().get(known) && known)
    print_wrapped(some(number_of(radius, "gpus"), "GPU") + " on " + some(number_of(radius, "hosts"), "host") + " in " +
                      some(number_of(radius, "jobs_total"), "job") + " depend on it",
                  12, "  radius");
  std::printf("\nwhen (UTC)\n");
  for (Json one : list_of(incident, "timeline")) {
    const std::string who = text_of(one, "who"), text = text_of(one, "text");
    print_wrapped(text_of(one, "what") + (who.empty() ? "" : " by " + who) + (text.empty() ? "" : ": " + text), 22,
                  "  " + moment(one, "at_unix_ns"));
  }
  for (const auto& [key, title] : {std::pair("earlier", "the same component at other times, in 30 days"),
                                   std::pair("beside", "on the same host at that time")}) {
    const simdjson::dom::array others = list_of(incident, key);
    if (others.size() > 0) std::printf("\n%s\n", title);
    for (Json one : others)
      print_wrapped(text_of(one, "id") + " (" + text_of(one, "state") + "): " + text_of(one, "sentence"), 22,
                    "  " + moment(one, "begin_unix_ns"));
  }
  for (Json verdict : list_of(incident, "verdicts")) {
    std::printf("\nevidence, job %s\n", text_of(verdict, "job_id").c_str());
    print_verdict(verdict, page);
  }
  std::printf("\n%s\n", text_of(incident, "link").c_str());
}

int list(const Arguments& arguments) {
  std::string server = default_server(), job, component;
  bool json = false, all = false;
  Flags flags(kProgram, "what is broken, since when, whom it hits, what it costs, who takes care of it");
  add_server_flags(flags, &server)
      .toggle(&all, "--all", "also what is resolved")
      .text(&job, "--job", "JOB", "only those that this job suffers from")
      .text(&component, "--component", "NAME", "only those of one component, like gpu:GPU-... or leaf:leaf-1")
      .toggle(&json, "--json", "the answer as JSON");
  add_watch_flag(flags, list);
  if (std::optional<int> code = answered(
          flags, arguments,
          "besides: lockstep incidents show ID [--markdown], ack ID, resolve ID, reopen ID, feedback ID "
          "--right|--wrong\n"
          "exit codes: 0 none is open, 1 some are, 2 wrong usage, 3 no server, 4 not found, 5 anything else\n"))
    return *code;
  std::string path = std::string("/api/incidents?limit=2000") + (all ? "&state=all" : "");
  if (!job.empty()) path += "&job=" + url_part(job);
  if (!component.empty()) path += "&component=" + url_part(component);
  const Response answer = ask(server, path, kProgram);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json document;
  simdjson::dom::array incidents;
  if (parser.parse(answer.body).get(document) || document["incidents"].get_array().get(incidents))
    return not_understood(kProgram);
  bool open = false;
  for (Json one : incidents) open |= text_of(one, "state") != "resolved";
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return open ? kExitNo : kExitOk;
  }
  if (!open) std::printf("No incident is open.\n");
  bool first = open;
  for (Json one : incidents) {
    if (!first) std::printf("\n");
    first = false;
    print_summary(one);
  }
  const simdjson::dom::array offenders = list_of(document, "offenders");
  if (offenders.size() > 0) std::printf("\nguilty more than once\n");
  for (Json one : offenders) print_wrapped(text_of(one, "sentence"), 2);
  return open ? kExitNo : kExitOk;
}

int show_text(const Response& answer, const std::string& server, bool json) {
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json incident;
  if (parser.parse(answer.body).get(incident) || !incident.is_object()) return not_understood(kProgram);
  print_incident(incident, page_of(server));
  return kExitOk;
}

int show(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false, markdown = false;
  Flags flags("lockstep incidents show", "one incident: timeline, evidence, blast radius, cost, what to do", "ID");
  add_server_flags(flags, &server)
      .toggle(&markdown, "--markdown", "as Markdown, to paste into a ticket")
      .toggle(&json, "--json", "all of it as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::string path = "/api/incidents/" + url_part(flags.positional()[0]);
  if (!markdown) return show_text(ask(server, path, kProgram), server, json);
  const Response answer = ask(server, path + "/markdown", kProgram);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  std::fwrite(answer.body.data(), 1, answer.body.size(), stdout);
  return kExitOk;
}

int change(const Arguments& arguments, const char* what, const char* program, const char* help) {
  std::string server = default_server(), note;
  Flags flags(program, help, "ID");
  add_server_flags(flags, &server).text(&note, "--note", "TEXT", "why, up to 500 bytes");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  JsonWriter body;
  body.begin_object();
  if (!note.empty()) body.field("note", note);
  body.end_object();
  const std::string& id = flags.positional()[0];
  const Response answer = post(server, "/api/incidents/" + url_part(id) + "/" + what, body.take(), kProgram);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json incident;
  if (parser.parse(answer.body).get(incident)) return not_understood(kProgram);
  std::printf("incident %s is %s\n", text_of(incident, "id").c_str(), state_word(incident).c_str());
  return kExitOk;
}

int acknowledge(const Arguments& arguments) {
  return change(arguments, "acknowledge", "lockstep incidents ack", "you take care of it");
}
int resolve(const Arguments& arguments) {
  return change(arguments, "resolve", "lockstep incidents resolve", "it is over; what is seen anew opens it again");
}
int reopen(const Arguments& arguments) {
  return change(arguments, "reopen", "lockstep incidents reopen", "it is not over");
}

int feedback(const Arguments& arguments) {
  std::string server = default_server(), cause, note;
  bool right = false, wrong = false;
  Flags flags("lockstep incidents feedback", "was its main verdict right? Later verdicts learn from it", "ID");
  add_server_flags(flags, &server)
      .toggle(&right, "--right", "it was right")
      .toggle(&wrong, "--wrong", "it was wrong")
      .text(&cause, "--cause", "CAUSE", "with --wrong: what it was instead")
      .text(&note, "--note", "TEXT", "anything worth knowing");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (right == wrong || (!cause.empty() && !wrong)) {
    std::fprintf(stderr, "lockstep incidents feedback: say --right, or --wrong with or without --cause\n");
    return kExitUsage;
  }
  JsonWriter body;
  body.begin_object().field("right", right);
  if (!cause.empty()) body.field("cause", cause);
  if (!note.empty()) body.field("note", note);
  body.end_object();
  const std::string path = "/api/incidents/" + url_part(flags.positional()[0]) + "/feedback";
  const Response answer = post(server, path, body.take(), kProgram);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  std::printf("kept\n");
  return kExitOk;
}

}  // namespace

int run_incidents(const Arguments& arguments) {
  return run_subcommand(
      kProgram, "what is broken",
      {{"show", show}, {"ack", acknowledge}, {"resolve", resolve}, {"reopen", reopen}, {"feedback", feedback}},
      arguments, list);
}

}  // namespace lockstep::cli
