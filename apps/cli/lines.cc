// `lockstep lines JOB`: which line makes a rank slow. Has its stacks and a peer's sampled for some seconds and compares
// where their time goes.
#include <unistd.h>

#include <cstdio>
#include <map>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/wrapped.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCommand = "lockstep lines";
constexpr int kLookMs = 200;
constexpr int kArrivesMs = 10'000;  // after the sampling itself
constexpr int kRowsShown = 10;
constexpr double kRowLeast = 0.02;

using Times = std::map<int64_t, double>;  // rank -> when its newest samples were taken
Times times_of(const std::string& body) {
  Times times;
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(body).get(document)) return times;
  for (Json rank : list_of(document, "ranks"))
    times[static_cast<int64_t>(number_of(rank, "rank"))] = number_of(rank, "time_unix_ns");
  return times;
}

void print_ranks(const Json& document) {
  for (Json rank : list_of(document, "ranks")) {
    const double looks = number_of(rank, "looks");
    std::printf("rank %.0f · %s · pid %.0f · Python %s · %.0f looks in %s\n", number_of(rank, "rank"),
                text_of(rank, "host").c_str(), number_of(rank, "pid"), text_of(rank, "python").c_str(), looks,
                human_duration(number_of(rank, "duration_ms") * 1e6).c_str());
    if (const std::string note = text_of(rank, "note"); !note.empty()) print_wrapped(note, 2);
    int idle = 0;
    for (Json thread : list_of(rank, "threads")) {
      const std::string role = text_of(thread, "thread");
      if (role != "main thread" && number_of(thread, "running") == 0) {
        ++idle;
        continue;
      }
      const std::string channel = text_of(thread, "wchan");
      std::printf("  %-14s %-16s %3.0f %% running, %3.0f %% with the GIL, %.0f ms of CPU%s%s\n", role.c_str(),
                  text_of(thread, "name").c_str(), looks > 0 ? 100 * number_of(thread, "running") / looks : 0,
                  looks > 0 ? 100 * number_of(thread, "with_gil") / looks : 0, number_of(thread, "cpu_ms"),
                  channel.empty() ? "" : ", last in ", channel.c_str());
    }
    if (idle > 0) std::printf("  %d further threads that never ran\n", idle);
  }
  std::printf("\n");
}

void print_difference(const Json& difference) {
  print_wrapped(text_of(difference, "sentence"), 7, "LINE");
  Json instead;
  if (!difference["instead"].get(instead) && instead.is_object())
    print_wrapped(format("Meanwhile the peers are in %s (%.0f %% of their time, %.0f %% of rank %.0f's).",
                         text_of(instead, "text").c_str(), 100 * number_of(instead, "peer_share"),
                         100 * number_of(instead, "share"), number_of(difference, "rank")),
                  7);
  std::printf("\n  %6s %6s  %s\n", "rank", "peers", "line");
  int shown = 0;
  for (Json line : list_of(difference, "lines")) {
    if (shown == kRowsShown || number_of(line, "difference") < kRowLeast) break;
    ++shown;
    bool library = false;
    if (line["is_library"].get_bool().get(library)) library = false;
    const std::string role = text_of(line, "thread");
    std::printf("  %4.0f %% %4.0f %%  %s%s%s\n", 100 * number_of(line, "share"), 100 * number_of(line, "peer_share"),
                text_of(line, "text").c_str(), role == "main thread" ? "" : (" · " + role).c_str(),
                library ? " · library" : "");
  }
  if (shown == 0) std::printf("  no line has %.0f %% more of its time\n", 100 * kRowLeast);
  std::printf("\n");
}

