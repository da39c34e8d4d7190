// `lockstep logs`: log records and events of jobs, ranks and nodes, as they came; with --follow as they come.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep logs";
constexpr size_t kLineBytesMax = 2000;

struct Asked {
  std::string server = default_server(), job, host, service, event, severity, grep, match, since, until;
  int64_t rank = -1, limit = 100;
  bool follow = false, json = false;
};

// How long ago, or Unix seconds. nullopt: neither.
std::optional<int64_t> moment_ns(const std::string& text, int64_t now_ns) {
  int64_t ago_ms = 0;
  if (const std::optional<int64_t> unix_s = parse_int(text); unix_s && *unix_s >= 0 && *unix_s < 9'000'000'000)
    return *unix_s * 1'000'000'000;
  if (!parse_duration_ms(text, &ago_ms).empty() || ago_ms < 0 || ago_ms > now_ns / 1'000'000) return std::nullopt;
  return now_ns - ago_ms * 1'000'000;
}

Result<std::string> path_of(const Asked& asked, int64_t now_ns) {
  std::string path = format("/api/logs?limit=%lld", static_cast<long long>(asked.limit));
  for (const auto& [name, value] : {std::pair{"job", &asked.job},
                                    {"host", &asked.host},
                                    {"service", &asked.service},
                                    {"event", &asked.event},
                                    {"severity", &asked.severity},
                                    {"grep", &asked.grep},
                                    {"match", &asked.match}}) {
    if (!value->empty()) path += format("&%s=%s", name, url_part(*value).c_str());
  }
  if (asked.rank >= 0) path += format("&rank=%lld", static_cast<long long>(asked.rank));
  for (const auto& [name, option, text] :
       {std::tuple{"from", "--since", &asked.since}, {"to", "--until", &asked.until}}) {
    if (text->empty()) continue;
    const std::optional<int64_t> at = moment_ns(*text, now_ns);
    if (!at) return Error{format("%s is how long ago (90s, 15m, 2h, 3d), or Unix seconds", option)};
    path += format("&%s=%lld", name, static_cast<long long>(*at));
  }
  return path;
}

// What the record says: its text, or its attributes where it is an event without one.
std::string said_by(const Json& record) {
  std::string_view body;
  const std::string event = text_of(record, "event");
  std::string text;
  Json value;
  if (!record["body"].get_string().get(body)) {
    text = as_one_line(body);
  } else if (!record["body"].get(value) && !value.is_null()) {
    text = as_one_line(simdjson::minify(value));
  } else if (!record["attributes"].get(value)) {
    text = as_one_line(simdjson::minify(value));
  }
  if (text.size() > kLineBytesMax) text = text.substr(0, kLineBytesMax) + "...";
  return event.empty() ? text : event + (text.empty() ? "" : ": ") + text;
}

std::string severity_shown(const Json& record) {
  constexpr const char* kWords[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"};
  const auto number = static_cast<int64_t>(number_of(record, "severity"));
  return number < 1 || number > 24 ? "-" : kWords[(number - 1) / 4];
}

void print_record(const Json& record) {
  int64_t time_ns = 0;
  if (record["time_unix_ns"].get_int64().get(time_ns)) time_ns = 0;
  Json resource;
  std::string who;
  if (!record["resource"].get(resource)) {
    who = text_of(resource, "host.name");
    int64_t rank = -1;
    if (!resource["lockstep.rank"].get_int64().get(rank) && rank >= 0)
      who += format("%srank %lld", who.empty() ? "" : " ", static_cast<long long>(rank));
  }
  if (who.empty()) who = text_of(record, "service");
  std::printf("%s.%03lld  %-5s  %-18s  %s\n", utc_time(time_ns / 1'000'000, "%Y-%m-%d %H:%M:%S").c_str(),
              static_cast<long long>(time_ns / 1'000'000 % 1000), severity_shown(record).c_str(), who.c_str(),
              said_by(record).c_str());
}

struct Shown {
  int64_t after = 0;  // where to go on
  bool more = false;  // that came already
};
// Prints an answer, oldest first. nullopt: it was not understood.
std::optional<Shown> print_page(const std::string& body, bool newest_first) {
  simdjson::dom::parser parser;
  Json document;
  Shown shown;
  if (parser.parse(body).get(document) || document["after"].get_int64().get(shown.after)) return std::nullopt;
  std::vector<Json> records;
  for (Json record : list_of(document, "logs")) records.push_back(record);
  if (newest_first) std::reverse(records.begin(), records.end());
  for (const Json& record : records) print_record(record);
  bool whole = true;
  if (!document["whole"].get_bool().get(whole) && !whole && newest_first)
    std::fprintf(stderr, "%s: there is more to look through than one answer may; narrow it by --since or JOB\n",
                 kProgram);
  std::fflush(stdout);
  shown.more = !whole || number_of(document, "total") > number_of(document, "shown");
  return shown;
}

int show(const Asked& asked) {
  const Result<std::string> path = path_of(asked, SystemClock().unix_ns());
  if (!path.ok()) {
    std::fprintf(stderr, "%s: %s\n", kProgram, path.error().c_str());
    return kExitUsage;
  }
  Response answer = ask(asked.server, *path, kProgram);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (asked.json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  std::optional<Shown> shown = print_page(answer.body, true);
  if (shown) shown->more = false;  // older ones, which are not asked for
  ServerCalls calls(asked.server, kProgram, 30'000);
  while (shown && asked.follow) {
    if (!shown->more) std::this_thread::sleep_for(std::chrono::seconds(1));
    answer = calls.ask(*path + format("&order=oldest&after=%lld", static_cast<long long>(shown->after)));
    if (answer.exit_code != kExitOk) return print_failure(answer);
    shown = print_page(answer.body, false);
  }
  return shown ? kExitOk : not_understood(kProgram);
}

}  // namespace

int run_logs(const Arguments& arguments) {
  Asked asked;
  Flags flags(kProgram, "log records and events of jobs, ranks and nodes, oldest first", "[JOB]");
  add_server_flags(flags, &asked.server);
  flags.number(&asked.rank, "--rank", "N", "of this rank", 0, INT32_MAX)
      .text(&asked.host, "--host", "NAME", "of this host")
      .text(&asked.service, "--service", "NAME", "of this service: lockstep-agent, or a job's own")
      .text(&asked.event, "--event", "NAME", "of this event: gpu.xid, link.down, ...")
      .text(&asked.severity, "--severity", "WORD", "this bad or worse: trace, debug, info, warn, error, fatal")
      .text(&asked.since, "--since", "T", "not older: 90s, 15m, 2h, 3d ago, or Unix seconds")
      .text(&asked.until, "--until", "T", "not newer, likewise")
      .text(&asked.grep, "--grep", "TEXT", "with this text in event, body or attributes")
      .text(&asked.match, "--match", "RE", "with something like this pattern (RE2) in them")
      .number(&asked.limit, "--limit", "N", "the newest so many (default 100)", 1, 10'000)
      .toggle(&asked.follow, "--follow", "go on with what comes, until Ctrl-C")
      .toggle(&asked.json, "--json", "the server's answer as it is");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (flags.positional().size() > 1 || (asked.follow && (asked.json || !asked.until.empty()))) {
    std::fprintf(stderr, "%s: %s\n", kProgram,
                 asked.follow ? "--follow goes with neither --json nor --until" : "one job, or none");
    return kExitUsage;
  }
  if (!flags.positional().empty()) asked.job = flags.positional().front();
  return show(asked);
}

}  // namespace lockstep::cli