// What is asked now, and waits until it is there. kExitOk: `answer` has it, `late` says who is missing.
int take_samples(const std::string& server, const std::string& path, const std::string& query, int64_t seconds,
                 int64_t hz, Response& answer, std::string& late) {
  answer = ask(server, query, kCommand);
  if (answer.exit_code != kExitOk) return print_failure(answer);
  const Times before = times_of(answer.body);
  const std::string order =
      format("%sseconds=%lld&hz=%lld", query == path ? (path + "?").c_str() : (query + "&").c_str(),
             static_cast<long long>(seconds), static_cast<long long>(hz));
  const Response asked = post(server, order, "", kCommand);
  if (asked.exit_code != kExitOk) return print_failure(asked);
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(asked.body).get(document)) return not_understood(kCommand);
  const auto wanted = static_cast<size_t>(number_of(document, "ranks_asked"));
  if (wanted == 0) {
    std::fprintf(stderr, "%s: none of these ranks is known in this job\n", kCommand);
    return kExitNotFound;
  }
  size_t fresh = 0;
  const int64_t wait_ms = seconds * 1000 + kArrivesMs;
  for (int64_t waited = 0; waited < wait_ms && fresh < wanted; waited += kLookMs) {
    usleep(kLookMs * 1000);
    answer = ask(server, query, kCommand);
    if (answer.exit_code != kExitOk) return print_failure(answer);
    fresh = 0;
    for (const auto& [rank, time] : times_of(answer.body)) {
      auto old = before.find(rank);
      fresh += old == before.end() || old->second != time;
    }
  }
  if (fresh < wanted)
    late = format(
        "%zu of %zu ranks have not answered within %lld s: their agent is away or forbids it (--stacks off, "
        "LOCKSTEP_STACKS=0), or they were sampled a moment ago.",
        wanted - fresh, wanted, static_cast<long long>(wait_ms / 1000));
  return kExitOk;
}

int export_to(const std::string& server, const std::string& query, bool has_parameters, const std::string& output) {
  const char* kind = output.ends_with(".pb.gz") ? "pprof" : output.ends_with(".txt") ? "collapsed" : "speedscope";
  const Response file = ask(server, query + (has_parameters ? "&format=" : "?format=") + kind, kCommand);
  if (file.exit_code != kExitOk) return print_failure(file);
  if (Result<void> written = write_file_atomically(output, file.body); !written.ok()) {
    std::fprintf(stderr, "%s: %s\n", kCommand, written.error().c_str());
    return kExitFailed;
  }
  std::fprintf(stderr, "%s: written for %s\n", output.c_str(),
               kind == std::string_view("pprof")       ? "pprof (go tool pprof, pprof.me)"
               : kind == std::string_view("collapsed") ? "flamegraph.pl and alike"
                                                       : "speedscope.app");
  return kExitOk;
}

}  // namespace

int run_lines(const Arguments& arguments) {
  std::string server = default_server(), ranks, output;
  int64_t seconds = 5, hz = 100;
  bool json = false, last = false;
  Flags flags(kCommand, "which line makes a rank slow: samples its stacks and a peer's, and compares them", "JOB");
  add_server_flags(flags, &server)
      .text(&ranks, "--ranks", "RANK,RANK",
            "the slow rank, then its peers, at most 8 (default: whom the open verdict blames, and neighbours)")
      .number(&seconds, "--seconds", "N", "for so long (default 5)", 1, 60)
      .number(&hz, "--hz", "N", "so often a second (default 100)", 1, 250)
      .toggle(&last, "--last", "show what was sampled last; sample nothing now")
      .text(&output, "-o", "FILE", "write the stacks too: .speedscope.json, .pb.gz (pprof) or .txt (collapsed)")
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "exit codes: 0 a line is named, 1 none is, 2 wrong usage, 3 no server, 4 no such job or rank, 5 "
                   "anything else\n"))
    return *code;
  const std::string path = "/api/jobs/" + url_part(flags.positional()[0]) + "/samples";
  const std::string query = ranks.empty() ? path : path + "?ranks=" + url_part(ranks);
  Response answer;
  std::string late;
  if (last) {
    answer = ask(server, query, kCommand);
    if (answer.exit_code != kExitOk) return print_failure(answer);
  } else if (const int code = take_samples(server, path, query, seconds, hz, answer, late); code != kExitOk) {
    return code;
  }
  simdjson::dom::parser parser;
  Json document, difference;
  if (parser.parse(answer.body).get(document) || document["difference"].get(difference))
    return not_understood(kCommand);
  if (!late.empty()) std::fprintf(stderr, "%s: %s\n", kCommand, late.c_str());
  if (json) std::printf("%s\n", std::string(trim(answer.body)).c_str());
  if (!difference.is_object()) {
    if (!json) std::printf("No samples are here yet.\n");
    return kExitFailed;
  }
  if (!json) {
    print_difference(difference);
    print_ranks(document);
  }
  if (!output.empty()) {
    if (const int code = export_to(server, query, query != path, output); code != kExitOk) return code;
  }
  Json named;
  return !difference["named"].get(named) && named.is_object() ? kExitOk : kExitNo;
}

}  // namespace lockstep::cli
